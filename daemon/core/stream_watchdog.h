// Ends streams whose client has stopped: one sweep for all of them instead of a timer each.
//
// Memory for decoded and staged payload is shared by all clients, and whoever has some may take 30 s for the next byte:
// while somebody waits for memory, streams that keep some and whose client has taken or sent nothing for a second are
// ended, the longest stall first, as many as it takes. Threads: any. Ownership: holds streams weakly. A stream ends at
// most one sweep interval after its limit.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace firn {

// How long a client may take nothing of what it has been given while others wait for memory.
inline constexpr int64_t kStallUnderPressureMs = 1000;

class WatchedStream {
 public:
  virtual ~WatchedStream() = default;
  // Ends the stream if its client has made no progress since long enough. Must not block.
  virtual void EndIfStalled(int64_t now_ns) = 0;
  // Since when the client takes or sends nothing, and the buffers that this keeps; nothing while it goes on.
  struct Stall {
    int64_t since_ns = 0;
    uint64_t bytes = 0;
  };
  virtual std::optional<Stall> Stalled() { return std::nullopt; }
  // Ends the stream for its stall. Must not block.
  virtual void EndStall() {}
};

class StreamWatchdog {
 public:
  void Watch(std::weak_ptr<WatchedStream> stream);
  // `wanted_bytes`: what others wait for.
  void Sweep(int64_t now_ns, uint64_t wanted_bytes);

 private:
  std::mutex mu_;
  std::vector<std::weak_ptr<WatchedStream>> streams_;  // Guarded by mu_.
};

}  // namespace firn
