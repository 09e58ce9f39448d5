#include "daemon/core/event_hub.h"

#include <algorithm>
#include <utility>

namespace firn {
namespace {

// Events for each millisecond of a process's life, on average, for which the next process's numbers are still higher.
// A JSON number holds the result exactly until 2039.
constexpr int kEventsPerMsLog2 = 12;

}  // namespace

EventHub::EventHub(Executor* executor, const Clock* clock)
    : executor_(executor), origin_(static_cast<uint64_t>(std::max<int64_t>(0, clock->UnixMs())) << kEventsPerMsLog2) {}

EventHub::Place EventHub::Resume(Store* store, std::optional<uint64_t> after) {
  uint64_t latest = Latest(store);
  if (!after.has_value()) return {latest, false};
  if (*after < origin_ || *after - origin_ > latest) return {0, true};
  return {*after - origin_, false};
}

void EventHub::Wait(Store* store, uint64_t after, Task wake) {
  {
    std::lock_guard lock(mu_);
    waiting_.push_back(std::move(wake));
    if (subscribed_) return;  // It fires at the next event, which is later than what any waiter has seen.
    subscribed_ = true;
  }
  store->WhenEvents(after, [self = shared_from_this()] { self->OnEvent(); });
}

void EventHub::OnEvent() {
  std::vector<Task> woken;
  {
    std::lock_guard lock(mu_);
    subscribed_ = false;
    woken.swap(waiting_);
  }
  for (Task& wake : woken) executor_->Post(std::move(wake));
}

void EventHub::WakeAll() {
  std::vector<Task> woken;
  {
    std::lock_guard lock(mu_);
    woken.swap(waiting_);
  }
  for (Task& wake : woken) executor_->Post(std::move(wake));
}

uint64_t EventHub::Latest(Store* store) {
  uint64_t latest;
  {
    std::lock_guard lock(mu_);
    latest = latest_;
  }
  bool gap = false;
  while (true) {
    auto events = store->Events(latest, 4096, &gap);
    if (events.empty()) break;
    latest = events.back().sequence;
  }
  std::lock_guard lock(mu_);
  latest_ = std::max(latest_, latest);
  return latest;
}

}  // namespace firn
