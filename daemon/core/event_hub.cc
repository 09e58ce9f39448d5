#include "daemon/core/event_hub.h"

#include <utility>

namespace firn {

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
