// Damage in tiers that correct errors: what a flip costs, what is given back and from where, and that nothing else than
// what was put is ever served.
//
// Must survive: any flips in the memory of a DRAM tier and in the segment files of a cold one, while blocks are read,
// moved and scrubbed. With a code, single flips of a code word and damaged sectors cost nothing; without, a plane.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tiers/store/heal_rig_test_util.h"

namespace firn {
namespace {

constexpr ClassPair kExactClass{PrecisionClass::kExact, PrecisionClass::kExact};
constexpr ClassPair kInt8{PrecisionClass::k8Bit, PrecisionClass::k8Bit};
constexpr ClassPair kInt4{PrecisionClass::k4Bit, PrecisionClass::k4Bit};

TEST(StoreHeal, C38_aFlipInMemoryIsCorrectedAndWrittenAnew) {
  for (EccCode code : {EccCode::kSecded, EccCode::kReedSolomon}) {
    SCOPED_TRACE(EccCodeName(code));
    HealRig rig(EccPolicy::Uniform(code));
    rig.Put(1, 1);
    auto before = rig.RunBytesOf(1, RunKind::kMeta, Part::kK);
    for (auto [kind, part] :
         {std::pair{RunKind::kMeta, Part::kK}, std::pair{RunKind::kP2, Part::kV}, std::pair{RunKind::kP8, Part::kK}}) {
      Flip(rig.RunInMemory(1, kind, part), 77);
      auto got = rig.Get(1);
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(got->served, kInt8);
      EXPECT_LT(rig.h->RelativeError(*got, 1), 0.02);
    }
    EXPECT_EQ(before, rig.RunBytesOf(1, RunKind::kMeta, Part::kK));
    EXPECT_EQ(rig.StatsOf(1).mended, 3u);
    EXPECT_EQ(rig.StatsOf(1).damaged_reads, 3u);
    EXPECT_GE(rig.StatsOf(1).counters.ecc_corrected, 3u);
    EXPECT_EQ(rig.StatsOf(1).degrades, 0u);
    // It is whole again, and nothing is left of the old one.
    uint64_t corrected = rig.StatsOf(1).counters.ecc_corrected;
    EXPECT_TRUE(rig.Get(1).ok());
    EXPECT_EQ(rig.StatsOf(1).counters.ecc_corrected, corrected);
    EXPECT_EQ(rig.StatsOf(1).usage.copies, 1u);
    rig.h->ExpectConsistent();
  }
}

TEST(StoreHeal, C38_aFlipInTheHeaderIsCorrected) {
  HealRig rig(EccPolicy::Graded(EccCode::kSecded));
  rig.Put(1, 1);
  // The header is somewhere in the region: it starts with its magic.
  FakeRegion* region = rig.regions[1];
  std::string_view magic = "FVKR";
  MutableByteSpan memory(region->base(), region->bytes());
  auto at = std::search(memory.begin(), memory.end(), magic.begin(), magic.end());
  ASSERT_NE(at, memory.end());
  at[60] ^= 4;
  auto got = rig.Get(1);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->served, kInt8);
  EXPECT_EQ(rig.StatsOf(1).mended, 1u);
  rig.h->ExpectConsistent();
}

TEST(StoreHeal, C38_twoFlipsOfAWordCostThePlaneOrTheBlock) {
  HealRig rig(EccPolicy::Uniform(EccCode::kSecded));
  rig.Put(1, 1);
  rig.Put(2, 1);
  MutableByteSpan plane = rig.RunInMemory(1, RunKind::kP8, Part::kK);
  Flip(plane, 64);
  Flip(plane, 65);
  auto got = rig.Get(1);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->served, (ClassPair{PrecisionClass::k4Bit, PrecisionClass::k8Bit}));
  EXPECT_EQ(rig.h->store->Stats().served_degraded, 1u);
  EXPECT_EQ(rig.StatsOf(1).damage_degraded, 1u);
  EXPECT_GE(rig.StatsOf(1).counters.ecc_uncorrectable, 1u);
  MutableByteSpan meta = rig.RunInMemory(2, RunKind::kMeta, Part::kV);
  Flip(meta, 0);
  Flip(meta, 1);
  EXPECT_TRUE(absl::IsNotFound(rig.Get(2).status()));
  EXPECT_EQ(rig.StatsOf(1).damage_withdrawn, 1u);
  EXPECT_EQ(rig.h->store->Stats().misses[static_cast<size_t>(MissReason::kDamaged)], 1u);
  rig.h->ExpectConsistent();
}

