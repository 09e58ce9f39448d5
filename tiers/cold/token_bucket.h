// Admission at a set rate. Threads: guarded by its owner. Units: bytes and bytes per second.
#pragma once

#include <algorithm>
#include <cstdint>

namespace firn {

class TokenBucket {
 public:
  // Saves up at most one second's worth. A rate of 0 admits everything.
  explicit TokenBucket(uint64_t bytes_per_second)
      : rate_(bytes_per_second), tokens_(static_cast<double>(bytes_per_second)) {}

  // Admits while there is anything left, so that a record larger than the rate still passes, and then waits it out.
  bool Take(uint64_t bytes, int64_t now_ns) {
    if (rate_ == 0) return true;
    if (last_ns_ != 0) {
      double earned = static_cast<double>(now_ns - last_ns_) * 1e-9 * static_cast<double>(rate_);
      tokens_ = std::min(tokens_ + std::max(earned, 0.0), static_cast<double>(rate_));
    }
    last_ns_ = now_ns;
    if (tokens_ <= 0) return false;
    tokens_ -= static_cast<double>(bytes);
    return true;
  }
  void GiveBack(uint64_t bytes) {
    tokens_ = std::min(tokens_ + static_cast<double>(bytes), static_cast<double>(rate_));
  }
  uint64_t rate() const { return rate_; }

 private:
  const uint64_t rate_;
  double tokens_;
  int64_t last_ns_ = 0;
};

}  // namespace firn
