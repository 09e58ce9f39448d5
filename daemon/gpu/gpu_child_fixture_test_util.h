// Test support: a GPU tier whose child is the process that it is, a warm tier to code into, and what both make.
#pragma once

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "codecs/block_test_util.h"
#include "daemon/gpu/gpu_child_test_util.h"
#include "tiers/hot/gpu_tier.h"
#include "tiers/warm/warm_tier_test_util.h"

namespace firn {

// How many bytes differ and the first of them; empty: none.
inline std::string DifferenceOf(ByteSpan got, ByteSpan expected) {
  if (got.size() != expected.size()) return fmt::format("{} bytes, expected {}", got.size(), expected.size());
  size_t differ = 0, first = 0;
  for (size_t i = got.size(); i-- > 0;) {
    if (got[i] == expected[i]) continue;
    ++differ;
    first = i;
  }
  if (differ == 0) return "";
  auto around = [first](ByteSpan bytes) {
    ByteSpan piece = bytes.subspan(first, std::min<size_t>(8, bytes.size() - first));
    return fmt::format("{:02x}", fmt::join(piece, " "));
  };
  return fmt::format("{} of {} bytes differ, from {} on: expected {}, got {}", differ, got.size(), first,
                     around(expected), around(got));
}

// What of a header differs, by name where it has one.
inline std::string DifferenceOf(const RecordHeader& got, const RecordHeader& expected) {
  std::string found;
  for (Part part : kParts) {
    const PartErrors &a = got.errors[static_cast<size_t>(part)], &b = expected.errors[static_cast<size_t>(part)];
    if (std::memcmp(&a, &b, sizeof(a)) == 0) continue;
    found += fmt::format("errors of {}: expected {} {} {}, got {} {} {}; ", part == Part::kK ? "K" : "V", b.int8,
                         b.int4, b.int2, a.int8, a.int4, a.int2);
  }
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (got.runs[i] != expected.runs[i]) found += fmt::format("checks of run {}; ", i);
  }
  std::string bytes = DifferenceOf(ByteSpan(SerializeHeader(got)), ByteSpan(SerializeHeader(expected)));
  return bytes.empty() ? found : fmt::format("header: {}{}", found, bytes);
}

inline std::string DifferenceOf(const TierRecoder::Recoded& got, const EncodedBlock& expected) {
  std::string found = DifferenceOf(*got.header, *expected.header);
  for (uint32_t i = 0; i < kRunIds; ++i) {
    std::string run = DifferenceOf(ByteSpan(BytesOf(RunBytes(got.draft->runs()[i]))), BytesOf(expected.runs[i]));
    if (!run.empty()) found += fmt::format("\n  run {}: {}", i, run);
  }
  return found;
}

class GpuChildFixture : public testing::TestWithParam<ChildKind> {
 protected:
  void SetUp() override {
    if (std::string why = WhyNot(GetParam()); !why.empty()) GTEST_SKIP() << why;
  }
  void Open(std::vector<std::string> arguments = {}, uint64_t capacity = 64 * kMiB) {
    warm = MakeWarmTier("warm", 128 * kMiB);
    GpuTierOptions options;
    options.capacity_bytes = capacity;
    options.staging_bytes = 64 * kMiB;
    options.scratch_bytes = 64 * kMiB;
    options.start = StartChild(GetParam(), std::move(arguments));
    options.executor = &executor;
    options.backoff_first_ms = 10;
    options.regions = {RegionOf(warm.get())};
    auto opened = GpuTier::Open(std::move(options));
    ASSERT_TRUE(opened.ok()) << opened.status();
    tier = *std::move(opened);
    ASSERT_TRUE(tier->WaitUntilUp(60'000)) << tier->LinkStats().last_failure;
  }
  std::future<absl::StatusOr<CopyPtr>> StartCommit(const EncodedBlock& block) {
    auto answer = std::make_shared<std::promise<absl::StatusOr<CopyPtr>>>();
    auto future = answer->get_future();
    auto draft = tier->Reserve(block.Layout(block.present));
    if (!draft.ok()) {
      answer->set_value(draft.status());
      return future;
    }
    tier->Fill(draft->get(), block);
    tier->Commit(*std::move(draft), block.header, {}, [answer](auto copy) { answer->set_value(std::move(copy)); });
    return future;
  }
  absl::StatusOr<CopyPtr> Commit(const EncodedBlock& block) { return StartCommit(block).get(); }
  absl::StatusOr<EncodedBlock> Read(const CopyPtr& copy, const Identity& identity = TestIdentity()) {
    std::promise<absl::StatusOr<EncodedBlock>> answer;
    tier->Read(copy, identity, RunMask::All(), [&](auto block) { answer.set_value(std::move(block)); });
    return answer.get_future().get();
  }
  using Recoded = absl::StatusOr<TierRecoder::Recoded>;
  std::future<Recoded> StartRecode(const CopyPtr& copy, const EncodeSpec& spec) {
    auto answer = std::make_shared<std::promise<Recoded>>();
    tier->recoder()->Recode(copy, TestIdentity(), spec, artifacts, warm.get(),
                            [answer](auto recoded) { answer->set_value(std::move(recoded)); });
    return answer->get_future();
  }
  static EncodedBlock Seal(const RawBlock& raw) {
    EncodedBlock block = raw.Wrap();
    auto header = std::make_shared<RecordHeader>(*block.header);
    SealSource(header.get(), block.runs);
    block.header = std::move(header);
    return block;
  }
  void ExpectEqual(const Recoded& recoded, const EncodedBlock& source, const EncodeSpec& spec) {
    ASSERT_TRUE(recoded.ok()) << recoded.status();
    auto expected = EncodeToHeap(source, spec, artifacts);
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_EQ(DifferenceOf(*recoded, *expected), "");
  }

  ThreadPoolExecutor executor{2};
  TestArtifacts artifacts;
  std::unique_ptr<ArenaTier> warm;
  std::unique_ptr<GpuTier> tier;
};

}  // namespace firn
