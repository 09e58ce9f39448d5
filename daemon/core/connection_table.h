// Connections that clients have open, over all listeners: how many there may be, and what happened to the others.
//
// A connection belongs to the transport, which closes its descriptor without telling anybody. So the table remembers
// each descriptor with the inode of its socket, which no later socket shares, and looks again when it is full or asked.
// Threads: any. Limits: `connections_max`; where it is reached, a place that came free is seen within 20 ms.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace firn {

class ConnectionTable {
 public:
  explicit ConnectionTable(size_t connections_max) : connections_max_(connections_max) {}

  // Counts the socket `fd` for as long as it is open. False: there are too many, and it remains the caller's to close.
  bool Add(int fd);
  // Those that are open now.
  size_t Count();
  size_t connections_max() const { return connections_max_; }

  std::atomic<uint64_t> refused{0};          // Closed at once, because there were too many.
  std::atomic<uint64_t> accept_failures{0};  // By the system: no descriptors, no memory.

 private:
  void ForgetClosedLocked();

  const size_t connections_max_;
  std::mutex mu_;
  std::map<int, ino_t> sockets_;                       // By descriptor. Guarded by mu_.
  std::chrono::steady_clock::time_point looked_at_{};  // Guarded by mu_.
};

}  // namespace firn
