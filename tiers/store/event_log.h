// What happened to blocks, in order: a ring that watchers follow by sequence number.
//
// Threads: not thread-safe; the store's lock guards it. Wake-ups are handed back to be run outside the lock.
// Limits: the last `kept` events; a watcher that falls behind is told of the gap.
#pragma once

#include <deque>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "tiers/store/store.h"

namespace firn {

class EventLog {
 public:
  explicit EventLog(size_t kept) : kept_(kept) {}

  void Add(BlockEvent event) {
    event.sequence = ++last_;
    if (events_.size() == kept_) {
      events_.pop_front();
      ++lost_;
    }
    events_.push_back(event);
  }

  std::vector<BlockEvent> After(uint64_t after, size_t limit, bool* gap) const {
    uint64_t first = last_ - events_.size() + 1;
    *gap = after + 1 < first;
    std::vector<BlockEvent> out;
    uint64_t from = *gap ? first : after + 1;
    for (uint64_t sequence = from; sequence <= last_ && out.size() < limit; ++sequence) {
      out.push_back(events_[static_cast<size_t>(sequence - first)]);
    }
    return out;
  }

  // False when an event is already there: the caller wakes at once.
  bool Wait(uint64_t after, Task& wake) {
    if (last_ > after) return false;
    waiting_.push_back(std::move(wake));
    return true;
  }
  // The wake-ups that are due; everyone who waits is due once anything was added.
  std::vector<Task> TakeDue() {
    if (last_ == told_ || waiting_.empty()) return {};
    told_ = last_;
    return std::exchange(waiting_, {});
  }
  std::vector<Task> TakeAllWaiting() { return std::exchange(waiting_, {}); }

  uint64_t last() const { return last_; }
  uint64_t lost() const { return lost_; }

 private:
  const size_t kept_;
  std::deque<BlockEvent> events_;
  std::vector<Task> waiting_;
  uint64_t last_ = 0;
  uint64_t told_ = 0;
  uint64_t lost_ = 0;
};

}  // namespace firn
