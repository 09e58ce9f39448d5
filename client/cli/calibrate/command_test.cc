// `firn calibrate` and `firn artifact` as commands: killed in the middle and run again, what they print, what they
// refuse.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "client/cli/run_firn_test_util.h"
#include "client/cpp/tensor/tensor_file.h"
#include "firnkv/plan_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace firn::cli {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class CommandTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/calibrate_command.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::string Bytes(const std::string& name) const {
    std::ifstream in(Path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  // A capture of `layers` layers, with all that a plan needs.
  std::string MakeCapture(uint32_t layers, uint64_t tokens) const {
    std::mt19937_64 rng(5);
    std::normal_distribution<float> normal;
    std::vector<std::unique_ptr<std::vector<float>>> kept;
    std::vector<Tensor> tensors;
    for (uint32_t layer = 0; layer < layers; ++layer) {
      for (const char* name : {"k", "v", "q"}) {
        uint64_t heads = *name == 'q' ? 4 : 2;
        kept.push_back(std::make_unique<std::vector<float>>(tokens * heads * 64));
        for (float& value : *kept.back()) value = normal(rng);
        tensors.push_back(
            {"layer" + std::to_string(layer) + "." + name,
             ElementType::kF32,
             {tokens, heads, 64},
             {reinterpret_cast<const uint8_t*>(kept.back()->data()), kept.back()->size() * sizeof(float)}});
      }
    }
    EXPECT_TRUE(WriteSafetensors(Path("capture"), tensors, {}).ok());
    return Path("capture");
  }

  std::vector<std::string> Arguments(const std::string& capture, const std::string& name) const {
    return {"calibrate",
            capture,
            "--rope-base",
            "10000",
            "--out-keys",
            Path(name + ".keys"),
            "--out-values",
            Path(name + ".values"),
            "--errors-out",
            Path(name + ".json"),
            "--ranking-out",
            Path(name + ".csv"),
            "--bits",
            "3.5",
            "--plan-out",
            Path(name + ".toml"),
            "--resume",
            Path(name + ".state"),
            "-q"};
  }
  static std::string Joined(const std::vector<std::string>& arguments) {
    std::string text;
    for (const std::string& argument : arguments) text += argument + " ";
    return text;
  }
  // Runs the command and kills it as soon as its state is there; whether it was killed.
  bool RunAndKill(std::vector<std::string> arguments, const std::string& state) const {
    arguments.insert(arguments.begin(), FirnProgram());
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_t child = fork();
    if (child == 0) {
      execv(argv[0], argv.data());
      _exit(127);
    }
    int status = 0;
    auto until = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    while (!std::filesystem::exists(state) && std::chrono::steady_clock::now() < until) {
      if (waitpid(child, &status, WNOHANG) == child) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return WIFSIGNALED(status);
  }

  std::string folder_;
};

TEST_F(CommandTest, KilledAndRunAgainItGivesTheSameBytes) {
  std::string capture = MakeCapture(6, 256);
  Outcome whole = RunFirn(Joined(Arguments(capture, "whole")));
  ASSERT_EQ(whole.code, 0) << whole.text;
  ASSERT_TRUE(RunAndKill(Arguments(capture, "killed"), Path("killed.state")));
  EXPECT_FALSE(std::filesystem::exists(Path("killed.keys"))) << "it was over before it was killed";
  Outcome again = RunFirn("--json " + Joined(Arguments(capture, "killed")));
  ASSERT_EQ(again.code, 0) << again.text;
  EXPECT_GE(again.json().value("layers_resumed", 0), 1);
  EXPECT_LT(again.json().value("layers_resumed", 6), 6);
  for (const char* suffix : {".keys", ".values", ".json", ".csv", ".toml", ".state"}) {
    EXPECT_FALSE(Bytes(std::string("whole") + suffix).empty()) << suffix;
    EXPECT_EQ(Bytes(std::string("killed") + suffix), Bytes(std::string("whole") + suffix)) << suffix;
  }
}

TEST_F(CommandTest, PlansAreReadBackAndCostWhatTheySay) {
  std::string capture = MakeCapture(3, 128);
  std::string common = " --key-sections balance --resume " + Path("state") + " --plan-out " + Path("plan.toml");
  Outcome homeless = RunFirn("--json calibrate " + capture + common + " --bits 4");
  EXPECT_EQ(homeless.code, 2) << "the plan would name an artifact that nobody has";
  EXPECT_THAT(homeless.text, testing::HasSubstr("nothing keeps the artifact"));
  common += " --out " + Path("plan.keys");
  Outcome several = RunFirn("--json calibrate " + capture + common + " --bits 2.5,4");
  ASSERT_EQ(several.code, 0) << several.text;
  for (const char* bits : {"2.5", "4"}) {
    auto plan = firnkv::LoadPlanFile(Path(std::string("plan-") + bits + ".toml"));
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_EQ(plan->plan.rules.size(), 2u);
    double total = 0;
    for (const auto& rule : plan->plan.rules) {
      ASSERT_EQ(rule.heads.size(), 6u);
      for (auto c : rule.heads) total += static_cast<double>(c) + 0.375;  // Three bytes of gain for 64 channels.
    }
    EXPECT_LE(total / 12, std::stod(bits));
    EXPECT_GT(total / 12, std::stod(bits) - 0.7);
  }
  EXPECT_EQ(several.json()["plans"].size(), 2u);
  EXPECT_EQ(several.json()["plans"][0]["tiers"][0]["optimal"], true);
  Outcome tiers = RunFirn("--json calibrate " + capture + common + " --bits warm=4.5,cold=2.5");
  ASSERT_EQ(tiers.code, 0) << tiers.text;
  EXPECT_EQ(tiers.json()["layers_resumed"], 3) << "budgets are no setting";
  EXPECT_EQ(firnkv::LoadPlanFile(Path("plan.toml"))->plan.rules.size(), 4u);

  // Budgets for 8 bits everywhere: the trellis is made for fewer.
  Outcome fine = RunFirn("--json calibrate " + capture + common + " --bits 8.4,8.5");
  ASSERT_EQ(fine.code, 0) << fine.text;
  EXPECT_EQ(firnkv::LoadPlanFile(Path("plan-8.4.toml"))->plan.ladder, firnkv::Ladder::kGain);
  EXPECT_EQ(firnkv::LoadPlanFile(Path("plan-8.5.toml"))->plan.ladder, firnkv::Ladder::kMinMax);
  EXPECT_EQ(fine.json()["plans"][1]["tiers"][0]["bits"], 8.5);

  // A user's own errors: only V of layer 1, head 0 matters.
  ASSERT_EQ(RunFirn("calibrate " + capture + " --errors-out " + Path("errors.json")).code, 0);
  Json errors = Json::parse(Bytes("errors.json"));
  for (Json& layer : errors["layers"]) {
    for (Json& head : layer["heads"]) {
      for (const char* part : {"k", "v"}) head[part] = {{"int8", 0.0}, {"int4", 0.01}, {"int2", 0.02}};
    }
  }
  errors["layers"][1]["heads"][0]["v"]["int2"] = 5;
  std::ofstream(Path("own.json")) << errors;
  ASSERT_EQ(RunFirn("calibrate " + capture + " --errors " + Path("own.json") + " --bits 2.55 --plan-out " +
                    Path("own.toml") + " --out " + Path("own.keys"))
                .code,
            0);
  auto own = firnkv::LoadPlanFile(Path("own.toml"));
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->plan.rules[1].heads[2], firnkv::Precision::kInt4);

  // What counted as exact stays exact.
  EXPECT_EQ(firnkv::LoadPlanFile(Path("plan.toml"))->plan.keep_first_tokens, 4u);
  EXPECT_EQ(firnkv::LoadPlanFile(Path("plan.toml"))->plan.recent_tokens, 128u);
  for (auto [recent, first] : {std::pair(0u, 0u), {1u << 20, 65536u}}) {
    Outcome exact = RunFirn("calibrate " + capture + " --key-sections balance --bits 4 --plan-out " +
                            Path("exact.toml") + " --out " + Path("exact.keys") + " --errors " + Path("own.json") +
                            " --recent " + std::to_string(recent) + " --keep-first " + std::to_string(first));
    ASSERT_EQ(exact.code, 0) << exact.text;
    auto plan = firnkv::LoadPlanFile(Path("exact.toml"));
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->plan.recent_tokens, recent);
    EXPECT_EQ(plan->plan.keep_first_tokens, first);
  }
}

