// Healing when more goes wrong than a flip: damaged parity, a medium that refuses for a while, moves and scrubs that
// meet damage, and everything at once from many threads.
//
// Must survive: all of it, without a wrong byte, and without giving up what is still there.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "tiers/store/heal_rig_test_util.h"
#include "tiers/store/store_hammer_test_util.h"

namespace firn {
namespace {

constexpr ClassPair kInt8{PrecisionClass::k8Bit, PrecisionClass::k8Bit};
constexpr ClassPair kInt4{PrecisionClass::k4Bit, PrecisionClass::k4Bit};

// Blocks whose planes have segments of their own.
NamespaceFacts LargeFacts() {
  NamespaceFacts facts = StoreHarness::Facts();
  facts.model_id = "large";
  facts.layer_last = 15;
  facts.kv_heads = 8;
  facts.k_width = facts.v_width = 128;
  return facts;
}

std::string SegmentWith(const HealRig& rig, ByteSpan bytes) {
  const std::vector<FileEntry> files = *rig.device->List();
  for (const FileEntry& file : files) {
    std::vector<uint8_t> image = rig.device->Peek(file.name);
    if (std::search(image.begin(), image.end(), bytes.begin(), bytes.end()) != image.end()) return file.name;
  }
  return "";
}

// Parity that is garbage says of right bytes that they are wrong, and "corrects" many of them.
TEST(StoreHealRace, DamagedParityTakesNothingAway) {
  for (EccCode code : {EccCode::kSecded, EccCode::kReedSolomon}) {
    SCOPED_TRACE(EccCodeName(code));
    HealRig rig(EccPolicy::Uniform(code), EccPolicy::Uniform(code));
    std::mt19937_64 random(7);
    uint64_t key = 0;
    for (uint8_t tier : {1, 2}) {
      for (RunKind kind : {RunKind::kMeta, RunKind::kP2, RunKind::kP4}) {
        rig.Put(++key, tier);
        const std::vector<uint8_t> data = rig.RunBytesOf(key, kind, Part::kK);
        std::vector<uint8_t> parity(ParityBytes(code, data.size()));
        ComputeParity(code, RunBytes(ByteSpan(data)), MutableRunBytes(MutableByteSpan(parity)));
        std::vector<uint64_t> bits(parity.size() * 4);
        for (uint64_t& bit : bits) bit = random() % (parity.size() * 8);
        if (tier == 2) {
          rig.FlipInLog(parity, bits);
        } else {
          MutableByteSpan memory(rig.regions[1]->base(), rig.regions[1]->bytes());
          auto at = std::search(memory.begin(), memory.end(), parity.begin(), parity.end());
          ASSERT_NE(at, memory.end());
          for (uint64_t bit : bits) at[static_cast<ptrdiff_t>(bit / 8)] ^= static_cast<uint8_t>(1u << bit % 8);
        }
        ScrubReport report = rig.Scrub();
        EXPECT_EQ(report.mended, 1u);
        EXPECT_EQ(report.degraded + report.withdrawn + report.unread, 0u);
        auto got = rig.Get(key);
        ASSERT_TRUE(got.ok()) << got.status();
        EXPECT_EQ(got->served, tier == 2 ? kInt4 : kInt8);
        EXPECT_EQ(rig.Scrub().mended, 0u);
      }
    }
    rig.h->ExpectConsistent();
  }
}

TEST(StoreHealRace, OneFlipIsOneFindingHoweverOftenItIsRead) {
  HealRig rig(EccPolicy::Uniform(EccCode::kSecded));
  rig.Put(1, 1);
  Flip(rig.RunInMemory(1, RunKind::kMeta, Part::kK), 9);
  ASSERT_TRUE(rig.Get(1).ok());
  EXPECT_EQ(rig.StatsOf(1).mended, 1u);
  EXPECT_EQ(rig.StatsOf(1).usage.quarantined_bytes, 0u);
}

// For a while the device gives nothing of one plane, or nothing at all: looked at then, nothing is given up.
TEST(StoreHealRace, WhatAMediumRefusesForAWhileIsNotGivenUp) {
  for (EccPolicy log : {EccPolicy(), EccPolicy::Graded(EccCode::kSecded), EccPolicy::Uniform(EccCode::kReedSolomon)}) {
    for (bool everything : {false, true}) {
      SCOPED_TRACE(log.ToString() + (everything ? ", all" : ", a plane"));
      HealRig rig({}, log);
      rig.h->ns = rig.h->Register(LargeFacts());
      rig.Put(1, 2);
      const std::string name = SegmentWith(rig, rig.RunBytesOf(1, RunKind::kP4, Part::kK));
      ASSERT_NE(name, SegmentWith(rig, rig.RunBytesOf(1, RunKind::kP2, Part::kK)));
      rig.faulty->SetHook([&](const RawIo& io) -> std::optional<int64_t> {
        bool refused = io.kind == IoKind::kRead && (everything || io.file->name() == name);
        return refused ? std::optional<int64_t>(-EIO) : std::nullopt;
      });
      ScrubReport report = rig.Scrub();
      EXPECT_EQ(report.unread, 1u);
      EXPECT_EQ(report.degraded + report.withdrawn + report.mended, 0u);
      auto during = rig.Get(1);
      EXPECT_EQ(during.ok(), !everything);
      rig.faulty->SetHook(nullptr);
      auto got = rig.Get(1);
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_EQ(got->served, kInt4);
      rig.h->ExpectConsistent();
    }
  }
}

// Whoever asks for passes again and again keeps nobody waiting.
TEST(StoreHealRace, APassEndsHoweverManyAsk) {
  HealRig rig({});
  for (uint64_t key = 0; key < 64; ++key) rig.Put(key, 0);
  const uint64_t total = rig.StatsOf(0).usage.used_bytes - rig.StatsOf(0).usage.overhead_bytes;
  int first = -1;
  uint64_t answered = 0, refused = 0, asked = 0;
  rig.h->store->Scrub(total / 2, [&](absl::StatusOr<ScrubReport> got) {
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(got->copies, 64u);
    first = 0;
  });
  int rounds = 0;
  for (; rounds < 100 && first < 0; ++rounds) {
    for (int i = 0; i < 200; ++i, ++asked) {
      rig.h->store->Scrub(total / 2, [&](absl::StatusOr<ScrubReport> got) {
        ++(got.ok() ? answered : refused);
        EXPECT_EQ(got.ok() ? got->copies : 64, 64u);
      });
    }
    rig.h->clock.AdvanceMs(100);
    rig.h->store->Tick();
    rig.Run();
  }
  EXPECT_LT(rounds, 40);
  EXPECT_GT(refused, 0u) << "the waiting list has an end";
  for (int i = 0; i < 100 && answered + refused < asked; ++i) {
    rig.h->clock.AdvanceMs(100);
    rig.h->store->Tick();
    rig.Run();
  }
  EXPECT_EQ(answered + refused, asked);
  EXPECT_LE(rig.h->store->Stats().scrub_passes, 2u) << "all of them share one pass";
  EXPECT_EQ(rig.h->store->Stats().heals_in_flight, 0u);
}

// What parity gives back is not withheld from a move: a durable put or the last drain has no second try.
TEST(StoreHealRace, MovesCorrectWhatTheyRead) {
  HealRig rig(EccPolicy::Uniform(EccCode::kSecded));
  rig.Put(1, 1);
  Flip(rig.RunInMemory(1, RunKind::kP2, Part::kK), 77);
  std::optional<absl::Status> flushed;
  rig.h->store->Flush(rig.h->ns, [&](absl::Status status) { flushed = std::move(status); });
  rig.Run();
  ASSERT_TRUE(flushed.has_value());
  EXPECT_TRUE(flushed->ok()) << *flushed;
  EXPECT_EQ(rig.StatsOf(2).usage.copies, 1u);
  EXPECT_EQ(rig.StatsOf(1).mended, 1u);
  EXPECT_EQ(rig.Get(1)->served, kInt8);
  rig.h->ExpectConsistent();
}

// A plane of garbage protects no block from errors: it goes, though the limit would keep it from being given up.
TEST(StoreHealRace, AnErrorLimitKeepsNoDamagedPlane) {
  HealRig rig({});
  PrecisionPlan plan;
  plan.max_relative_error = 0.05f;
  NamespaceFacts facts = StoreHarness::Facts();
  facts.model_id = "limited";
  rig.h->ns = rig.h->Register(facts, plan);
  rig.Put(1, 1);
  Flip(rig.RunInMemory(1, RunKind::kP8, Part::kK), 3);
  EXPECT_TRUE(rig.Get(1).ok());
  EXPECT_TRUE(rig.Get(1).ok());
  EXPECT_EQ(rig.StatsOf(1).damaged_reads, 1u) << "damage is found once";
  rig.h->ExpectConsistent();
}

// Tiers that heal, worked on by threads.
class HammeredTiers {
 public:
  HammeredTiers(EccPolicy memory, EccPolicy log) : pool_(std::make_unique<ThreadPoolExecutor>(2)) {
    HarnessOptions options;
    options.hot_bytes = options.warm_bytes = 2 * kMiB;
    options.cold_bytes = 12 * kMiB;
    options.executor = pool_.get();
    options.make_tier = [&](const std::string& name, uint64_t bytes, bool persistent) -> std::unique_ptr<Tier> {
      if (!persistent) {
        auto region = std::make_unique<FakeRegion>(bytes);
        regions.push_back(region.get());
        auto tier = std::make_unique<ArenaTier>(name, std::move(region), memory);
        EXPECT_TRUE(tier->Populate(bytes).ok());
        return tier;
      }
      auto medium = std::make_unique<MemoryDevice>(bytes * 4);
      device = medium.get();
      auto tier = MakeColdTier(name, bytes, pool_.get(), std::move(medium), Clock::Real(), log);
      cold = tier.get();
      return tier;
    };
    harness = std::make_unique<StoreHarness>(options);
    cold->SetEvents(harness->store.get());
  }
  ~HammeredTiers() {
    std::atomic<bool> closed{false};
    cold->Close([&closed](absl::Status) { closed = true; });
    while (!closed) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    pool_.reset();
    cold->SetEvents(nullptr);
  }
  // While nobody works on them: what is flipped is read when everybody does.
  void FlipSome(std::mt19937_64* random) {
    for (FakeRegion* region : regions) {
      MutableByteSpan memory(region->base(), region->bytes());
      for (int flip = 0; flip < 30; ++flip) Flip(memory, (*random)() % (memory.size() * 8));
    }
    const std::vector<FileEntry> files = *device->List();
    for (const FileEntry& file : files) {
      std::vector<uint8_t> image = device->Peek(file.name);
      if (image.size() <= kSegmentHeaderBytes) continue;
      for (int flip = 0; flip < 3; ++flip) {
        uint64_t byte = kSegmentHeaderBytes + (*random)() % (image.size() - kSegmentHeaderBytes);
        const uint8_t flipped = static_cast<uint8_t>(image[byte] ^ 1u << (*random)() % 8);
        device->Poke(file.name, byte, {&flipped, 1});
      }
    }
  }

