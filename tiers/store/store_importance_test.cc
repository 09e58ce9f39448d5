// Which tokens of a block are kept exact: what callers say of their importance, from a put to a restart.
#include <gtest/gtest.h>

#include <cmath>

#include "codecs/exact_tokens.h"
#include "tiers/store/store_harness_test_util.h"

namespace firn {
namespace {

constexpr ClassPair kInt8{PrecisionClass::k8Bit, PrecisionClass::k8Bit};
constexpr ClassPair kInt4{PrecisionClass::k4Bit, PrecisionClass::k4Bit};
constexpr ClassPair kInt2{PrecisionClass::k2Bit, PrecisionClass::k2Bit};

using Positions = std::vector<uint32_t>;

// 4 of 16 tokens.
PrecisionPlan ImportantPlan(uint32_t keep_first = 0) {
  PrecisionPlan plan;
  plan.keep_first_tokens = keep_first;
  plan.important_fraction = 0.25f;
  return plan;
}

// Importance that puts these tokens first.
std::vector<float> Favour(const Positions& positions, uint32_t tokens = 16) {
  std::vector<float> importance(tokens, 0.125f);
  for (uint32_t position : positions) importance[position] = 2.5f;
  return importance;
}

class Importance : public testing::Test {
 protected:
  void Use(PrecisionPlan plan, HarnessOptions options = {}) {
    h = std::make_unique<StoreHarness>(std::move(options));
    h->ns = h->Register(StoreHarness::Facts(), std::move(plan));
  }
  absl::StatusOr<PutResult> Put(uint64_t key, std::vector<float> importance, uint32_t first_token = 0) {
    PutSpec spec = h->Spec(key);
    spec.first_token = first_token;
    spec.token_importance = std::move(importance);
    return h->Put(spec, key);
  }
  absl::Status Touch(uint64_t key, std::vector<float> importance) {
    return h->store->Touch(h->ns, TestKey(key), {.token_importance = std::move(importance)});
  }
  // The tokens that the copy a get is served from keeps exact, each of which must be what was put.
  Positions ExactOf(uint64_t key) {
    auto got = h->Get(key);
    EXPECT_TRUE(got.ok()) << Message(got.status());
    if (!got.ok()) return {};
    const RecordHeader& header = *got->block.header;
    Positions positions = PositionsOf(header.exact_map, header.shape.tokens).exact;
    for (uint32_t t = 0; header.exact_map.empty() && t < header.exact_tokens; ++t) positions.push_back(t);
    PartShape shape = header.shape.part(Part::kK);
    std::vector<uint8_t> k(shape.values() * 2), v(k.size());
    EXPECT_TRUE(Decode(got->block, h->store->artifacts(), {.out = DType::kFp16, .use = got->block.present}, k, v).ok());
    auto expected = StoreHarness::Values(key * 2, shape.values());
    bool differs = false;
    for (uint64_t row = 0; row < shape.values() / shape.width; ++row) {
      bool same = std::memcmp(&k[row * shape.width * 2], &expected[row * shape.width], shape.width * 2) == 0;
      bool exact = std::find(positions.begin(), positions.end(), row % shape.tokens) != positions.end();
      EXPECT_TRUE(same || !exact) << "token " << row % shape.tokens;
      differs |= !same;
    }
    EXPECT_TRUE(differs) << "nothing was coded";
    return positions;
  }
  uint64_t IndexBytes() const { return h->store->Stats().index_bytes; }

