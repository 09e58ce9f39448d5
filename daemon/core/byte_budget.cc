#include "daemon/core/byte_budget.h"

#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "base/units.h"

namespace firn {

void ByteBudget::Acquire(uint64_t bytes, Granted granted, Held held) {
  if (bytes > capacity_bytes_) {
    granted(ResourceExhausted("needs a buffer of {}; half of limits.transport_budget is {}", FormatBytes(bytes),
                              FormatBytes(capacity_bytes_)));
    return;
  }
  {
    std::lock_guard lock(mu_);
    if (!waiters_.empty() || bytes > capacity_bytes_ - used_bytes_) {
      waiters_.push_back({bytes, std::move(granted), std::move(held)});
      waiting_bytes_ += bytes;
      return;
    }
    used_bytes_ += bytes;
  }
  granted(std::make_unique<Grant>(this, bytes, std::move(held)));
}

std::unique_ptr<ByteBudget::Grant> ByteBudget::TryAcquire(uint64_t bytes, Held held) {
  return TryAcquireOf(capacity_bytes_, bytes, std::move(held));
}

std::unique_ptr<ByteBudget::Grant> ByteBudget::TryAcquireAhead(uint64_t bytes, Held held) {
  return TryAcquireOf(capacity_bytes_ / 2, bytes, std::move(held));
}

std::unique_ptr<ByteBudget::Grant> ByteBudget::TryAcquireOf(uint64_t limit_bytes, uint64_t bytes, Held held) {
  {
    std::lock_guard lock(mu_);
    if (!waiters_.empty() || used_bytes_ > limit_bytes || bytes > limit_bytes - used_bytes_) return nullptr;
    used_bytes_ += bytes;
  }
  return std::make_unique<Grant>(this, bytes, std::move(held));
}

void ByteBudget::Release(uint64_t bytes) {
  std::vector<Waiter> ready;
  {
    std::lock_guard lock(mu_);
    FIRN_CHECK(used_bytes_ >= bytes);
    used_bytes_ -= bytes;
    while (!waiters_.empty() && used_bytes_ + waiters_.front().bytes <= capacity_bytes_) {
      used_bytes_ += waiters_.front().bytes;
      waiting_bytes_ -= waiters_.front().bytes;
      ready.push_back(std::move(waiters_.front()));
      waiters_.pop_front();
    }
  }
  for (Waiter& waiter : ready) waiter.granted(std::make_unique<Grant>(this, waiter.bytes, std::move(waiter.held)));
}

uint64_t ByteBudget::used_bytes() const {
  std::lock_guard lock(mu_);
  return used_bytes_;
}

uint64_t ByteBudget::waiting_bytes() const {
  std::lock_guard lock(mu_);
  return waiting_bytes_;
}

}  // namespace firn