TEST_F(CommandTest, AnArtifactIsShown) {
  ASSERT_EQ(
      RunFirn("calibrate " + Sample() + " --rope-base 10000 --out " + Path("keys") + " --out-values " + Path("values"))
          .code,
      0);
  Outcome keys = RunFirn("--json artifact " + Path("keys"));
  ASSERT_EQ(keys.code, 0) << keys.text;
  EXPECT_EQ(keys.json()["bytes"], std::filesystem::file_size(Path("keys")));
  std::string names;
  Json sections = keys.json()["sections"];
  for (const Json& section : sections) names += section["name"].get<std::string>() + ";";
  EXPECT_EQ(names,
            "balance means;balance weights;centres;reaches;calibrated scales;codebook of 2 bits;codebook of 3 "
            "bits;codebook of "
            "4 bits;rope, halves;");
  EXPECT_EQ(keys.json()["sections"][0]["shape"], "[2][2][128]");
  Outcome values = RunFirn("artifact " + Path("values"));
  EXPECT_THAT(values.text, HasSubstr("2 layers of 2 KV heads of 128 channels"));
  EXPECT_THAT(values.text, HasSubstr("codebook of 4 bits"));
  EXPECT_EQ(RunFirn("artifact " + Path("nothing")).code, 2);
}

