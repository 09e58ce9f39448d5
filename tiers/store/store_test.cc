// What the store promises to one caller at a time; store_moves_test.cc asks it of moves and pressure,
// store_random_test.cc under load.
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

TEST(Store, PutThenGetIsExact) {
  StoreHarness h;
  auto put = h.Put(1);
  ASSERT_TRUE(put.ok()) << Message(put.status());
  EXPECT_TRUE(put->stored);
  EXPECT_EQ(put->stored_class, kExactPair);
  EXPECT_EQ(put->bytes, kTestBlockBytes);
  auto got = h.Get(1);
  ASSERT_TRUE(got.ok()) << Message(got.status());
  EXPECT_EQ(got->served, kExactPair);
  EXPECT_EQ(got->tier, 0);
  EXPECT_EQ(h.RelativeError(*got, 1), 0.0);
  EXPECT_EQ(h.Get(2).status().code(), absl::StatusCode::kNotFound);
  h.ExpectConsistent();
}

TEST(Store, APutIsInvisibleUntilItIsCommitted) {
  StoreHarness h;
  auto put = h.store->BeginPut(h.Spec(1));
  ASSERT_TRUE(put.ok());
  EXPECT_FALSE(h.Get(1).ok());
  EXPECT_EQ(h.store->Locate(h.ns, {TestKey(1)}, {})[0].state, BlockState::kAbsent);
  EXPECT_EQ(h.store->BeginPut(h.Spec(1)).status().code(), absl::StatusCode::kAborted);
  put->reset();  // Aborting gives everything back.
  EXPECT_EQ(h.tiers[0]->Usage().used_bytes, 0u);
  EXPECT_EQ(h.store->Stats().puts_in_flight, 0u);
  EXPECT_TRUE(h.Put(1).ok());
  EXPECT_EQ(h.store->BeginPut(h.Spec(1)).status().code(), absl::StatusCode::kAlreadyExists);
  h.ExpectConsistent();
}

TEST(Store, AFinerPutReplacesACoarserBlock) {
  StoreHarness h;
  ASSERT_TRUE(h.Put(1).ok());
  ASSERT_TRUE(h.Demote(1, 2).ok());
  auto again = h.Put(1);
  ASSERT_TRUE(again.ok()) << Message(again.status());
  auto got = h.Get(1, kExactPair);
  ASSERT_TRUE(got.ok()) << Message(got.status());
  EXPECT_EQ(h.RelativeError(*got, 1), 0.0);
  EXPECT_EQ(h.store->Stats().puts_replaced, 1u);
  EXPECT_EQ(h.tiers[2]->remembered(), 1u);  // What was durable stays so until something finer is.
  EXPECT_EQ(h.Get(1)->tier, 0);
  EXPECT_EQ(*h.Demote(1, 1), kInt8);
  EXPECT_EQ(*h.Demote(1, 2), kInt4);
  h.ExpectConsistent();
}

TEST(Store, MostPrecisionReadsFewerPlanes) {
  StoreHarness h;
  ASSERT_TRUE(h.Put(1).ok());
  ASSERT_TRUE(h.Demote(1, 1).ok());
  auto whole = h.Get(1), few = h.Get(1, {}, kInt2);
  ASSERT_TRUE(whole.ok() && few.ok());
  EXPECT_EQ(few->served, kInt2);
  EXPECT_LT(few->block.Layout(few->block.present).TotalBytes(),
            whole->block.Layout(whole->block.present).TotalBytes() * 2 / 3);
}

TEST(Store, C32_locating_takes_no_hold) {
  HarnessOptions options;
  options.hot_bytes = kTestBlockBytes * 4;
  StoreHarness h(options);
  for (uint64_t key = 0; key < 3; ++key) ASSERT_TRUE(h.Put(key).ok());
  for (uint64_t key = 3; key < 30; ++key) {
    std::vector<Digest> all;
    for (uint64_t k = 0; k < key; ++k) all.push_back(TestKey(k));
    h.store->Locate(h.ns, all, {});
    ASSERT_TRUE(h.PutWhenRoom(h.Spec(key), key).ok());
  }
  EXPECT_EQ(h.store->Stats().pins, 0u);
}

