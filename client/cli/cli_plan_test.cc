// firn plan, and plan files where plans are given: what they say, what they change in a daemon, and what is refused.

#include <filesystem>
#include <fstream>
#include <map>

#include "client/cli/cli_test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace firn {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class PlanTest : public CliTest {
 protected:
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name)) << text;
    return Path(name);
  }
  std::string PlanOf(const std::string& model) {
    Outcome shown = Firn("--json plan show --model " + model);
    EXPECT_EQ(shown.code, 0) << shown.text;
    return shown.json().value("plan", "");
  }
};

TEST_F(PlanTest, APlanFileIsInForceAndReadsBack) {
  const std::string plan = Write("plan.toml",
                                 "preset = \"kivi-2\"\nkeep_first_tokens = 2\nfloor = { k = \"int2\", v = \"none\" }\n"
                                 "max_error = 0.75\n[targets]\ncold = \"int2\"\n");
  ASSERT_EQ(Firn("put " + Sample() + " --model m --plan " + plan).code, 0);
  std::string shown = PlanOf("m");
  EXPECT_THAT(shown, HasSubstr("keep_first_tokens = 2"));
  EXPECT_THAT(shown, HasSubstr("codec = \"int-channel\"\nbits = 2\ngroup = 32"));
  ASSERT_EQ(Firn("put " + Sample() + " --model again --plan " + Write("shown.toml", shown)).code, 0);
  EXPECT_EQ(PlanOf("again"), shown);
  EXPECT_THAT(Firn("plan show --model m").text, HasSubstr(": layers 0 to 1, 2 KV heads\nkey_method"));
}

TEST_F(PlanTest, SetIsForWhatIsDemotedFromNowOn) {
  ASSERT_EQ(Firn("put " + Sample() + " --model m --preset int8").code, 0);
  const std::string blocks = "--file " + Sample() + " --model m";
  ASSERT_EQ(Firn("demote " + blocks + " --tier warm").code, 0);
  double before = CheckedError(blocks);
  Outcome set = Firn("plan set --model m " + Write("plan.toml", "preset = \"int4\"\n"));
  ASSERT_EQ(set.code, 0) << set.text;
  EXPECT_THAT(set.text, HasSubstr("bits = 4\ngroup = 64"));
  EXPECT_EQ(CheckedError(blocks), before) << "what is stored stays as it is";
  ASSERT_EQ(Firn("delete " + blocks).code, 0);
  ASSERT_EQ(Firn("put " + Sample() + " --model m").code, 0);
  ASSERT_EQ(Firn("demote " + blocks + " --tier warm").code, 0);
  EXPECT_GT(CheckedError(blocks), 4 * before);
  EXPECT_EQ(Firn("plan set --model m --preset fp8").code, 0);
  EXPECT_THAT(PlanOf("m"), HasSubstr("fp8-e4m3"));
  EXPECT_EQ(Firn("plan set --model m").code, 2);
}

TEST_F(PlanTest, BoundaryLayersComeBackCloser) {
  Write("kivi.toml", "preset = \"kivi-2\"\n");
  Write("one.toml", "preset = \"kivi-2\"\nboundary_layers = { last = 1, at = \"int8\" }\n");
  Write("both.toml", "preset = \"kivi-2\"\nboundary_layers = { first = 1, last = 1, at = \"int8\" }\n");
  std::map<std::string, double> errors;
  for (const char* model : {"kivi", "one", "both"}) {
    ASSERT_EQ(Firn("put " + Sample() + " --model " + model + " --plan " + Path(std::string(model) + ".toml")).code, 0);
    const std::string blocks = "--file " + Sample() + " --model " + model;
    ASSERT_EQ(Firn("demote " + blocks + " --tier warm").code, 0);
    errors[model] = CheckedError(blocks);
  }
  EXPECT_LT(errors["one"], 0.9 * errors["kivi"]);
  EXPECT_LT(errors["both"], 0.01);
  EXPECT_GT(errors["both"], 0.0);
}

