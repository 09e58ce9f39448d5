// One subscription to the store's events for all watchers, so that watchers that come and go leave nothing behind in
// the store.
//
// Threads: any. Wakes run on the executor. Ownership: the hub must outlive the store's last event.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/executor.h"
#include "tiers/store/store.h"

namespace firn {

class EventHub : public std::enable_shared_from_this<EventHub> {
 public:
  explicit EventHub(Executor* executor) : executor_(executor) {}

  // Calls `wake` once, when there may be an event later than `after`; perhaps too early, never too late.
  void Wait(Store* store, uint64_t after, Task wake);
  // The sequence number of the newest event.
  uint64_t Latest(Store* store);
  // Wakes everybody: the daemon stops.
  void WakeAll();

 private:
  void OnEvent();

  Executor* const executor_;
  std::mutex mu_;
  std::vector<Task> waiting_;  // Guarded by mu_.
  bool subscribed_ = false;    // Guarded by mu_.
  uint64_t latest_ = 0;        // Guarded by mu_.
};

}  // namespace firn