TEST(StoreHeal, GradedLeavesTheFinerPlanesToTheirChecksums) {
  HealRig rig(EccPolicy::Graded(EccCode::kSecded));
  rig.Put(1, 1);
  Flip(rig.RunInMemory(1, RunKind::kP2, Part::kK), 3);
  EXPECT_EQ(rig.Get(1)->served, kInt8);
  // Both places first: what a read of a damaged copy gives is not the tier's memory.
  MutableByteSpan k = rig.RunInMemory(1, RunKind::kP8, Part::kK), v = rig.RunInMemory(1, RunKind::kP8, Part::kV);
  Flip(k, 3);
  Flip(v, 3);
  EXPECT_EQ(rig.Get(1)->served, kInt4);
  EXPECT_EQ(rig.Get(1)->served, kInt4) << "what is gone is gone";
  EXPECT_EQ(rig.StatsOf(1).mended, 1u);
  EXPECT_EQ(rig.StatsOf(1).damage_degraded, 1u);
  rig.h->ExpectConsistent();
}

TEST(StoreHeal, C38_theLogCorrectsWhatItReads) {
  for (EccCode code : {EccCode::kSecded, EccCode::kReedSolomon}) {
    SCOPED_TRACE(EccCodeName(code));
    HealRig rig({}, EccPolicy::Uniform(code));
    rig.Put(1, 2);
    auto values = rig.RunBytesOf(1, RunKind::kP2, Part::kK);
    std::vector<uint64_t> bits = {5, 999};
    if (code == EccCode::kReedSolomon) {
      for (uint64_t bit = 64; bit < 128; ++bit) bits.push_back(bit);
    }
    rig.FlipInLog(values, bits);
    auto got = rig.Get(1);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->served, kInt4);
    EXPECT_EQ(values, rig.RunBytesOf(1, RunKind::kP2, Part::kK));
    EXPECT_EQ(rig.StatsOf(2).mended, 1u);
    EXPECT_EQ(rig.StatsOf(2).usage.copies, 1u);
    rig.h->ExpectConsistent();
  }
}

TEST(StoreHeal, RunsAreBorrowedFromAnotherTiersCopy) {
  HealRig rig({});
  rig.Put(1, 1);
  // A copy in the log that shares its codes.
  bool flushed = false;
  rig.h->store->Flush(rig.h->ns, [&](absl::Status status) { flushed = status.ok(); });
  rig.Run();
  ASSERT_TRUE(flushed);
  ASSERT_EQ(rig.StatsOf(2).usage.copies, 1u);
  Flip(rig.RunInMemory(1, RunKind::kP4, Part::kK), 100);
  static_cast<void>(rig.Get(1));
  auto got = rig.Get(1);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->served, kInt8) << "the damaged plane is in the log too";
  EXPECT_EQ(got->tier, 1);
  EXPECT_EQ(rig.StatsOf(1).mended, 1u);
  rig.h->ExpectConsistent();
}

