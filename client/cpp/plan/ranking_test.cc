// Rankings of layers, and the preset that takes one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/status.h"
#include "client/cpp/plan/plan_test_util.h"
#include "firnkv/plan_file.h"

namespace firnkv {
namespace {

using ::testing::HasSubstr;

PrecisionPlan KvMix(std::string_view csv, uint32_t layers, uint32_t heads, double share = 0.2) {
  auto ranking = ParseRanking(csv, {.share = share});
  EXPECT_TRUE(ranking.ok()) << ranking.status();
  auto file = PresetPlan("kvmix", {}, ranking.ok() ? *ranking : std::vector<LayerClasses>{});
  EXPECT_TRUE(file.ok()) << file.status();
  auto plan = PlanFor(file.ok() ? *file : PlanFile{}, Facts(layers, heads));
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : PrecisionPlan{};
}

double MeanBits(const std::vector<Precision>& classes) {
  double sum = 0;
  for (Precision precision : classes) sum += static_cast<double>(precision);
  return sum / static_cast<double>(classes.size());
}

TEST(Ranking, BitsOfEachLayer) {
  PrecisionPlan plan = KvMix("# measured\nlayer, k_bits, v_bits\n1,8,2\r\n\n0,3,4\n2,2,2\n", 3, 2);
  ASSERT_EQ(plan.rules.size(), 2u);
  EXPECT_EQ(plan.rules[0].heads, (std::vector{k3, k3, k8, k8, k2, k2}));
  EXPECT_EQ(plan.rules[1].heads, (std::vector{k4, k4, k2, k2, k2, k2}));
  EXPECT_EQ(plan.rules[0].coding, (Coding{.codec = Codec::kIntChannel, .bits = 2, .group = 32}));
  EXPECT_EQ(plan.rules[1].coding, (Coding{.codec = Codec::kIntToken, .bits = 2, .group = 32}));
}

// The paper's averages for 32 layers: 2.19 bits for K, 2.38 for V.
TEST(Ranking, AFifthOfTheLayersGetMoreBitsEachByItsOwnColumn) {
  std::string csv = "layer,k_importance,v_importance\n";
  for (int layer = 0; layer < 32; ++layer) {
    csv += std::to_string(layer) + "," + std::to_string(100 - layer) + "," + std::to_string(1e-3 * layer) + "\n";
  }
  PrecisionPlan plan = KvMix(csv, 32, 1);
  EXPECT_NEAR(MeanBits(plan.rules[0].heads), 2.19, 0.005);
  EXPECT_NEAR(MeanBits(plan.rules[1].heads), 2.38, 0.005);
  EXPECT_EQ(plan.rules[0].heads[5], k3);
  EXPECT_EQ(plan.rules[0].heads[6], k2);
  EXPECT_EQ(plan.rules[1].heads[26], k4);
  EXPECT_EQ(plan.rules[1].heads[25], k2);
}

TEST(Ranking, SharesRoundDownToAtLeastOneAndEqualsGoInOrder) {
  const char* csv = "layer,k_importance,v_importance\n0,1,1\n1,1,2\n2,1,2\n3,0,2\n";
  PrecisionPlan one = KvMix(csv, 4, 1);
  EXPECT_EQ(one.rules[0].heads, (std::vector{k3, k2, k2, k2}));
  EXPECT_EQ(one.rules[1].heads, (std::vector{k2, k4, k2, k2}));
  EXPECT_EQ(KvMix(csv, 4, 1, 0.5).rules[1].heads, (std::vector{k2, k4, k4, k2}));
  EXPECT_EQ(KvMix(csv, 4, 1, 0.74).rules[1].heads, (std::vector{k2, k4, k4, k2}));
}

TEST(Ranking, WhatIsWrongIsSaidWithItsLine) {
  for (const auto& [csv, said] : std::initializer_list<std::pair<const char*, const char*>>{
           {"", "ranks no layers"},
           {"layer,k_bits,v_bits\n", "ranks no layers"},
           {"layer,k,v\n0,3,4\n", "line 1: heading 'layer,k,v'; allowed: 'layer,k_bits,v_bits'"},
           {"layer,k_bits,v_bits\n0,3\n", "line 2 has 2 cells; allowed: 3"},
           {"layer,k_bits,v_bits\n0,3,5\n", "line 2: '5'; allowed: 8, 4, 3, 2"},
           {"layer,k_bits,v_bits\n-1,3,4\n", "layer '-1'; allowed: 0 to 1023"},
           {"layer,k_bits,v_bits\n0,3,4\n0,3,4\n", "layer 0 is there twice"},
           {"layer,k_bits,v_bits\n0,3,4\n2,3,4\n",
            "layers 1 are missing; allowed: every layer from the first, 0, to the last, 2"},
           {"layer,k_importance,v_importance\n9,1,1\n2,1,1\n4,1,1\n5,1,1\n", "layers 3,6-8 are missing"},
           {"layer,k_importance,v_importance\n0,nan,4\n", "'nan'; allowed: a number"},
           {"layer,k_importance,v_importance\n0,-1,4\n", "'-1'; allowed: a number, 0 or above"}}) {
    EXPECT_THAT(firn::Message(ParseRanking(csv).status()), HasSubstr(said)) << csv;
  }
  EXPECT_THAT(firn::Message(ParseRanking("layer,k_bits,v_bits\n0,3,4\n", {.share = 0}).status()),
              HasSubstr("share of 0"));
}

// Silence is not little importance: without its row a layer would get 2 bits.
TEST(Ranking, EveryLayerOfTheNamespaceIsRanked) {
  auto ranking = ParseRanking("layer,k_bits,v_bits\n4,3,4\n2,2,2\n3,3,4\n");
  ASSERT_TRUE(ranking.ok()) << ranking.status();
  auto file = PresetPlan("kvmix", {}, *ranking);
  ASSERT_TRUE(file.ok()) << file.status();
  NamespaceFacts stage = Facts(5, 1);
  stage.layer_first = 2;
  EXPECT_TRUE(PlanFor(*file, stage).ok()) << "a pipeline stage has the layers of its range alone";
  stage.layer_last = 8;
  EXPECT_THAT(firn::Message(PlanFor(*file, stage).status()),
              HasSubstr("the ranking of layers lacks 5-7: the namespace has layers 2 to 7"));
  EXPECT_THAT(firn::Message(PlanFor(*file, Facts(6, 1)).status()), HasSubstr("lacks 0-1,5"));
  EXPECT_FALSE(PlanFor(*PresetPlan("kvmix", {}, *ranking), Facts(4, 1)).ok()) << "nor is one ranked that is not there";
  EXPECT_TRUE(PlanFor(*PresetPlan("kvmix", {}, {{.k = k3, .v = k4}}), Facts(6, 1)).ok()) << "all at once";
}

TEST(Ranking, OnlyKvmixTakesOneAndCannotDoWithout) {
  EXPECT_THAT(firn::Message(PresetPlan("kvmix", {}).status()), HasSubstr("needs a ranking"));
  EXPECT_THAT(firn::Message(Preset("kvmix", {}).status()), HasSubstr("needs a ranking"));
  EXPECT_THAT(firn::Message(PresetPlan("int8", {}, {{.k = k3}}).status()), HasSubstr("no use for a ranking"));
  EXPECT_EQ(PresetPlan("int8", {})->plan, *Preset("int8", {}));
}

TEST(Ranking, APlanNamesItsFile) {
  auto folder = std::filesystem::temp_directory_path() / ("ranking-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "r.csv") << "layer,k_importance,v_importance\n0,1,1\n1,2,1\n2,3,1\n3,4,1\n";
  std::ofstream(folder / "plan.toml") << "preset = \"kvmix\"\nranking = { file = \"r.csv\", share = 0.5 }\n"
                                      << "[[layers]]\nlayers = \"3\"\nk = \"int8\"\n";
  auto file = LoadPlanFile((folder / "plan.toml").string());
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(file.ok()) << file.status();
  auto plan = PlanFor(*file, Facts(4, 1));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->rules[0].heads, (std::vector{k2, k2, k3, k8})) << "what the plan says itself comes last";
}

}  // namespace
}  // namespace firnkv