TEST(Store, DeleteDuringAPutVoidsIt) {
  StoreHarness h;
  auto put = h.store->BeginPut(h.Spec(1));
  ASSERT_TRUE(put.ok());
  h.FillPut(**put, 1);
  EXPECT_EQ(h.store->Delete(h.ns, TestKey(1)).code(), absl::StatusCode::kNotFound);
  std::optional<absl::Status> status;
  h.store->CommitPut(*std::move(put), [&](absl::StatusOr<PutResult> got) { status = got.status(); });
  h.Settle();
  EXPECT_EQ(status->code(), absl::StatusCode::kAborted);
  EXPECT_FALSE(h.Get(1).ok());
  EXPECT_EQ(h.tiers[0]->Usage().used_bytes, 0u);
  h.ExpectConsistent();
}

TEST(Store, ReadersFinishAfterDelete) {
  StoreHarness h;
  ASSERT_TRUE(h.Put(1).ok());
  {
    auto got = h.Get(1);
    ASSERT_TRUE(got.ok());
    ASSERT_TRUE(h.store->Delete(h.ns, TestKey(1)).ok());
    EXPECT_FALSE(h.Get(1).ok());
    EXPECT_EQ(h.RelativeError(*got, 1), 0.0);
    EXPECT_GT(h.tiers[0]->Usage().used_bytes, 0u);
    EXPECT_EQ(h.store->Stats().readers, 1u);
  }
  EXPECT_EQ(h.store->Stats().readers, 0u);
  EXPECT_EQ(h.tiers[0]->Usage().used_bytes, 0u);
  h.ExpectConsistent();
}

TEST(Store, TimeToLive) {
  StoreHarness h;
  PutSpec spec = h.Spec(1);
  spec.ttl_ms = 500;
  ASSERT_TRUE(h.Put(spec, 1).ok());
  ASSERT_TRUE(h.Put(2).ok());
  EXPECT_TRUE(h.Get(1).ok());
  h.clock.AdvanceMs(501);
  EXPECT_FALSE(h.Get(1).ok());
  EXPECT_EQ(h.store->Stats().misses[static_cast<size_t>(MissReason::kExpired)], 1u);
  ASSERT_TRUE(h.Put(spec, 1).ok());
  h.clock.AdvanceMs(600);
  h.store->Tick();  // Gone by the sweep, though nobody asked.
  EXPECT_EQ(h.store->Stats().blocks, 1u);
  EXPECT_TRUE(h.Get(2).ok());
  h.ExpectConsistent();
}

TEST(Store, DurablePutsNameTheDurableClass) {
  StoreHarness h;
  PutSpec spec = h.Spec(1);
  spec.ack = AckLevel::kDurable;
  auto put = h.Put(spec, 1);
  ASSERT_TRUE(put.ok()) << Message(put.status());
  EXPECT_EQ(put->stored_class, kExactPair);
  EXPECT_EQ(put->durable_class, kInt4);
  EXPECT_EQ(h.tiers[2]->remembered(), 1u);
  EXPECT_EQ(h.Get(1)->tier, 0);
  h.ExpectConsistent();
}

TEST(Store, FlushCopiesEverythingDown) {
  StoreHarness h;
  for (uint64_t key = 0; key < 30; ++key) ASSERT_TRUE(h.Put(key).ok());
  std::optional<absl::Status> flushed;
  h.store->Flush(h.ns, [&](absl::Status status) { flushed = status; });
  h.Settle();
  ASSERT_TRUE(flushed.has_value() && flushed->ok());
  EXPECT_EQ(h.tiers[2]->remembered(), 30u);
  EXPECT_EQ(h.Get(5)->tier, 0);
  h.ExpectConsistent();
}

TEST(Store, ShardsLeaveTogether) {
  StoreHarness h;
  NamespaceFacts facts = StoreHarness::Facts();
  facts.shards = 3;
  NamespaceId ns = h.Register(facts);
  for (uint16_t shard = 0; shard < 3; ++shard) {
    PutSpec spec = h.Spec(1);
    spec.address.ns = ns;
    spec.address.shard = shard;
    EXPECT_EQ(h.store->Locate(ns, {TestKey(1)}, {})[0].state, BlockState::kAbsent) << shard;
    ASSERT_TRUE(h.Put(spec, 1).ok());
  }
  EXPECT_EQ(h.store->Locate(ns, {TestKey(1)}, {})[0].state, BlockState::kPresent);
  EXPECT_EQ(h.store->Locate(h.ns, {TestKey(1)}, {})[0].state, BlockState::kAbsent);
  ASSERT_TRUE(h.store->Delete(ns, TestKey(1)).ok());
  EXPECT_EQ(h.store->Stats().blocks, 0u);
  PutSpec wrong = h.Spec(1);
  wrong.address.ns = ns;
  wrong.address.shard = 3;
  EXPECT_NE(Message(h.store->BeginPut(wrong).status()).find("shards 0 to 2"), std::string::npos);
  h.ExpectConsistent();
}

