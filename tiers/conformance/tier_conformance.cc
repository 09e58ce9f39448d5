#include "tiers/conformance/tier_conformance.h"

#include <utility>
#include <vector>

#include "base/units.h"

namespace firn {

absl::StatusOr<CopyPtr> CommitBlock(TierHarness* harness, const EncodedBlock& block, const CommitOptions& options) {
  FIRN_ASSIGN_OR_RETURN(std::unique_ptr<Draft> draft, harness->tier().Reserve(block.Layout(block.present)));
  harness->tier().Fill(draft.get(), block);
  Awaited<absl::StatusOr<CopyPtr>> copy;
  harness->tier().Commit(std::move(draft), block.header, options, copy.Done());
  auto result = copy.Wait(harness);
  if (!result.has_value()) return InternalError("the commit never completed");
  return *std::move(result);
}

absl::StatusOr<EncodedBlock> ReadBlock(TierHarness* harness, const CopyPtr& copy, const Identity& identity,
                                       RunMask runs) {
  Awaited<absl::StatusOr<EncodedBlock>> block;
  harness->tier().Read(copy, identity, runs, block.Done());
  auto result = block.Wait(harness);
  if (!result.has_value()) return InternalError("the read never completed");
  return *std::move(result);
}

void DropCopy(TierHarness* harness, CopyPtr* copy, const Identity& identity) {
  harness->tier().Forget(*copy, identity);
  copy->reset();
}

namespace {

TestBlockSpec NestedSpec() {
  return {"nested", {.layers = 4, .heads = 8, .k_width = 128, .v_width = 128, .tokens = 64}, CodecFamily::kNested};
}

void ExpectAccounts(TierHarness* harness) {
  TierUsage usage = harness->tier().Usage();
  EXPECT_LE(usage.used_bytes, usage.capacity_bytes);
  EXPECT_LE(usage.draft_bytes + usage.overhead_bytes, usage.used_bytes);
  absl::Status audit = harness->Audit();
  EXPECT_TRUE(audit.ok()) << audit;
}

TEST_P(TierConformance, RoundTripsEveryShape) {
  auto harness = Make(128 * kMiB);
  uint64_t number = 0;
  for (const TestBlockSpec& spec : TestBlockSpecs()) {
    SCOPED_TRACE(spec.name);
    ++number;
    EncodedBlock block = MakeTestBlock(spec, TestIdentity(number), number);
    auto copy = CommitBlock(harness.get(), block);
    ASSERT_TRUE(copy.ok()) << copy.status();
    EXPECT_EQ((*copy)->Runs(), block.present);
    EXPECT_GE((*copy)->StoredBytes(), block.Layout(block.present).TotalBytes());
    auto read = ReadBlock(harness.get(), *copy, block.header->identity);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(SameBlock(*read, block));
    EXPECT_EQ(IntactRuns(*read), block.present);
    DropCopy(harness.get(), &*copy, block.header->identity);
  }
  ExpectAccounts(harness.get());
}

TEST_P(TierConformance, DraftsHaveExactlyTheBytesAskedFor) {
  auto harness = Make(64 * kMiB);
  for (const TestBlockSpec& spec : TestBlockSpecs()) {
    SCOPED_TRACE(spec.name);
    RecordLayout layout = MakeTestBlock(spec, TestIdentity(1), 1).Layout(RunMask::All());
    auto draft = harness->tier().Reserve(layout);
    ASSERT_TRUE(draft.ok()) << draft.status();
    for (uint32_t i = 0; i < kRunIds; ++i) EXPECT_EQ((*draft)->runs()[i].size(), layout.run_bytes[i]) << "run " << i;
  }
}

TEST_P(TierConformance, ReadsTheRunsAskedFor) {
  auto harness = Make(64 * kMiB);
  EncodedBlock block = MakeTestBlock(NestedSpec(), TestIdentity(1), 1);
  auto copy = CommitBlock(harness.get(), block);
  ASSERT_TRUE(copy.ok()) << copy.status();
  for (RunMask runs : {RunMask::Both(RunKind::kMeta) | RunMask::Both(RunKind::kP2), RunMask::Of(RunKind::kP8, Part::kV),
                       RunMask::Both(RunKind::kP4) | RunMask::Both(RunKind::kWhole), RunMask::All()}) {
    auto read = ReadBlock(harness.get(), *copy, block.header->identity, runs);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(SameBlock(*read, block.Narrowed(runs))) << "runs " << runs.bits();
  }
}

TEST_P(TierConformance, AnotherIdentityIsNeverServed) {
  auto harness = Make(64 * kMiB);
  EncodedBlock block = MakeTestBlock(NestedSpec(), TestIdentity(1), 1);
  auto copy = CommitBlock(harness.get(), block);
  ASSERT_TRUE(copy.ok()) << copy.status();
  Identity stale = block.header->identity, other = stale, foreign = stale, shard = stale;
  stale.generation += 1;
  other.key = TestIdentity(2).key;
  foreign.namespace_fingerprint = TestIdentity(1, 1).namespace_fingerprint;
  shard.shard += 1;
  for (const Identity& wrong : {stale, other, foreign, shard}) {
    EXPECT_FALSE(ReadBlock(harness.get(), *copy, wrong).ok());
  }
  EXPECT_TRUE(ReadBlock(harness.get(), *copy, block.header->identity).ok());
}

TEST_P(TierConformance, AbortReturnsEverything) {
  auto harness = Make(64 * kMiB);
  TierUsage before = harness->tier().Usage();
  for (int round = 0; round < 3; ++round) {
    for (const TestBlockSpec& spec : TestBlockSpecs()) {
      SCOPED_TRACE(spec.name);
      EncodedBlock block = MakeTestBlock(spec, TestIdentity(1), 1);
      auto draft = harness->tier().Reserve(block.Layout(block.present));
      ASSERT_TRUE(draft.ok()) << draft.status();
      EXPECT_GE(harness->tier().Usage().draft_bytes, block.Layout(block.present).TotalBytes());
      harness->tier().Fill(draft->get(), block);
    }
    TierUsage after = harness->tier().Usage();
    EXPECT_EQ(after.draft_bytes, 0u);
    EXPECT_EQ(after.used_bytes, before.used_bytes);
    EXPECT_EQ(after.copies, 0u);
  }
  ExpectAccounts(harness.get());
}

bool NamesNumbers(const absl::Status& status) {
  return Message(status).find_first_of("0123456789") != std::string::npos;
}

TEST_P(TierConformance, RefusesWhatNeverFits) {
  auto harness = Make(8 * kMiB);
  uint64_t capacity = harness->tier().Usage().capacity_bytes;
  RecordLayout layout;
  layout.present = RunMask::Of(RunKind::kWhole, Part::kK);
  layout.run_bytes[RunIndex(RunKind::kWhole, Part::kK)] = capacity + 1;
  auto draft = harness->tier().Reserve(layout);
  ASSERT_FALSE(draft.ok());
  EXPECT_TRUE(absl::IsResourceExhausted(draft.status()) || absl::IsInvalidArgument(draft.status())) << draft.status();
  EXPECT_NE(Message(draft.status()).find(std::to_string(capacity + 1)), std::string::npos) << draft.status();
  EXPECT_EQ(harness->tier().Usage().draft_bytes, 0u);
  EXPECT_EQ(harness->tier().Counters().reserve_failures, 1u);
}

TEST_P(TierConformance, FullRefusesWithNumbersAndRoomReopens) {
  if (GetParam().reclaims_by_itself) GTEST_SKIP() << "this tier makes room by itself";
  auto harness = Make(8 * kMiB);
  std::vector<std::pair<CopyPtr, Identity>> copies;
  absl::Status refused;
  for (uint64_t number = 0; refused.ok() && number < 10'000; ++number) {
    EncodedBlock block = MakeTestBlock(NestedSpec(), TestIdentity(number), number);
    auto copy = CommitBlock(harness.get(), block);
    if (copy.ok()) {
      copies.emplace_back(*std::move(copy), block.header->identity);
    } else {
      refused = copy.status();
    }
    ExpectAccounts(harness.get());
  }
  ASSERT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_TRUE(NamesNumbers(refused)) << refused;
  ASSERT_FALSE(copies.empty());
  for (int round = 0; round < 20; ++round) {
    auto& [copy, identity] = copies[static_cast<size_t>(round) % copies.size()];
    DropCopy(harness.get(), &copy, identity);
    EncodedBlock block = MakeTestBlock(NestedSpec(), TestIdentity(20'000 + static_cast<uint64_t>(round)), 1);
    auto again = CommitBlock(harness.get(), block);
    ASSERT_TRUE(again.ok()) << "the room of one block must hold another of its shape: " << again.status();
    copy = *std::move(again);
    identity = block.header->identity;
  }
  ExpectAccounts(harness.get());
}

TEST_P(TierConformance, NeverPassesItsCapacity) {
  auto harness = Make(16 * kMiB);
  uint64_t capacity = harness->tier().Usage().capacity_bytes;
  uint64_t written = 0, seen = 0;
  std::vector<std::pair<CopyPtr, EncodedBlock>> copies;
  for (uint64_t number = 0; written < 3 * capacity; ++number) {
    EncodedBlock block = MakeTestBlock(NestedSpec(), TestIdentity(number), number);
    written += block.Layout(block.present).TotalBytes();
    auto copy = CommitBlock(harness.get(), block);
    ASSERT_TRUE(copy.ok() || absl::IsResourceExhausted(copy.status())) << copy.status();
    if (copy.ok()) copies.emplace_back(*std::move(copy), std::move(block));
    EXPECT_LE(harness->tier().Usage().used_bytes, capacity);
  }
  for (auto& [copy, block] : copies) {
    auto read = ReadBlock(harness.get(), copy, block.header->identity);
    if (!read.ok()) continue;  // A miss is safe where the tier reclaims by itself.
    EXPECT_TRUE(SameBlock(*read, block.Narrowed(read->present)));
    if (read->present == block.present) ++seen;
    EXPECT_TRUE(GetParam().reclaims_by_itself || read->present == block.present);
  }
  EXPECT_GT(seen, 0u);
  ExpectAccounts(harness.get());
}

TEST_P(TierConformance, NarrowFreesAtOnceAndCopiesNothing) {
  auto harness = Make(64 * kMiB);
  EncodedBlock block = MakeTestBlock(NestedSpec(), TestIdentity(1), 1);
  const Identity& identity = block.header->identity;
  auto copy = CommitBlock(harness.get(), block);
  ASSERT_TRUE(copy.ok()) << copy.status();
  RunMask keep = block.present - RunMask::Both(RunKind::kP8);
  if (!harness->tier().narrows_in_place()) {
    EXPECT_TRUE(absl::IsUnimplemented(harness->tier().Narrow(*copy, keep).status()));
    return;
  }
  auto before = ReadBlock(harness.get(), *copy, identity);
  ASSERT_TRUE(before.ok()) << before.status();
  uint64_t used = harness->tier().Usage().used_bytes;
  auto narrow = harness->tier().Narrow(*copy, keep | RunMask::Both(RunKind::kWhole));
  ASSERT_TRUE(narrow.ok()) << narrow.status();
  EXPECT_EQ((*narrow)->Runs(), keep);
  EXPECT_EQ(harness->tier().Usage().used_bytes, used);

  DropCopy(harness.get(), &*copy, identity);
  EXPECT_EQ(IntactRuns(*before), block.present) << "a reader of the finer copy keeps it";
  if (!GetParam().reads_are_copies) {
    EXPECT_EQ(harness->tier().Usage().used_bytes, used);
    EXPECT_GE(harness->tier().Usage().held_bytes, block.header->RunBytes(RunMask::Both(RunKind::kP8)));
  }
  auto after = ReadBlock(harness.get(), *narrow, identity);
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_TRUE(SameBlock(*after, block.Narrowed(keep)));
  if (!GetParam().reads_are_copies) {
    EXPECT_EQ(after->runs[RunIndex(RunKind::kP2, Part::kK)].spans()[0].data(),
              before->runs[RunIndex(RunKind::kP2, Part::kK)].spans()[0].data());
  }

  *before = {};
  EXPECT_LE(harness->tier().Usage().used_bytes, used - block.header->RunBytes(RunMask::Both(RunKind::kP8)));
  EXPECT_EQ(harness->tier().Usage().held_bytes, 0u);
  EXPECT_EQ(harness->tier().Counters().narrows, 1u);
  ExpectAccounts(harness.get());
}

TEST_P(TierConformance, ReadersKeepTheirBytesAfterForget) {
  auto harness = Make(16 * kMiB);
  EncodedBlock block = MakeTestBlock(NestedSpec(), TestIdentity(1), 1);
  auto copy = CommitBlock(harness.get(), block);
  ASSERT_TRUE(copy.ok()) << copy.status();
  auto read = ReadBlock(harness.get(), *copy, block.header->identity);
  ASSERT_TRUE(read.ok()) << read.status();
  DropCopy(harness.get(), &*copy, block.header->identity);
  // Everything that fits is written over and over in the meantime.
  for (uint64_t number = 2; number < 60; ++number) {
    EncodedBlock other = MakeTestBlock(NestedSpec(), TestIdentity(number), number);
    auto other_copy = CommitBlock(harness.get(), other);
    ASSERT_TRUE(other_copy.ok()) << other_copy.status();
    DropCopy(harness.get(), &*other_copy, other.header->identity);
  }
  EXPECT_TRUE(SameBlock(*read, block));
  *read = {};
  EXPECT_EQ(harness->tier().Usage().held_bytes, 0u);
  ExpectAccounts(harness.get());
}

TEST_P(TierConformance, FlushCompletesAndCountersAgree) {
  auto harness = Make(16 * kMiB);
  EncodedBlock block = MakeTestBlock(NestedSpec(), TestIdentity(1), 1);
  auto copy = CommitBlock(harness.get(), block);
  ASSERT_TRUE(copy.ok()) << copy.status();
  Awaited<absl::Status> flushed;
  harness->tier().Flush(flushed.Done());
  auto status = flushed.Wait(harness.get());
  ASSERT_TRUE(status.has_value());
  EXPECT_TRUE(status->ok()) << *status;
  ASSERT_TRUE(ReadBlock(harness.get(), *copy, block.header->identity).ok());
  TierCounters counters = harness->tier().Counters();
  EXPECT_EQ(counters.reserves, 1u);
  EXPECT_EQ(counters.commits, 1u);
  EXPECT_EQ(counters.committed_bytes, block.Layout(block.present).TotalBytes());
  EXPECT_EQ(counters.reads, 1u);
  EXPECT_EQ(counters.read_bytes, block.Layout(block.present).TotalBytes());
  EXPECT_EQ(counters.reserve_failures + counters.commit_failures + counters.read_failures, 0u);
  EXPECT_EQ(harness->tier().Usage().copies, 1u);
}

}  // namespace
}  // namespace firn
