// What a cold tier does when nothing goes wrong.
#include <gmock/gmock.h>

#include "tiers/cold/cold_test_util.h"
#include "tiers/cold/token_bucket.h"

namespace firn {
namespace {

using ::testing::HasSubstr;

constexpr RunMask kP4 = RunMask::Both(RunKind::kP4);
constexpr RunMask kP8 = RunMask::Both(RunKind::kP8);

TEST(ColdTier, RefusesOptionsThatDoNotFitNamingThem) {
  ColdRig rig;
  rig.options.capacity_bytes = 3 * kMiB;
  absl::Status status = rig.Open();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr(std::to_string(3 * kMiB)));
  rig.options.capacity_bytes = 64 * kMiB;
  rig.options.segment_bytes = 1000;
  EXPECT_THAT(Message(rig.Open()), HasSubstr("1000"));
}

TEST(ColdTier, SmallBlocksShareWritesAndLargeOnesAreSplitByPlane) {
  ColdRig rig;
  ASSERT_TRUE(rig.Open().ok());
  std::vector<EncodedBlock> blocks;
  std::vector<std::unique_ptr<Draft>> drafts;
  for (uint64_t i = 0; i < 20; ++i) {
    blocks.push_back(ColdBlock(i, 4));
    drafts.push_back(*rig.tier().Reserve(blocks.back().Layout(RunMask::All())));
    rig.tier().Fill(drafts.back().get(), blocks.back());
  }
  uint64_t writes_before = rig.cold->device().Counters().writes;
  std::vector<CopyPtr> copies;
  for (uint64_t i = 0; i < blocks.size(); ++i) {
    rig.tier().Commit(std::move(drafts[i]), blocks[i].header, {}, [&](absl::StatusOr<CopyPtr> copy) {
      ASSERT_TRUE(copy.ok()) << copy.status();
      copies.push_back(*std::move(copy));
    });
  }
  rig.Run();
  ASSERT_EQ(copies.size(), blocks.size());
  EXPECT_LE(rig.cold->device().Counters().writes - writes_before, 4u);
  for (size_t i = 0; i < blocks.size(); ++i) {
    auto read = rig.Get(copies[i], blocks[i]);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(SameBlock(*read, blocks[i]));
  }
  // A large block's planes lie in other segments: its coarse reading touches fewer bytes.
  EncodedBlock large = ColdBlock(100, 512);
  auto copy = rig.Put(large);
  ASSERT_TRUE(copy.ok());
  uint64_t before = rig.cold->device().Counters().read_bytes;
  ASSERT_TRUE(rig.Get(*copy, large, RunMask::All() - kP4 - kP8).ok());
  uint64_t coarse = rig.cold->device().Counters().read_bytes - before;
  EXPECT_LT(coarse, large.Layout(RunMask::All() - kP4 - kP8).TotalBytes() + 16 * kKiB);
  auto finer = rig.Get(*copy, large, kP8);
  ASSERT_TRUE(finer.ok());
  EXPECT_TRUE(SameBlock(*finer, large.Narrowed(kP8)));
}

TEST(ColdTier, ARecordLongerThanASegmentGetsItsOwn) {
  ColdRig rig(128 * kMiB);
  ASSERT_TRUE(rig.Open().ok());
  TestBlockSpec spec{"jumbo", {.layers = 4, .heads = 8, .k_width = 128, .v_width = 128, .tokens = 512}};
  EncodedBlock block = MakeTestBlock(spec, TestIdentity(1), 1);  // 8 MiB in 1 MiB segments.
  auto copy = rig.Put(block);
  ASSERT_TRUE(copy.ok()) << copy.status();
  auto read = rig.Get(*copy, block);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(SameBlock(*read, block));
}

TEST(ColdTier, ARecordLargerThanTheStagingMemoryGoesAloneThroughMemoryOfItsOwn) {
  ColdRig rig(128 * kMiB);
  rig.options.staging_bytes = rig.options.read_bytes = 2 * kMiB;
  ASSERT_TRUE(rig.Open().ok());
  TestBlockSpec spec{"jumbo", {.layers = 4, .heads = 8, .k_width = 128, .v_width = 128, .tokens = 512}};  // 8 MiB.
  EncodedBlock block = MakeTestBlock(spec, TestIdentity(1), 1);
  {
    auto draft = rig.cold->Reserve(block.Layout(block.present));
    ASSERT_TRUE(draft.ok()) << draft.status();
    EXPECT_EQ(rig.Put(block).status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(rig.Put(ColdBlock(2, 8)).ok()) << "small ones are not in its way";
  }
  for (uint64_t i = 3; i < 6; ++i) {
    EncodedBlock next = MakeTestBlock(spec, TestIdentity(i), i);
    auto copy = rig.Put(next);
    ASSERT_TRUE(copy.ok()) << copy.status();
    auto read = rig.Get(*copy, next);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(SameBlock(*read, next));
  }
  EXPECT_EQ(rig.tier().Usage().draft_bytes, 0u);
}

TEST(ColdTier, ClosingGivesNothingUp) {
  ColdRig rig(16 * kMiB);
  ASSERT_TRUE(rig.Open().ok());
  constexpr uint64_t kBlocks = 80;
  for (uint64_t i = 0; i < kBlocks; ++i) ASSERT_TRUE(rig.Put(ColdBlock(i, 8)).ok());
  // Facts take so much that less is left than reclaiming keeps free; the blocks' segment is open, and nearly full.
  for (int i = 0; rig.cold->Usage().used_bytes < 15 * kMiB && i < 10'000; ++i) {
    Awaited<absl::Status> done;
    rig.cold->PutFact({"kind", "fact " + std::to_string(i), std::vector<uint8_t>(4000, 1)}, done.Done());
    if (!done.Wait(&rig).value_or(InternalError("no answer")).ok()) break;
  }
  ASSERT_EQ(rig.cold->Usage().copies, kBlocks);
  ASSERT_TRUE(rig.Close().ok());
  ASSERT_TRUE(rig.Open().ok());
  EXPECT_EQ(rig.recovered.size(), kBlocks);
}

TEST(ColdTier, UsageAddsUp) {
  ColdRig rig;
  ASSERT_TRUE(rig.Open().ok());
  std::vector<CopyPtr> copies;
  for (uint64_t i = 0; i < 50; ++i) copies.push_back(*rig.Put(ColdBlock(i, i % 2 == 0 ? 8 : 300)));
  rig.Run();
  TierUsage usage = rig.tier().Usage();
  uint64_t stored = 0;
  for (const CopyPtr& copy : copies) stored += copy->StoredBytes();
  EXPECT_EQ(usage.used_bytes, stored + usage.draft_bytes + usage.overhead_bytes);
  EXPECT_EQ(usage.copies, copies.size());
  EXPECT_EQ(usage.draft_bytes, 0u);
  EXPECT_GE(usage.used_bytes, rig.memory.UsedBytes());
  EXPECT_LE(usage.used_bytes, usage.capacity_bytes);
  // Forgetting one counts it as held as long as someone refers to it.
  uint64_t bytes = copies[3]->StoredBytes();
  rig.tier().Forget(copies[3], TestIdentity(3));
  EXPECT_EQ(rig.tier().Usage().held_bytes, bytes);
  copies[3].reset();
  EXPECT_EQ(rig.tier().Usage().held_bytes, 0u);
  EXPECT_EQ(rig.tier().Usage().copies, 49u);
}

TEST(ColdTier, AForgottenCopyCanStillBeReadByWhoHoldsIt) {
  ColdRig rig;
  ASSERT_TRUE(rig.Open().ok());
  EncodedBlock block = ColdBlock(1, 300);
  CopyPtr copy = *rig.Put(block);
  rig.tier().Forget(copy, block.header->identity);
  rig.Run();
  auto read = rig.Get(copy, block);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(SameBlock(*read, block));
}

TEST(ColdTier, ReadsWaitForMemoryAndAreServedWhenItComesBack) {
  ColdRig rig;
  rig.options.read_bytes = 1 * kMiB;
  rig.options.chunk_bytes = 128 * kKiB;
  ASSERT_TRUE(rig.Open().ok());
  EncodedBlock block = ColdBlock(1, 500);
  CopyPtr copy = *rig.Put(block);
  std::vector<EncodedBlock> held;
  int done = 0;
  for (int i = 0; i < 5; ++i) {
    rig.tier().Read(copy, block.header->identity, RunMask::All(), [&](absl::StatusOr<EncodedBlock> read) {
      ++done;
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_TRUE(SameBlock(*read, block));
      held.push_back(*std::move(read));
    });
  }
  rig.Run();
  EXPECT_LT(done, 5);
  for (int rounds = 0; done < 5 && rounds < 10; ++rounds) {
    held.clear();
    rig.Run();
  }
  EXPECT_EQ(done, 5);
}

TEST(ColdTier, AdmissionKeepsToTheRate) {
  ColdRig rig;
  rig.options.write_bytes_per_second = 2 * kMiB;
  ASSERT_TRUE(rig.Open().ok());
  uint64_t admitted = 0, refused = 0;
  for (uint64_t step = 0; step < 400; ++step) {
    EncodedBlock block = ColdBlock(step, 100);
    auto copy = rig.Put(block);
    if (copy.ok()) {
      admitted += block.Layout(RunMask::All()).TotalBytes();
    } else {
      ASSERT_EQ(copy.status().code(), absl::StatusCode::kResourceExhausted);
      EXPECT_THAT(Message(copy.status()), HasSubstr(std::to_string(2 * kMiB)));
      ++refused;
    }
    rig.clock.AdvanceMs(10);
  }
  // Four seconds, and one second's worth saved up at the start.
  EXPECT_GT(refused, 100u);
  EXPECT_LE(admitted, 5 * 2 * kMiB + 256 * kKiB);
  EXPECT_GE(admitted, 7 * kMiB);
}

TEST(TokenBucket, NoRateAdmitsEverything) {
  TokenBucket bucket(0);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(bucket.Take(kGiB, i));
}

TEST(ColdTier, C54_theBackendIsNamed) {
  ColdRig rig;
  ASSERT_TRUE(rig.Open().ok());
  EXPECT_EQ(rig.cold->device().backend(), "memory");
}

TEST(ColdTier, FactsArePutReplacedAndRemoved) {
  ColdRig rig;
  ASSERT_TRUE(rig.Open().ok());
  auto put = [&](const char* name, std::vector<uint8_t> value) {
    Awaited<absl::Status> done;
    rig.cold->PutFact({"plan", name, std::move(value)}, done.Done());
    return *done.Wait(&rig);
  };
  ASSERT_TRUE(put("a", {1}).ok());
  ASSERT_TRUE(put("b", {2}).ok());
  ASSERT_TRUE(put("a", {3, 4}).ok());
  ASSERT_TRUE(put("c", std::vector<uint8_t>(3 * kMiB, 7)).ok());
  Awaited<absl::Status> deleted;
  rig.cold->DeleteFact("plan", "b", deleted.Done());
  ASSERT_TRUE(deleted.Wait(&rig)->ok());
  EXPECT_EQ(put("d", std::vector<uint8_t>(17 * kMiB)).code(), absl::StatusCode::kInvalidArgument);
  for (bool lose_index : {false, true}) {
    rig.Kill();
    if (lose_index) rig.index.Clear();
    ASSERT_TRUE(rig.Open().ok());
    ASSERT_EQ(rig.facts.size(), 2u) << "index lost: " << lose_index;
    for (const RecoveredFact& fact : rig.facts) {
      if (fact.name == "a") {
        EXPECT_EQ(fact.value, (std::vector<uint8_t>{3, 4}));
      } else {
        EXPECT_EQ(fact.name, "c");
        EXPECT_EQ(fact.value.size(), 3 * kMiB);
      }
    }
  }
}

TEST(ColdTier, AfterCloseEverythingIsRefused) {
  ColdRig rig;
  ASSERT_TRUE(rig.Open().ok());
  EncodedBlock block = ColdBlock(1, 8);
  CopyPtr copy = *rig.Put(block);
  Awaited<absl::Status> closed;
  rig.cold->Close(closed.Done());
  ASSERT_TRUE(closed.Wait(&rig)->ok());
  EXPECT_EQ(rig.Put(block).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(rig.Get(copy, block).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace firn
