#include "daemon/core/stream_watchdog.h"

#include <utility>

namespace firn {

void StreamWatchdog::Watch(std::weak_ptr<WatchedStream> stream) {
  std::lock_guard lock(mu_);
  streams_.push_back(std::move(stream));
}

void StreamWatchdog::Sweep(int64_t now_ns) {
  std::vector<std::shared_ptr<WatchedStream>> alive;
  {
    std::lock_guard lock(mu_);
    size_t kept = 0;
    for (auto& stream : streams_) {
      if (auto strong = stream.lock()) {
        alive.push_back(std::move(strong));
        if (&streams_[kept] != &stream) streams_[kept] = std::move(stream);
        ++kept;
      }
    }
    streams_.resize(kept);
  }
  for (const auto& stream : alive) stream->EndIfStalled(now_ns);
}

}  // namespace firn