TEST_F(CommandTest, WhatIsNoArtifactIsSaidToBeWhatItIs) {
  ASSERT_EQ(RunFirn("calibrate " + Sample() + " --out " + Path("keys") + " --resume " + Path("state")).code, 0);
  std::string keys = Bytes("keys");
  std::ofstream(Path("short")) << "FVAR";
  std::ofstream(Path("damaged")) << keys.substr(0, keys.size() - 1) << static_cast<char>(keys.back() ^ 1);
  std::ofstream(Path("empty"));
  std::ofstream(Path("plan.toml")) << "preset = \"kivi-2\"\n";
  std::ofstream(Path("junk")) << std::string("\x01\xff\x00\x7fjunk", 8);
  std::vector<uint8_t> values(4);
  ASSERT_TRUE(WriteNpy(Path("x.npy"), Tensor{"", ElementType::kF32, {1}, values}).ok());
  const char* expected = "not an artifact; expected: a file that `firn calibrate`";
  for (auto [name, said, then] : {std::tuple("state", "is the state of a calibration", expected),
                                  {"empty", "is an empty file", expected},
                                  {"plan.toml", "is a text file", expected},
                                  {"x.npy", "is a .npy file", expected},
                                  {"junk", "is a file that begins with the bytes 01 ff 00 7f", expected},
                                  {"short", "begins as an artifact and cannot be read as one", "4 bytes, at least 28"},
                                  {"damaged", "begins as an artifact and cannot be read as one", "CRC"},
                                  {".", "is a directory; allowed: a regular file", ""}}) {
    Outcome outcome = RunFirn("artifact " + Path(name));
    EXPECT_EQ(outcome.code, 2) << name;
    EXPECT_THAT(outcome.text, HasSubstr(Path(name) + " " + said));
    EXPECT_THAT(outcome.text, HasSubstr(then)) << name;
  }
  EXPECT_THAT(RunFirn("artifact " + Sample()).text, HasSubstr("is a safetensors file, not an artifact"));
}

