#include "daemon/rpc/accept_loop.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "daemon/runtime/log.h"

namespace firn {
namespace {

constexpr int kPauseMs = 100;
constexpr int kBurst = 64;  // Accepted before another listener, or a stop, is looked at.
constexpr int64_t kComplaintIntervalMs = 10'000;
constexpr int kTcpUserTimeoutMs = 20'000;  // Unacknowledged for so long, the peer is gone.

}  // namespace

absl::StatusOr<std::unique_ptr<AcceptLoop>> AcceptLoop::Start(const ListenSocket* socket, ConnectionTable* table,
                                                              Handle handle) {
  int stop_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (stop_fd < 0) return ErrnoStatus(errno, "eventfd for a listener");
  return std::unique_ptr<AcceptLoop>(new AcceptLoop(socket, table, std::move(handle), stop_fd));
}

AcceptLoop::AcceptLoop(const ListenSocket* socket, ConnectionTable* table, Handle handle, int stop_fd)
    : socket_(socket), table_(table), handle_(std::move(handle)), stop_fd_(stop_fd), thread_([this] { Run(); }) {}

AcceptLoop::~AcceptLoop() {
  uint64_t one = 1;
  (void)!::write(stop_fd_, &one, sizeof(one));
  thread_.join();
  ::close(stop_fd_);
}

void AcceptLoop::Run() {
  std::vector<pollfd> polled{{stop_fd_, POLLIN, 0}};
  for (int fd : socket_->fds()) polled.push_back({fd, POLLIN, 0});
  while (true) {
    int ready = ::poll(polled.data(), polled.size(), -1);
    if (ready < 0 && errno != EINTR) Complain("cannot wait for connections", errno);
    bool fine = ready >= 0 || errno == EINTR;
    if (ready > 0 && polled[0].revents != 0) return;
    for (size_t i = 1; ready > 0 && i < polled.size(); ++i) {
      if (polled[i].revents != 0) fine = AcceptAll(polled[i].fd) && fine;
    }
    // Whoever waits goes on waiting: descriptors come back when other connections end.
    if (!fine) ::poll(polled.data(), 1, kPauseMs);
  }
}

bool AcceptLoop::AcceptAll(int listener_fd) {
  for (int i = 0; i < kBurst; ++i) {
    int fd = ::accept4(listener_fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      int error = errno;
      if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR) return true;
      if (error == ECONNABORTED || error == EPROTO) continue;  // That client has left already.
      table_->accept_failures.fetch_add(1, std::memory_order_relaxed);
      Complain("cannot accept connections for now", error);
      return false;
    }
    if (!table_->Add(fd)) {
      ::close(fd);
      Complain("connections are refused: limits.connections is reached", 0);
      continue;
    }
    if (socket_->tcp()) {
      int on = 1, timeout_ms = kTcpUserTimeoutMs;
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
    }
    handle_(listener_fd, fd);
  }
  return true;
}

void AcceptLoop::Complain(const char* what, int error) {
  int64_t now_ms = Clock::Real()->NowNs() / 1'000'000;
  if (complained_ms_ != 0 && now_ms - complained_ms_ < kComplaintIntervalMs) return;
  complained_ms_ = now_ms;
  Log(LogLevel::kWarning, what,
      {{"connections", table_->Count()},
       {"limit", table_->connections_max()},
       {"error", error == 0 ? "" : std::strerror(error)}});
}

}  // namespace firn