 private:
  std::unique_ptr<ThreadPoolExecutor> pool_;

 public:
  std::vector<FakeRegion*> regions;
  MemoryDevice* device = nullptr;
  ColdTier* cold = nullptr;
  std::unique_ptr<StoreHarness> harness;
};

TEST(StoreHealRace, C38_damageUnderManyThreads) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (EccPolicy policy : {EccPolicy(), EccPolicy::Uniform(EccCode::kSecded), EccPolicy::Graded(EccCode::kSecded),
                           EccPolicy::Uniform(EccCode::kReedSolomon)}) {
    SCOPED_TRACE(policy.ToString());
    HammeredTiers rig(policy, policy);
    std::atomic<uint64_t> asked{0}, answers{0};
    for (int round = 0; round < 6; ++round) {
      rig.FlipSome(&random);
      HammerFromManyThreads(*rig.harness, {.operations_a_thread = 300, .keys = 120, .tick = [&] {
                                             rig.cold->Tick();
                                             // Not for ever: the threads wait until nothing is under way any more.
                                             if (asked - answers > 3 || asked >= 20 * (round + 1u)) return;
                                             ++asked;
                                             rig.harness->store->Scrub(0, [&](auto) { ++answers; });
                                           }});
      for (int i = 0; i < 2000 && answers < asked; ++i) {
        rig.harness->clock.AdvanceMs(20);
        rig.harness->store->Tick();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      ASSERT_EQ(answers.load(), asked.load());
    }
    EXPECT_GT(answers.load(), 0u);
    StoreStats stats = rig.harness->store->Stats();
    EXPECT_EQ(stats.heals_in_flight, 0u);
    EXPECT_EQ(stats.moves_in_flight, 0u);
    for (size_t tier : {0u, 1u}) {
      auto& arena = static_cast<const ArenaTier&>(*rig.harness->store->tier(static_cast<uint8_t>(tier)).tier);
      EXPECT_TRUE(arena.AuditForTest().ok()) << arena.AuditForTest();
    }
  }
}

}  // namespace
}  // namespace firn
