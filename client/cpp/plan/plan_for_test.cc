// Numbers of layers and heads become the classes of rules, for one namespace and the tiers of a daemon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/status.h"
#include "client/cpp/plan/plan_test_util.h"
#include "firnkv/plan_file.h"

namespace firnkv {
namespace {

using ::testing::HasSubstr;

// Of one head a layer, so that classes are those of layers.
std::vector<Precision> LayersOf(const PrecisionPlan& plan, Part part, const std::string& tier = "") {
  for (const TierRule& rule : plan.rules) {
    if (rule.part == part && rule.tier == tier) return rule.heads;
  }
  ADD_FAILURE() << "no rule for tier '" << tier << "'";
  return {};
}

TEST(PlanFor, LayersAndHeadsByNumber) {
  PlanFile file = Parsed(R"(
preset = "kivi-2"
[[layers]]
layers = "0,2-3"
k = "int8"
v = "int4"
[[layers]]
layers = "3"
heads = "1"
k = "int3"
)");
  auto plan = PlanFor(file, Facts(4, 2));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->rules.size(), 2u);
  EXPECT_EQ(plan->rules[0].heads, (std::vector{k8, k8, k2, k2, k8, k8, k8, k3}));
  EXPECT_EQ(plan->rules[1].heads, (std::vector{k4, k4, k2, k2, k4, k4, k4, k4}));
  EXPECT_EQ(plan->rules[0].coding, file.plan.rules[0].coding);
  EXPECT_THAT(firn::Message(PlanFor(file, Facts(3, 2)).status()),
              HasSubstr("layers[0] (line 3): layers = \"0,2-3\": the namespace has layers 0 to 2"));
  EXPECT_THAT(firn::Message(PlanFor(file, Facts(4, 1)).status()),
              HasSubstr("layers[1] (line 7): heads = \"1\": the namespace has KV heads 0 to 0"));
  PlanFile rule = Parsed("preset = \"int4\"\n[[rules]]\npart = \"v\"\nheads = [\"int8 x 3\"]\n");
  EXPECT_THAT(firn::Message(PlanFor(rule, Facts(4, 2)).status()),
              HasSubstr("rules[0] (line 2): a rule for V has 3 heads; 4 layers of 2 KV heads have 8"));
  NamespaceFacts later = Facts(4, 2);
  later.layer_first = 1;
  EXPECT_FALSE(PlanFor(file, later).ok()) << "layers are numbered as in the model";
}

TEST(PlanFor, BoundaryLayersAreRaisedAndNeverLowered) {
  PlanFile file = Parsed(R"(
preset = "kivi-2"
boundary_layers = { first = 1, last = 2, at = { k = "int4", v = "int3" } }
[[layers]]
layers = "0"
k = "int8"
)");
  auto plan = PlanFor(file, Facts(5, 1));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(LayersOf(*plan, Part::kK), (std::vector{k8, k2, k2, k4, k4}));
  EXPECT_EQ(LayersOf(*plan, Part::kV), (std::vector{k3, k2, k2, k3, k3}));
  file.plan = *Preset("fp8", {});
  file.layers.clear();
  EXPECT_EQ(*PlanFor(file, Facts(5, 1)), file.plan) << "8 bits are fine enough already";
  file.plan = *Preset("int4", {});
  EXPECT_TRUE(LayersOf(*PlanFor(file, Facts(5, 1)), Part::kK).empty()) << "all alike";
}

TEST(PlanFor, TheLadderIsAsFineAsTheTiersOfTheDaemon) {
  PlanFile file =
      Parsed("preset = \"firn\"\nboundary_layers = { first = 1, at = \"int8\" }\n[targets]\ncold = \"int2\"\n");
  auto blind = PlanFor(file, Facts(3, 1));
  EXPECT_EQ(blind.status().code(), absl::StatusCode::kFailedPrecondition) << blind.status();
  auto plan = PlanFor(file, Facts(3, 1), Tiers());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->rules.size(), 4u) << "nothing is said of the tier that keeps blocks exactly";
  EXPECT_EQ(LayersOf(*plan, Part::kK, "warm"), (std::vector{k8, k8, k8}));
  EXPECT_EQ(LayersOf(*plan, Part::kV, "warm"), (std::vector{k8, k4, k4}));
  EXPECT_EQ(LayersOf(*plan, Part::kK, "cold"), (std::vector{k8, k2, k2})) << "the plan's own target";
  EXPECT_TRUE(CheckPlanTiers({.plan = *plan}, Tiers()).ok());
  EXPECT_EQ(Parsed(PrintPlan(*plan)).plan, *plan);
}