TEST_F(PlanTest, KvmixTakesARanking) {
  const std::string ranking = Write("r.csv", "layer,k_bits,v_bits\n0,3,4\n1,2,2\n");
  ASSERT_EQ(Firn("put " + Sample() + " --model m --preset kvmix --ranking " + ranking).code, 0);
  std::string shown = PlanOf("m");
  EXPECT_THAT(shown, HasSubstr("heads = [\"int3 x 2\", \"int2 x 2\"]"));
  EXPECT_THAT(shown, HasSubstr("heads = [\"int4 x 2\", \"int2 x 2\"]"));
  const std::string blocks = "--file " + Sample() + " --model m";
  ASSERT_EQ(Firn("demote " + blocks + " --tier cold").code, 0);
  double mixed = CheckedError(blocks);
  ASSERT_EQ(Firn("put " + Sample() + " --model k --preset kivi-2").code, 0);
  ASSERT_EQ(Firn("demote --file " + Sample() + " --model k --tier cold").code, 0);
  EXPECT_LT(mixed, CheckedError("--file " + Sample() + " --model k"));
  EXPECT_THAT(Firn("put " + Sample() + " --model q --preset kvmix").text, HasSubstr("needs a ranking"));
  EXPECT_THAT(Firn("plan preset kvmix --ranking " + ranking).text,
              HasSubstr("[[layers]]\nlayers = \"0\"\nk = \"int3\""));
}

TEST_F(PlanTest, ArtifactsByFileAreHandedOver) {
  ASSERT_EQ(Firn("calibrate " + Sample() + " --out " + Path("balance")).code, 0);
  const std::string plan = Write("plan.toml", "preset = \"firn\"\n[artifacts]\nkeys = { file = \"balance\" }\n");
  ASSERT_EQ(Firn("put " + Sample() + " --model m --plan " + plan).code, 0);
  EXPECT_THAT(PlanOf("m"), HasSubstr("key_method = \"balanced\"\nbalance_artifact = \""));
}

TEST_F(PlanTest, CheckNeedsNoDaemonUnlessAsked) {
  const std::string plan = Write("plan.toml",
                                 "preset = \"firn\"\nboundary_layers = { first = 1, at = \"int8\" }\n"
                                 "[targets]\nattic = \"int4\"\n");
  Outcome offline = RunFirn("/no/such/socket", "plan check " + plan);
  EXPECT_EQ(offline.code, 0) << offline.text;
  EXPECT_THAT(offline.text, HasSubstr("is right: 0 rules; layers not checked"));
  Outcome tiers = Firn("plan check --daemon " + plan);
  EXPECT_EQ(tiers.code, 1);
  EXPECT_THAT(tiers.text, HasSubstr("plan.toml: targets (line 3): a target for tier \"attic\": the daemon has no such "
                                    "tier; allowed: hot, warm, cold"));
  Outcome wrong = RunFirn("/no/such/socket", "--json plan check " + Write("wrong.toml", "key_grop = 4\n"));
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.text, HasSubstr("key_grop = 4: unknown key"));
  const std::string layers =
      Write("layers.toml", "preset = \"kivi-2\"\n[[layers]]\nlayers = \"30-31\"\nk = \"int8\"\n");
  EXPECT_EQ(RunFirn("/no/such/socket", "plan check " + layers + " --layers 32 --kv-heads 8").code, 0);
  EXPECT_THAT(RunFirn("/no/such/socket", "plan check " + layers + " --layers 24 --kv-heads 8").text,
              HasSubstr("the namespace has layers 0 to 23"));
  EXPECT_EQ(RunFirn("/no/such/socket", "plan check " + layers + " --layers 24").code, 2);
  ASSERT_EQ(Firn("put " + Sample() + " --model m").code, 0);
  EXPECT_THAT(Firn("plan check --model m " + layers).text, HasSubstr("the namespace has layers 0 to 1"));
  const std::string small = Write("small.toml", "preset = \"firn\"\nboundary_layers = { first = 1, at = \"int8\" }\n");
  EXPECT_THAT(Firn("plan check --print --model m " + small).text,
              HasSubstr("tier = \"cold\"\npart = \"k\"\ncodec = \"ladder\"\nheads = [\"int8 x 2\", \"int4 x 2\"]"));
}

