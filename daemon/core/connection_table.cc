#include "daemon/core/connection_table.h"

#include <sys/stat.h>

namespace firn {
namespace {

constexpr std::chrono::milliseconds kLookInterval(20);

// Of the socket that `fd` is now; 0: none.
ino_t SocketOf(int fd) {
  struct stat facts;
  return ::fstat(fd, &facts) == 0 && S_ISSOCK(facts.st_mode) ? facts.st_ino : 0;
}

}  // namespace

bool ConnectionTable::Add(int fd) {
  std::lock_guard lock(mu_);
  sockets_.erase(fd);  // The one before has been closed, or this one could not have its number.
  if (sockets_.size() >= connections_max_) {
    auto now = std::chrono::steady_clock::now();
    if (now - looked_at_ >= kLookInterval) {
      looked_at_ = now;
      ForgetClosedLocked();
    }
  }
  if (sockets_.size() >= connections_max_) {
    refused.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  sockets_[fd] = SocketOf(fd);
  return true;
}

size_t ConnectionTable::Count() {
  std::lock_guard lock(mu_);
  ForgetClosedLocked();
  return sockets_.size();
}

void ConnectionTable::ForgetClosedLocked() {
  std::erase_if(sockets_, [](const auto& socket) { return SocketOf(socket.first) != socket.second; });
}

}  // namespace firn
