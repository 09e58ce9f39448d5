// What a caller may rely on once it was answered: pins, durable acknowledgements, one shape a key.
#include <gtest/gtest.h>

#include <limits>

#include "tiers/store/store_harness_test_util.h"

namespace firn {
namespace {

constexpr ClassPair kExactPair{PrecisionClass::kExact, PrecisionClass::kExact};

std::optional<absl::StatusOr<PutResult>> EnsureDurable(StoreHarness& h, uint64_t key) {
  std::optional<absl::StatusOr<PutResult>> result;
  h.store->EnsureDurable({h.ns, TestKey(key), 0}, [&](absl::StatusOr<PutResult> got) { result = std::move(got); });
  h.Settle();
  return result;
}

TEST(StorePromises, ABlockThatIsThereIsMadeDurable) {
  StoreHarness h;
  ASSERT_TRUE(h.Put(1).ok());
  PutSpec durable = h.Spec(1);
  durable.ack = AckLevel::kDurable;
  EXPECT_EQ(h.Put(durable, 1).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(h.tiers[2]->remembered(), 0u) << "saying so does not make it durable";
  auto ensured = EnsureDurable(h, 1);
  ASSERT_TRUE(ensured.has_value() && ensured->ok());
  EXPECT_FALSE((*ensured)->stored);
  EXPECT_EQ((*ensured)->stored_class, kExactPair);
  EXPECT_EQ((*ensured)->durable_class.Min(), PrecisionClass::k4Bit);
  EXPECT_EQ(h.tiers[2]->remembered(), 1u);
  // Once more costs a flush, not a copy.
  uint64_t demotions = h.store->Stats().tiers[2].demotions_in;
  ensured = EnsureDurable(h, 1);
  ASSERT_TRUE(ensured.has_value() && ensured->ok());
  EXPECT_EQ(h.store->Stats().tiers[2].demotions_in, demotions);
  ensured = EnsureDurable(h, 2);
  ASSERT_TRUE(ensured.has_value());
  EXPECT_EQ(ensured->status().code(), absl::StatusCode::kNotFound);
  h.ExpectConsistent();
}

TEST(StorePromises, APinThatComesDuringADemotionHolds) {
  StoreHarness h;
  SessionId session = h.store->OpenSession("tenant");
  ASSERT_TRUE(h.Put(1).ok());
  std::optional<absl::StatusOr<ClassPair>> moved;
  h.store->Demote(h.ns, TestKey(1), 2, [&](absl::StatusOr<ClassPair> got) { moved = std::move(got); });
  ASSERT_TRUE(h.store->Pin(h.ns, TestKey(1), session).ok());
  h.Settle();
  ASSERT_TRUE(moved.has_value());
  auto got = h.Get(1);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->tier, 0);
  EXPECT_EQ(got->served, kExactPair);
  h.ExpectConsistent();
}

TEST(StorePromises, WhatIsPinnedIsNeitherDemotedNorDegraded) {
  StoreHarness h;
  SessionId session = h.store->OpenSession("tenant");
  ASSERT_TRUE(h.Put(1).ok());
  ASSERT_TRUE(h.Put(2).ok());
  ASSERT_TRUE(h.Demote(2, 1).ok());
  for (uint64_t key : {1, 2}) ASSERT_TRUE(h.store->Pin(h.ns, TestKey(key), session).ok());
  EXPECT_EQ(h.Demote(1, 1).status().code(), absl::StatusCode::kFailedPrecondition);
  absl::Status degraded = h.Degrade(2, 1, PrecisionClass::k4Bit).status();
  EXPECT_EQ(degraded.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(Message(degraded).find("pinned 1 times"), std::string::npos) << degraded;
  EXPECT_EQ(h.Get(2)->served.Min(), PrecisionClass::k8Bit);
  h.store->CloseSession(session);
  EXPECT_TRUE(h.Demote(1, 1).ok());
  EXPECT_TRUE(h.Degrade(2, 1, PrecisionClass::k4Bit).ok());
  h.ExpectConsistent();
}

TEST(StorePromises, AKeyHasOneNumberOfTokens) {
  StoreHarness h;
  ASSERT_TRUE(h.Put(1, 16).ok());
  absl::Status other = h.Put(1, 8).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(Message(other).find("has 16 tokens; 8 were put"), std::string::npos) << other;
  ASSERT_TRUE(h.store->Delete(h.ns, TestKey(1)).ok());
  EXPECT_TRUE(h.Put(1, 8).ok());
  h.ExpectConsistent();
}

TEST(StorePromises, PositionsFitTheirField) {
  StoreHarness h;
  PutSpec spec = h.Spec(1);
  spec.first_token = std::numeric_limits<uint32_t>::max() - 16;
  ASSERT_TRUE(h.Put(spec, 1).ok());
  EXPECT_TRUE(h.Demote(1, 2).ok());
  spec = h.Spec(2);
  spec.first_token = std::numeric_limits<uint32_t>::max() - 15;
  absl::Status refused = h.Put(spec, 2).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(Message(refused).find("first_token = 4294967280"), std::string::npos) << refused;
  h.ExpectConsistent();
}

}  // namespace
}  // namespace firn
