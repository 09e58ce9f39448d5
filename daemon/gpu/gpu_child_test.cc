// The child as the process that it is, on the processor and on a GPU: what it makes, and how it dies.
#include <gtest/gtest.h>
#include <signal.h>

#include <random>

#include "base/check.h"
#include "daemon/gpu/gpu_child_fixture_test_util.h"

namespace firn {
namespace {

using enum PrecisionClass;

class GpuChildTest : public GpuChildFixture {
 protected:
  // A device may leave a coding to the caller, where `must` allows.
  void ExpectRecodesAlike(const RawBlock& raw, const EncodeSpec& spec, bool must) {
    EncodedBlock source = Seal(raw);
    auto copy = Commit(source);
    ASSERT_TRUE(copy.ok()) << copy.status();
    Recoded recoded = StartRecode(*copy, spec).get();
    if (absl::IsUnimplemented(recoded.status()) && !must) {
      ++left_to_the_caller;
      return;
    }
    ExpectEqual(recoded, source, spec);
  }

  int left_to_the_caller = 0;
};

constexpr BlockShape kShapes[] = {
    {.layers = 3, .heads = 2, .k_width = 64, .v_width = 96, .tokens = 37},
    {.layers = 8, .heads = 4, .k_width = 128, .v_width = 128, .tokens = 64},
    {.layers = 2, .heads = 1, .k_width = 576, .v_width = 80, .tokens = 5},
    {.layers = 5, .heads = 3, .k_width = 7, .v_width = 130, .tokens = 17},
    {.layers = 4, .heads = 2, .k_width = 128, .v_width = 0, .tokens = 16},
};

TEST_P(GpuChildTest, RecordsAreThoseOfTheProcessor) {
  Open();
  for (const BlockShape& shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.k_width << " and " << shape.v_width << " wide");
    auto balance = artifacts.Add(MakeBalance(shape, 5));
    for (DType dtype : {DType::kFp16, DType::kBf16}) {
      for (PrecisionClass target : {k8Bit, k4Bit, k2Bit}) {
        for (KeyMethod method : {KeyMethod::kPerChannel, KeyMethod::kRotated, KeyMethod::kBalancedRotated}) {
          EncodeSpec spec = Spec(target, target, method, balance);
          ExpectRecodesAlike(MakeBlock(shape, dtype, 3), spec, /*must=*/true);
          spec.keep_first_tokens = 4;
          ExpectRecodesAlike(MakeBlock(shape, dtype, 4), spec, /*must=*/shape.tokens > 4);
        }
      }
      for (auto [k, v] : {std::pair{kExact, k4Bit}, std::pair{k8Bit, kExact}, std::pair{k8Bit, k2Bit}}) {
        if (shape.v_width == 0) continue;
        ExpectRecodesAlike(MakeBlock(shape, dtype, 5), Spec(k, v), /*must=*/true);
      }
      EncodeSpec fp8 = Spec(k8Bit, k8Bit);
      fp8.use_fp8 = true;
      ExpectRecodesAlike(MakeBlock(shape, dtype, 6), fp8, /*must=*/true);
    }
  }
  // Values that want wider metadata. Every other coding is gpu_codings_test.cc's.
  EXPECT_LE(left_to_the_caller, 10);
}

TEST_P(GpuChildTest, ManyAtOnceAreAsRightAsOne) {
  Open();
  const BlockShape shape = kShapes[1];
  auto balance = artifacts.Add(MakeBalance(shape, 5));
  constexpr size_t kBlocks = 40;
  std::vector<EncodedBlock> sources;
  std::vector<CopyPtr> copies;
  std::vector<EncodeSpec> specs;
  for (size_t i = 0; i < kBlocks; ++i) {
    RawBlock raw = MakeBlock(shape, DType::kFp16, 100 + i);
    // One in ten does not fit FP16 metadata, one is damaged: their neighbours must not notice.
    if (i % 10 == 3) raw = MakeBlock(shape, DType::kFp16, 100 + i, 1e-4f);
    EncodedBlock source = Seal(raw);
    if (i % 10 == 7) {
      auto header = std::make_shared<RecordHeader>(*source.header);
      header->runs[RunIndex(RunKind::kWhole, Part::kK)].checks.back() ^= 4;
      source.header = std::move(header);
    }
    auto copy = Commit(source);
    ASSERT_TRUE(copy.ok()) << copy.status();
    copies.push_back(*std::move(copy));
    sources.push_back(std::move(source));
    specs.push_back(i % 3 == 0 ? Spec(k4Bit, k4Bit) : Spec(k8Bit, k4Bit, KeyMethod::kBalancedRotated, balance));
  }
  std::vector<std::future<Recoded>> answers;
  for (size_t i = 0; i < kBlocks; ++i) answers.push_back(StartRecode(copies[i], specs[i]));
  for (size_t i = 0; i < kBlocks; ++i) {
    SCOPED_TRACE(i);
    Recoded recoded = answers[i].get();
    if (i % 10 == 3) {
      EXPECT_TRUE(absl::IsUnimplemented(recoded.status())) << recoded.status();
    } else if (i % 10 == 7) {
      EXPECT_TRUE(absl::IsDataLoss(recoded.status())) << recoded.status();
    } else {
      ExpectEqual(recoded, sources[i], specs[i]);
    }
  }
}

TEST_P(GpuChildTest, NanAndInfAreNotCoded) {
  Open();
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    RawBlock raw = MakeBlock(kShapes[1], DType::kFp16, 9);
    raw.Set(Part::kV, 1234, bad);
    // As a header of before would have it: nobody looked.
    EncodedBlock source = Seal(raw);
    auto header = std::make_shared<RecordHeader>(*source.header);
    header->flags = 0;
    source.header = std::move(header);
    auto copy = Commit(source);
    ASSERT_TRUE(copy.ok());
    EXPECT_TRUE(absl::IsUnimplemented(StartRecode(*copy, Spec(k8Bit, k8Bit)).get().status()));
  }
}