  std::unique_ptr<StoreHarness> h;
};

TEST_F(Importance, GivenAtPutItDecidesWhatADemotionKeeps) {
  Use(ImportantPlan());
  ASSERT_TRUE(Put(1, Favour({3, 7, 8, 15})).ok());
  EXPECT_EQ(*h->Demote(1, 1), kInt8);
  EXPECT_EQ(ExactOf(1), (Positions{3, 7, 8, 15}));
  EXPECT_EQ(h->store->Stats().exact_token_bytes, 2ull * 2 * 2 * 4 * 64 * 2);
  h->ExpectConsistent();
}

TEST_F(Importance, WithoutItOnlyTheLeadingTokensAreKept) {
  Use(ImportantPlan(3));
  ASSERT_TRUE(Put(1, {}).ok());
  ASSERT_TRUE(Put(2, {}, 16).ok());
  ASSERT_TRUE(h->Demote(1, 1).ok());
  ASSERT_TRUE(h->Demote(2, 1).ok());
  EXPECT_EQ(ExactOf(1), (Positions{0, 1, 2}));
  EXPECT_EQ(ExactOf(2), Positions{});
}

TEST_F(Importance, WithoutAFractionItChangesNothing) {
  Use({});
  ASSERT_TRUE(Put(1, Favour({9, 11})).ok());
  ASSERT_TRUE(h->Demote(1, 1).ok());
  EXPECT_EQ(ExactOf(1), (Positions{0, 1, 2, 3}));
}

TEST_F(Importance, LeadingTokensCountFirst) {
  Use(ImportantPlan(2));
  ASSERT_TRUE(Put(1, Favour({5, 6, 9})).ok());
  ASSERT_TRUE(Put(2, Favour({5, 6, 9}), 16).ok());
  ASSERT_TRUE(h->Demote(1, 1).ok());
  ASSERT_TRUE(h->Demote(2, 1).ok());
  EXPECT_EQ(ExactOf(1), (Positions{0, 1, 5, 6}));
  EXPECT_EQ(ExactOf(2), (Positions{0, 5, 6, 9})) << "the lower position first among equals";
}

TEST_F(Importance, TouchReplacesIt) {
  Use(ImportantPlan());
  ASSERT_TRUE(Put(1, Favour({3, 7, 8, 15})).ok());
  ASSERT_TRUE(Touch(1, Favour({1, 2, 4, 12})).ok());
  ASSERT_TRUE(h->store->Touch(h->ns, TestKey(1), {.live_sequence = true}).ok()) << "none leaves it";
  ASSERT_TRUE(h->Demote(1, 1).ok());
  EXPECT_EQ(ExactOf(1), (Positions{1, 2, 4, 12}));
  EXPECT_EQ(Touch(2, Favour({1})).code(), absl::StatusCode::kNotFound);
}

TEST_F(Importance, WhatIsCodedKeepsItsSet) {
  Use(ImportantPlan());
  ASSERT_TRUE(Put(1, Favour({3, 7, 8, 15})).ok());
  ASSERT_TRUE(h->Demote(1, 1).ok());
  ASSERT_TRUE(Touch(1, Favour({1, 2, 4, 12})).ok());
  EXPECT_EQ(*h->Demote(1, 2), kInt4) << "by planes";
  EXPECT_EQ(ExactOf(1), (Positions{3, 7, 8, 15}));
  h->store->Clear({.ns = h->ns, .tier = 0});
  h->store->Clear({.ns = h->ns, .tier = 1});
  EXPECT_EQ(*h->Degrade(1, 2, PrecisionClass::k2Bit), kInt2);
  EXPECT_EQ(ExactOf(1), (Positions{3, 7, 8, 15}));
  h->ExpectConsistent();
}

TEST_F(Importance, DegradingInPlaceKeepsTheSet) {
  Use(ImportantPlan());
  ASSERT_TRUE(Put(1, Favour({2, 7, 9, 11})).ok());
  ASSERT_TRUE(h->Demote(1, 1).ok());
  EXPECT_EQ(*h->Degrade(1, 1, PrecisionClass::k4Bit), kInt4);
  EXPECT_EQ(ExactOf(1), (Positions{2, 7, 9, 11}));
}

TEST_F(Importance, AnotherCodecBelowKeepsTheSet) {
  PrecisionPlan plan = ImportantPlan();
  for (const auto& [tier, bits] : {std::pair("warm", 8), {"cold", 3}}) {
    for (Part part : kParts) {
      TierRule rule{.tier = tier, .part = part, .coding = {}, .classes = {}};
      rule.coding.codec = bits == 8 ? CodecId::kIntToken : CodecId::kIntChannel;
      rule.coding.bits = static_cast<uint8_t>(bits);
      rule.coding.group = 32;
      plan.rules.push_back(rule);
    }
  }
  Use(plan);
  ASSERT_TRUE(Put(1, Favour({0, 7, 9, 11})).ok());
  ASSERT_TRUE(h->Demote(1, 1).ok());
  EXPECT_EQ(h->Demote(1, 2)->Min(), PrecisionClass::k3Bit);
  EXPECT_EQ(ExactOf(1), (Positions{0, 7, 9, 11}));
}

TEST_F(Importance, AFinerPutBringsItsOwn) {
  Use(ImportantPlan());
  ASSERT_TRUE(Put(1, Favour({3, 7, 8, 15})).ok());
  ASSERT_TRUE(h->Demote(1, 1).ok());
  ASSERT_TRUE(Put(1, Favour({4, 5, 6, 7})).ok());
  EXPECT_EQ(Put(1, Favour({0, 1, 2, 3})).status().code(), absl::StatusCode::kAlreadyExists);
  ASSERT_TRUE(h->Demote(1, 1).ok());
  EXPECT_EQ(ExactOf(1), (Positions{4, 5, 6, 7}));
  ASSERT_TRUE(Put(1, {}).ok());
  ASSERT_TRUE(h->Demote(1, 1).ok());
  EXPECT_EQ(ExactOf(1), Positions{});
  h->ExpectConsistent();
}

TEST_F(Importance, AFirstTierThatCodesUsesIt) {
  Use(ImportantPlan(), {.hot_is_int8 = true});
  ASSERT_TRUE(Put(1, Favour({3, 7, 8, 15})).ok());
  EXPECT_EQ(ExactOf(1), (Positions{3, 7, 8, 15}));
  h->ExpectConsistent();
}

TEST_F(Importance, AnErrorLimitIsAboutTheCodedTokens) {
  PrecisionPlan plan = ImportantPlan();
  plan.max_relative_error = 0.02f;
  Use(plan);
  ASSERT_TRUE(Put(1, Favour({3, 7, 8, 15})).ok());
  EXPECT_EQ(*h->Demote(1, 2), kInt8) << "INT4 passes the limit";
  EXPECT_EQ(ExactOf(1), (Positions{3, 7, 8, 15}));
}

TEST_F(Importance, AllTokensKeptIsABlockAsItCame) {
  PrecisionPlan plan = ImportantPlan();
  plan.important_fraction = 1;
  Use(plan);
  ASSERT_TRUE(Put(1, Favour({3})).ok());
  EXPECT_EQ(h->Demote(1, 1)->Min(), PrecisionClass::kExact);
  EXPECT_EQ(h->RelativeError(*h->Get(1), 1), 0.0);
  h->ExpectConsistent();
}

TEST_F(Importance, ItIsKeptOnlyWhileItMatters) {
  Use(ImportantPlan());
  ASSERT_TRUE(Put(1, {}).ok());
  const uint64_t before = IndexBytes();
  ASSERT_TRUE(Touch(1, Favour({3})).ok());
  EXPECT_GE(IndexBytes(), before + 16);
  const uint64_t with_one = IndexBytes();
  ASSERT_TRUE(Touch(1, Favour({4})).ok());
  EXPECT_EQ(IndexBytes(), with_one) << "in place of the first";
  ASSERT_TRUE(h->Demote(1, 1).ok());
  const uint64_t table_alone = IndexBytes();
  EXPECT_LT(table_alone, with_one);
  ASSERT_TRUE(Touch(1, Favour({5})).ok());
  EXPECT_EQ(IndexBytes(), table_alone) << "a coded block has no use for it";
  ASSERT_TRUE(Put(2, Favour({3})).ok());
  EXPECT_GT(IndexBytes(), table_alone);
  const uint64_t with_two = IndexBytes();
  ASSERT_TRUE(h->store->Delete(h->ns, TestKey(2)).ok());
  EXPECT_LT(IndexBytes(), with_two - 32) << "but for what remembers the free place";
  h->ExpectConsistent();
}

TEST_F(Importance, ADurableCopyLeavesItForTheHotOne) {
  Use(ImportantPlan());
  PutSpec spec = h->Spec(1);
  spec.ack = AckLevel::kDurable;
  spec.token_importance = Favour({3, 7, 8, 15});
  ASSERT_TRUE(h->Put(spec, 1).ok());
  ASSERT_TRUE(Touch(1, Favour({1, 2, 4, 12})).ok());
  ASSERT_TRUE(h->Demote(1, 1).ok());
  EXPECT_EQ(ExactOf(1), (Positions{1, 2, 4, 12}));
  h->store->Clear({.ns = h->ns, .tier = 1});
  EXPECT_EQ(ExactOf(1), (Positions{3, 7, 8, 15})) << "the record says which";
  h->ExpectConsistent();
}

TEST_F(Importance, AllShardsGetIt) {
  Use(ImportantPlan());
  NamespaceFacts facts = StoreHarness::Facts();
  facts.shards = 2;
  h->ns = h->Register(facts, ImportantPlan());
  for (uint16_t shard : {0, 1}) {
    PutSpec spec = h->Spec(1);
    spec.address.shard = shard;
    spec.token_importance = Favour({shard});
    ASSERT_TRUE(h->Put(spec, 1).ok());
  }
  ASSERT_TRUE(Touch(1, Favour({1, 2, 4, 12})).ok());
  ASSERT_TRUE(h->Demote(1, 1).ok());
  for (uint16_t shard : {0, 1}) {
    std::optional<absl::StatusOr<GetResult>> got;
    GetSpec spec;
    spec.address = {h->ns, TestKey(1), shard};
    h->store->Get(spec, [&](absl::StatusOr<GetResult> result) { got = std::move(result); });
    h->Settle();
    ASSERT_TRUE(got.has_value() && got->ok());
    EXPECT_EQ(PositionsOf((*got)->block.header->exact_map, 16).exact, (Positions{1, 2, 4, 12})) << shard;
  }
}

TEST_F(Importance, ValuesThatMeanNothingAreRefusedByName) {
  Use(ImportantPlan());
  ASSERT_TRUE(Put(1, {}).ok());
  for (auto& [change, said] : std::vector<std::pair<std::function<void(std::vector<float>&)>, std::string>>{
           {[](auto& v) { v[5] = -0.5f; }, "token_importance[5] is -0.5"},
           {[](auto& v) { v[15] = NAN; }, "token_importance[15] is nan"},
           {[](auto& v) { v[0] = INFINITY; }, "token_importance[0] is inf"},
           {[](auto& v) { v.pop_back(); }, "15 values for 16 tokens"},
           {[](auto& v) { v.push_back(0); }, "17 values for 16 tokens"}}) {
    std::vector<float> values = Favour({3});
    change(values);
    for (const absl::Status& status : {Put(2, values).status(), Touch(1, values)}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_NE(Message(status).find(said), std::string::npos) << Message(status);
    }
  }
  PrecisionPlan plan;
  for (float fraction : {-0.5f, 1.5f, NAN}) {
    plan.important_fraction = fraction;
    absl::Status status = ValidatePlan(StoreHarness::Facts(), plan);
    EXPECT_NE(Message(status).find("it is 0 to 1"), std::string::npos) << Message(status);
  }
}

// After a restart nothing is known of importance, and the record's own set is what counts.
TEST_F(Importance, ARestartKeepsTheSetOfTheRecord) {
  Use(ImportantPlan());
  ASSERT_TRUE(Put(1, Favour({3, 7, 8, 15})).ok());
  ASSERT_TRUE(h->Demote(1, 2).ok());
  EncodedBlock read = h->Get(1)->block;
  StoreHarness again;
  again.ns = again.Register(StoreHarness::Facts(), ImportantPlan());
  auto room = again.tiers[2]->Reserve(LayoutOf(*read.header));
  ASSERT_TRUE(room.ok());
  again.tiers[2]->Fill(room->get(), read);
  std::optional<absl::StatusOr<CopyPtr>> copy;
  again.tiers[2]->Commit(*std::move(room), read.header, {}, [&](absl::StatusOr<CopyPtr> c) { copy = std::move(c); });
  again.Settle();
  ASSERT_TRUE(copy.has_value() && copy->ok());
  RecoveredCopy recovered;
  recovered.identity = read.header->identity;
  recovered.tokens = 16;
  recovered.encoded_class = recovered.stored_class = kInt4;
  recovered.copy = **copy;
  again.store->RecoverCopies(2, {recovered});
  ASSERT_TRUE(again.store->Touch(again.ns, TestKey(1), {.token_importance = Favour({0, 1, 2, 4})}).ok());
  ASSERT_TRUE(again.Promote(1, 0).ok());
  auto got = again.Get(1);
  ASSERT_TRUE(got.ok()) << Message(got.status());
  EXPECT_EQ(PositionsOf(got->block.header->exact_map, 16).exact, (Positions{3, 7, 8, 15}));
  again.ExpectConsistent();
}

TEST(StoreImportance, WhatIsNoImportanceIsRefusedBeforeItIsRanked) {
  StoreHarness h;
  ASSERT_TRUE(h.Put(1).ok());
  TouchHint hint;
  hint.token_importance.assign(h.Spec(1).tokens, std::nanf(""));
  absl::Status refused = h.store->Touch(h.ns, TestKey(1), hint);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(Message(refused).find("token_importance[0] is nan"), std::string::npos) << refused;
  hint.token_importance.assign(3, 1.0f);
  refused = h.store->Touch(h.ns, TestKey(1), hint);
  EXPECT_NE(Message(refused).find("has 3 values for"), std::string::npos) << refused;
}

}  // namespace
}  // namespace firn
