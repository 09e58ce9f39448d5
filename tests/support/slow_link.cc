#include "tests/support/slow_link.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/check.h"

namespace firn {
namespace {

constexpr int kBufferBytes = 64 * 1024;
constexpr int kStepMs = 5;

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  FIRN_CHECK(path.size() < sizeof(address.sun_path));
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

int Socket() {
  int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  FIRN_CHECK(fd >= 0);
  return fd;
}

bool Readable(int fd) {
  pollfd wait{fd, POLLIN, 0};
  return ::poll(&wait, 1, kStepMs) > 0;
}

}  // namespace

SlowLink::SlowLink(std::string to, std::string path) : to_(std::move(to)), path_(std::move(path)), listener_(Socket()) {
  sockaddr_un address = AddressOf(path_);
  FIRN_CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  FIRN_CHECK(::listen(listener_, 128) == 0);
  acceptor_ = std::thread([this] { Accept(); });
}

SlowLink::~SlowLink() {
  stop_ = true;
  acceptor_.join();
  for (int fd : sockets_) ::shutdown(fd, SHUT_RDWR);
  for (std::thread& passer : passers_) passer.join();
  for (int fd : sockets_) ::close(fd);
  ::close(listener_);
  ::unlink(path_.c_str());
}

void SlowLink::Accept() {
  while (!stop_) {
    if (!Readable(listener_)) continue;
    int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    int server = Socket();
    sockaddr_un address = AddressOf(to_);
    if (::connect(server, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
      ::close(server);
      ::close(client);
      continue;
    }
    for (int fd : {client, server}) ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kBufferBytes, sizeof(kBufferBytes));
    std::lock_guard lock(mu_);
    sockets_.insert(sockets_.end(), {client, server});
    passers_.emplace_back([this, client, server] { Pass(server, client, to_client_); });
    passers_.emplace_back([this, client, server] { Pass(client, server, to_server_); });
  }
}

void SlowLink::Pass(int from, int to, Direction& direction) {
  std::vector<char> buffer(kBufferBytes);
  while (!stop_) {
    int64_t limit = direction.limit;
    if (limit == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(kStepMs));
      continue;
    }
    if (!Readable(from)) continue;
    size_t most = buffer.size();
    if (limit > 0) most = std::clamp<size_t>(static_cast<size_t>(limit * kStepMs / 1000), 1, most);
    ssize_t got = ::read(from, buffer.data(), most);
    if (got <= 0) break;
    for (ssize_t sent = 0; sent < got && !stop_;) {
      ssize_t now = ::send(to, buffer.data() + sent, static_cast<size_t>(got - sent), MSG_NOSIGNAL);
      if (now <= 0) {
        ::shutdown(from, SHUT_RDWR);
        return;
      }
      sent += now;
    }
    direction.passed += static_cast<uint64_t>(got);
    if (limit > 0) std::this_thread::sleep_for(std::chrono::milliseconds(kStepMs));
  }
  ::shutdown(to, SHUT_RDWR);
}

}  // namespace firn