TEST(StoreHeal, ALostDurableCopyIsMadeAgainFromAHotterOne) {
  HealRig rig({});
  rig.Put(1, 0);
  PutSpec spec = rig.h->Spec(2);
  spec.ack = AckLevel::kDurable;
  auto put = rig.h->store->BeginPut(spec);
  ASSERT_TRUE(put.ok());
  StoreHarness::FillPut(**put, 2);
  std::optional<absl::StatusOr<PutResult>> result;
  rig.h->store->CommitPut(*std::move(put), [&](absl::StatusOr<PutResult> got) { result = std::move(got); });
  rig.Run();
  ASSERT_TRUE(result.has_value() && result->ok());
  ASSERT_EQ(rig.StatsOf(2).usage.copies, 1u);
  // All of the log is zeros but for the segments' own headers.
  const std::vector<FileEntry> files = *rig.device->List();
  for (const FileEntry& file : files) {
    std::vector<uint8_t> image = rig.device->Peek(file.name);
    if (image.size() > 4096) rig.device->Poke(file.name, 4096, std::vector<uint8_t>(image.size() - 4096));
  }
  EXPECT_EQ(rig.Scrub().withdrawn, 1u);
  rig.Run();
  EXPECT_EQ(rig.StatsOf(2).usage.copies, 1u) << "made anew";
  EXPECT_EQ(rig.Get(2)->served, kExactClass);
  EXPECT_EQ(rig.Scrub().copies, 3u);
  rig.h->ExpectConsistent();
}

TEST(StoreHeal, ScrubbingFindsEveryPlantedFault) {
  constexpr uint64_t kBlocks = 120, kFaults = 1000;
  HealRig rig(EccPolicy::Uniform(EccCode::kSecded), EccPolicy::Uniform(EccCode::kReedSolomon));
  for (uint64_t key = 0; key < kBlocks; ++key) rig.Put(key, static_cast<uint8_t>(key % 2 + 1));
  std::mt19937_64 random(1000);
  uint64_t planted = 0;
  // In memory: one a round and block, in any run; in the log: bytes of the planes, found by what they are.
  for (uint64_t round = 0; planted < kFaults; ++round) {
    std::vector<uint64_t> hit;
    for (uint64_t key = 0; key < kBlocks && planted < kFaults; key += 2) {
      auto kinds = {RunKind::kMeta, RunKind::kP2, RunKind::kP4, RunKind::kP8};
      RunKind kind = *(kinds.begin() + static_cast<ptrdiff_t>(random() % 4));
      MutableByteSpan run = rig.RunInMemory(key, kind, random() % 2 == 0 ? Part::kK : Part::kV);
      if (run.empty()) continue;
      Flip(run, random() % (run.size() * 8));
      hit.push_back(key);
      ++planted;
    }
    ScrubReport report = rig.Scrub();
    ASSERT_EQ(report.mended, hit.size()) << "round " << round;
    ASSERT_EQ(report.copies, kBlocks);
    ASSERT_EQ(report.degraded + report.withdrawn + report.unread, 0u);
  }
  EXPECT_EQ(rig.Scrub().mended, 0u) << "nothing is left to find";
  for (uint64_t key = 0; key < kBlocks; key += 2) EXPECT_EQ(rig.Get(key)->served, kInt8);
  EXPECT_EQ(rig.StatsOf(1).scrub_findings, kFaults);
  rig.h->ExpectConsistent();
}

// A bit that is stuck spoils whatever comes there: after the second time its place is kept out of use.
TEST(StoreHeal, APlaceThatFailsAgainIsQuarantined) {
  HealRig rig(EccPolicy::Uniform(EccCode::kSecded));
  rig.Put(1, 1);
  const uint8_t* last = nullptr;
  for (int round = 0; round < 8 && rig.StatsOf(1).usage.quarantined_bytes == 0; ++round) {
    MutableByteSpan meta = rig.RunInMemory(1, RunKind::kMeta, Part::kK);
    last = meta.data();
    Flip(meta, 9);
    ASSERT_TRUE(rig.Get(1).ok());
    EXPECT_TRUE(round > 0 || rig.StatsOf(1).usage.quarantined_bytes == 0) << "once is no pattern";
  }
  TierUsage usage = rig.StatsOf(1).usage;
  EXPECT_GT(usage.quarantined_bytes, 0u);
  EXPECT_GE(usage.overhead_bytes, usage.quarantined_bytes);
  rig.h->ExpectConsistent();
  EXPECT_TRUE(rig.h->store->Delete(rig.h->ns, TestKey(1)).ok());
  rig.Run();
  // What comes next does not lie there.
  for (uint64_t key = 2; key < 20; ++key) {
    rig.Put(key, 1);
    EXPECT_NE(rig.RunInMemory(key, RunKind::kMeta, Part::kK).data(), last);
  }
  for (size_t tier : {0u, 1u}) {
    auto& arena = static_cast<const ArenaTier&>(*rig.h->store->tier(static_cast<uint8_t>(tier)).tier);
    EXPECT_TRUE(arena.AuditForTest().ok()) << arena.AuditForTest();
  }
}

