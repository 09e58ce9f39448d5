#include "daemon/runtime/listen_socket.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "base/status.h"
#include "daemon/runtime/instance_lock.h"

namespace firn {
namespace {

constexpr size_t kAddressesMax = 8;
constexpr int kType = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

uint16_t PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof(address);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

void SetPort(sockaddr* address, uint16_t port) {
  (address->sa_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(address)->sin6_port
                                  : reinterpret_cast<sockaddr_in*>(address)->sin_port) = htons(port);
}

absl::Status CannotListen(int error, const std::string& address) {
  if (error == EADDRINUSE) return FailedPrecondition("cannot listen on {}: the address is in use", address);
  return ErrnoStatus(error, fmt::format("cannot listen on {}", address));
}

// Takes the descriptor into `fds` at once, so that nothing is left open on an error.
absl::Status Bind(const sockaddr* address, socklen_t bytes, const std::string& name, std::vector<int>* fds) {
  int fd = ::socket(address->sa_family, kType, 0);
  if (fd < 0) return ErrnoStatus(errno, fmt::format("socket for {}", name));
  fds->push_back(fd);
  int on = 1, off = 0;
  if (address->sa_family != AF_UNIX) ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address->sa_family == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (::bind(fd, address, bytes) != 0) return CannotListen(errno, name);
  return absl::OkStatus();
}

}  // namespace

ListenSocket::ListenSocket(ListenSocket&& other) noexcept
    : fds_(std::exchange(other.fds_, {})), path_(std::exchange(other.path_, {})), port_(other.port_) {}

ListenSocket::~ListenSocket() {
  for (int fd : fds_) ::close(fd);
  if (!path_.empty()) ::unlink(path_.c_str());
}

absl::StatusOr<ListenSocket> ListenSocket::Unix(const std::string& path, uint32_t mode, const std::string& group) {
  ListenSocket socket;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return InvalidArgument("socket path {} has {} bytes; at most {}", path, path.size(), sizeof(address.sun_path) - 1);
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  // Between bind and chmod nobody but the daemon's own user gets in.
  mode_t before = ::umask(0177);
  absl::Status bound = Bind(reinterpret_cast<sockaddr*>(&address), sizeof(address), path, &socket.fds_);
  ::umask(before);
  FIRN_RETURN_IF_ERROR(bound);
  socket.path_ = path;
  FIRN_RETURN_IF_ERROR(SetSocketAccess(path, mode, group));
  if (::listen(socket.fds_[0], SOMAXCONN) != 0) return CannotListen(errno, path);
  return socket;
}

absl::StatusOr<ListenSocket> ListenSocket::Tcp(const std::string& address) {
  size_t colon = address.rfind(':');
  if (colon == std::string::npos) return InvalidArgument("{} is not host:port", address);
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  int error = ::getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &list);
  if (error != 0) return FailedPrecondition("cannot listen on {}: {}", address, ::gai_strerror(error));
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
  ListenSocket socket;
  for (addrinfo* entry = list; entry != nullptr && socket.fds_.size() < kAddressesMax; entry = entry->ai_next) {
    if (socket.port_ != 0) SetPort(entry->ai_addr, socket.port_);
    FIRN_RETURN_IF_ERROR(Bind(entry->ai_addr, entry->ai_addrlen, address, &socket.fds_));
    if (::listen(socket.fds_.back(), SOMAXCONN) != 0) return CannotListen(errno, address);
    socket.port_ = PortOf(socket.fds_.back());
  }
  return socket;
}

}  // namespace firn
