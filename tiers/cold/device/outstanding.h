// What a medium has been asked and has not answered, and for how long: a disk that hangs fails nothing and counts
// nothing, it only keeps its callers waiting.
//
// Threads: any. Ownership: must outlive its tickets; the clock is not owned.
#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "base/clock.h"

namespace firn {

class Outstanding {
 private:
  struct Call {
    std::string_view what;
    int64_t since_ns;
  };

 public:
  // One call under way; over when it is destroyed.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept : owner_(std::exchange(other.owner_, nullptr)), place_(other.place_) {}
    Ticket& operator=(Ticket&& other) noexcept {
      std::swap(owner_, other.owner_);
      std::swap(place_, other.place_);
      return *this;
    }
    ~Ticket() {
      if (owner_ != nullptr) owner_->End(place_);
    }

   private:
    friend class Outstanding;
    Ticket(Outstanding* owner, std::list<Call>::iterator place) : owner_(owner), place_(place) {}
    Outstanding* owner_ = nullptr;
    std::list<Call>::iterator place_;
  };
  struct Oldest {
    std::string_view what;
    int64_t age_ns = 0;
  };

  // Before the first call.
  void UseClock(const Clock* clock) { clock_ = clock; }
  // `what` is a literal.
  Ticket Begin(std::string_view what) {
    std::lock_guard lock(mu_);
    // The time is taken under the lock, so that the list is in order.
    calls_.push_back({what, clock_->NowNs()});
    return Ticket(this, std::prev(calls_.end()));
  }
  std::optional<Oldest> Now() const {
    std::lock_guard lock(mu_);
    if (calls_.empty()) return std::nullopt;
    return Oldest{calls_.front().what, clock_->NowNs() - calls_.front().since_ns};
  }

 private:
  void End(std::list<Call>::iterator place) {
    std::list<Call> over;  // Freed outside the lock.
    std::lock_guard lock(mu_);
    over.splice(over.begin(), calls_, place);
  }

  const Clock* clock_ = Clock::Real();
  mutable std::mutex mu_;
  std::list<Call> calls_;  // Guarded by mu_. Oldest first.
};

}  // namespace firn
