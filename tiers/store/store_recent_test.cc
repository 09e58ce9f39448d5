// The recent window of a plan: the last tokens of sequences that grow stay as they were put while there is anything
// else to take, and pressure gets what it needs all the same.
#include <gtest/gtest.h>

#include <random>

#include "tiers/store/store_sequences_test_util.h"

namespace firn {
namespace {

TEST(StoreRecent, OlderBlocksOfAGrowingSequenceLeaveFirst) {
  Sequences s(48, HotOf(8));
  for (uint64_t key = 0; key < 40; ++key) {
    ASSERT_TRUE(s.Put(key, key == 0 ? std::nullopt : std::optional(key - 1)).ok()) << key;
    uint64_t window = std::min<uint64_t>(key + 1, 3);
    s.ExpectExact(key + 1 - window, window);
    s.h.ExpectConsistent();
  }
  EXPECT_EQ(s.Tiers(37, 3), "000");
  EXPECT_EQ(s.h.store->Stats().recent_blocks, 3u);
  EXPECT_EQ(s.Broken(), 0u);
  for (uint64_t key = 0; key < 40; ++key) {
    auto got = s.h.Get(key);
    ASSERT_TRUE(got.ok()) << key;
    EXPECT_LT(s.h.RelativeError(*got, key), key < 37 ? 0.15 : 1e-9) << key;
  }
}

TEST(StoreRecent, WithoutAWindowTheEndLeavesFirst) {
  Sequences s(0, HotOf(8));
  s.PutChain(0, 8);
  EXPECT_EQ(s.h.store->Stats().recent_blocks, 0u);
  EXPECT_EQ(s.Tiers(0, 8), "00000011");
}

TEST(StoreRecent, ManySequencesKeepTheirWindows) {
  constexpr uint64_t kSequences = 8;
  Sequences s(32, HotOf(36));
  for (uint64_t step = 0; step < 20; ++step) {
    for (uint64_t sequence = 0; sequence < kSequences; ++sequence) {
      uint64_t key = sequence * 100 + step;
      ASSERT_TRUE(s.Put(key, step == 0 ? std::nullopt : std::optional(key - 1)).ok()) << key;
    }
  }
  for (uint64_t sequence = 0; sequence < kSequences; ++sequence) s.ExpectExact(sequence * 100 + 18, 2);
  EXPECT_EQ(s.Broken(), 0u);
  s.h.ExpectConsistent();
}

TEST(StoreRecent, PressureWithNothingButRecentBlocksMakesProgress) {
  Sequences s(1 << 20, HotOf(4));
  s.PutChain(0, 60);
  EXPECT_GT(s.Broken(), 0u);
  s.ExpectExact(58, 2);
  EXPECT_EQ(s.Tiers(59, 1), "0");
  EXPECT_GT(s.Tiers(0, 1), "0") << "a window shrinks from its old side";
  EXPECT_EQ(s.h.store->Stats().tiers[0].evictions, 0u);
  for (uint64_t sequence = 1; sequence < 30; ++sequence) s.PutChain(sequence * 100, 2);  // And with short ones.
  EXPECT_EQ(s.Tiers(2900, 2), "00");
  EXPECT_EQ(s.h.store->Stats().blocks, 60u + 58);
  s.h.ExpectConsistent();
}

TEST(StoreRecent, TheWindowsOfTheSequencesUnusedLongestAreBrokenFirst) {
  Sequences s(32, HotOf(100));
  for (uint64_t sequence = 0; sequence < 40; ++sequence) s.PutChain(sequence * 100, 2);
  ASSERT_TRUE(s.h.Get(1).ok());  // The end of the first.
  for (uint64_t sequence = 40; sequence < 60; ++sequence) s.PutChain(sequence * 100, 2);
  EXPECT_EQ(s.Tiers(0, 2), "00");
  EXPECT_EQ(s.Tiers(100, 2), "11");
  EXPECT_EQ(s.Tiers(5900, 2), "00");
  EXPECT_GT(s.Broken(), 0u);
  s.h.ExpectConsistent();
}

// Half of a tier at most is kept for windows: those without one are not driven out by those with.
TEST(StoreRecent, WindowsLeaveRoomForOthers) {
  Sequences s(1 << 20, HotOf(40));
  for (uint64_t sequence = 1; sequence < 30; ++sequence) {
    s.PutChain(sequence * 100, 8);
    ASSERT_TRUE(s.Put(sequence, {}).ok());
    EXPECT_EQ(s.Tiers(sequence, 1), "0");
  }
  uint64_t hot = 0;
  for (uint64_t key = 1; key < 30; ++key) hot += s.Tiers(key, 1) == "0" ? 1 : 0;
  EXPECT_GE(hot, 2u);
  s.h.ExpectConsistent();
}

TEST(StoreRecent, BranchesHaveAWindowEach) {
  Sequences s(32, HotOf(20));
  s.PutChain(0, 6);
  s.PutChain(100, 1, 5);
  s.PutChain(200, 6, 5);
  EXPECT_EQ(s.h.store->Stats().recent_blocks, 4u) << "5 and 100; 204 and 205";
  s.PutChain(300, 6);
  s.PutChain(400, 4);
  EXPECT_EQ(s.Tiers(5, 1) + s.Tiers(100, 1) + s.Tiers(204, 2) + s.Tiers(304, 2) + s.Tiers(402, 2), "00000000");
  EXPECT_EQ(s.Broken(), 0u);
  s.h.ExpectConsistent();
}

TEST(StoreRecent, AWindowEndsWithItsSequence) {
  Sequences s(32, HotOf(8));
  s.PutChain(0, 4);
  EXPECT_EQ(s.h.store->Stats().recent_blocks, 2u);
  s.Idle(61);
  EXPECT_EQ(s.h.store->Stats().recent_blocks, 0u) << "a minute after its last use";
  s.PutChain(100, 5);
  EXPECT_GT(s.Tiers(3, 1), "0") << "it stays hot no longer than others";
  EXPECT_EQ(s.Broken(), 0u);
  ASSERT_TRUE(s.h.Get(3).ok());
  EXPECT_EQ(s.h.store->Stats().recent_blocks, 4u) << "read, it is in use again";
  ASSERT_TRUE(s.h.store->Touch(s.h.ns, TestKey(3), {.importance = -1}).ok());
  EXPECT_EQ(s.h.store->Stats().recent_blocks, 2u) << "its worker says that it has ended";
  ASSERT_TRUE(s.h.store->Delete(s.h.ns, TestKey(104)).ok());
  EXPECT_EQ(s.Tiers(103, 1), "0");
  s.h.ExpectConsistent();
}

TEST(StoreRecent, BlocksThatFollowNothingHaveNone) {
  Sequences s(64, HotOf(8));
  for (uint64_t key = 0; key < 20; ++key) ASSERT_TRUE(s.Put(key, {}).ok());
  EXPECT_EQ(s.h.store->Stats().recent_blocks, 0u);
  EXPECT_EQ(s.Broken(), 0u);
}

TEST(StoreRecent, AnotherPlanIsForWhatIsDemotedFromThenOn) {
  Sequences s(64, HotOf(12));
  s.PutChain(0, 8);
  EXPECT_EQ(s.h.store->Stats().recent_blocks, 4u);
  s.SetWindow(0);
  EXPECT_EQ(s.h.store->Stats().recent_blocks, 0u);
  ASSERT_TRUE(s.h.store->SetCapacity(0, kTestBlockBytes * 8).ok());
  s.h.Settle();
  EXPECT_GT(s.Tiers(7, 1), "0");
  ASSERT_TRUE(s.h.store->SetCapacity(0, kTestBlockBytes * 12).ok());
  s.SetWindow(32);
  s.PutChain(100, 8);
  s.ExpectExact(106, 2);
  EXPECT_GT(s.h.store->Stats().recent_blocks, 0u);
  s.h.ExpectConsistent();
}

// Blocks of one stream are committed by several threads.
TEST(StoreRecent, AParentThatIsCommittedAfterItsChildIsItsParent) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 rng(seed);
  for (int round = 0; round < 40; ++round) {
    Sequences s(16 * (1 + rng() % 4));
    const uint64_t recent = s.h.store->Plan(s.h.ns)->recent_tokens / 16;
    ASSERT_TRUE(s.Put(0, {}).ok());
    std::vector<std::unique_ptr<InFlightPut>> puts;
    for (uint64_t key = 1; key < 12; ++key) {
      PutSpec spec = s.h.Spec(key);
      spec.parent = TestKey(key - 1);
      spec.first_token = static_cast<uint32_t>(key) * kSequenceBlockTokens;
      auto put = s.h.store->BeginPut(spec);
      ASSERT_TRUE(put.ok()) << put.status();
      StoreHarness::FillPut(**put, key);
      puts.push_back(*std::move(put));
    }
    std::shuffle(puts.begin(), puts.end(), rng);
    for (auto& put : puts) {
      s.h.store->CommitPut(std::move(put), [](absl::StatusOr<PutResult> done) { EXPECT_TRUE(done.ok()); });
      s.h.Settle();
      s.h.ExpectConsistent();
    }
    EXPECT_EQ(s.h.store->Stats().recent_blocks, recent);
    ASSERT_TRUE(s.h.store->SetCapacity(0, kTestBlockBytes * 10).ok());
    s.h.Settle();
    s.ExpectExact(12 - recent, recent);
    EXPECT_GT(s.Tiers(11 - recent, 1), "0");
    s.h.ExpectConsistent();
  }
}

TEST(StoreRecent, ARestartKeepsThePlan) {
  Sequences s(48);
  RecoveredFact kept;
  s.h.store->SetFactWriter([&](std::string kind, std::string name, std::vector<uint8_t> value, auto done) {
    kept = {.kind = kind, .name = name, .value = std::move(value)};
    done(absl::OkStatus());
  });
  s.SetWindow(80);
  StoreHarness again;
  again.store->RecoverFacts({kept});
  EXPECT_EQ(again.store->Plan(again.ns)->recent_tokens, 80u);
}

TEST(StoreRecent, WhatIsAskedForByKeyIsDone) {
  Sequences s(64);
  s.PutChain(0, 4);
  EXPECT_EQ(s.h.Demote(3, 1)->Min(), PrecisionClass::k8Bit);
  EXPECT_EQ(s.h.Degrade(3, 1, PrecisionClass::k4Bit)->Min(), PrecisionClass::k4Bit);
  EXPECT_EQ(s.Tiers(0, 4), "0001");
  s.h.ExpectConsistent();
}

TEST(StoreRecent, PlanesGoElsewhereFirst) {
  HarnessOptions options;
  options.warm_bytes = kTestBlockBytes * 4;  // Seven at 8 bits.
  Sequences s(48, options);
  s.PutChain(0, 3);
  for (uint64_t key = 0; key < 3; ++key) ASSERT_TRUE(s.h.Demote(key, 1).ok());
  s.PutChain(100, 1);
  for (uint64_t key = 200; key < 210; ++key) {
    ASSERT_TRUE(s.Put(key, {}).ok());
    ASSERT_TRUE(s.h.Demote(key, 1).ok());
  }
  for (uint64_t key = 0; key < 3; ++key) {
    EXPECT_EQ(s.h.store->Locate(s.h.ns, {TestKey(key)}, {})[0].served.Min(), PrecisionClass::k8Bit) << key;
  }
  EXPECT_GT(s.h.store->Stats().tiers[1].degrades, 0u);
  EXPECT_EQ(s.Broken(), 0u);
  // With nothing else there, they lose planes before they are lost.
  for (uint64_t key = 200; key < 210; ++key) ASSERT_TRUE(s.h.store->Delete(s.h.ns, TestKey(key)).ok());
  ASSERT_TRUE(s.h.store->SetCapacity(1, kTestBlockBytes * 15 / 8).ok());
  s.h.Settle();
  EXPECT_EQ(s.Tiers(0, 3), "111");
  EXPECT_EQ(s.h.store->Locate(s.h.ns, {TestKey(0)}, {})[0].served.Min(), PrecisionClass::k4Bit);
  EXPECT_EQ(s.h.store->Locate(s.h.ns, {TestKey(2)}, {})[0].served.Min(), PrecisionClass::k8Bit);
  EXPECT_GT(s.Broken(), 0u);
  s.h.ExpectConsistent();
}

// Blocks in the middle are below, those at the end above, and nothing has a child that is colder: whatever the windows
// have come to, room is made.
TEST(StoreRecent, HotEndsAreNoReasonForTheTierBelowToStayFull) {
  HarnessOptions options = HotOf(24);
  options.warm_bytes = kTestBlockBytes * 6;
  for (bool persistent : {true, false}) {
    options.cold_persistent = persistent;
    options.cold_bytes = persistent ? 1 << 22 : kTestBlockBytes * 3;
    for (bool idle : {false, true}) {
      SCOPED_TRACE(std::string(persistent ? "log" : "memory") + (idle ? ", idle" : ", growing"));
      Sequences s(32, options);
      for (uint64_t sequence = 0; sequence < 10; ++sequence) s.PutChain(sequence * 100, 12);
      if (idle) s.Idle(120);
      for (uint64_t sequence = 10; sequence < 20; ++sequence) s.PutChain(sequence * 100, 12);
      s.ExpectExact(1910, 2);
      // Nothing is lost but the ends of sequences.
      uint64_t there = 0;
      for (uint64_t sequence = 0; sequence < 20; ++sequence) {
        std::string tiers = s.Tiers(sequence * 100, 12);
        size_t lost = tiers.find('-');
        if (lost != std::string::npos) {
          EXPECT_EQ(tiers.find_first_not_of('-', lost), std::string::npos) << tiers;
        }
        there += std::min<size_t>(lost, 12);
      }
      EXPECT_EQ(there, s.h.store->Stats().blocks);
      EXPECT_EQ(there == 240u, persistent) << there;
      s.h.ExpectConsistent();
    }
  }
}

TEST(StoreRecent, BlocksBelowTheirChildrenMoveOnWhereNothingElseCan) {
  Sequences s(32);
  s.PutChain(0, 4);
  for (uint64_t key : {0, 1}) ASSERT_TRUE(s.h.Demote(key, 1).ok());
  s.Idle(61);
  ASSERT_EQ(s.h.store->Stats().recent_blocks, 0u);
  ASSERT_TRUE(s.h.store->SetCapacity(1, kTestBlockBytes * 3 / 4).ok());
  s.h.Settle();
  EXPECT_LE(s.h.tiers[1]->Usage().used_bytes, kTestBlockBytes * 3 / 4);
  EXPECT_EQ(s.Tiers(2, 2), "00");
  EXPECT_GT(s.Tiers(1, 1), "1");
  s.h.ExpectConsistent();
}

TEST(StoreRecent, WindowsGiveWayWhereAllElseIsHeld) {
  Sequences s(48, HotOf(20));
  SessionId session = s.h.store->OpenSession("tenant");
  for (uint64_t key = 0; key < 6; ++key) {
    ASSERT_TRUE(s.Put(key, {}).ok());
    ASSERT_TRUE(s.h.store->Pin(s.h.ns, TestKey(key), session).ok());
  }
  s.PutChain(100, 3);
  EXPECT_EQ(s.Broken(), 0u);
  ASSERT_TRUE(s.h.store->SetCapacity(0, kTestBlockBytes * 8).ok());
  s.h.Settle();
  EXPECT_EQ(s.Tiers(100, 3), "110") << "no further than must be, and from the old side";
  EXPECT_EQ(s.Tiers(0, 6), "000000");
  EXPECT_EQ(s.Broken(), 2u);
  s.h.ExpectConsistent();
}

// Sequences grow, branch, are read, end and go, under plans that change; blocks never keep room from others.
TEST(StoreRecent, EveryInvariantHoldsWhateverSequencesDo) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 rng(seed);
  for (int round = 0; round < 4 && !::testing::Test::HasFailure(); ++round) {
    HarnessOptions options = HotOf(6 + rng() % 20);
    options.warm_bytes = kTestBlockBytes * (3 + rng() % 6);
    options.cold_persistent = rng() % 2 == 0;
    options.cold_bytes = kTestBlockBytes * (options.cold_persistent ? 400 : 2 + rng() % 8);
    Sequences s(rng() % 120, options);
    std::vector<uint64_t> ends;
    uint64_t next = 0;
    for (int step = 0; step < 500 && !::testing::Test::HasFailure(); ++step) {
      size_t which = ends.empty() ? 0 : rng() % ends.size();
      switch (ends.empty() ? 0 : rng() % 12) {
        case 0: {
          ASSERT_TRUE(s.Put(next, {}).ok()) << step;
          ends.push_back(next++);
          break;
        }
        case 1:  // A branch.
          ends.push_back(ends[which]);
          [[fallthrough]];
        case 2:
        case 3:
        case 4:
        case 5:
        case 6: {
          absl::Status put = s.Put(next, ends[which]);
          ASSERT_TRUE(put.ok()) << step << ": " << put;
          ends[which] = next++;
          break;
        }
        case 7: {
          uint64_t key = rng() % next;
          auto got = s.h.Get(key);
          if (got.ok()) {
            EXPECT_LT(s.h.RelativeError(*got, key), 0.5) << key;
          }
          break;
        }
        case 8:
          (void)s.h.store->Delete(s.h.ns, TestKey(rng() % next));
          break;
        case 9:
          (void)s.h.store->Touch(s.h.ns, TestKey(ends[which]), {.importance = rng() % 2 ? 1.0f : -1.0f});
          break;
        case 10:
          rng() % 2 ? (void)s.h.Demote(rng() % next, 1 + rng() % 2) : (void)s.h.Promote(rng() % next, rng() % 2);
          break;
        default:
          if (rng() % 8 == 0) s.SetWindow(rng() % 3 == 0 ? 0 : rng() % 200);
          s.Idle(rng() % 4 == 0 ? 61 : 1);
          if (ends.size() > 8) ends.erase(ends.begin() + static_cast<long>(which));
      }
      if (step % 5 == 0) s.h.ExpectConsistent();
    }
    s.h.store->Clear({});
    EXPECT_EQ(s.h.store->Stats().recent_blocks, 0u);
    s.h.ExpectConsistent();
  }
}

}  // namespace
}  // namespace firn
