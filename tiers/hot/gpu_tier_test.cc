#include "tiers/hot/gpu_tier.h"

#include <gtest/gtest.h>

#include <future>

#include "base/units.h"
#include "codecs/rules_test_util.h"
#include "tiers/hot/gpu_test_util.h"
#include "tiers/warm/warm_tier_test_util.h"

namespace firn {
namespace {

constexpr BlockShape kShape{.layers = 3, .heads = 2, .k_width = 64, .v_width = 96, .tokens = 37};

class GpuTierTest : public testing::Test {
 protected:
  void Open(gpu::CpuFaults first = {}, gpu::CpuFaults later = {}, uint64_t capacity = 32 * kMiB) {
    warm = MakeWarmTier("warm", 32 * kMiB);
    GpuTierOptions options = TestGpuOptions(&executor, capacity, StartThread(first, later));
    options.staging_bytes = 16 * kMiB;
    options.job_timeout_ms = 2'000;
    options.regions = {RegionOf(warm.get())};
    auto opened = GpuTier::Open(std::move(options));
    ASSERT_TRUE(opened.ok()) << opened.status();
    tier = *std::move(opened);
    tier->SetOnLost([this] { ++lost; });
    ASSERT_TRUE(tier->WaitUntilUp(10'000));
  }
  absl::StatusOr<CopyPtr> Commit(const EncodedBlock& block) {
    FIRN_ASSIGN_OR_RETURN(auto draft, tier->Reserve(block.Layout(block.present)));
    tier->Fill(draft.get(), block);
    std::promise<absl::StatusOr<CopyPtr>> answer;
    tier->Commit(std::move(draft), block.header, {}, [&](auto copy) { answer.set_value(std::move(copy)); });
    return answer.get_future().get();
  }
  absl::StatusOr<EncodedBlock> Read(const CopyPtr& copy) {
    std::promise<absl::StatusOr<EncodedBlock>> answer;
    tier->Read(copy, TestIdentity(), RunMask::All(), [&](auto block) { answer.set_value(std::move(block)); });
    return answer.get_future().get();
  }
  absl::StatusOr<TierRecoder::Recoded> Recode(const CopyPtr& copy, const EncodeSpec& spec, Tier* to) {
    std::promise<absl::StatusOr<TierRecoder::Recoded>> answer;
    tier->recoder()->Recode(copy, TestIdentity(), spec, artifacts, to,
                            [&](auto recoded) { answer.set_value(std::move(recoded)); });
    return answer.get_future().get();
  }
  static EncodedBlock Source(DType dtype = DType::kFp16, uint64_t seed = 1, uint32_t first_token = 0) {
    RawBlock raw = MakeBlock(kShape, dtype, seed);
    raw.first_token = first_token;
    EncodedBlock block = raw.Wrap();
    auto header = std::make_shared<RecordHeader>(*block.header);
    SealSource(header.get(), block.runs);
    block.header = std::move(header);
    return block;
  }
  // What re-coding in the child and re-coding here come to are the same record, byte for byte.
  void ExpectRecodesAlike(const EncodedBlock& source, const EncodeSpec& spec) {
    auto copy = Commit(source);
    ASSERT_TRUE(copy.ok()) << copy.status();
    auto recoded = Recode(*copy, spec, warm.get());
    ASSERT_TRUE(recoded.ok()) << recoded.status();
    auto expected = EncodeToHeap(source, spec, artifacts);
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_EQ(SerializeHeader(*recoded->header), SerializeHeader(*expected->header));
    for (uint32_t i = 0; i < kRunIds; ++i) {
      EXPECT_EQ(BytesOf(RunBytes(recoded->draft->runs()[i])), BytesOf(expected->runs[i])) << "run " << i;
    }
  }

  ThreadPoolExecutor executor{2};
  TestArtifacts artifacts;
  std::unique_ptr<ArenaTier> warm;
  std::unique_ptr<GpuTier> tier;
  std::atomic<int> lost{0};
};

TEST_F(GpuTierTest, RecodingGivesTheRecordThatEncodingGives) {
  Open();
  using enum PrecisionClass;
  for (DType dtype : {DType::kFp16, DType::kBf16}) {
    for (const RuleCase& c : RuleCases()) {
      SCOPED_TRACE(c.name);
      ExpectRecodesAlike(Source(dtype), RuleSpec(c, kShape, &artifacts));
    }
    for (PrecisionClass target : {k8Bit, k4Bit, k2Bit}) {
      for (Ladder ladder : {Ladder::kMinMax, Ladder::kGain, Ladder::kTrellis}) {
        EncodeSpec spec = Spec(target, target, KeyMethod::kBalancedRotated, artifacts.Add(MakeBalance(kShape, 5)));
        spec.ladder = ladder;
        spec.keep_first_tokens = 4;
        ExpectRecodesAlike(Source(dtype), spec);
        ExpectRecodesAlike(Source(dtype, 2, 64), spec);
        spec.key_method = KeyMethod::kPerChannel;
        ExpectRecodesAlike(Source(dtype, 3), spec);
      }
    }
  }
}

TEST_F(GpuTierTest, WhatNeedsNoCodesOrAnotherPlanIsLeftToTheCaller) {
  Open();
  using enum PrecisionClass;
  auto copy = Commit(Source());
  ASSERT_TRUE(copy.ok());
  EXPECT_TRUE(absl::IsUnimplemented(Recode(*copy, Spec(kExact, kExact), warm.get()).status()));
  // Values whose steps FP16 metadata cannot hold.
  RawBlock raw = MakeBlock(kShape, DType::kFp16, 4, 1e-4f);
  EncodedBlock wide = raw.Wrap();
  auto header = std::make_shared<RecordHeader>(*wide.header);
  SealSource(header.get(), wide.runs);
  wide.header = std::move(header);
  auto wide_copy = Commit(wide);
  ASSERT_TRUE(wide_copy.ok());
  auto recoded = Recode(*wide_copy, Spec(k8Bit, k8Bit), warm.get());
  EXPECT_TRUE(absl::IsUnimplemented(recoded.status())) << recoded.status();
  EXPECT_EQ(warm->Usage().draft_bytes, 0u);
  // A tier that the child has not mapped.
  auto stranger = MakeWarmTier("warm", kMiB);
  EXPECT_TRUE(absl::IsUnimplemented(Recode(*copy, Spec(k8Bit, k8Bit), stranger.get()).status()));
  EXPECT_EQ(stranger->Usage().draft_bytes, 0u);
  // One that is full.
  auto full = Recode(*copy, Spec(k8Bit, k8Bit), warm.get());
  std::vector<std::unique_ptr<Draft>> drafts;
  while (full.ok()) {
    drafts.push_back(std::move(full->draft));
    full = Recode(*copy, Spec(k8Bit, k8Bit), warm.get());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(full.status())) << full.status();
}

TEST_F(GpuTierTest, DamagedCopiesAreNotRecoded) {
  Open();
  EncodedBlock source = Source();
  auto header = std::make_shared<RecordHeader>(*source.header);
  header->runs[RunIndex(RunKind::kWhole, Part::kV)].checks[0] ^= 1;
  source.header = std::move(header);
  auto copy = Commit(source);
  ASSERT_TRUE(copy.ok());
  EXPECT_TRUE(absl::IsDataLoss(Recode(*copy, Spec(PrecisionClass::k8Bit, PrecisionClass::k8Bit), warm.get()).status()));
}

TEST_F(GpuTierTest, CodesComeStraightFromTheArena) {
  Open();
  auto encoded = EncodeToHeap(Source(), Spec(PrecisionClass::k4Bit, PrecisionClass::k4Bit), artifacts);
  ASSERT_TRUE(encoded.ok());
  auto draft = warm->Reserve(encoded->Layout(encoded->present));
  ASSERT_TRUE(draft.ok());
  warm->Fill(draft->get(), *encoded);
  CopyPtr below;
  warm->Commit(*std::move(draft), encoded->header, {}, [&](auto copy) { below = *copy; });
  EncodedBlock view;
  warm->Read(below, TestIdentity(), RunMask::All(), [&](auto block) { view = *std::move(block); });
  auto promoted = Commit(view);
  ASSERT_TRUE(promoted.ok()) << promoted.status();
  view = {};
  below.reset();
  auto read = Read(*promoted);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(IntactRuns(*read), encoded->present);
  EXPECT_EQ(BytesOf(*read), BytesOf(*encoded));
}

TEST_F(GpuTierTest, DeathTakesTheCopiesAndNothingElse) {
  // One fatal error in each epoch's fourth job: the codes that CUDA documents as sticky.
  for (int32_t code : {214, 226, 700, 719}) {
    SCOPED_TRACE(code);
    tier.reset();
    lost = 0;
    Open({.fatal_at_job = 4, .fatal_code = code});
    auto copy = Commit(Source());
    ASSERT_TRUE(copy.ok());
    auto read = Read(*copy);
    ASSERT_TRUE(read.ok());
    absl::Status died;
    for (int i = 0; i < 5 && died.ok(); ++i) died = Read(*copy).status();
    EXPECT_TRUE(absl::IsUnavailable(died)) << died;
    EXPECT_TRUE((*copy)->Runs().Empty());
    EXPECT_EQ(IntactRuns(*read), read->present) << "what was read before stays";
    ASSERT_TRUE(tier->WaitUntilUp(2'000)) << "back within two seconds";
    EXPECT_TRUE(absl::IsUnavailable(Read(*copy).status())) << "of the child that is gone";
    EXPECT_EQ(tier->Usage().used_bytes, 0u);
    auto again = Commit(Source());
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_TRUE(Read(*again).ok());
    copy->reset();
    EXPECT_GT(tier->Usage().used_bytes, 0u) << "the dead copy's extents are not the new pool's";
    EXPECT_EQ(lost, 1);
    EXPECT_NE(tier->LinkStats().last_failure.find(std::to_string(code)), std::string::npos);
  }
}

TEST_F(GpuTierTest, AHangingChildIsKilled) {
  Open({.hang_at_job = 2});
  auto copy = Commit(Source());
  ASSERT_TRUE(copy.ok());
  EXPECT_TRUE(absl::IsUnavailable(Read(*copy).status()));
  EXPECT_TRUE(tier->WaitUntilUp(2'000));
}

TEST_F(GpuTierTest, OneFailedJobIsNoDeath) {
  Open({.fail_at_job = 2});
  auto copy = Commit(Source());
  ASSERT_TRUE(copy.ok());
  EXPECT_TRUE(absl::IsResourceExhausted(Read(*copy).status()));
  EXPECT_TRUE(Read(*copy).ok());
  EXPECT_EQ(tier->LinkStats().deaths, 0u);
}

TEST_F(GpuTierTest, AGpuWithLessMemoryIsASmallerTier) {
  Open({.pool_bytes_max = 2 * kMiB + 100});
  EXPECT_EQ(tier->Usage().capacity_bytes, 2 * kMiB);
  std::vector<CopyPtr> copies;
  absl::Status full;
  while (full.ok()) {
    auto copy = Commit(Source());
    full = copy.status();
    if (copy.ok()) copies.push_back(*std::move(copy));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  EXPECT_LE(tier->Usage().used_bytes, 2 * kMiB);
}

TEST_F(GpuTierTest, WithoutAPoolNothingIsTaken) {
  Open({}, {}, 0);
  EXPECT_FALSE(tier->available());
  EXPECT_FALSE(Commit(Source()).ok());
}

TEST_F(GpuTierTest, ReadsWaitForStagingInOrder) {
  Open();
  auto copy = Commit(Source());
  ASSERT_TRUE(copy.ok());
  constexpr int kReads = 400;  // Many times what 8 MiB of staging holds.
  std::mutex mu;
  std::vector<int> order;
  std::deque<EncodedBlock> held;
  for (int i = 0; i < kReads; ++i) {
    tier->Read(*copy, TestIdentity(), RunMask::All(), [&, i](absl::StatusOr<EncodedBlock> block) {
      std::lock_guard lock(mu);
      order.push_back(i);
      if (block.ok()) held.push_back(*std::move(block));
    });
  }
  size_t stuck = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EncodedBlock freed;
    std::lock_guard lock(mu);
    if (order.size() == kReads) break;
    stuck = std::max(stuck, held.size());
    if (!held.empty()) {
      EXPECT_EQ(IntactRuns(held.front()), held.front().present);
      freed = std::move(held.front());
      held.pop_front();
    }
  }
  std::lock_guard lock(mu);
  ASSERT_EQ(order.size(), static_cast<size_t>(kReads));
  EXPECT_LT(stuck, static_cast<size_t>(kReads)) << "some had to wait";
}

TEST_F(GpuTierTest, WhatWasReadOutlivesTheTier) {
  Open();
  auto copy = Commit(Source());
  ASSERT_TRUE(copy.ok());
  auto read = Read(*copy);
  ASSERT_TRUE(read.ok());
  copy->reset();
  tier.reset();
  EXPECT_EQ(IntactRuns(*read), read->present);
}

}  // namespace
}  // namespace firn
