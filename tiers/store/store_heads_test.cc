// Blocks whose heads differ in precision: what moves, reads, limits and floors make of them.
#include <gtest/gtest.h>

#include "tiers/store/store_harness_test_util.h"

namespace firn {
namespace {

constexpr ClassPair Both(PrecisionClass c) { return {c, c}; }
const ClassPair kInt8 = Both(PrecisionClass::k8Bit);
const ClassPair kInt4 = Both(PrecisionClass::k4Bit);
const ClassPair kInt2 = Both(PrecisionClass::k2Bit);

// A plan that keeps some heads finer in the cold tier: they are, the block ranks by the others, and demoting in steps
// gives what demoting at once does.
TEST(StoreHeads, HeadsThatAPlanKeepsFinerStayFiner) {
  StoreHarness h;
  PrecisionPlan plan;
  TierRule rule{.tier = "cold", .part = Part::kK, .coding = {}, .classes = ClassMap(4, PrecisionClass::k2Bit)};
  rule.classes[3] = PrecisionClass::k8Bit;
  plan.rules = {rule};
  plan.tier_target["cold"] = {PrecisionClass::k2Bit, PrecisionClass::k2Bit};
  h.ns = h.Register(StoreHarness::Facts(), plan);
  for (uint64_t key : {1, 2}) ASSERT_TRUE(h.Put(key).ok());
  ASSERT_TRUE(h.Demote(1, 1).ok());
  EXPECT_EQ(*h.Demote(1, 2), kInt2);
  EXPECT_EQ(*h.Demote(2, 2), kInt2);
  std::vector<std::vector<uint8_t>> headers;
  for (uint64_t key : {1, 2}) {
    auto got = h.Get(key);
    ASSERT_TRUE(got.ok()) << Message(got.status());
    EXPECT_EQ(got->tier, 2);
    EXPECT_EQ(got->served, kInt2);
    EXPECT_EQ(got->block.header->ceilings[0], rule.classes);
    EXPECT_TRUE(got->block.header->ceilings[1].empty());
    EXPECT_EQ(IntactRuns(got->block), got->block.present);
    EXPECT_LT(h.RelativeError(*got, key), 0.5);
    headers.push_back(std::vector<uint8_t>());
    for (const RunBytes& run : got->block.runs) {
      for (ByteSpan piece : run.spans()) headers.back().insert(headers.back().end(), piece.begin(), piece.end());
    }
  }
  EXPECT_EQ(headers[0].size(), headers[1].size());
  h.ExpectConsistent();
  EXPECT_FALSE(h.Get(1, kInt4).ok()) << "a block ranks by its coarsest head";
  PrecisionPlan unknown;
  unknown.rules = {rule};
  unknown.rules[0].tier = "attic";
  std::optional<absl::StatusOr<NamespaceId>> refused;
  h.store->RegisterNamespace(StoreHarness::Facts(), unknown,
                             [&](absl::StatusOr<NamespaceId> got) { refused = std::move(got); });
  h.Settle();
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->status().code(), absl::StatusCode::kInvalidArgument);
}

PrecisionPlan HeadsApart(const char* tier, ClassMap classes) {
  PrecisionPlan plan;
  plan.rules = {{.tier = tier, .part = Part::kK, .coding = {}, .classes = std::move(classes)}};
  return plan;
}

TEST(StoreHeads, ReadingABlockWhoseHeadsDifferLeavesThemAsTheyAre) {
  using enum PrecisionClass;
  StoreHarness h;
  PrecisionPlan plan = HeadsApart("cold", {k2Bit, k8Bit, k8Bit, k8Bit});
  plan.keep_first_tokens = 0;
  h.ns = h.Register(StoreHarness::Facts(), plan);
  ASSERT_TRUE(h.Put(1).ok());
  ASSERT_TRUE(h.Demote(1, 2).ok());
  auto first = h.Get(1);
  ASSERT_TRUE(first.ok());
  double error = h.RelativeError(*first, 1);
  for (int i = 0; i < 3; ++i) {
    h.Settle();
    auto again = h.Get(1);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->served, first->served);
    EXPECT_EQ(FinestOf(*again->block.header, again->block.present).k, k8Bit) << "from tier " << int{again->tier};
    EXPECT_EQ(h.RelativeError(*again, 1), error);
  }
  ASSERT_TRUE(h.Promote(1, 1).ok());
  EXPECT_EQ(h.RelativeError(*h.Get(1), 1), error);
  h.ExpectConsistent();
}

TEST(StoreHeads, HeadsThatDifferGoDownToATierWithoutARuleAsFineAsItTakesThem) {
  using enum PrecisionClass;
  StoreHarness h;
  PrecisionPlan plan = HeadsApart("warm", {k2Bit, k8Bit, k8Bit, k8Bit});
  plan.tier_target["cold"] = kInt4;
  h.ns = h.Register(StoreHarness::Facts(), plan);
  ASSERT_TRUE(h.Put(1).ok());
  ASSERT_TRUE(h.Demote(1, 1).ok());
  ASSERT_TRUE(h.Demote(1, 2).ok());
  auto got = h.Get(1);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->served.k, k2Bit);
  EXPECT_EQ(FinestOf(*got->block.header, got->block.present).k, k4Bit);
  h.ExpectConsistent();
}

