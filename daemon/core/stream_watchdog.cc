#include "daemon/core/stream_watchdog.h"

#include <algorithm>
#include <utility>

namespace firn {
namespace {

using StreamPtr = std::shared_ptr<WatchedStream>;

void MakeRoom(const std::vector<StreamPtr>& streams, int64_t now_ns, uint64_t wanted_bytes) {
  std::vector<std::pair<WatchedStream::Stall, WatchedStream*>> stalls;
  for (const StreamPtr& stream : streams) {
    auto stall = stream->Stalled();
    if (!stall.has_value() || stall->bytes == 0) continue;
    if (now_ns - stall->since_ns >= kStallUnderPressureMs * 1'000'000) stalls.emplace_back(*stall, stream.get());
  }
  std::sort(stalls.begin(), stalls.end(),
            [](const auto& a, const auto& b) { return a.first.since_ns < b.first.since_ns; });
  uint64_t freed_bytes = 0;
  for (const auto& [stall, stream] : stalls) {
    if (freed_bytes >= wanted_bytes) return;
    stream->EndStall();
    freed_bytes += stall.bytes;
  }
}

}  // namespace

void StreamWatchdog::Watch(std::weak_ptr<WatchedStream> stream) {
  std::lock_guard lock(mu_);
  streams_.push_back(std::move(stream));
}

void StreamWatchdog::Sweep(int64_t now_ns, uint64_t wanted_bytes) {
  std::vector<StreamPtr> alive;
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
  if (wanted_bytes > 0) MakeRoom(alive, now_ns, wanted_bytes);
}

}  // namespace firn
