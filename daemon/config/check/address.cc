#include "daemon/config/check/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/status.h"

namespace firn {

std::optional<HostPort> SplitAddress(const std::string& address) {
  size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon + 1 == address.size()) return std::nullopt;
  HostPort split;
  const char* end = address.data() + address.size();
  auto [stop, error] = std::from_chars(address.data() + colon + 1, end, split.port);
  if (error != std::errc() || stop != end || split.port < 0 || split.port > 65535) return std::nullopt;
  split.host = address.substr(0, colon);
  if (split.host.size() > 2 && split.host.front() == '[' && split.host.back() == ']') {
    split.host = split.host.substr(1, split.host.size() - 2);
  } else if (split.host.find(':') != std::string::npos) {
    return std::nullopt;  // IPv6 without brackets: where the port begins is anybody's guess.
  }
  if (split.host.empty()) return std::nullopt;
  return split;
}

bool IsNumericAddress(const std::string& host) {
  in6_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 || inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

bool IsLoopback(const std::string& host) {
  if (host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && std::memcmp(&v6, &in6addr_loopback, sizeof(v6)) == 0;
}

absl::Status CanListenOn(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  int failed = ::getaddrinfo(host.c_str(), "0", &hints, &found);
  if (failed != 0) return NotFound("look up {}: {}", host, gai_strerror(failed));
  absl::Status status;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    int fd = ::socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int result = fd < 0 ? -1 : ::bind(fd, entry->ai_addr, entry->ai_addrlen);
    status = result == 0 ? absl::OkStatus() : ErrnoStatus(errno, "listen on " + host);
    if (fd >= 0) ::close(fd);
    if (status.ok()) break;
  }
  ::freeaddrinfo(found);
  return status;
}

}  // namespace firn
