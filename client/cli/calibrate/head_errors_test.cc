// Tables of errors: as files, as rankings, and spent on.

#include "client/cli/calibrate/head_errors.h"

#include <random>

#include "client/cli/calibrate/plan.h"
#include "firnkv/plan_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace firn::cli {
namespace {

using ::testing::HasSubstr;

constexpr PrecisionClass k8 = PrecisionClass::k8Bit, k4 = PrecisionClass::k4Bit, k2 = PrecisionClass::k2Bit;

// Two layers of two heads; K of layer 7, head 1 is what matters.
HeadErrorTable Table() {
  HeadErrorTable table{
      .measure = ErrorMeasure::kOutput, .layers = {3, 7}, .heads = 2, .classes = {k8, k4, k2}, .errors = {}};
  for (size_t p = 0; p < 2; ++p) {
    for (size_t i = 0; i < 4; ++i) {
      double size = (p == 0 && i == 3) ? 6 : p == 0 ? 1 : 0.5;
      for (double share : {0.001, 0.05, 1.0}) table.errors[p].push_back(size * share);
    }
  }
  return table;
}

HeadCosts Costs() {
  HeadCosts costs;
  for (size_t p = 0; p < 2; ++p) {
    costs.bytes[p] = {64 * 131, 64 * 67, 64 * 35};
    costs.values[p] = 64 * 128;
  }
  return costs;
}

TEST(HeadErrors, TheBudgetGoesWhereTheErrorIs) {
  auto least = SpendBits(Table(), Costs(), 2.1875);
  ASSERT_TRUE(least.ok()) << least.status();
  EXPECT_EQ(least->classes[0], (ClassMap{k2, k2, k2, k2}));
  EXPECT_DOUBLE_EQ(least->bits, 2.1875);
  auto one = SpendBits(Table(), Costs(), 2.4375);
  EXPECT_EQ(one->classes[0], (ClassMap{k2, k2, k2, k4}));
  EXPECT_EQ(one->classes[1], (ClassMap{k2, k2, k2, k2}));
  EXPECT_DOUBLE_EQ(one->bits, 2.4375);
  EXPECT_TRUE(one->exact);
  auto all = SpendBits(Table(), Costs(), 8.25);
  EXPECT_EQ(all->classes[1], (ClassMap{k8, k8, k8, k8}));
  double before = HUGE_VAL;
  for (double bits = 2.1875; bits < 9; bits += 0.1) {
    auto spent = SpendBits(Table(), Costs(), bits);
    ASSERT_TRUE(spent.ok());
    EXPECT_LE(spent->bits, bits + 1e-9);
    EXPECT_LE(spent->error, before);
    before = spent->error;
  }
  EXPECT_THAT(std::string(SpendBits(Table(), Costs(), 2.0).status().message()),
              HasSubstr("2 bits a value; 2.1875 with the coarsest precision of everything"));
  EXPECT_FALSE(SpendBits(Table(), Costs(), std::nan("")).ok());
}

TEST(HeadErrors, FilesComeBack) {
  HeadErrorTable table = Table();
  std::mt19937_64 rng(3);
  for (auto& part : table.errors) {
    for (double& error : part) error *= std::exp(std::normal_distribution<double>(0, 3)(rng));
  }
  auto back = ParseErrors("e.json", PrintErrors(table), table.layers, 2, table.classes);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->errors, table.errors);
  auto fewer = ParseErrors("e.json", PrintErrors(table), {7}, 2, {k2});
  ASSERT_TRUE(fewer.ok()) << fewer.status();
  EXPECT_EQ(fewer->At(Part::kK, 0, 1, 0), table.At(Part::kK, 1, 1, 2));
}

TEST(HeadErrors, WrongFilesSayWhere) {
  std::string good = PrintErrors(Table());
  auto message = [&](const std::string& json, std::vector<uint32_t> layers = {3, 7}, uint32_t heads = 2) {
    return std::string(ParseErrors("e.json", json, layers, heads, {k8, k4, k2}).status().message());
  };
  auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  EXPECT_EQ(message(good), "");
  for (const char* not_ours : {"", "[]", "{}", "{\"format\": \"firn-errors\"}", "layer,k"}) {
    EXPECT_THAT(message(not_ours), HasSubstr("e.json is not a file of errors")) << not_ours;
  }
  EXPECT_THAT(message(replaced("\"version\": 1", "\"version\": 2")), HasSubstr("version 1 expected"));
  EXPECT_EQ(message(good, {3, 8}), "e.json has 0 heads of layer 8, 2 expected");
  EXPECT_EQ(message(good, {3}, 3), "e.json has 2 heads of layer 3, 3 expected");
  EXPECT_EQ(message(replaced("\"int4\": 0.05", "\"int4\": -1")),
            "e.json: layer 3, head 0: k at int4 is -1; finite and at least 0 expected");
  EXPECT_EQ(message(replaced("\"int4\": 0.05", "\"int5\": 1")), "e.json: layer 3, head 0 has no number for k at int4");
  EXPECT_EQ(message(replaced("\"int4\": 0.05", "\"int4\": \"x\"")),
            "e.json: layer 3, head 0 has no number for k at int4");
}

