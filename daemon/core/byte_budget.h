// A budget of bytes shared by many streams: memory of the transport that is not gRPC's own.
//
// Whoever wants a buffer asks first and is called when it may have it, in order of asking, so that a large request is
// not starved by small ones. Threads: any; `granted` runs inside Acquire or inside the Release of another holder,
// without locks. Ownership: a Grant gives its bytes back when it is destroyed. Limits: a request over the whole budget
// is refused. The budget does not know who holds what for how long: StreamWatchdog ends clients that hold buffers
// without taking them while others wait.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"

namespace firn {

class ByteBudget {
 public:
  // The sum of one user's grants.
  using Held = std::shared_ptr<std::atomic<uint64_t>>;
  class Grant {
   public:
    Grant(ByteBudget* budget, uint64_t bytes, Held held) : budget_(budget), bytes_(bytes), held_(std::move(held)) {
      if (held_ != nullptr) *held_ += bytes_;
    }
    ~Grant() {
      if (held_ != nullptr) *held_ -= bytes_;
      budget_->Release(bytes_);
    }
    Grant(const Grant&) = delete;
    Grant& operator=(const Grant&) = delete;

   private:
    ByteBudget* const budget_;
    const uint64_t bytes_;
    const Held held_;
  };
  using Granted = absl::AnyInvocable<void(absl::StatusOr<std::unique_ptr<Grant>>)>;

  explicit ByteBudget(uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  void Acquire(uint64_t bytes, Granted granted, Held held = nullptr);
  // Null when it would have to wait, or can never be had.
  std::unique_ptr<Grant> TryAcquire(uint64_t bytes, Held held = nullptr);
  // The same for what could as well be asked for later: of half the budget, so that the other half is for those who
  // have nothing yet.
  std::unique_ptr<Grant> TryAcquireAhead(uint64_t bytes, Held held = nullptr);
  uint64_t used_bytes() const;
  // What those who wait have asked for.
  uint64_t waiting_bytes() const;
  uint64_t capacity_bytes() const { return capacity_bytes_; }

 private:
  struct Waiter {
    uint64_t bytes;
    Granted granted;
    Held held;
  };
  std::unique_ptr<Grant> TryAcquireOf(uint64_t limit_bytes, uint64_t bytes, Held held);
  void Release(uint64_t bytes);

  const uint64_t capacity_bytes_;
  mutable std::mutex mu_;
  uint64_t used_bytes_ = 0;     // Guarded by mu_.
  uint64_t waiting_bytes_ = 0;  // Guarded by mu_.
  std::deque<Waiter> waiters_;  // Guarded by mu_.
};

}  // namespace firn
