#include "tiers/warm/size_classes.h"

#include <gtest/gtest.h>

#include "codecs/types.h"

namespace firn {
namespace {

TEST(SizeClasses, FallFromHalfAPageToOneUnitByATwelfthAtLeast) {
  EXPECT_EQ(SlotBytes(0), kArenaPageBytes / 2);
  EXPECT_EQ(SlotBytes(SlotClassCount() - 1), kSlotUnitBytes);
  for (uint32_t c = 0; c < SlotClassCount(); ++c) {
    EXPECT_EQ(SlotBytes(c) % kSlotUnitBytes, 0u);
    EXPECT_LE(SlotsPerPage(c) * SlotBytes(c), kArenaPageBytes);
    if (c > 0) {
      EXPECT_LE(SlotBytes(c) * 12, SlotBytes(c - 1) * 11);
    }
    if (c > 0 && SlotBytes(c) > 512) {
      EXPECT_GE(SlotBytes(c) * 10, SlotBytes(c - 1) * 6);
    }
  }
}

TEST(SizeClasses, PlansHoldTheirBytesAndWasteLittle) {
  EXPECT_EQ(PlanChunks(0).chunks(), 0u);
  for (uint64_t bytes = 1; bytes <= 3 * kArenaPageBytes; ++bytes) {
    ChunkPlan plan = PlanChunks(bytes);
    uint64_t room = 0, without_last = 0;
    for (uint32_t i = 0; i < plan.chunks(); ++i) {
      without_last = room;
      room += plan.chunk_bytes(i);
      if (i > 0) {
        EXPECT_LE(plan.chunk_bytes(i), plan.chunk_bytes(i - 1));
      }
    }
    ASSERT_EQ(room, plan.bytes());
    ASSERT_GE(room, bytes);
    ASSERT_LT(without_last, bytes) << "every chunk is used";
    // A fifth of what does not fill pages, and what 64-byte units cost.
    uint64_t tail = bytes % kArenaPageBytes;
    if (tail > 512) {
      ASSERT_LE((room - bytes) * 5, tail + 5 * kSlotUnitBytes) << bytes;
    }
    if (tail > 0 && tail <= 512) {
      ASSERT_LE(room - bytes, std::max<uint64_t>(63, tail / 5)) << bytes;
    }
  }
  EXPECT_EQ(PlanChunks(kBlockBytesMax).pages, kBlockBytesMax / kArenaPageBytes);
}

}  // namespace
}  // namespace firn
