// A budget of bytes shared by many streams: memory of the transport that is not gRPC's own.
//
// Whoever wants a buffer asks first and is called when it may have it, in order of asking, so that a large request is
// not starved by small ones. Threads: any; `granted` runs inside Acquire or inside the Release of another holder,
// without locks. Ownership: a Grant gives its bytes back when it is destroyed. Limits: a request over the whole budget
// is refused.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"

namespace firn {

class ByteBudget {
 public:
  class Grant {
   public:
    Grant(ByteBudget* budget, uint64_t bytes) : budget_(budget), bytes_(bytes) {}
    ~Grant() { budget_->Release(bytes_); }
    Grant(const Grant&) = delete;
    Grant& operator=(const Grant&) = delete;

   private:
    ByteBudget* const budget_;
    const uint64_t bytes_;
  };
  using Granted = absl::AnyInvocable<void(absl::StatusOr<std::unique_ptr<Grant>>)>;

  explicit ByteBudget(uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  void Acquire(uint64_t bytes, Granted granted);
  // Null when it would have to wait, or can never be had.
  std::unique_ptr<Grant> TryAcquire(uint64_t bytes);
  uint64_t used_bytes() const;
  uint64_t capacity_bytes() const { return capacity_bytes_; }

 private:
  struct Waiter {
    uint64_t bytes;
    Granted granted;
  };
  void Release(uint64_t bytes);

  const uint64_t capacity_bytes_;
  mutable std::mutex mu_;
  uint64_t used_bytes_ = 0;     // Guarded by mu_.
  std::deque<Waiter> waiters_;  // Guarded by mu_.
};

}  // namespace firn
