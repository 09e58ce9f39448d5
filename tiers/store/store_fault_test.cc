// Media that fail, lie and come late: a miss or the right bytes, and nothing lost that could be kept.
#include <gtest/gtest.h>

#include "tiers/store/store_harness_test_util.h"

namespace firn {
namespace {

constexpr ClassPair Both(PrecisionClass c) { return {c, c}; }

TEST(StoreFaults, C19_a_failed_commit_is_withdrawn) {
  StoreHarness h;
  h.tiers[0]->FailCommits(1, DataLoss("injected"));
  EXPECT_FALSE(h.Put(1).ok());
  EXPECT_FALSE(h.Get(1).ok());
  EXPECT_EQ(h.store->Stats().puts_failed, 1u);
  EXPECT_EQ(h.tiers[0]->Usage().used_bytes, 0u);
  for (uint64_t key = 2; key < 11; ++key) EXPECT_TRUE(h.Put(key).ok());
  EXPECT_TRUE(h.Put(1).ok());
  h.ExpectConsistent();
}

TEST(StoreFaults, C19_a_failed_demotion_keeps_the_source) {
  StoreHarness h;
  ASSERT_TRUE(h.Put(1).ok());
  for (const absl::Status& fault : {DataLoss("EIO"), ResourceExhausted("ENOSPC"), Unavailable("gone")}) {
    h.tiers[2]->FailCommits(1 << 20, fault);
    EXPECT_EQ(h.Demote(1, 2).status(), fault);
    h.tiers[2]->FailCommits(0, absl::OkStatus());
    auto got = h.Get(1, Both(PrecisionClass::kExact));
    ASSERT_TRUE(got.ok()) << Message(got.status());
    EXPECT_EQ(h.RelativeError(*got, 1), 0.0);
    h.ExpectConsistent();
  }
  EXPECT_GE(h.store->Stats().tiers[2].demotion_failures, 3u);
  EXPECT_EQ(*h.Demote(1, 2), Both(PrecisionClass::k4Bit));
}

TEST(StoreFaults, AMoveThatIsWaitedForWaitsForRoom) {
  StoreHarness h;
  for (uint64_t key = 0; key < 100; ++key) ASSERT_TRUE(h.Put(key).ok()) << key;
  h.tiers[2]->FailCommits(1 << 20, ResourceExhausted("reclaiming"));
  int moved = 0, failed = 0;
  for (uint64_t key = 0; key < 100; ++key) {
    h.store->Demote(h.ns, TestKey(key), 2, [&](absl::StatusOr<ClassPair> got) { ++(got.ok() ? moved : failed); });
  }
  PutSpec durable = h.Spec(100);
  durable.ack = AckLevel::kDurable;
  std::optional<absl::StatusOr<PutResult>> put;
  auto begun = h.store->BeginPut(durable);
  ASSERT_TRUE(begun.ok()) << Message(begun.status());
  h.FillPut(**begun, 100);
  h.store->CommitPut(*std::move(begun), [&](absl::StatusOr<PutResult> got) { put = std::move(got); });
  for (int i = 0; i < 100; ++i) {
    h.Settle();
    h.clock.AdvanceMs(50);
    h.store->Tick();
  }
  EXPECT_EQ(moved + failed, 0);
  EXPECT_FALSE(put.has_value());
  // A full tier was asked now and then, a few at a time, not by all of them over and over.
  EXPECT_LT(h.store->Stats().tiers[2].demotion_failures, 100u * 32 + 1);
  h.tiers[2]->FailCommits(0, absl::OkStatus());
  for (int i = 0; i < 20; ++i) {
    h.clock.AdvanceMs(50);
    h.store->Tick();
    h.Settle();
  }
  EXPECT_EQ(moved, 100);
  EXPECT_EQ(failed, 0);
  ASSERT_TRUE(put.has_value());
  EXPECT_TRUE(put->ok()) << Message(put->status());
  h.ExpectConsistent();
}

TEST(StoreFaults, AWaitingMoveIsAnsweredWhenTheStoreStops) {
  StoreHarness h;
  ASSERT_TRUE(h.Put(1).ok());
  h.tiers[2]->FailCommits(1 << 20, ResourceExhausted("full"));
  std::optional<absl::Status> moved, stopped;
  h.store->Demote(h.ns, TestKey(1), 2, [&](absl::StatusOr<ClassPair> got) { moved = got.status(); });
  h.Settle();
  EXPECT_FALSE(moved.has_value());
  h.store->Shutdown(1000, [&](absl::Status status) { stopped = std::move(status); });
  h.Settle();
  EXPECT_TRUE(stopped.has_value());
  ASSERT_TRUE(moved.has_value());
  EXPECT_FALSE(moved->ok());
}

TEST(StoreFaults, C20_a_failed_promotion_publishes_nothing) {
  StoreHarness h;
  ASSERT_TRUE(h.Put(1).ok());
  ASSERT_TRUE(h.Put(2).ok());
  ASSERT_TRUE(h.Demote(1, 2).ok());
  h.tiers[0]->FailCommits(1, Unavailable("injected"));
  EXPECT_FALSE(h.Promote(1, 0).ok());
  h.tiers[2]->FailReads(1, Unavailable("injected"));
  EXPECT_FALSE(h.Promote(1, 0).ok());
  EXPECT_EQ(h.tiers[0]->Usage().copies, 1u);
  EXPECT_EQ(h.RelativeError(*h.Get(2), 2), 0.0);
  auto got = h.Get(1);
  ASSERT_TRUE(got.ok());
  EXPECT_LT(h.RelativeError(*got, 1), 0.1);
  h.ExpectConsistent();
}

TEST(StoreFaults, C22_a_passing_fault_takes_nothing_away) {
  StoreHarness h;
  ASSERT_TRUE(h.Put(1).ok());
  ASSERT_TRUE(h.Demote(1, 2).ok());
  h.tiers[2]->FailReads(1, Unavailable("EIO, this time"));
  EXPECT_EQ(h.Get(1).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(h.tiers[2]->remembered(), 1u);
  EXPECT_TRUE(h.Get(1).ok());
  h.ExpectConsistent();
}

TEST(StoreFaults, C22_lost_data_is_withdrawn_once) {
  StoreHarness h;
  ASSERT_TRUE(h.Put(1).ok());
  ASSERT_TRUE(h.Demote(1, 2).ok());
  h.tiers[2]->FailReads(1, NotFound("the segment is gone"));
  EXPECT_FALSE(h.Get(1).ok());
  EXPECT_EQ(h.store->Stats().blocks, 0u);
  EXPECT_EQ(h.tiers[2]->Usage().used_bytes, 0u);
  EXPECT_EQ(h.tiers[2]->remembered(), 0u);
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(h.Get(1).ok());
  h.ExpectConsistent();
}

TEST(StoreFaults, C38_a_damaged_low_plane_costs_precision_not_the_block) {
  StoreHarness h;
  ASSERT_TRUE(h.Put(1).ok());
  ASSERT_TRUE(h.Demote(1, 1).ok());
  h.tiers[1]->DamageNextRead(RunMask::Of(RunKind::kP8, Part::kV));
  auto got = h.Get(1);
  ASSERT_TRUE(got.ok()) << Message(got.status());
  EXPECT_EQ(got->served, (ClassPair{PrecisionClass::k8Bit, PrecisionClass::k4Bit}));
  EXPECT_LT(h.RelativeError(*got, 1), 0.1);
  EXPECT_EQ(h.store->Stats().served_degraded, 1u);
  // The plane was taken away, so it is not tried again.
  EXPECT_EQ(h.Get(1)->served, (ClassPair{PrecisionClass::k8Bit, PrecisionClass::k4Bit}));
  EXPECT_EQ(h.store->Stats().served_degraded, 1u);
  h.ExpectConsistent();
}

TEST(StoreFaults, C38_damage_below_what_is_asked_for_is_a_miss) {
  StoreHarness h;
  ASSERT_TRUE(h.Put(1).ok());
  ASSERT_TRUE(h.Demote(1, 1).ok());
  h.tiers[1]->DamageNextRead(RunMask::Of(RunKind::kP4, Part::kK));
  auto got = h.Get(1, Both(PrecisionClass::k8Bit));
  EXPECT_EQ(got.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(h.store->Stats().misses[static_cast<size_t>(MissReason::kDamaged)], 1u);
  EXPECT_EQ(h.Get(1)->served, (ClassPair{PrecisionClass::k2Bit, PrecisionClass::k8Bit}));
  h.ExpectConsistent();
}

TEST(StoreFaults, C38_damaged_metadata_or_base_is_a_miss) {
  for (RunKind kind : {RunKind::kMeta, RunKind::kP2, RunKind::kExact}) {
    for (Part part : kParts) {
      StoreHarness h;
      ASSERT_TRUE(h.Put(1).ok());
      ASSERT_TRUE(h.Demote(1, 1).ok());
      h.tiers[1]->DamageNextRead(RunMask::Of(kind, part));
      EXPECT_EQ(h.Get(1).status().code(), absl::StatusCode::kNotFound);
      EXPECT_EQ(h.store->Stats().blocks, 0u);
      EXPECT_EQ(h.tiers[1]->Usage().used_bytes, 0u);
      h.ExpectConsistent();
    }
  }
}

TEST(StoreFaults, DamageInOneTierIsServedFromAnother) {
  StoreHarness h;
  PutSpec spec = h.Spec(1);
  spec.ack = AckLevel::kDurable;
  ASSERT_TRUE(h.Put(spec, 1).ok());
  h.tiers[0]->DamageNextRead(RunMask::Of(RunKind::kWhole, Part::kK));
  auto got = h.Get(1);
  ASSERT_TRUE(got.ok()) << Message(got.status());
  EXPECT_EQ(got->tier, 2);
  EXPECT_LT(h.RelativeError(*got, 1), 0.1);
  h.ExpectConsistent();
}

TEST(StoreFaults, DamageIsNeverReEncoded) {
  StoreHarness h;
  ASSERT_TRUE(h.Put(1).ok());
  h.tiers[0]->DamageNextRead(RunMask::Of(RunKind::kWhole, Part::kV));
  EXPECT_EQ(h.Demote(1, 1).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(h.Get(1).ok());
  h.ExpectConsistent();
}

TEST(StoreFaults, AConcurrentReadOfOneColdBlockIsOneRead) {
  StoreHarness h;
  ASSERT_TRUE(h.Put(1).ok());
  ASSERT_TRUE(h.Demote(1, 2).ok());
  uint64_t before = h.tiers[2]->reads_started();
  int served = 0;
  GetSpec spec;
  spec.address = {h.ns, TestKey(1), 0};
  for (int i = 0; i < 10; ++i) h.store->Get(spec, [&](absl::StatusOr<GetResult> got) { served += got.ok(); });
  h.Settle();
  EXPECT_EQ(served, 10);
  EXPECT_EQ(h.tiers[2]->reads_started() - before, 1u);
  EXPECT_EQ(h.Get(1)->tier, 1);  // And it came up on the way.
  h.ExpectConsistent();
}

TEST(StoreFaults, C25_a_full_cold_tier_stops_puts_and_nothing_else) {
  HarnessOptions options;
  options.hot_bytes = kTestBlockBytes * 4;
  options.warm_bytes = kTestBlockBytes;
  StoreHarness h(options);
  for (uint64_t key = 2000; key < 2004; ++key) {
    ASSERT_TRUE(h.Put(key).ok());
    ASSERT_TRUE(h.Demote(key, 2).ok());
  }
  h.tiers[2]->FailCommits(1 << 20, ResourceExhausted("no space left on device"));
  absl::Status refused;
  uint64_t stored = 0;
  for (uint64_t key = 0; key < 40 && refused.ok(); ++key) {
    refused = h.PutWhenRoom(h.Spec(key), key).status();
    stored += refused.ok();
  }
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  for (uint64_t key = 0; key < stored; ++key) EXPECT_TRUE(h.Get(key).ok()) << key;
  h.tiers[2]->FailCommits(0, absl::OkStatus());
  h.clock.AdvanceMs(1000);
  // All of it, not only what the tiers above still had room for.
  for (uint64_t key = 1000; key < 1040; ++key) {
    absl::Status put = h.PutWhenRoom(h.Spec(key), key).status();
    ASSERT_TRUE(put.ok()) << key << ": " << Message(put);
  }
  h.ExpectConsistent();
}

TEST(StoreFaults, ABrokenColdTierLeavesAPlainCache) {
  HarnessOptions options;
  options.hot_bytes = kTestBlockBytes * 4;
  options.warm_bytes = kTestBlockBytes;
  StoreHarness h(options);
  h.tiers[2]->FailCommits(1 << 20, Unavailable("the device is gone"));
  for (uint64_t key = 0; key < 40; ++key) {
    absl::Status put = h.PutWhenRoom(h.Spec(key), key).status();
    ASSERT_TRUE(put.ok()) << key << ": " << Message(put);
  }
  EXPECT_TRUE(h.Get(39).ok());
  EXPECT_FALSE(h.Get(0).ok());
  h.ExpectConsistent();
}

TEST(StoreFaults, C06_nonfinite_blocks_stay_exact) {
  StoreHarness h;
  auto put = h.store->BeginPut(h.Spec(1));
  ASSERT_TRUE(put.ok());
  h.FillPut(**put, 1);
  const auto& spans = (*put)->runs()[RunIndex(RunKind::kWhole, Part::kK)].spans();
  StoreLe<uint16_t>(spans[1].data() + (spans[0].size() % 2), 0x7C00);  // +Inf, wherever the second span begins a value.
  std::optional<absl::StatusOr<PutResult>> result;
  h.store->CommitPut(*std::move(put), [&](absl::StatusOr<PutResult> got) { result = std::move(got); });
  h.Settle();
  ASSERT_TRUE(result->ok());
  EXPECT_EQ(h.store->Stats().nonfinite_blocks, 1u);
  EXPECT_EQ(*h.Demote(1, 2), Both(PrecisionClass::kExact));
  absl::Status refused = h.Degrade(1, 2, PrecisionClass::k4Bit).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(Message(refused).find("holds NaN or Inf"), std::string::npos) << refused;
  auto got = h.Get(1);
  ASSERT_TRUE(got.ok());
  EXPECT_TRUE(got->block.header->flags & RecordHeader::kNonFinite);
  h.ExpectConsistent();
}

}  // namespace
}  // namespace firn
