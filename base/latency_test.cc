// Every duration is in the bucket that Prometheus puts it in, and the count is the sum of the buckets.
#include "base/latency.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace firn {
namespace {

TEST(Latency, Bounds_rise_and_belong_to_their_own_bucket) {
  LatencyHistogram histogram;
  for (size_t i = 0; i < kLatencyBoundsNs.size(); ++i) {
    if (i > 0) {
      EXPECT_LT(kLatencyBoundsNs[i - 1], kLatencyBoundsNs[i]);
    }
    histogram.Add(kLatencyBoundsNs[i]);      // The end of this bucket.
    histogram.Add(kLatencyBoundsNs[i] + 1);  // The next one's.
  }
  histogram.Add(-5);  // A clock that went back is no time, not a very long one.
  LatencySnapshot seen = histogram.Snapshot();
  EXPECT_EQ(seen.buckets.front(), 2u);
  for (size_t i = 1; i < kLatencyBoundsNs.size(); ++i) EXPECT_EQ(seen.buckets[i], 2u) << i;
  EXPECT_EQ(seen.buckets.back(), 1u);
  EXPECT_EQ(seen.count(), 2 * kLatencyBoundsNs.size() + 1);
}

TEST(Latency, Nothing_is_lost_between_threads) {
  constexpr uint64_t kEach = 20'000;
  LatencyHistogram histogram;
  std::vector<std::thread> threads;
  for (int64_t t = 1; t <= 4; ++t) {
    threads.emplace_back([&histogram, t] {
      for (uint64_t i = 0; i < kEach; ++i) histogram.Add(t * 1000);
    });
  }
  for (auto& thread : threads) thread.join();
  LatencySnapshot seen = histogram.Snapshot();
  EXPECT_EQ(seen.count(), 4 * kEach);
  EXPECT_EQ(seen.buckets[0], 4 * kEach);
  EXPECT_EQ(seen.sum_ns, kEach * (1 + 2 + 3 + 4) * 1000);
}

}  // namespace
}  // namespace firn