TEST(Store, RefusalsNameTheLimit) {
  StoreHarness h;
  EXPECT_NE(Message(h.store->BeginPut(h.Spec(1, 17)).status()).find("1 to 16"), std::string::npos);
  EXPECT_EQ(h.store->BeginPut(h.Spec(1, 0)).status().code(), absl::StatusCode::kInvalidArgument);
  PutSpec unknown = h.Spec(1);
  unknown.address.ns = 99;
  EXPECT_EQ(h.store->BeginPut(unknown).status().code(), absl::StatusCode::kNotFound);
  TouchHint hint{.importance = 2};
  EXPECT_EQ(h.store->Touch(h.ns, TestKey(1), hint).code(), absl::StatusCode::kInvalidArgument);
}

TEST(Store, C51_clear_by_namespace_tier_and_all) {
  StoreHarness h;
  NamespaceFacts other = StoreHarness::Facts();
  other.model_id = "other";
  NamespaceId ns2 = h.Register(other);
  for (uint64_t key = 0; key < 6; ++key) {
    ASSERT_TRUE(h.Put(key).ok());
    PutSpec spec = h.Spec(key);
    spec.address.ns = ns2;
    ASSERT_TRUE(h.Put(spec, key).ok());
  }
  ASSERT_TRUE(h.Demote(0, 2).ok());
  EXPECT_EQ(h.store->Clear({.ns = h.ns, .tier = 2}), 1u);
  EXPECT_FALSE(h.Get(0).ok());
  EXPECT_EQ(h.tiers[2]->remembered(), 0u);
  EXPECT_EQ(h.store->Clear({.ns = h.ns, .tier = {}}), 5u);
  EXPECT_FALSE(h.Get(1).ok());
  EXPECT_EQ(h.store->Stats().blocks, 6u);
  EXPECT_EQ(h.store->Clear({}), 6u);
  EXPECT_EQ(h.store->Clear({}), 0u);
  for (FakeTier* tier : h.tiers) EXPECT_EQ(tier->Usage().used_bytes, 0u) << tier->name();
  h.ExpectConsistent();
}

TEST(Store, WatchersSeeABlocksLife) {
  StoreHarness h;
  bool woken = false;
  h.store->WhenEvents(0, [&] { woken = true; });
  EXPECT_FALSE(woken);
  ASSERT_TRUE(h.Put(1).ok());
  EXPECT_TRUE(woken);
  ASSERT_TRUE(h.Demote(1, 1).ok());
  ASSERT_TRUE(h.Degrade(1, 1, PrecisionClass::k4Bit).ok());
  ASSERT_TRUE(h.Promote(1, 0).ok());
  ASSERT_TRUE(h.store->Delete(h.ns, TestKey(1)).ok());
  bool gap = true;
  auto events = h.store->Events(0, 100, &gap);
  EXPECT_FALSE(gap);
  std::vector<EventKind> kinds;
  for (const BlockEvent& event : events) kinds.push_back(event.kind);
  EXPECT_EQ(kinds, (std::vector<EventKind>{EventKind::kStored, EventKind::kDemoted, EventKind::kDegraded,
                                           EventKind::kPromoted, EventKind::kRemoved}));
  EXPECT_EQ(h.store->Events(3, 100, &gap).front().sequence, 4u);
}

TEST(Store, ChainsMayBeginWithCodes) {
  HarnessOptions options;
  options.hot_is_int8 = true;
  StoreHarness h(options);
  auto put = h.Put(1);
  ASSERT_TRUE(put.ok()) << Message(put.status());
  EXPECT_EQ(put->stored_class, kInt8);
  auto got = h.Get(1);
  ASSERT_TRUE(got.ok());
  EXPECT_LT(h.RelativeError(*got, 1), 0.01);
  h.ExpectConsistent();
}