// Without a daemon a plan is judged with the artifacts that it names by their files.
TEST_F(CommandTest, PlanCheckReadsTheArtifactsThatAPlanNames) {
  const std::string sample = "calibrate " + Sample();
  ASSERT_EQ(RunFirn(sample + " --rope-base 10000 --out " + Path("keys") + " --out-values " + Path("values")).code, 0);
  ASSERT_EQ(RunFirn(sample + " --out " + Path("balance")).code, 0);
  ASSERT_EQ(RunFirn("calibrate " + MakeCapture(3, 64) + " --out " + Path("of3") + " --out-values " + Path("v3")).code,
            0);
  const std::string keys = Bytes("keys"), values = Bytes("values");
  std::ofstream(Path("short")) << keys.substr(0, keys.size() / 2);
  std::ofstream(Path("damaged")) << keys.substr(0, 100) << static_cast<char>(keys[100] ^ 1) << keys.substr(101);
  const std::string rule = "[[rules]]\npart = \"v\"\ncodec = \"nuq-token\"\nbits = 4\nartifact = { file = ";
  auto kvquant = [](const std::string& k, const std::string& v) {
    return "preset = \"kvquant-3\"\nartifacts = { keys = { file = \"" + k + "\" }, values = { file = \"" + v +
           "\" } }\n";
  };
  auto balanced = [](const std::string& k) {
    return "key_method = \"balanced\"\nbalance_artifact = { file = \"" + k + "\" }\n";
  };
  struct Case {
    std::string plan, options;
    int code;
    const char* message;
  };
  for (const Case& c : {
           Case{kvquant("keys", "values"), "", 0, "is right: 2 rules"},
           Case{kvquant("keys", "values"), "--layers 2 --kv-heads 2", 0, "is right"},
           Case{kvquant("keys", "values"), "--layers 2 --kv-heads 1", 0, "is right"},
           Case{kvquant("keys", "values"), "--layers 3 --kv-heads 2", 1, "keys is for 2 layers and 2 KV heads; "},
           Case{kvquant("keys", "values"), "--layers 2 --kv-heads 3", 1,
                "2 layers and 3 KV heads a shard are expected"},
           Case{kvquant("short", "values"), "", 1, "short cannot be read as an artifact: "},
           Case{kvquant("keys", "damaged"), "", 1, "damaged cannot be read as an artifact: "},
           Case{kvquant("values", "keys"), "", 1, "values, of a rule for K: the artifact"},
           Case{kvquant("values", "keys"), "", 1, "has no rotary frequencies"},
           Case{kvquant("balance", "values"), "", 1, "balance, of a rule for K"},
           Case{kvquant("keys", "v3"), "", 1, "v3 is for 3 layers and"},
           Case{balanced("keys"), "", 0, "is right"},
           Case{balanced("values"), "", 1, "values, of balanced keys: the artifact"},
           Case{balanced("values"), "", 1, "means and weights"},
           Case{rule + "\"values\" }\n", "", 0, "is right"},
           Case{rule + "\"balance\" }\n", "", 1, "balance, of a rule for V"},
       }) {
    std::ofstream(Path("plan.toml")) << c.plan;
    Outcome outcome = RunFirn("plan check " + Path("plan.toml") + " " + c.options);
    EXPECT_EQ(outcome.code, c.code) << c.plan << c.options << "\n" << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr(c.message)) << c.plan << c.options;
  }
}

TEST_F(CommandTest, OtherOptionsThanTheStatesAreNamedWithBothValues) {
  const std::string common = "calibrate " + Sample() + " --resume " + Path("state") + " --out " + Path("keys");
  ASSERT_EQ(RunFirn(common + " --outliers 20 --rope-base 10000").code, 0);
  Outcome other = RunFirn(common + " --fp8 e5m2 --rope-base 10000");
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.text, HasSubstr("state was made with other options: --outliers 20, now 10; --fp8 e4m3, now e5m2. "
                                    "Give the same ones, or --resume another file"));
  EXPECT_THAT(RunFirn(common + " --outliers 20 --rope-base 500000").text,
              HasSubstr("the rotary embedding (--rope-base, --rope-dim, --rope-factor, --rope-frequencies): pair 1 "));
  EXPECT_EQ(RunFirn(common + " --outliers 20 --rope-base 10000").code, 0);
}

// Budgets and where results go may change over a finished state, also to fewer of them.
TEST_F(CommandTest, AFinishedStateWithMoreThanIsAskedForIsUsed) {
  const std::string common = "calibrate " + MakeCapture(2, 128) + " --key-sections balance --resume " + Path("state");
  ASSERT_EQ(RunFirn(common + " --out " + Path("keys") + " --out-values " + Path("values") + " --bits 4 --plan-out " +
                    Path("plan"))
                .code,
            0);
  Outcome fewer = RunFirn("--json " + common + " --out " + Path("fewer"));
  ASSERT_EQ(fewer.code, 0) << fewer.text;
  EXPECT_EQ(fewer.json()["layers_resumed"], 2);
  EXPECT_FALSE(fewer.json().contains("value_artifact"));
  EXPECT_EQ(Bytes("fewer"), Bytes("keys"));
  EXPECT_EQ(RunFirn(common + " --out " + Path("fewer") + " --bits 3 --plan-out " + Path("plan")).code, 0)
      << "the state keeps what it has";
  EXPECT_EQ(RunFirn(common + " --out " + Path("fewer") + " --errors-out " + Path("e") + " --queries 9").code, 2);
}