// 0: right, 1: wrong, 2: it could not be judged for what was asked, 3: no daemon to ask.
TEST_F(PlanTest, CheckAnswersByItsExitCode) {
  const std::string right = Write("right.toml", "preset = \"int4\"\n"),
                    wrong = Write("wrong.toml", "preset = \"best\"\n");
  const std::string finer = Write("finer.toml", "boundary_layers = { first = 1, at = \"int8\" }\n");
  struct Case {
    std::string arguments;
    int code;
    const char* said;
  };
  for (const Case& c : {
           Case{right, 0, "right.toml is right"},
           Case{right + " --layers 2 --kv-heads 2", 0, "its layers were checked"},
           Case{wrong, 1, "preset 'best' is not known"},
           Case{wrong + " --daemon", 1, "preset 'best' is not known"},
           Case{Write("text.toml", "this is no TOML"), 1, "text.toml"},
           Case{Write("lost.toml", "preset = \"firn\"\nartifacts = { keys = { file = \"lost\" } }\n"), 1, "lost"},
           Case{Path("absent.toml"), 2, "absent.toml: No such file"},
           Case{Path("."), 2, "is a directory; allowed: a regular file"},
           Case{right + " --nonsense", 2, "nonsense"},
           Case{"", 2, "file is required"},
           Case{right + " --layers 2", 2, "--layers 2 and --kv-heads 0: allowed: both, or none"},
           Case{finer + " --layers 2 --kv-heads 2", 2, "this needs the tiers of a daemon"},
           Case{finer + " --layers 2 --kv-heads 2", 2, "give --daemon, too"},
           Case{right + " --daemon", 3, "/no/such/socket"},
       }) {
    Outcome outcome = RunFirn("/no/such/socket", "plan check " + c.arguments);
    EXPECT_EQ(outcome.code, c.code) << c.arguments << "\n" << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr(c.said)) << c.arguments;
  }
  EXPECT_EQ(Firn("plan check --model none " + right).code, 1) << "there is no namespace yet";
  ASSERT_EQ(Firn("put " + Sample() + " --model m").code, 0);
  EXPECT_EQ(Firn("plan check --model none " + right).code, 2);
  EXPECT_EQ(Firn("plan check --model m " + right).code, 0);
  Json good = RunFirn("/no/such/socket", "--json plan check " + right).json();
  EXPECT_EQ(good["right"], true);
  Json bad = RunFirn("/no/such/socket", "--json plan check " + wrong).json();
  EXPECT_EQ(bad["right"], false);
  EXPECT_EQ(bad["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(RunFirn("/no/such/socket", "--json plan check " + Path("absent.toml")).json()["error"]["code"],
            "NOT_FOUND");
}

TEST_F(PlanTest, ARankingOfSomeLayersIsRefused) {
  const std::string put = "put " + Sample() + " --model m --preset kvmix --ranking ";
  Outcome gap = Firn(put + Write("gap.csv", "layer,k_bits,v_bits\n0,3,4\n3,2,2\n"));
  EXPECT_EQ(gap.code, 2);
  EXPECT_THAT(gap.text, HasSubstr("gap.csv: layers 1-2 are missing; allowed: every layer from the first, 0, to the "
                                  "last, 3"));
  Outcome few = Firn(put + Write("few.csv", "layer,k_importance,v_importance\n1,3,4\n"));
  EXPECT_EQ(few.code, 2);
  EXPECT_THAT(few.text, HasSubstr("the ranking of layers lacks 0: the namespace has layers 0 to 1"));
  EXPECT_TRUE(Firn("--json namespaces").json()["namespaces"].empty());
  const std::string plan = Write("plan.toml", "preset = \"kvmix\"\nranking = \"few.csv\"\n");
  EXPECT_EQ(Firn("plan check " + plan).code, 0) << "for which layers, nobody said";
  EXPECT_EQ(Firn("plan check " + plan + " --layers 2 --kv-heads 2").code, 1);
}

