// Ends streams whose client has stopped: one sweep for all of them instead of a timer each.
//
// Threads: any. Ownership: holds streams weakly. A stream ends at most one sweep interval after its limit.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace firn {

class WatchedStream {
 public:
  virtual ~WatchedStream() = default;
  // Ends the stream if its client has made no progress since long enough. Must not block.
  virtual void EndIfStalled(int64_t now_ns) = 0;
};

class StreamWatchdog {
 public:
  void Watch(std::weak_ptr<WatchedStream> stream);
  void Sweep(int64_t now_ns);

 private:
  std::mutex mu_;
  std::vector<std::weak_ptr<WatchedStream>> streams_;  // Guarded by mu_.
};

}  // namespace firn