TEST_P(GpuChildTest, AKilledProcessIsReplacedWithinTwoSeconds) {
  Open();
  for (int round = 0; round < 3; ++round) {
    auto copy = Commit(Seal(MakeBlock(kShapes[0], DType::kFp16, 1)));
    ASSERT_TRUE(copy.ok()) << copy.status();
    int pid = tier->LinkStats().pid;
    ASSERT_GT(pid, 0);
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    auto since = std::chrono::steady_clock::now();
    while (!(*copy)->Runs().Empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(absl::IsUnavailable(Read(*copy).status()));
    // A GPU's context takes time to make: the bound is the issue's, with room for a loaded machine.
    ASSERT_TRUE(tier->WaitUntilUp(20'000));
    double took_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
    RecordProperty("back_after_ms_" + std::to_string(round), static_cast<int>(took_s * 1000));
    std::printf("back after %.2f s\n", took_s);
    EXPECT_NE(tier->LinkStats().pid, pid);
  }
}

TEST_P(GpuChildTest, AnIllegalAddressEndsTheChildAlone) {
  Open(GetParam().cuda ? std::vector<std::string>{"--fault-illegal-address-at", "3"}
                       : std::vector<std::string>{"--fault-fatal-at", "3"});
  auto copy = Commit(Seal(MakeBlock(kShapes[0], DType::kFp16, 1)));
  ASSERT_TRUE(copy.ok()) << copy.status();
  absl::Status died;
  for (int i = 0; i < 4 && died.ok(); ++i) died = Read(*copy).status();
  EXPECT_TRUE(absl::IsUnavailable(died)) << died;
  EXPECT_NE(tier->LinkStats().last_failure.find("700"), std::string::npos) << tier->LinkStats().last_failure;
  ASSERT_TRUE(tier->WaitUntilUp(20'000));
  auto again = Commit(Seal(MakeBlock(kShapes[0], DType::kFp16, 1)));
  EXPECT_TRUE(again.ok()) << again.status();
}

TEST_P(GpuChildTest, AProcessThatEndsInAJobIsADeathLikeAnyOther) {
  if (GetParam().cuda) GTEST_SKIP() << "a fault of the processor's device";
  Open({"--fault-exit-at", "2"});
  auto copy = Commit(Seal(MakeBlock(kShapes[0], DType::kFp16, 1)));
  ASSERT_TRUE(copy.ok());
  EXPECT_TRUE(absl::IsUnavailable(Read(*copy).status()));
  EXPECT_TRUE(tier->WaitUntilUp(5'000));
}

TEST_P(GpuChildTest, RandomMovesLeaveEveryByteAndEveryCountRight) {
  Open({}, 16 * kMiB);
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 rng(seed);
  const int operations = std::getenv("FIRN_GPU_MOVES") != nullptr ? std::atoi(std::getenv("FIRN_GPU_MOVES")) : 3000;
  std::vector<EncodedBlock> kinds;
  for (uint64_t i = 0; i < 8; ++i) kinds.push_back(Seal(MakeBlock(kShapes[i % 5], DType::kFp16, i)));
  struct Held {
    size_t kind;
    CopyPtr copy;
  };
  std::vector<Held> held;
  for (int i = 0; i < operations; ++i) {
    switch (rng() % 4) {
      case 0:
      case 1: {
        size_t kind = rng() % kinds.size();
        auto copy = Commit(kinds[kind]);
        if (copy.ok()) {
          held.push_back({kind, *std::move(copy)});
          break;
        }
        ASSERT_TRUE(absl::IsResourceExhausted(copy.status())) << copy.status();
        while (held.size() > 4) held.pop_back();
        break;
      }
      case 2: {
        if (held.empty()) break;
        const Held& h = held[rng() % held.size()];
        auto read = Read(h.copy);
        ASSERT_TRUE(read.ok()) << read.status();
        ASSERT_EQ(IntactRuns(*read), read->present);
        ASSERT_EQ(BytesOf(*read), BytesOf(kinds[h.kind]));
        break;
      }
      default: {
        if (held.empty()) break;
        size_t at = rng() % held.size();
        Recoded recoded = StartRecode(held[at].copy, Spec(k8Bit, k4Bit)).get();
        ASSERT_TRUE(recoded.ok()) << recoded.status();
        EncodedBlock codes;
        codes.header = recoded->header;
        codes.present = recoded->header->encoded;
        for (uint32_t r = 0; r < kRunIds; ++r) codes.runs[r] = recoded->draft->runs()[r];
        ASSERT_EQ(IntactRuns(codes), codes.present);
        held.erase(held.begin() + static_cast<ptrdiff_t>(at));
      }
    }
    if (i % 50 == 0) {
      uint64_t bytes = 0;
      for (const Held& h : held) bytes += h.copy->StoredBytes();
      TierUsage usage = tier->Usage();
      ASSERT_EQ(usage.used_bytes, bytes);
      ASSERT_EQ(usage.copies, held.size());
      ASSERT_TRUE(tier->AuditForTest().ok()) << tier->AuditForTest();
    }
  }
  EXPECT_EQ(tier->LinkStats().deaths, 0u);
  EXPECT_EQ(warm->Usage().used_bytes, 0u);
}

INSTANTIATE_TEST_SUITE_P(On, GpuChildTest, testing::Values(ChildKind{"Processor", false}, ChildKind{"Cuda", true}),
                         ChildKindName);

}  // namespace
}  // namespace firn