TEST(StoreHeal, ScrubbingKeepsItsPace) {
  HealRig rig({});
  for (uint64_t key = 0; key < 64; ++key) rig.Put(key, 0);
  const uint64_t total = rig.StatsOf(0).usage.used_bytes - rig.StatsOf(0).usage.overhead_bytes;
  std::optional<absl::StatusOr<ScrubReport>> report;
  // A tenth of all a second.
  rig.h->store->Scrub(total / 10, [&](absl::StatusOr<ScrubReport> got) { report = std::move(got); });
  int64_t seconds = 0;
  for (; seconds < 100 && !report.has_value(); ++seconds) {
    for (int i = 0; i < 10; ++i) {
      rig.h->clock.AdvanceMs(100);
      rig.h->store->Tick();
      rig.Run();
    }
    if (seconds == 4) {
      StoreStats stats = rig.h->store->Stats();
      EXPECT_EQ(stats.scrub_running, 1u);
      EXPECT_GT(stats.scrub_permille, 300u);
      EXPECT_LT(stats.scrub_permille, 700u);
    }
  }
  ASSERT_TRUE(report.has_value() && report->ok());
  EXPECT_GE(seconds, 9);
  EXPECT_LE(seconds, 13);
  EXPECT_EQ((*report)->copies, 64u);
}

// Flips at a rate over everything that a tier has in memory, and every block read and moved: never other bytes.
TEST(StoreHeal, C38_nothingWrongIsServedWhateverIsFlipped) {
  const uint64_t seed = 38;
  std::mt19937_64 random(seed);
  for (EccPolicy policy : {EccPolicy(), EccPolicy::Uniform(EccCode::kSecded), EccPolicy::Graded(EccCode::kSecded),
                           EccPolicy::Uniform(EccCode::kReedSolomon)}) {
    SCOPED_TRACE(policy.ToString());
    HealRig rig(policy, policy, 4 * kMiB);
    uint64_t served = 0, misses = 0;
    for (uint64_t round = 0; round < 12; ++round) {
      for (uint64_t key = 0; key < 24; ++key) rig.Put(round * 24 + key, static_cast<uint8_t>(key % 3));
      for (FakeRegion* region : rig.regions) {
        MutableByteSpan memory(region->base(), region->bytes());
        for (int flip = 0; flip < 40; ++flip) Flip(memory, random() % (memory.size() * 8));
      }
      const std::vector<FileEntry> files = *rig.device->List();
      for (const FileEntry& file : files) {
        std::vector<uint8_t> image = rig.device->Peek(file.name);
        for (int flip = 0; flip < 4; ++flip) Flip(image, random() % (image.size() * 8));
        rig.device->Poke(file.name, 0, image);
      }
      for (uint64_t key = round * 24; key < round * 24 + 24; ++key) {
        auto got = rig.Get(key);
        if (!got.ok()) {
          ASSERT_TRUE(absl::IsNotFound(got.status())) << got.status();
          ++misses;
          continue;
        }
        ++served;
        double limit = got->served.Min() >= PrecisionClass::k8Bit   ? 0.02
                       : got->served.Min() >= PrecisionClass::k4Bit ? 0.2
                                                                    : 0.8;
        ASSERT_LT(rig.h->RelativeError(*got, key), limit) << "seed " << seed << ", block " << key;
      }
    }
    EXPECT_GT(served, misses);
    rig.Run();
    rig.h->ExpectConsistent();
  }
}

}  // namespace
}  // namespace firn
