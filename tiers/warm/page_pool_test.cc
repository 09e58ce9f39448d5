#include "tiers/warm/page_pool.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace firn {
namespace {

TEST(PagePool, FreshPagesComeInOrderAndClean) {
  PagePool pool(8);
  EXPECT_FALSE(pool.TakePage(1).has_value());
  pool.Grow(3, true);
  for (uint64_t i = 0; i < 3; ++i) {
    auto page = pool.TakePage(1);
    ASSERT_TRUE(page.has_value());
    EXPECT_EQ(page->offset, i * kArenaPageBytes);
    EXPECT_FALSE(page->dirty);
  }
  EXPECT_FALSE(pool.TakePage(1).has_value());
  pool.Grow(1, false);
  EXPECT_TRUE(pool.TakePage(1)->dirty) << "memory that a region does not zero";
}

TEST(PagePool, PagesAreDirtyForAnotherNamespaceOnly) {
  PagePool pool(1);
  pool.Grow(1, true);
  auto take = [&](uint64_t tag) {
    auto page = pool.TakePage(tag);
    pool.FreePage(page->offset);
    return page->dirty;
  };
  EXPECT_FALSE(take(11));
  EXPECT_FALSE(take(11));
  EXPECT_TRUE(take(13));
  EXPECT_FALSE(take(13));
  EXPECT_TRUE(take(0)) << "unknown";
  EXPECT_TRUE(take(0)) << "unknown after unknown";
  EXPECT_TRUE(take(13));
  auto page = pool.TakePage(0);
  pool.TagPage(page->offset, 17);
  pool.FreePage(page->offset);
  EXPECT_FALSE(take(17));
  // Slots of many namespaces may have been in a page.
  auto slot = pool.TakeSlot(3);
  pool.FreeSlot(slot->offset, 3);
  EXPECT_TRUE(take(17));
}

TEST(PagePoolDeathTest, DoubleFreesEndTheProcess) {
  PagePool pool(2);
  pool.Grow(2, true);
  uint64_t page = pool.TakePage(1)->offset, slot = pool.TakeSlot(5)->offset, other = pool.TakeSlot(5)->offset;
  pool.FreePage(page);
  EXPECT_DEATH(pool.FreePage(page), "check failed");
  pool.FreeSlot(slot, 5);
  EXPECT_DEATH(pool.FreeSlot(slot, 5), "check failed");
  EXPECT_DEATH(pool.FreeSlot(other, 6), "check failed");
  EXPECT_DEATH(pool.FreeSlot(other + 64, 5), "check failed");
  EXPECT_DEATH(pool.FreePage(slot / kArenaPageBytes * kArenaPageBytes), "check failed");
}

TEST(PagePool, C34_random_takes_and_frees_never_overlap_and_recount) {
  uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  PagePool pool(40);
  pool.Grow(25, true);
  constexpr uint32_t kPage = ~0u;
  std::map<uint64_t, std::pair<uint64_t, uint32_t>> taken;  // Offset -> bytes, class.
  uint64_t pages = 0, slots = 0;
  for (int i = 0; i < 40'000; ++i) {
    if (i == 20'000) pool.Grow(15, false);
    if (random() % 100 < (i / 4'000 % 2 == 0 ? 60u : 40u)) {
      uint32_t c = random() % 4 == 0 ? kPage : static_cast<uint32_t>(random() % SlotClassCount());
      auto chunk = c == kPage ? pool.TakePage(random() % 3) : pool.TakeSlot(c);
      if (!chunk.has_value()) continue;
      uint64_t bytes = c == kPage ? kArenaPageBytes : SlotBytes(c);
      auto after = taken.lower_bound(chunk->offset);
      ASSERT_TRUE(after == taken.end() || after->first >= chunk->offset + bytes);
      ASSERT_TRUE(after == taken.begin() || std::prev(after)->first + std::prev(after)->second.first <= chunk->offset);
      taken[chunk->offset] = {bytes, c};
      ++(c == kPage ? pages : slots);
    } else if (!taken.empty()) {
      auto victim = std::next(taken.begin(), static_cast<ptrdiff_t>(random() % taken.size()));
      uint32_t c = victim->second.second;
      c == kPage ? pool.FreePage(victim->first) : pool.FreeSlot(victim->first, c);
      --(c == kPage ? pages : slots);
      taken.erase(victim);
    }
    if (i % 500 == 0) {
      ASSERT_TRUE(pool.Audit(pages, slots).ok()) << pool.Audit(pages, slots);
    }
  }
  for (const auto& [offset, chunk] : taken) {
    chunk.second == kPage ? pool.FreePage(offset) : pool.FreeSlot(offset, chunk.second);
  }
  EXPECT_TRUE(pool.Audit(0, 0).ok()) << pool.Audit(0, 0);
  EXPECT_EQ(pool.free_pages(), 40u);
  EXPECT_EQ(pool.slotted_pages(), 0u);
  EXPECT_FALSE(pool.Audit(1, 0).ok()) << "the audit can fail";
}

}  // namespace
}  // namespace firn
