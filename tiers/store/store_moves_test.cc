// How blocks move: down and up, by request and under pressure, no further than pins, floors and error limits let them.
#include "tiers/store/store.h"

#include <gtest/gtest.h>

#include "tiers/store/store_harness_test_util.h"

namespace firn {
namespace {

constexpr ClassPair Both(PrecisionClass c) { return {c, c}; }
const ClassPair kExactPair = Both(PrecisionClass::kExact);
const ClassPair kInt8 = Both(PrecisionClass::k8Bit);
const ClassPair kInt4 = Both(PrecisionClass::k4Bit);
const ClassPair kInt2 = Both(PrecisionClass::k2Bit);

TEST(StoreMoves, DemotionWalksDownAndErrorsGrow) {
  StoreHarness h;
  ASSERT_TRUE(h.Put(1).ok());
  EXPECT_EQ(*h.Demote(1, 1), kInt8);
  auto int8 = h.Get(1);
  ASSERT_TRUE(int8.ok());
  EXPECT_EQ(int8->tier, 1);
  EXPECT_EQ(int8->served, kInt8);
  double error8 = h.RelativeError(*int8, 1);
  EXPECT_GT(error8, 0);
  EXPECT_LT(error8, 0.01);
  EXPECT_EQ(h.tiers[0]->Usage().copies, 0u);
  EXPECT_EQ(*h.Demote(1, 2), kInt4);
  auto int4 = h.Get(1);
  ASSERT_TRUE(int4.ok());
  EXPECT_EQ(int4->served, kInt4);
  double error4 = h.RelativeError(*int4, 1);
  EXPECT_GT(error4, error8);
  EXPECT_LT(error4, 0.1);
  EXPECT_EQ(*h.Degrade(1, 2, PrecisionClass::k2Bit), kInt2);
  h.store->Clear({.ns = h.ns, .tier = 1});  // The copy that reading it brought up.
  auto int2 = h.Get(1);
  ASSERT_TRUE(int2.ok());
  EXPECT_EQ(int2->served, kInt2);
  EXPECT_GT(h.RelativeError(*int2, 1), error4);
  EXPECT_EQ(h.Get(1, kInt4).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(h.Demote(1, 0).status().code(), absl::StatusCode::kFailedPrecondition);
  h.ExpectConsistent();
}

TEST(StoreMoves, C15_direct_and_stepwise_demotion_give_the_same_bytes) {
  StoreHarness h;
  ASSERT_TRUE(h.Put(1).ok());
  ASSERT_TRUE(h.Put(2).ok());
  ASSERT_TRUE(h.Put(h.Spec(3), 1).ok());  // The values of block 1 under another key.
  ASSERT_TRUE(h.Demote(1, 1).ok());
  ASSERT_TRUE(h.Demote(1, 2).ok());
  ASSERT_TRUE(h.Demote(3, 2).ok());
  auto stepwise = h.Get(1), direct = h.Get(3);
  ASSERT_TRUE(stepwise.ok() && direct.ok());
  EXPECT_EQ(h.RelativeError(*stepwise, 1), h.RelativeError(*direct, 1));
  for (int round = 0; round < 20; ++round) {  // Up and down leaves no trace.
    ASSERT_TRUE(h.Promote(1, 0).ok());
    ASSERT_TRUE(h.Demote(1, 2).ok());
  }
  auto after = h.Get(1);
  ASSERT_TRUE(after.ok());
  EXPECT_EQ(after->served, kInt4);
  EXPECT_EQ(h.RelativeError(*after, 1), h.RelativeError(*direct, 1));
  h.ExpectConsistent();
}

TEST(StoreMoves, C15_promotion_never_relabels) {
  StoreHarness h;
  ASSERT_TRUE(h.Put(1).ok());
  ASSERT_TRUE(h.Demote(1, 2).ok());
  EXPECT_EQ(*h.Promote(1, 0), kInt4);
  auto got = h.Get(1);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->tier, 0);
  EXPECT_EQ(got->served, kInt4);
  EXPECT_EQ(h.Get(1, kInt8).status().code(), absl::StatusCode::kNotFound);
}

TEST(StoreMoves, PressureDegradesBeforeItDemotesAndDemotesBeforeItLoses) {
  HarnessOptions options;
  options.hot_bytes = kTestBlockBytes * 4;
  options.warm_bytes = kTestBlockBytes * 3;
  options.cold_bytes = kTestBlockBytes * 20;
  StoreHarness h(options);
  for (uint64_t key = 0; key < 40; ++key) {
    auto put = h.PutWhenRoom(h.Spec(key), key);
    ASSERT_TRUE(put.ok()) << key << ": " << Message(put.status());
    h.ExpectConsistent();
  }
  StoreStats stats = h.store->Stats();
  EXPECT_EQ(stats.blocks, 40u);
  EXPECT_GT(stats.tiers[1].demotions_in, 0u);
  EXPECT_GT(stats.tiers[1].degrades, 0u);
  EXPECT_GT(stats.tiers[1].degraded_bytes, 0u);
  EXPECT_GT(stats.tiers[2].demotions_in, 0u);
  for (const TierStats& tier : stats.tiers) {  // Each is timed where it is counted.
    EXPECT_EQ(tier.demotion_latency.count(), tier.demotions_in) << tier.name;
    EXPECT_EQ(tier.counters.commit_latency.count(), tier.counters.commits + tier.counters.commit_failures);
    EXPECT_LE(tier.counters.read_latency.count(), tier.counters.reads + tier.counters.read_failures);
  }
  EXPECT_GT(stats.tiers[1].counters.read_latency.count(), 0u);
  EXPECT_EQ(stats.tiers[0].evictions + stats.tiers[1].evictions, 0u);
  for (uint64_t key = 0; key < 40; ++key) {
    auto got = h.Get(key);
    ASSERT_TRUE(got.ok()) << key;
    EXPECT_LT(h.RelativeError(*got, key), 0.15) << key;
  }
}

TEST(StoreMoves, PressureOnAnUnstructuredSetTakesTheColdest) {
  HarnessOptions options;
  options.hot_bytes = kTestBlockBytes * 8;
  StoreHarness h(options);
  for (uint64_t key = 0; key < 7; ++key) ASSERT_TRUE(h.Put(key).ok());
  ASSERT_TRUE(h.Get(0).ok());  // 0 is the warmest now.
  ASSERT_TRUE(h.PutWhenRoom(h.Spec(7), 7).ok());
  EXPECT_EQ(h.Get(0)->tier, 0);
  EXPECT_EQ(h.Get(1)->tier, 1);
}

TEST(StoreMoves, ChildrenLeaveBeforeTheirParents) {
  HarnessOptions options;
  options.hot_bytes = kTestBlockBytes * 8;
  StoreHarness h(options);
  for (uint64_t key = 0; key < 7; ++key) {
    PutSpec spec = h.Spec(key);
    spec.first_token = static_cast<uint32_t>(key * 16);
    if (key > 0) spec.parent = TestKey(key - 1);
    ASSERT_TRUE(h.Put(spec, key).ok());
  }
  ASSERT_TRUE(h.PutWhenRoom(h.Spec(100), 100).ok());
  auto located =
      h.store->Locate(h.ns, {TestKey(0), TestKey(1), TestKey(2), TestKey(3), TestKey(4), TestKey(5), TestKey(6)}, {});
  for (size_t i = 0; i + 1 < located.size(); ++i) EXPECT_LE(located[i].tier, located[i + 1].tier) << i;
  EXPECT_EQ(located[6].tier, 1);
  EXPECT_EQ(located[0].tier, 0);
}

TEST(StoreMoves, PinnedBlocksStayAsTheyAre) {
  HarnessOptions options;
  options.hot_bytes = kTestBlockBytes * 4;
  StoreHarness h(options);
  SessionId session = h.store->OpenSession("tenant");
  ASSERT_TRUE(h.Put(0).ok());
  ASSERT_TRUE(h.store->Pin(h.ns, TestKey(0), session).ok());
  for (uint64_t key = 1; key < 20; ++key) ASSERT_TRUE(h.PutWhenRoom(h.Spec(key), key).ok());
  EXPECT_EQ(h.Get(0)->tier, 0);
  EXPECT_EQ(h.store->Unpin(h.ns, TestKey(1), session).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(h.store->Pin(h.ns, TestKey(99), session).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(h.store->Pin(h.ns, TestKey(0), 777).code(), absl::StatusCode::kFailedPrecondition);
  h.ExpectConsistent();
  h.store->CloseSession(session);  // Its pins go with it.
  EXPECT_EQ(h.store->Stats().pins, 0u);
  for (uint64_t key = 20; key < 30; ++key) ASSERT_TRUE(h.PutWhenRoom(h.Spec(key), key).ok());
  EXPECT_GT(h.Get(0)->tier, 0);
  h.ExpectConsistent();
}

TEST(StoreMoves, EverythingPinnedMeansNoRoomNotALoss) {
  HarnessOptions options;
  options.hot_bytes = kTestBlockBytes * 7 / 2;
  StoreHarness h(options);
  SessionId session = h.store->OpenSession("tenant");
  for (uint64_t key = 0; key < 3; ++key) {
    ASSERT_TRUE(h.Put(key).ok());
    ASSERT_TRUE(h.store->Pin(h.ns, TestKey(key), session).ok());
  }
  auto refused = h.PutWhenRoom(h.Spec(9), 9);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GT(h.store->Stats().tiers[0].evictor_found_nothing, 0u);
  for (uint64_t key = 0; key < 3; ++key) EXPECT_TRUE(h.Get(key, kExactPair).ok());
  h.ExpectConsistent();
}

TEST(StoreMoves, FloorsHoldOnEveryDemotion) {
  StoreHarness h;
  PrecisionPlan plan;
  plan.floor = {PrecisionClass::k8Bit, PrecisionClass::k4Bit};
  h.Register(StoreHarness::Facts(), plan);
  ASSERT_TRUE(h.Put(1).ok());
  ClassPair floor{PrecisionClass::k8Bit, PrecisionClass::k4Bit};
  EXPECT_EQ(*h.Demote(1, 2), floor);
  absl::Status refused = h.Degrade(1, 2, PrecisionClass::k2Bit).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(Message(refused).find("the namespace's floor is int8"), std::string::npos) << refused;
  EXPECT_EQ(h.Get(1)->served, floor);
}

TEST(StoreMoves, DegradingWhatHasNothingToDropSaysSo) {
  StoreHarness h;
  PrecisionPlan plan;
  plan.keep_first_tokens = 64;
  h.Register(StoreHarness::Facts(), plan);
  ASSERT_TRUE(h.Put(1).ok());
  ASSERT_TRUE(h.Demote(1, 2).ok());
  absl::Status refused = h.Degrade(1, 2, PrecisionClass::k4Bit).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(Message(refused).find("nothing to drop"), std::string::npos) << refused;
  h.ExpectConsistent();
}

TEST(StoreMoves, C13_an_error_limit_stops_at_the_finer_class) {
  StoreHarness h;
  PrecisionPlan plan;
  plan.max_relative_error = 0.02f;  // INT8 is within it, INT4 is not.
  h.Register(StoreHarness::Facts(), plan);
  ASSERT_TRUE(h.Put(1).ok());
  EXPECT_EQ(*h.Demote(1, 2), kInt8);
  EXPECT_GT(h.store->Stats().error_gate_stops, 0u);
  auto got = h.Get(1);
  ASSERT_TRUE(got.ok());
  EXPECT_LT(h.RelativeError(*got, 1), 0.02);
  ASSERT_TRUE(h.Promote(1, 1).ok());
  EXPECT_EQ(h.Degrade(1, 1, PrecisionClass::k4Bit).status().code(), absl::StatusCode::kFailedPrecondition);
  h.ExpectConsistent();
}

TEST(StoreMoves, C23_a_lower_capacity_moves_down_what_is_beyond) {
  StoreHarness h;
  for (uint64_t key = 0; key < 16; ++key) ASSERT_TRUE(h.Put(key).ok()) << key;
  uint64_t before = h.tiers[0]->Usage().used_bytes;
  ASSERT_TRUE(h.store->SetCapacity(0, before / 4).ok());
  h.ExpectConsistent();  // Also while it is not kept yet.
  for (int i = 0; i < 20; ++i) {
    h.Settle();
    h.clock.AdvanceMs(50);
    h.store->Tick();
  }
  EXPECT_LE(h.tiers[0]->Usage().used_bytes, before / 4);
  h.ExpectConsistent();
  for (uint64_t key = 0; key < 16; ++key) EXPECT_TRUE(h.Get(key).ok()) << key;
  EXPECT_EQ(h.store->SetCapacity(9, 1).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(h.store->SetCapacity(0, before * 2).ok());
  for (uint64_t key = 100; key < 116; ++key) EXPECT_TRUE(h.PutWhenRoom(h.Spec(key), key).ok()) << key;
  h.ExpectConsistent();
}

}  // namespace
}  // namespace firn
