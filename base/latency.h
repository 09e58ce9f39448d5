// How long things take: a histogram with fixed buckets that any thread adds to.
//
// Adding is a search among twenty bounds and two relaxed additions; there is no lock, and nobody waits for a reader. A
// snapshot may miss what is being added meanwhile, and its count is always the sum of its buckets. Threads: any. Units:
// nanoseconds.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace firn {

// Upper ends, each included, 10 us to 30 s; one bucket more has what took longer.
inline constexpr std::array<int64_t, 20> kLatencyBoundsNs = {
    10'000,      25'000,        50'000,        100'000,       250'000,        500'000,       1'000'000,
    2'500'000,   5'000'000,     10'000'000,    25'000'000,    50'000'000,     100'000'000,   250'000'000,
    500'000'000, 1'000'000'000, 2'500'000'000, 5'000'000'000, 10'000'000'000, 30'000'000'000};

struct LatencySnapshot {
  std::array<uint64_t, kLatencyBoundsNs.size() + 1> buckets{};  // Not cumulative.
  uint64_t sum_ns = 0;

  uint64_t count() const {
    uint64_t count = 0;
    for (uint64_t bucket : buckets) count += bucket;
    return count;
  }
};

class LatencyHistogram {
 public:
  void Add(int64_t elapsed_ns) {
    elapsed_ns = std::max<int64_t>(elapsed_ns, 0);
    auto bucket = std::lower_bound(kLatencyBoundsNs.begin(), kLatencyBoundsNs.end(), elapsed_ns);
    buckets_[static_cast<size_t>(bucket - kLatencyBoundsNs.begin())].fetch_add(1, std::memory_order_relaxed);
    sum_ns_.fetch_add(static_cast<uint64_t>(elapsed_ns), std::memory_order_relaxed);
  }
  LatencySnapshot Snapshot() const {
    LatencySnapshot out;
    for (size_t i = 0; i < buckets_.size(); ++i) out.buckets[i] = buckets_[i].load(std::memory_order_relaxed);
    out.sum_ns = sum_ns_.load(std::memory_order_relaxed);
    return out;
  }

 private:
  std::array<std::atomic<uint64_t>, kLatencyBoundsNs.size() + 1> buckets_{};
  std::atomic<uint64_t> sum_ns_{0};
};

}  // namespace firn
