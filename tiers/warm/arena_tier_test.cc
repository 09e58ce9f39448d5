#include "tiers/warm/arena_tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/units.h"
#include "tiers/conformance/test_blocks.h"
#include "tiers/warm/fake_region.h"

namespace firn {
namespace {

std::unique_ptr<ArenaTier> MakeTier(std::unique_ptr<FakeRegion> region) {
  auto tier = std::make_unique<ArenaTier>("dram", std::move(region));
  EXPECT_TRUE(tier->Populate(tier->bytes_max()).ok());
  return tier;
}

CopyPtr Put(ArenaTier* tier, const EncodedBlock& block) {
  auto draft = tier->Reserve(block.Layout(block.present));
  if (!draft.ok()) return nullptr;
  tier->Fill(draft->get(), block);
  CopyPtr copy;
  tier->Commit(*std::move(draft), block.header, {}, [&](absl::StatusOr<CopyPtr> result) { copy = *std::move(result); });
  return copy;
}

absl::StatusOr<EncodedBlock> Get(ArenaTier* tier, const CopyPtr& copy, const Identity& identity) {
  absl::StatusOr<EncodedBlock> block;
  tier->Read(copy, identity, RunMask::All(), [&](absl::StatusOr<EncodedBlock> result) { block = std::move(result); });
  return block;
}

EncodedBlock NestedBlock(uint64_t number, uint64_t namespace_number = 0) {
  TestBlockSpec spec{
      "", {.layers = 4, .heads = 4, .k_width = 128, .v_width = 128, .tokens = 300}, CodecFamily::kNested};
  return MakeTestBlock(spec, TestIdentity(number, namespace_number), number);
}

bool AllZero(const MutableRuns& runs) {
  for (const MutableRunBytes& run : runs) {
    for (MutableByteSpan piece : run.spans()) {
      if (std::any_of(piece.begin(), piece.end(), [](uint8_t byte) { return byte != 0; })) return false;
    }
  }
  return true;
}

TEST(ArenaTier, AnotherNamespaceFindsOnlyZeros) {
  auto tier = MakeTier(std::make_unique<FakeRegion>(8 * kMiB));
  EncodedBlock secret = NestedBlock(1, 1);
  RecordLayout same = secret.Layout(secret.present), other = NestedBlock(2, 2).Layout(secret.present), unknown = other;
  unknown.namespace_tag = 0;
  for (const RecordLayout& layout : {other, unknown}) {
    CopyPtr copy = Put(tier.get(), secret);
    ASSERT_NE(copy, nullptr);
    tier->Forget(copy, secret.header->identity);
    copy.reset();
    {
      auto own = tier->Reserve(same);
      ASSERT_TRUE(own.ok());
      EXPECT_FALSE(AllZero((*own)->runs())) << "the same namespace pays no zeroing of pages, so this test can fail";
    }
    auto draft = tier->Reserve(layout);
    ASSERT_TRUE(draft.ok());
    EXPECT_TRUE(AllZero((*draft)->runs()));
  }
}

TEST(ArenaTier, MemoryFromAnEarlierRunIsZeroed) {
  auto tier = MakeTier(std::make_unique<FakeRegion>(8 * kMiB, false));
  auto draft = tier->Reserve(NestedBlock(1).Layout(RunMask::All()));
  ASSERT_TRUE(draft.ok());
  EXPECT_TRUE(AllZero((*draft)->runs()));
}

TEST(ArenaTier, ReadsAreViewsOfTheArena) {
  auto tier = MakeTier(std::make_unique<FakeRegion>(8 * kMiB));
  EncodedBlock block = NestedBlock(1);
  CopyPtr copy = Put(tier.get(), block);
  auto read = Get(tier.get(), copy, block.header->identity);
  ASSERT_TRUE(read.ok()) << read.status();
  for (const RunBytes& run : read->runs) {
    for (ByteSpan piece : run.spans()) {
      EXPECT_GE(piece.data(), tier->region().base());
      EXPECT_LE(piece.data() + piece.size(), tier->region().base() + tier->region().bytes());
    }
  }
  // Neighbouring pages come as one span, and the tail's slots as two at most.
  EXPECT_GT(read->runs[RunIndex(RunKind::kP8, Part::kK)].size(), 4 * kArenaPageBytes);
  EXPECT_LE(read->runs[RunIndex(RunKind::kP8, Part::kK)].spans().size(), 3u);
}

TEST(ArenaTier, NarrowingGivesBackExactlyWhatTheDroppedRunsTook) {
  auto tier = MakeTier(std::make_unique<FakeRegion>(8 * kMiB));
  EncodedBlock block = NestedBlock(1);
  CopyPtr copy = Put(tier.get(), block);
  uint64_t p8 = PlanChunks(block.runs[RunIndex(RunKind::kP8, Part::kV)].size()).bytes();
  uint64_t whole = copy->StoredBytes();
  for (RunMask drop : {RunMask::Of(RunKind::kP8, Part::kV), RunMask::Of(RunKind::kP8, Part::kK)}) {
    auto narrow = tier->Narrow(copy, copy->Runs() - drop);
    ASSERT_TRUE(narrow.ok());
    EXPECT_EQ((*narrow)->StoredBytes(), copy->StoredBytes() - p8);
    tier->Forget(copy, block.header->identity);
    copy = *narrow;
    EXPECT_TRUE(tier->AuditForTest().ok()) << tier->AuditForTest();
  }
  TierUsage usage = tier->Usage();
  EXPECT_EQ(usage.used_bytes, whole - 2 * p8 + usage.overhead_bytes);
  EXPECT_EQ(usage.copies, 1u);
  EXPECT_EQ(usage.held_bytes, 0u);
  EXPECT_EQ(tier->Counters().narrowed_bytes, 2 * p8);
  EXPECT_EQ(ClassOf(*block.header, copy->Runs()), (ClassPair{PrecisionClass::k4Bit, PrecisionClass::k4Bit}));
}

TEST(ArenaTier, HeldBytesAreWhatOnlyReadersKeep) {
  auto tier = MakeTier(std::make_unique<FakeRegion>(8 * kMiB));
  EncodedBlock block = NestedBlock(1);
  CopyPtr copy = Put(tier.get(), block);
  auto reader = Get(tier.get(), copy, block.header->identity);
  auto narrow = tier->Narrow(copy, copy->Runs() - RunMask::Both(RunKind::kP8));
  uint64_t whole = copy->StoredBytes(), kept = (*narrow)->StoredBytes();
  EXPECT_EQ(tier->Usage().held_bytes, 0u);
  tier->Forget(copy, block.header->identity);
  tier->Forget(copy, block.header->identity);  // Saying it twice counts once.
  copy.reset();
  EXPECT_EQ(tier->Usage().held_bytes, whole - kept);
  tier->Forget(*narrow, block.header->identity);
  EXPECT_EQ(tier->Usage().held_bytes, whole);
  EXPECT_EQ(tier->Usage().copies, 0u);
  narrow->reset();
  EXPECT_EQ(tier->Usage().held_bytes, whole) << "the reader still holds all of it";
  EXPECT_TRUE(tier->AuditForTest().ok()) << tier->AuditForTest();
  *reader = {};
  EXPECT_EQ(tier->Usage().held_bytes, 0u);
  EXPECT_EQ(tier->Usage().used_bytes, 0u);
}

TEST(ArenaTier, ReadersOutliveTheTier) {
  auto tier = MakeTier(std::make_unique<FakeRegion>(8 * kMiB));
  EncodedBlock block = NestedBlock(1);
  CopyPtr copy = Put(tier.get(), block);
  auto read = Get(tier.get(), copy, block.header->identity);
  copy.reset();
  tier.reset();
  EXPECT_TRUE(SameBlock(*read, block));
}

TEST(ArenaTier, C38_a_flipped_header_bit_is_a_miss) {
  auto tier = MakeTier(std::make_unique<FakeRegion>(2 * kMiB));
  EncodedBlock block = NestedBlock(1);
  CopyPtr copy = Put(tier.get(), block);
  std::vector<uint8_t> header = SerializeHeader(*block.header);
  uint8_t* base = tier->region().base();
  uint8_t* found = std::search(base, base + tier->region().bytes(), header.begin(), header.end());
  ASSERT_NE(found, base + tier->region().bytes());
  for (size_t at : {size_t{0}, size_t{9}, size_t{50}, size_t{140}, header.size() - 1}) {
    found[at] ^= 0x10;
    EXPECT_TRUE(absl::IsDataLoss(Get(tier.get(), copy, block.header->identity).status())) << "byte " << at;
    found[at] ^= 0x10;
  }
  EXPECT_TRUE(Get(tier.get(), copy, block.header->identity).ok());
}

TEST(ArenaTier, ALowerLimitRefusesAndKeeps) {
  auto tier = MakeTier(std::make_unique<FakeRegion>(8 * kMiB));
  EncodedBlock block = NestedBlock(1);
  CopyPtr copy = Put(tier.get(), block);
  EXPECT_EQ(tier->SetCapacity(1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(tier->SetCapacity(tier->bytes_max() + 1).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(tier->SetCapacity(64 * kKiB).ok());
  EXPECT_EQ(tier->Usage().capacity_bytes, 64 * kKiB);
  auto refused = tier->Reserve(block.Layout(block.present));
  EXPECT_TRUE(absl::IsResourceExhausted(refused.status())) << refused.status();
  EXPECT_TRUE(Get(tier.get(), copy, block.header->identity).ok());
  ASSERT_TRUE(tier->SetCapacity(8 * kMiB).ok());
  EXPECT_NE(Put(tier.get(), block), nullptr);
}

TEST(ArenaTier, ShutDownRefusesWritesAndServesReads) {
  auto tier = MakeTier(std::make_unique<FakeRegion>(8 * kMiB));
  EncodedBlock block = NestedBlock(1);
  CopyPtr copy = Put(tier.get(), block);
  auto draft = tier->Reserve(block.Layout(block.present));
  tier->Shutdown();
  EXPECT_TRUE(absl::IsFailedPrecondition(tier->Reserve(block.Layout(block.present)).status()));
  absl::Status committed;
  tier->Commit(*std::move(draft), block.header, {},
               [&](absl::StatusOr<CopyPtr> result) { committed = result.status(); });
  EXPECT_TRUE(absl::IsFailedPrecondition(committed)) << committed;
  EXPECT_EQ(tier->Usage().draft_bytes, 0u);
  EXPECT_TRUE(Get(tier.get(), copy, block.header->identity).ok());
}

TEST(ArenaTier, C53_serves_while_it_grows) {
  auto region = std::make_unique<FakeRegion>(16 * kMiB);
  FakeRegion* steer = region.get();
  ArenaTier tier("dram", std::move(region));
  EncodedBlock block = NestedBlock(1);
  EXPECT_EQ(tier.Usage().capacity_bytes, 0u);
  EXPECT_TRUE(absl::IsResourceExhausted(tier.Reserve(block.Layout(block.present)).status())) << "later it will fit";
  ASSERT_TRUE(tier.Populate(4 * kMiB).ok());
  steer->Pause();
  std::thread grower([&] { EXPECT_TRUE(tier.Populate(12 * kMiB).ok()); });
  steer->WaitUntilPopulating();
  EXPECT_EQ(tier.Usage().capacity_bytes, 4 * kMiB);
  CopyPtr copy = Put(&tier, block);
  ASSERT_NE(copy, nullptr);
  EXPECT_TRUE(Get(&tier, copy, block.header->identity).ok());
  steer->Resume();
  grower.join();
  EXPECT_EQ(tier.Usage().capacity_bytes, 16 * kMiB);
  EXPECT_TRUE(tier.AuditForTest().ok()) << tier.AuditForTest();
}

// What a block takes beyond its runs, at every size the store must take.
TEST(ArenaTier, OverheadIsBoundedAtEverySize) {
  auto tier = MakeTier(std::make_unique<FakeRegion>(160 * kMiB));
  struct Row {
    const char* name;
    BlockShape shape;
    double overhead_max;
  };
  const Row rows[] = {
      {"2 KB", {.layers = 1, .heads = 1, .k_width = 64, .v_width = 64, .tokens = 8}, 0.9},
      {"16 KB", {.layers = 2, .heads = 2, .k_width = 64, .v_width = 64, .tokens = 16}, 0.2},
      {"128 KB", {.layers = 4, .heads = 2, .k_width = 128, .v_width = 128, .tokens = 32}, 0.05},
      {"1 MB", {.layers = 8, .heads = 4, .k_width = 128, .v_width = 128, .tokens = 64}, 0.03},
      {"32 MB", {.layers = 32, .heads = 8, .k_width = 128, .v_width = 128, .tokens = 256}, 0.003},
      {"256 MB", {.layers = 128, .heads = 8, .k_width = 128, .v_width = 128, .tokens = 512}, 0.003},
  };
  for (const Row& row : rows) {
    for (CodecFamily family : {CodecFamily::kSource, CodecFamily::kNested}) {
      if (row.shape.values() * 2 > 128 * kMiB && family == CodecFamily::kSource)
        continue;  // More than this test's arena.
      EncodedBlock block = MakeTestBlock({"", row.shape, family}, TestIdentity(1), 1);
      CopyPtr copy = Put(tier.get(), block);
      ASSERT_NE(copy, nullptr) << row.name;
      auto raw = static_cast<double>(block.Layout(block.present).TotalBytes());
      double overhead = static_cast<double>(copy->StoredBytes()) / raw - 1;
      EXPECT_LE(overhead, row.overhead_max) << row.name << ": " << copy->StoredBytes() << " for " << raw;
      RecordProperty(row.name, std::to_string(copy->StoredBytes()));
    }
  }
}

}  // namespace
}  // namespace firn
