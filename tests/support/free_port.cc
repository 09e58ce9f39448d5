#include "tests/support/free_port.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <random>

#include "base/check.h"

namespace firn {
namespace {

// Takes a port's name in Linux's abstract namespace until this process ends; false where another test has it.
bool Reserve(uint16_t port) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  int length = std::snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "firn-test-port-%u", unsigned{port});
  int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  FIRN_CHECK(fd >= 0);
  auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
  if (::bind(fd, reinterpret_cast<sockaddr*>(&name), size) == 0) return true;
  ::close(fd);
  return false;
}

bool NobodyListens(uint16_t port) {
  int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  FIRN_CHECK(fd >= 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  bool free = ::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  ::close(fd);
  return free;
}

}  // namespace

uint16_t FreePort() {
  // Below those that Linux gives to outgoing connections, any of which may take a port that nobody listens on yet.
  constexpr uint32_t kFirst = 10'000, kCount = 22'000;
  static std::random_device random;
  for (;;) {
    auto port = static_cast<uint16_t>(kFirst + random() % kCount);
    if (Reserve(port) && NobodyListens(port)) return port;
  }
}

}  // namespace firn
