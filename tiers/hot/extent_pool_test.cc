#include "tiers/hot/extent_pool.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace firn {
namespace {

TEST(ExtentPool, TakesTheTightestPieceAndJoinsNeighbours) {
  ExtentPool pool(10 * kExtentGranuleBytes + 5);
  EXPECT_EQ(pool.bytes(), 10 * kExtentGranuleBytes);
  auto a = pool.Take(1), b = pool.Take(4 * kExtentGranuleBytes), c = pool.Take(kExtentGranuleBytes + 1);
  ASSERT_TRUE(a && b && c);
  EXPECT_EQ(pool.free_bytes(), 3 * kExtentGranuleBytes);
  pool.Free(*a, 1);
  auto tight = pool.Take(100);
  EXPECT_EQ(*tight, *a) << "the piece of one granule, not a part of the long one";
  pool.Free(*tight, 100);
  pool.Free(*c, kExtentGranuleBytes + 1);
  pool.Free(*b, 4 * kExtentGranuleBytes);
  EXPECT_EQ(pool.largest_free_bytes(), 10 * kExtentGranuleBytes);
  EXPECT_TRUE(pool.Audit().ok()) << pool.Audit();
  EXPECT_FALSE(pool.Take(10 * kExtentGranuleBytes + 1).has_value());
}

TEST(ExtentPool, AccountsAgreeAfterRandomTakesAndFrees) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 rng(seed);
  constexpr uint64_t kGranules = 512;
  ExtentPool pool(kGranules * kExtentGranuleBytes);
  std::vector<bool> taken(kGranules);
  std::vector<std::pair<uint64_t, uint64_t>> held;
  for (int i = 0; i < 20'000; ++i) {
    if (rng() % 2 || held.empty()) {
      uint64_t bytes = 1 + rng() % (20 * kExtentGranuleBytes);
      auto offset = pool.Take(bytes);
      if (!offset.has_value()) {
        EXPECT_GT(ExtentBytes(bytes), pool.largest_free_bytes());
        continue;
      }
      for (uint64_t g = *offset; g < *offset + ExtentBytes(bytes); g += kExtentGranuleBytes) {
        ASSERT_FALSE(taken[g / kExtentGranuleBytes]) << "handed out twice";
        taken[g / kExtentGranuleBytes] = true;
      }
      held.emplace_back(*offset, bytes);
    } else {
      std::swap(held[rng() % held.size()], held.back());
      auto [offset, bytes] = held.back();
      held.pop_back();
      for (uint64_t g = offset; g < offset + ExtentBytes(bytes); g += kExtentGranuleBytes) {
        taken[g / kExtentGranuleBytes] = false;
      }
      pool.Free(offset, bytes);
    }
    if (i % 64 == 0) {
      ASSERT_TRUE(pool.Audit().ok()) << pool.Audit();
    }
  }
}

TEST(ExtentPoolDeathTest, FreeingWhatIsFreeEndsTheProcess) {
  ExtentPool pool(8 * kExtentGranuleBytes);
  auto offset = pool.Take(kExtentGranuleBytes);
  pool.Free(*offset, 1);
  EXPECT_DEATH(pool.Free(*offset, 1), "");
}

}  // namespace
}  // namespace firn