TEST(StoreHeads, HeadsThatDifferKeepToTheErrorLimitAndTheFloor) {
  using enum PrecisionClass;
  for (float limit : {0.02f, 0.1f, 1e-6f}) {
    SCOPED_TRACE(limit);
    StoreHarness h;
    PrecisionPlan plan = HeadsApart("warm", {k4Bit, k2Bit, k2Bit, k2Bit});
    plan.max_relative_error = limit;
    h.Register(StoreHarness::Facts(), plan);
    ASSERT_TRUE(h.Put(1).ok());
    ASSERT_TRUE(h.Demote(1, 1).ok());
    EXPECT_GT(h.store->Stats().error_gate_stops, 0u);
    EXPECT_LE(h.RelativeError(*h.Get(1), 1), limit);
    h.ExpectConsistent();
  }
  StoreHarness h;
  PrecisionPlan plan = HeadsApart("warm", {k2Bit, k2Bit, k2Bit, k4Bit});
  plan.floor = kInt8;
  h.Register(StoreHarness::Facts(), plan);
  ASSERT_TRUE(h.Put(1).ok());
  EXPECT_EQ(*h.Demote(1, 1), kInt8);
  EXPECT_EQ(*h.Demote(1, 2), kInt8);
  h.ExpectConsistent();
}

// Plain codes of several widths have one error for all: a limit that it keeps to stops nothing.
TEST(StoreHeads, ALimitGoesByTheErrorOfCodesOfSeveralWidths) {
  using enum PrecisionClass;
  for (float limit : {0.9f, 0.01f}) {
    SCOPED_TRACE(limit);
    StoreHarness h;
    PrecisionPlan plan = HeadsApart("warm", {k3Bit, k2Bit, k2Bit, k2Bit});
    plan.rules[0].coding = {.codec = CodecId::kIntToken, .group = 32, .bits = 2};
    plan.max_relative_error = limit;
    h.ns = h.Register(StoreHarness::Facts(), plan);
    ASSERT_TRUE(h.Put(1).ok());
    ASSERT_TRUE(h.Demote(1, 1).ok());
    auto got = h.Get(1);
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(got->served.k == k2Bit, limit > 0.5f) << static_cast<int>(got->served.k);
    EXPECT_EQ(h.store->Stats().error_gate_stops > 0, limit < 0.5f);
    EXPECT_LE(h.RelativeError(*got, 1), limit);
    h.ExpectConsistent();
  }
}

// K passes the limit and goes down finer; V, which does not, keeps its finer heads.
TEST(StoreHeads, ALimitOnOnePartLeavesTheOther) {
  using enum PrecisionClass;
  StoreHarness h;
  PrecisionPlan plan = HeadsApart("warm", {k8Bit, k8Bit, k8Bit, k8Bit});
  plan.rules.push_back({.tier = "warm", .part = Part::kV, .coding = {}, .classes = {k2Bit, k8Bit, k8Bit, k8Bit}});
  plan.tier_target["cold"] = {k2Bit, k8Bit};
  h.ns = h.Register(StoreHarness::Facts(), plan);
  ASSERT_TRUE(h.Put(1).ok());
  ASSERT_TRUE(h.Demote(1, 1).ok());
  plan.max_relative_error = 0.2f;  // INT4 is within it, INT2 is not.
  ASSERT_EQ(h.Register(StoreHarness::Facts(), plan), h.ns);
  ASSERT_TRUE(h.Demote(1, 2).ok());
  auto got = h.Get(1);
  ASSERT_TRUE(got.ok());
  ClassPair finest = FinestOf(*got->block.header, got->block.present);
  EXPECT_EQ(finest.k, k4Bit);
  EXPECT_EQ(finest.v, k8Bit);
  EXPECT_EQ(got->served.v, k2Bit);
  h.ExpectConsistent();
}

TEST(StoreHeads, DegradingTakesFromTheHeadsThatHaveIt) {
  using enum PrecisionClass;
  for (uint8_t tier : {uint8_t{1}, uint8_t{2}}) {
    SCOPED_TRACE(int{tier});
    StoreHarness h;
    const char* name = tier == 1 ? "warm" : "cold";
    PrecisionPlan plan = HeadsApart(name, {k2Bit, k8Bit, k8Bit, k8Bit});
    plan.tier_target[name] = kInt8;
    h.ns = h.Register(StoreHarness::Facts(), plan);
    ASSERT_TRUE(h.Put(1).ok());
    ASSERT_TRUE(h.Demote(1, tier).ok());
    ASSERT_TRUE(h.Degrade(1, tier, k4Bit).ok());
    auto got = h.Get(1);
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(FinestOf(*got->block.header, got->block.present), kInt4);
    EXPECT_EQ(got->served, (ClassPair{k2Bit, k4Bit}));
    h.ExpectConsistent();
  }
}

}  // namespace
}  // namespace firn