TEST(HeadErrors, RankingsAreWhatKvmixReads) {
  auto importance = LayerImportance(Table());
  EXPECT_NEAR(importance[0][1], 7.0 / 11, 1e-12);
  EXPECT_NEAR(importance[1][0], 1.0 / 11, 1e-12);
  HeadErrorTable gapless = Table();
  gapless.layers = {6, 7};
  auto read = firnkv::ParseRanking(PrintRanking(gapless), {.source = "r", .share = 0.5});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_FALSE(read->empty());
  EXPECT_EQ(PrintRanking(Table()).substr(0, 32), "layer,k_importance,v_importance\n");
}

TEST(HeadErrors, APlanSaysItAll) {
  CalibrationSettings settings;
  settings.exact_first = 6;
  settings.exact_recent = 256;
  auto keys = firnkv::Digest::FromHex(std::string(64, 'a'));
  std::vector<TierBits> tiers = {{"warm", *SpendBits(Table(), Costs(), 4.1875)},
                                 {"cold", *SpendBits(Table(), Costs(), 2.5)}};
  firnkv::PrecisionPlan plan = PlanOf(settings, tiers, keys);
  EXPECT_EQ(plan.ladder, firnkv::Ladder::kTrellis);
  EXPECT_EQ(plan.key_method, firnkv::KeyMethod::kBalancedRotated);
  EXPECT_EQ(plan.balance_artifact, keys);
  EXPECT_EQ(plan.keep_first_tokens, 6u);
  EXPECT_EQ(plan.recent_tokens, 256u);
  ASSERT_EQ(plan.rules.size(), 4u);
  EXPECT_EQ(plan.rules[2].tier, "cold");
  EXPECT_EQ(plan.rules[2].part, firnkv::Part::kK);
  using firnkv::Precision;
  EXPECT_EQ(plan.rules[2].heads,
            (std::vector<Precision>{Precision::kInt2, Precision::kInt2, Precision::kInt2, Precision::kInt4}));
  auto read = firnkv::ParsePlanFile(firnkv::PrintPlan(plan));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->plan, plan);

  settings.code = LadderOrIntegers::kIntegers;
  plan = PlanOf(settings, {tiers[1]}, std::nullopt);
  EXPECT_FALSE(plan.balance_artifact.has_value());
  EXPECT_EQ(plan.rules[0].coding.codec, firnkv::Codec::kIntChannel);
  EXPECT_EQ(plan.rules[1].coding.codec, firnkv::Codec::kIntToken);
  EXPECT_EQ(plan.rules[0].coding.bits, 2u);
  read = firnkv::ParsePlanFile(firnkv::PrintPlan(plan));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->plan, plan);
}

TEST(HeadErrors, APlanWithoutCoarseHeadsTakesWhatIsFinestAt8Bits) {
  CalibrationSettings settings;
  const std::vector<LadderAt8Bits> ladders = {
      {LadderOrIntegers::kMinMax, 64, 8.5}, {LadderOrIntegers::kMinMax, 0, 8.25}, {LadderOrIntegers::kGain, 0, 8.1875}};
  auto plan_of = [&](std::vector<double> budgets) {
    std::vector<TierBits> tiers;
    for (double budget : budgets) tiers.push_back({std::to_string(budget), *SpendBits(Table(), Costs(), budget)});
    firnkv::PrecisionPlan plan = PlanOf(settings, tiers, std::nullopt, FinerLadder(settings, tiers, ladders));
    EXPECT_EQ(plan.key_group, plan.value_group);
    return std::pair(plan.ladder, plan.key_group);
  };
  using firnkv::Ladder;
  EXPECT_EQ(plan_of({8.1}), std::pair(Ladder::kTrellis, 0u)) << "a head has 4 bits";
  EXPECT_EQ(plan_of({8.1875}), std::pair(Ladder::kGain, 0u));
  EXPECT_EQ(plan_of({8.25}), std::pair(Ladder::kMinMax, 0u));
  EXPECT_EQ(plan_of({8.5}), std::pair(Ladder::kMinMax, 64u));
  EXPECT_EQ(plan_of({8.5, 8.3}), std::pair(Ladder::kMinMax, 0u)) << "one code for all tiers";
  EXPECT_EQ(plan_of({8.5, 4}), std::pair(Ladder::kTrellis, 0u)) << "made for the colder one";
  settings.code = LadderOrIntegers::kGain;
  EXPECT_EQ(plan_of({8.5}), std::pair(Ladder::kGain, 0u)) << "as asked for";
}

}  // namespace
}  // namespace firn::cli