TEST(Store, SomeCopyServesWhatIsAskedFor) {
  using enum PrecisionClass;
  StoreHarness h;
  PrecisionPlan plan;
  plan.tier_target["warm"] = {k4Bit, k8Bit};
  plan.tier_target["cold"] = {k8Bit, k4Bit};
  h.ns = h.Register(StoreHarness::Facts(), plan);
  ASSERT_TRUE(h.Put(1).ok());
  std::optional<absl::StatusOr<PutResult>> kept;
  h.store->EnsureDurable({h.ns, TestKey(1), 0}, [&](absl::StatusOr<PutResult> got) { kept = std::move(got); });
  h.Settle();
  ASSERT_TRUE(kept.has_value() && kept->ok());
  ASSERT_TRUE(h.Demote(1, 1).ok());
  for (ClassPair least : {ClassPair{k4Bit, k8Bit}, ClassPair{k8Bit, k4Bit}}) {
    ASSERT_TRUE(h.Get(1, least).ok());
    LocatedBlock located = h.store->Locate(h.ns, {TestKey(1)}, least)[0];
    EXPECT_EQ(located.state, BlockState::kPresent);
    EXPECT_TRUE(located.served.AtLeast(least));
  }
  EXPECT_FALSE(h.Get(1, kInt8).ok());
  EXPECT_NE(h.store->Locate(h.ns, {TestKey(1)}, kInt8)[0].state, BlockState::kPresent);
}

TEST(Store, RecoveredCopiesAreServedAndOldOnesForgotten) {
  StoreHarness h;
  auto put = h.Put(1);
  ASSERT_TRUE(put.ok());
  ASSERT_TRUE(h.Demote(1, 2).ok());
  auto read = h.Get(1);
  ASSERT_TRUE(read.ok());

  StoreHarness again;
  std::optional<absl::StatusOr<CopyPtr>> copy;
  auto header = std::make_shared<RecordHeader>(*read->block.header);
  auto draft = again.tiers[2]->Reserve(read->block.Layout(read->block.present));
  ASSERT_TRUE(draft.ok());
  again.tiers[2]->Fill(draft->get(), read->block);
  again.tiers[2]->Commit(*std::move(draft), header, {}, [&](absl::StatusOr<CopyPtr> got) { copy = std::move(got); });
  again.Settle();
  RecoveredCopy recovered;
  recovered.identity = header->identity;
  recovered.tokens = 16;
  recovered.encoded_class = recovered.stored_class = read->served;
  recovered.copy = **copy;
  RecoveredCopy stranger = recovered;
  stranger.identity.namespace_fingerprint = TestKey(7);
  again.store->RecoverCopies(2, {recovered, stranger});
  auto got = again.Get(1);
  ASSERT_TRUE(got.ok()) << Message(got.status());
  EXPECT_LT(again.RelativeError(*got, 1), 0.1);
  EXPECT_EQ(again.store->Stats().blocks, 1u);
  auto newer = again.Put(1);
  ASSERT_TRUE(newer.ok()) << Message(newer.status());
  EXPECT_EQ(newer->generation, put->generation);  // The same block, finer.
  EXPECT_GT(again.Put(2)->generation, put->generation);
}

TEST(Store, ShutdownSavesWhatItCan) {
  StoreHarness h;
  for (uint64_t key = 0; key < 20; ++key) ASSERT_TRUE(h.Put(key).ok());
  std::optional<absl::Status> stopped;
  h.store->Shutdown(1000, [&](absl::Status status) { stopped = status; });
  EXPECT_EQ(h.store->BeginPut(h.Spec(100)).status().code(), absl::StatusCode::kUnavailable);
  h.Settle();
  ASSERT_TRUE(stopped.has_value() && stopped->ok());
  EXPECT_EQ(h.tiers[2]->remembered(), 20u);
}

TEST(Store, C56_shutdown_is_bounded_and_counts_what_it_drops) {
  StoreHarness h;
  for (uint64_t key = 0; key < 20; ++key) ASSERT_TRUE(h.Put(key).ok());
  std::optional<absl::Status> stopped;
  h.store->Shutdown(100, [&](absl::Status status) { stopped = status; });
  h.manual.RunOne();
  h.clock.AdvanceMs(200);
  h.Settle();
  ASSERT_TRUE(stopped.has_value());
  EXPECT_GT(h.store->Stats().shutdown_dropped, 0u);
  EXPECT_EQ(h.store->Stats().shutdown_dropped + h.tiers[2]->remembered(), 20u);
}

}  // namespace
}  // namespace firn