// MiKV's balance is by magnitudes alone, the ladder's has means, too.
TEST_F(CommandTest, BalanceOfEitherMethod) {
  const std::string common = "calibrate " + MakeCapture(2, 128) + " --key-sections balance --out ";
  ASSERT_EQ(RunFirn(common + Path("attention")).code, 0);
  ASSERT_EQ(RunFirn(common + Path("mikv") + " --balance mikv --resume " + Path("state")).code, 0);
  EXPECT_NE(Bytes("mikv"), Bytes("attention"));
  Json sections = RunFirn("--json artifact " + Path("mikv")).json()["sections"];
  ASSERT_EQ(sections.size(), 2u) << sections;
  EXPECT_EQ(sections[0]["values"], "0 to 0");
  EXPECT_EQ(sections[1]["name"], "balance weights");
  Outcome other = RunFirn(common + Path("attention") + " --resume " + Path("state"));
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.text, HasSubstr("--balance mikv, now attention"));
  Outcome none = RunFirn("calibrate " + Sample() + " --out " + Path("k") + " --key-sections scales --balance mikv");
  EXPECT_EQ(none.code, 2) << none.text;
  EXPECT_THAT(none.text, HasSubstr("have no balance"));
}

TEST_F(CommandTest, WrongCommandLinesSayWhatIsWrong) {
  struct Case {
    std::string arguments, message;
  };
  std::string sample = "calibrate " + Sample() + " ";
  for (const Case& c : {
           Case{sample, "say where results go"},
           Case{sample + "--bits 3 --plan-out " + Path("p") + " --out " + Path("k"), "layer 0 has no q"},
           Case{sample + "--bits 3 --plan-out " + Path("p"), "nothing keeps the artifact"},
           Case{sample + "--bits 3", "--bits and --plan-out FILE go together"},
           Case{sample + "--bits warm=3,4 --plan-out " + Path("p"), "either all for a tier or none"},
           Case{sample + "--bits warm=3,cold=2,warm=3 --plan-out " + Path("p"),
                "--bits warm=3,cold=2,warm=3: tier warm has two budgets; allowed: one for each tier"},
           Case{sample + "--bits x --plan-out " + Path("p"), "--bits x is not BITS or TIER=BITS"},
           Case{sample + "--out " + Path("k") + " --key-sections balance,nonsense", "--key-sections nonsense"},
           Case{sample + "--out " + Path("k") + " --rope-dim 64", "without --rope-base"},
           Case{sample + "--out " + Path("k") + " --rope-base 10000 --rope-dim 65",
                "--rope-dim 65, an even number up to 128"},
           Case{sample + "--errors-out " + Path("e") + " --recent 1048577", "--recent"},
           Case{sample + "--errors-out " + Path("e") + " --keep-first 65537", "--keep-first"},
           Case{sample + "--errors-out " + Path("e") + " --softmax-scale nan", "--softmax-scale nan"},
           Case{sample + "--out " + Path("k") + " --key-sections codebooks", "layer 0 has no k_pre_rope"},
           Case{sample + "--errors-out " + Path("e") + " --classes 8,3", "--classes 3: 8, 4, 2 of --code trellis"},
           Case{sample + "--measure attention --bits 3 --plan-out " + Path("p"), "says nothing of values"},
       }) {
    Outcome outcome = RunFirn(c.arguments);
    EXPECT_EQ(outcome.code, 2) << c.arguments << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr(c.message)) << c.arguments;
  }
  std::string capture = MakeCapture(1, 64);
  Outcome gradients = RunFirn("calibrate " + capture + " --measure gradient --errors-out " + Path("e"));
  EXPECT_EQ(gradients.code, 2);
  EXPECT_THAT(gradients.text, HasSubstr("layer 0: gradients of 0 tokens of 64 are captured"));
  Outcome cheap = RunFirn("calibrate " + capture + " --bits 2 --plan-out " + Path("p") + " --out " + Path("k"));
  EXPECT_EQ(cheap.code, 2);
  EXPECT_THAT(cheap.text, HasSubstr("2 bits a value; 2.375 with the coarsest precision of everything"));
}

}  // namespace
}  // namespace firn::cli