TEST(PlanFor, LayersThatAreAllNamedNeedNoTiers) {
  PlanFile file = Parsed("[[layers]]\nlayers = \"all\"\nk = \"int4\"\n[[layers]]\nlayers = \"1\"\nk = \"int8\"\n");
  auto plan = PlanFor(file, Facts(3, 1));
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->rules.size(), 1u) << "V is left as it was";
  EXPECT_EQ(LayersOf(*plan, Part::kK), (std::vector{k4, k8, k4}));
}

TEST(PlanFor, EntriesOfATierStayInIt) {
  PlanFile file = Parsed("preset = \"kivi-2\"\n[[layers]]\ntier = \"cold\"\nlayers = \"1\"\nv = \"int8\"\n");
  auto plan = PlanFor(file, Facts(2, 1));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(LayersOf(*plan, Part::kV), std::vector<Precision>{});
  EXPECT_EQ(LayersOf(*plan, Part::kV, "cold"), (std::vector{k2, k8}));
  EXPECT_EQ(plan->rules[2].coding, plan->rules[1].coding) << "coded as in the other tiers";
  file.layers[0].tier = "attic";
  EXPECT_THAT(firn::Message(CheckPlanTiers(file, Tiers())),
              HasSubstr("\"attic\": the daemon has no such tier; allowed: hot, warm, cold"));
}

TEST(PlanFile, TiersThatTheDaemonDoesNotHaveAreNamed) {
  for (const char* toml :
       {"[targets]\nattic = \"int4\"\n", "[[rules]]\ntier = \"attic\"\npart = \"k\"\ncodec = \"nvfp4\"\n",
        "[[layers]]\ntier = \"attic\"\nlayers = \"all\"\nk = \"int4\"\n"}) {
    EXPECT_THAT(firn::Message(CheckPlanTiers(Parsed(toml), Tiers())), HasSubstr("\"attic\"")) << toml;
  }
  EXPECT_TRUE(CheckPlanTiers(Parsed("[targets]\ncold = \"int4\"\n"), Tiers()).ok());
}

TEST(PlanFor, APrecisionThatACodecLacksIsRefused) {
  PlanFile file = Parsed("preset = \"fp8\"\n[[layers]]\nlayers = \"0\"\nk = \"int4\"\n");
  EXPECT_THAT(firn::Message(PlanFor(file, Facts(2, 1)).status()),
              HasSubstr("get int4, which codec \"fp8-e4m3\" does not have; it has int8"));
  file = Parsed("[[layers]]\nlayers = \"all\"\nk = \"int3\"\n");
  EXPECT_THAT(firn::Message(PlanFor(file, Facts(2, 1)).status()), HasSubstr("it has int8, int4, int2"));
  // KVQuant's keys have a codebook for each head's bits; its values share ranges and outliers.
  const std::string kvquant = "preset = \"kvquant-2\"\nartifacts = { keys = \"" + std::string(64, 'a') +
                              "\", values = \"" + std::string(64, 'b') +
                              "\" }\n[[layers]]\nlayers = \"1\"\nheads = \"0\"\n";
  auto keys = PlanFor(Parsed(kvquant + "k = \"int3\"\n"), Facts(2, 2));
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(keys->rules[0].heads,
            (std::vector<Precision>{Precision::kInt2, Precision::kInt2, Precision::kInt3, Precision::kInt2}));
  EXPECT_TRUE(keys->rules[1].heads.empty());
  EXPECT_THAT(firn::Message(PlanFor(Parsed(kvquant + "v = \"int3\"\n"), Facts(2, 2)).status()),
              HasSubstr("heads of V differ from the rule's int2, and codec \"nuq-token\" has one precision for all"));
  PlanFile fixed{.plan = {.rules = {{.heads = {k8, k4}}}}};
  EXPECT_THAT(firn::Message(PlanFor(fixed, Facts(3, 1)).status()),
              HasSubstr("has 2 heads; 3 layers of 1 KV heads have 3"));
}

}  // namespace
}  // namespace firnkv