// The scale of a checkpoint means what the codecs take it for: value = code * scale. Ten times too large a scale loses
// E4M3 nothing, ten times too small a one saturates most values; of 127 steps the first leaves 13.
TEST_F(PlanTest, ImportedScalesAreWhatValuesAreDividedBy) {
  auto error_with = [&](const std::string& model, double scale, const std::string& coding) {
    Write(model + ".json", "{\"kv_cache\": {\"scaling_factor\": {\"0\": {\"0\": " + std::to_string(scale) +
                               ", \"1\": " + std::to_string(scale) + "}}}}");
    Outcome imported = Firn("import-scales " + Path(model + ".json") + " --kv-heads 2 --head-dim 128 --register" +
                            " --out-keys " + Path(model + ".k") + " --out-values " + Path(model + ".v"));
    EXPECT_EQ(imported.code, 0) << imported.text;
    Write(model + ".toml", "[[rules]]\npart = \"k\"\n" + coding + "calibrated = true\nartifact = { file = \"" + model +
                               ".k\" }\n[[rules]]\npart = \"v\"\n" + coding +
                               "calibrated = true\nartifact = { file = \"" + model + ".v\" }\n");
    Outcome put = Firn("put " + Sample() + " --model " + model + " --plan " + Path(model + ".toml"));
    EXPECT_EQ(put.code, 0) << put.text;
    const std::string blocks = "--file " + Sample() + " --model " + model;
    EXPECT_EQ(Firn("demote " + blocks + " --tier warm").code, 0);
    return CheckedError(blocks);
  };
  const std::string fp8 = "codec = \"fp8-e4m3\"\n", int8 = "codec = \"int-token\"\nbits = 8\nsymmetric = true\n";
  EXPECT_LT(error_with("fp8", 1, fp8), 0.04);
  EXPECT_GT(error_with("fp8-small", 0.0005, fp8), 0.3) << "448 * scale is the largest value";
  double right = error_with("int8", 1, int8), small = error_with("int8-small", 0.0005, int8);
  EXPECT_GT(right, 0.0);
  EXPECT_LT(error_with("int8-fine", 0.25, int8), right) << "finer steps, and nothing saturates";
  EXPECT_GT(small, 0.9);
  EXPECT_EQ(Firn("import-scales " + Path("fp8.json") + " --kv-heads 2 --head-dim 128").code, 2);
  EXPECT_THAT(Firn("import-scales " + Path("fp8.json") + " --register").text, HasSubstr("--head-dim"));
}

TEST_F(PlanTest, WhatDoesNotBelongTogetherIsRefused) {
  const std::string plan = Write("plan.toml", "preset = \"int4\"\n");
  EXPECT_THAT(Firn("put " + Sample() + " --plan " + plan + " --floor int4").text, HasSubstr("says everything"));
  EXPECT_EQ(Firn("put " + Sample() + " --plan " + Path("absent.toml")).code, 2);
  EXPECT_THAT(Firn("put " + Sample() + " --ranking x.csv --preset int8").text, HasSubstr("x.csv"));
  EXPECT_EQ(Firn("plan").code, 2);
  EXPECT_EQ(Firn("plan preset best").code, 2);
  EXPECT_THAT(Firn("plan preset kvmix").text, HasSubstr("needs a ranking of layers: --ranking FILE"));
  EXPECT_THAT(Firn("plan preset kvquant-3").text,
              HasSubstr("needs an artifact of keys and one of values: --artifact HEX and --value-artifact HEX"));
}

// Every preset, printed, is a plan file of the same plan.
TEST_F(PlanTest, PresetsArePlanFiles) {
  Json presets = RunFirn("/no/such/socket", "--json plan presets").json()["presets"];
  ASSERT_GE(presets.size(), 11u);
  for (const Json& preset : presets) {
    const std::string name = preset["name"];
    std::string with;
    if (name.starts_with("kvquant"))
      with = " --artifact " + std::string(64, 'a') + " --value-artifact " + std::string(64, 'b');
    if (name == "kvmix") with = " --ranking " + Write("r.csv", "layer,k_bits,v_bits\n0,3,4\n");
    Outcome printed = RunFirn("/no/such/socket", "plan preset " + name + with);
    ASSERT_EQ(printed.code, 0) << name << printed.text;
    Outcome again = RunFirn("/no/such/socket", "plan check --print " + Write("p.toml", printed.text));
    EXPECT_EQ(again.code, 0) << again.text;
    EXPECT_EQ(again.text, printed.text) << name;
  }
}

}  // namespace
}  // namespace firn
