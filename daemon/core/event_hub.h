// One subscription to the store's events for all watchers, so that watchers that come and go leave nothing behind in
// the store.
//
// The store counts its events from 1 in every process. Watchers see numbers that begin where this process began, by the
// wall clock, so that a number of an earlier process is never taken for one of this one. Threads: any. Wakes run on the
// executor. Ownership: the hub must outlive the store's last event.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "tiers/store/store.h"

namespace firn {

class EventHub : public std::enable_shared_from_this<EventHub> {
 public:
  EventHub(Executor* executor, const Clock* clock);

  // Where a watcher begins that has seen everything up to `after` (unset: everything so far), as the store counts.
  struct Place {
    uint64_t after = 0;
    bool gap = false;  // `after` is no event of this process: all that is kept follows.
  };
  Place Resume(Store* store, std::optional<uint64_t> after);
  // What watchers see of the store's sequence number.
  uint64_t Shown(uint64_t sequence) const { return origin_ + sequence; }

  // Calls `wake` once, when there may be an event later than `after`; perhaps too early, never too late.
  void Wait(Store* store, uint64_t after, Task wake);
  // Wakes everybody: the daemon stops.
  void WakeAll();

 private:
  void OnEvent();
  // The store's number of its newest event.
  uint64_t Latest(Store* store);

  Executor* const executor_;
  const uint64_t origin_;
  std::mutex mu_;
  std::vector<Task> waiting_;  // Guarded by mu_.
  bool subscribed_ = false;    // Guarded by mu_.
  uint64_t latest_ = 0;        // Guarded by mu_.
};

}  // namespace firn
