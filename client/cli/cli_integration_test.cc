// firn against a daemon of its own: what it prints for scripts, what it says when things go wrong, and its exit codes.

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "client/cli/cli_test_util.h"
#include "client/cpp/tensor/tensor_file.h"
#include "client/cpp/testing/patterns.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace firn {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

TEST_F(CliTest, AFileGoesThroughTheTiersAndComesBack) {
  Outcome put = Firn("--json put " + Sample() + " --model m");
  ASSERT_EQ(put.code, 0) << put.text;
  EXPECT_EQ(put.json()["stored"], 2);
  EXPECT_EQ(put.json()["keys_by"], "tokens");
  EXPECT_EQ(Firn("--json put " + Sample() + " --model m").json()["existing"], 2);

  const std::string blocks = "--file " + Sample() + " --model m";
  EXPECT_EQ(CheckedError(blocks), 0.0);
  EXPECT_EQ(Firn("demote " + blocks + " --tier warm").code, 0);
  double int8 = CheckedError(blocks);
  EXPECT_EQ(Firn("degrade " + blocks + " --tier warm --to int4").code, 0);
  double int4 = CheckedError(blocks);
  EXPECT_EQ(Firn("demote " + blocks + " --tier cold").code, 0);
  EXPECT_EQ(CheckedError(blocks), int4) << "moving planes changed what they decode to";
  EXPECT_EQ(Firn("degrade " + blocks + " --tier cold --to int2").code, 0);
  double int2 = CheckedError(blocks);
  EXPECT_GT(int8, 0.0);
  EXPECT_GT(int4, int8);
  EXPECT_GT(int2, int4);
  EXPECT_LT(int8, 0.01);
  EXPECT_LT(int4, 0.12);
  EXPECT_LT(int2, 0.60);

  Outcome listed = Firn("--json ls");
  ASSERT_EQ(listed.code, 0) << listed.text;
  EXPECT_EQ(listed.json()["count"], 2);
  EXPECT_EQ(listed.json()["blocks"][0]["copies"][0]["tier"], "cold");
  std::string key = listed.json()["blocks"][0]["key"];
  EXPECT_THAT(Firn("stat --key " + key).text, HasSubstr("cold int2"));
  EXPECT_EQ(Firn("get --key " + key + " --least int4").code, 1) << "a coarser block is a miss";
  EXPECT_EQ(Firn("get --key " + key + " --as fp16 --out " + Path("out.safetensors")).code, 0);
  auto out = TensorFile::Open(Path("out.safetensors"));
  ASSERT_TRUE(out.ok()) << out.status();
  ASSERT_NE(out->Find(key + ".k"), nullptr);
  EXPECT_EQ(DescribeTensor(*out->Find(key + ".k")), "F16 (2, 2, 64, 128)");

  EXPECT_EQ(Firn("--json tiers").json()["tiers"].size(), 3u);
  EXPECT_EQ(Firn("--json stats").code, 0);
  EXPECT_EQ(Firn("--json capabilities").json()["admin"], true);
  EXPECT_EQ(Firn("flush").code, 0);
  EXPECT_EQ(Firn("--json verify").json()["consistent"], true);
  EXPECT_EQ(Firn("delete " + blocks).code, 0);
  EXPECT_EQ(Firn("delete " + blocks).code, 1);
  EXPECT_EQ(Firn("get " + blocks).code, 1);
}

TEST_F(CliTest, BlocksAreCopiedToAnotherDaemonAsTheyAreStored) {
  DaemonProcess other(Options());
  absl::Status started = other.Start();
  ASSERT_TRUE(started.ok()) << started << other.Log();
  const std::string blocks = "--file " + Sample() + " --model m", to = " --to unix:" + other.socket_path();
  ASSERT_EQ(Firn("--json put " + Sample() + " --model m --ttl 1h").json()["stored"], 2);
  std::string first = Firn("--json ls").json()["blocks"][0]["key"];
  ASSERT_EQ(Firn("demote --key " + first + " --tier warm").code, 0);
  Outcome copied = Firn("--json copy --all" + to);
  ASSERT_EQ(copied.code, 0) << copied.text;
  EXPECT_EQ(copied.json()["copied"], 2);
  EXPECT_EQ(copied.json()["precision"]["exact"], 1);
  EXPECT_EQ(copied.json()["precision"]["int8"], 1);
  Outcome here = Firn("--json get " + blocks + " --check");
  Outcome there = RunFirn(other.socket_path(), "--json get " + blocks + " --check");
  ASSERT_EQ(there.code, 0) << there.text;
  EXPECT_EQ(there.json()["relative_error_k"], here.json()["relative_error_k"]);
  EXPECT_EQ(there.json()["relative_error_v"], here.json()["relative_error_v"]);
  EXPECT_GT(there.json()["relative_error_k"], 0.0);
  EXPECT_EQ(RunFirn(other.socket_path(), "--json verify").json()["consistent"], true);
  EXPECT_EQ(Firn("--json copy --all" + to).json()["existing"], 2);
  EXPECT_EQ(Firn("copy --key " + std::string(64, '0') + to).code, 1) << "a miss";
  EXPECT_EQ(Firn("copy --all --most int9" + to).code, 2);
  EXPECT_EQ(Firn("copy --all --to unix:" + Path("nobody.sock")).code, 3);
}

TEST_F(CliTest, FilesWithoutTokensAreNamedByContent) {
  constexpr uint64_t kValues = 2 * 3 * 2 * 40 * 64;  // K and V, 3 layers, 2 heads, 40 tokens, 64 channels.
  std::vector<uint8_t> values = firnkv::HalfPattern(kValues * 2, 5);
  ASSERT_TRUE(WriteNpy(Path("kv.npy"), Tensor{"", ElementType::kF16, {2, 3, 2, 40, 64}, values}).ok());
  Outcome put = Firn("--json put " + Path("kv.npy") + " --block-tokens 16");
  ASSERT_EQ(put.code, 0) << put.text;
  EXPECT_EQ(put.json()["stored"], 3);  // 16, 16 and a tail of 8.
  EXPECT_EQ(put.json()["keys_by"], "content");
  EXPECT_EQ(CheckedError("--file " + Path("kv.npy") + " --block-tokens 16"), 0.0);
  EXPECT_EQ(Firn("--json keys " + Path("kv.npy") + " --block-tokens 16").json()["keys"].size(), 3u);
}

TEST_F(CliTest, WrongInputIsSaidWithItsValueAndLimit) {
  struct Case {
    std::string arguments, message;
    int code;
  };
  std::ofstream(Path("junk")) << "this is no tensor file, whatever its name";
  for (const Case& c :
       {Case{"put /no/such/file", "No such file", 2}, Case{"put " + Path("junk"), "header length", 2},
        Case{"put " + Sample() + " --ttl 5", "5", 2}, Case{"put " + Sample() + " --block-tokens 0", "0", 2},
        Case{"put " + Sample() + " --floor int5", "int5", 2}, Case{"get --key xyz --ns 00", "", 1},
        Case{"nonsense", "", 2}, Case{"clear --everything", "--yes", 2}, Case{"clear --yes", "what to clear", 2},
        Case{"--timeout 5 tiers", "5", 2}, Case{"bench --size 1KiB", "1KiB", 2}}) {
    Outcome outcome = Firn(c.arguments);
    EXPECT_EQ(outcome.code, c.code) << c.arguments << "\n" << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr(c.message)) << c.arguments;
  }
  Outcome absent = RunFirn("/no/such/socket", "tiers");
  EXPECT_EQ(absent.code, 3);
  EXPECT_THAT(absent.text, HasSubstr("/no/such/socket"));
  EXPECT_EQ(RunFirn("/no/such/socket", "--json tiers").json()["error"]["code"], "UNAVAILABLE");
}

TEST_F(CliTest, WrongValuesAreNamedWithTheirOptionAndWhatIsAllowed) {
  const std::string put = "put " + Sample() + " --model m ";
  ASSERT_EQ(Firn(put).code, 0);
  struct Case {
    std::string arguments;
    const char* message;
  };
  for (const Case& c : {
           Case{put + "--ttl 5", "--ttl 5: \"5\" has nothing as its unit"},
           Case{"--timeout 5 tiers", "--timeout 5: \"5\" has nothing as its unit"},
           Case{"bench --size 5", "--size 5: \"5\" has nothing as its unit"},
           Case{put + "--floor int5", "--floor int5 is not a precision; allowed: exact, int8, int4, int3, int2, or"},
           Case{"get --all --most q", "--most q is not a precision; allowed: exact"},
           Case{put + "--max-error -1", "--max-error"},
           Case{put + "--preset kvmix --ranking r.csv --ranking-share 7", "--ranking-share: 7; allowed: above 0"},
           Case{put + "--tier-target attic=int4",
                "tier \"attic\": the daemon has no such tier; allowed: hot, warm, cold"},
           Case{put + "--tier-target cold=x", "--tier-target cold=x is not TIER=PRECISION; precisions: exact"},
           Case{"capacity --tier hot --to 64GiB", "hot: a capacity of 64.00 GiB; allowed: 64.00 KiB to "},
       }) {
    Outcome outcome = Firn(c.arguments);
    EXPECT_EQ(outcome.code, 2) << c.arguments << "\n" << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr(c.message)) << c.arguments;
  }
  EXPECT_THAT(Firn("get --all --layer-first 5").text,
              HasSubstr("layer_first = 5 and layer_count = 0 (0: to the last); the namespace has 2 layers, 0 to 1"));
  EXPECT_THAT(Firn("namespaces").text, testing::ContainsRegex("fp16 +0-1 ")) << "both ends, as plans have it";
}

TEST_F(CliTest, ChaosLeavesNothingWhereNoDaemonStarted) {
  Outcome outcome = Firn("chaos --seconds 1 --firnd /bin/true --dir " + Path("chaos"));
  EXPECT_EQ(outcome.code, 5) << outcome.text;
  EXPECT_TRUE(std::filesystem::is_empty(Path("chaos"))) << "the folder is the caller's; what is in it is not";
}

// A script that asked for JSON gets one document, whatever it asked wrong.
TEST_F(CliTest, AWrongCommandLineIsADocumentToo) {
  struct Case {
    const char *arguments, *message;
  };
  for (const Case& c :
       {Case{"", "subcommand is required"}, Case{"frobnicate", "no such command or option: frobnicate"},
        Case{"put", "file is required"}, Case{"put f --block-tokens 0", "1 to 65536"},
        Case{"put f --keep-first -1", "--keep-first: Value -1 not in range 0 to 65536"},
        Case{"demote --all", "--tier is required"}, Case{"get --all --as int7", "int7"},
        Case{"get --all --layer-count -1", "is no whole number of 0 or more"},
        Case{"get --all --layer-first x", "is no whole number of 0 or more"}, Case{"calibrate", "files is required"},
        Case{"watch --after -1", "is no whole number of 0 or more"},
        Case{"watch --count -1", "is no whole number of 0 or more"},
        Case{"ls --limit -1", "is no whole number of 0 or more"}, Case{"tiers --nonsense", "nonsense"}}) {
    Outcome outcome = Firn(std::string("--json ") + c.arguments);
    EXPECT_EQ(outcome.code, 2) << c.arguments;
    Json error = outcome.json().value("error", Json::object());
    EXPECT_EQ(error.value("code", ""), "INVALID_ARGUMENT") << c.arguments << outcome.text;
    EXPECT_THAT(error.value("message", ""), HasSubstr(c.message)) << c.arguments;
    EXPECT_THAT(Firn(c.arguments).text, HasSubstr(c.message)) << "without --json";
  }
  EXPECT_THAT(Firn("put --json --help").json().value("help", ""), HasSubstr("--durable"));
  EXPECT_THAT(Firn("put --help").text, HasSubstr("--durable"));
}

TEST_F(CliTest, ATargetForATierThatIsNotThereIsRefused) {
  Outcome refused = Firn("put " + Sample() + " --tier-target nosuch=int4");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.text,
              HasSubstr("a target for tier \"nosuch\": the daemon has no such tier; allowed: hot, warm, cold"));
  EXPECT_THAT(Firn("namespaces").text, ::testing::Not(HasSubstr("sample"))) << "nothing is registered";
  EXPECT_EQ(Firn("put " + Sample() + " --tier-target cold=int4").code, 0);
}

TEST_F(CliTest, OutReplacesRegularFilesOnly) {
  ASSERT_EQ(Firn("put " + Sample()).code, 0);
  std::filesystem::create_symlink("elsewhere", Path("link.safetensors"));
  for (const std::string& path : {daemon_.folder().string(), Path("link.safetensors")}) {
    Outcome refused = Firn("get --file " + Sample() + " --out " + path);
    EXPECT_EQ(refused.code, 2) << refused.text;
    EXPECT_THAT(refused.text, HasSubstr("left alone"));
    EXPECT_EQ(Firn("calibrate " + Sample() + " --out " + path).code, 2);
  }
  EXPECT_TRUE(std::filesystem::is_symlink(Path("link.safetensors")));
  EXPECT_FALSE(std::filesystem::exists(Path("elsewhere")));
}

TEST_F(CliTest, CalibratedKeysComeBackCloser) {
  const std::string blocks = "--file " + Sample() + " --model ";
  ASSERT_EQ(Firn("put " + Sample() + " --model plain").code, 0);
  Outcome calibrated = Firn("--json calibrate " + Sample() + " --register --out " + Path("balance"));
  ASSERT_EQ(calibrated.code, 0) << calibrated.text;
  EXPECT_EQ(calibrated.json()["tokens"], 128);
  EXPECT_EQ(std::filesystem::file_size(Path("balance")), calibrated.json()["bytes"].get<uint64_t>());
  std::string artifact = calibrated.json()["artifact"];
  Outcome put = Firn("--json put " + Sample() + " --model balanced --artifact " + artifact);
  ASSERT_EQ(put.code, 0) << put.text;
  for (const char* model : {"plain", "balanced"}) EXPECT_EQ(Firn("demote " + blocks + model + " --tier cold").code, 0);
  double plain = CheckedError(blocks + "plain"), balanced = CheckedError(blocks + "balanced");
  EXPECT_GT(balanced, 0.0);
  EXPECT_NE(balanced, plain);
  EXPECT_LT(balanced, 0.15);
  EXPECT_EQ(Firn("put " + Sample() + " --model other --artifact " + std::string(64, 'a')).code, 5);
  EXPECT_EQ(Firn("calibrate " + Sample()).code, 2);
}

TEST_F(CliTest, StatKnowsTheErrorsOfWhatIsOnlyInTheColdTier) {
  ASSERT_EQ(Firn("put " + Sample() + " --model m").code, 0);
  const std::string blocks = "--file " + Sample() + " --model m";
  auto errors = [&] { return Firn("--json stat " + blocks).json()["blocks"][0]["k_errors"]; };
  EXPECT_FALSE(errors().contains("int4")) << "nothing was encoded yet: " << errors();
  ASSERT_EQ(Firn("demote " + blocks + " --tier cold").code, 0);
  Json cold = errors();
  ASSERT_TRUE(cold["int2"].is_number() && cold["int4"].is_number()) << cold;
  EXPECT_GT(cold["int2"].get<double>(), cold["int4"].get<double>());
  EXPECT_GT(cold["int4"].get<double>(), 0.0);
  EXPECT_FALSE(cold.contains("int8")) << "it went to INT4 at once";
  ASSERT_EQ(daemon_.Terminate(), 0);
  ASSERT_TRUE(daemon_.Start().ok());
  EXPECT_EQ(errors(), cold);
}

// Every preset that needs no calibration: a file goes down to the disk by it and comes back within what its bits allow.
TEST_F(CliTest, PresetsCodeAsTheySay) {
  struct Case {
    const char* preset;
    const char* warm;
    double error_max;
  };
  for (const Case& c : {Case{"fp8", "int8", 0.04},
                        {"int8", "int8", 0.02},
                        {"int4", "int4", 0.25},
                        {"kivi-4", "int4", 0.1},
                        {"kivi-2", "int2", 0.4},
                        {"mikv", "int3", 0.5},
                        {"firn", "int8", 0.02},
                        {"firn-fast", "int8", 0.02}}) {
    SCOPED_TRACE(c.preset);
    const std::string model = std::string(" --model ") + c.preset, blocks = "--file " + Sample() + model;
    Outcome put = Firn("--json put " + Sample() + model + " --preset " + c.preset);
    ASSERT_EQ(put.code, 0) << put.text;
    ASSERT_EQ(Firn("demote " + blocks + " --tier warm").code, 0);
    Outcome listed = Firn("--json ls" + model);
    ASSERT_EQ(listed.code, 0) << listed.text;
    std::string key = listed.json()["blocks"][0]["key"];
    EXPECT_THAT(Firn("stat --key " + key + model).text, HasSubstr(std::string("warm ") + c.warm));
    double warm = CheckedError(blocks);
    EXPECT_GT(warm, 0.0);
    EXPECT_LT(warm, c.error_max);
    ASSERT_EQ(Firn("demote " + blocks + " --tier cold").code, 0);
    double cold = CheckedError(blocks);
    // The ladder drops planes; the codes of other methods are moved, not made again.
    EXPECT_EQ(cold > warm, std::string(c.preset).starts_with("firn")) << warm << " to " << cold;
    EXPECT_GE(cold, warm);
  }
  EXPECT_THAT(Firn("put " + Sample() + " --model q --preset kvquant-3").text, HasSubstr("needs an artifact of keys"));
  EXPECT_THAT(Firn("put " + Sample() + " --model q --preset best").text,
              testing::AllOf(HasSubstr("preset 'best'"), HasSubstr("kivi-2")));
}

TEST_F(CliTest, WhatIsRefusedSaysWhatIsAllowed) {
  ASSERT_EQ(Firn("put " + Sample() + " --model m").code, 0);
  const std::string blocks = "--file " + Sample() + " --model m";
  for (const auto& [command, code, message] :
       {std::tuple("degrade " + blocks + " --tier hot --to int4", 1, "is whole and has no planes to drop"),
        {"degrade " + blocks + " --tier warm --to fp16", 2, "--to fp16: allowed: int8, int4, int2"},
        {"degrade " + blocks + " --tier warm --to exact", 1, "target = exact; allowed: int8, int4, int2"},
        {"demote " + blocks + " --tier warm --to fp16", 2, "demote takes no --to"},
        {"get --model m --key " + std::string(64, 'a') + " --key xy --key z", 2, "these are not: xy, z"}}) {
    Outcome outcome = Firn(command);
    EXPECT_EQ(outcome.code, code) << command << "\n" << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr(message)) << command;
  }
  ASSERT_EQ(Firn("demote " + blocks + " --tier warm").code, 0);
  Outcome least = Firn("degrade " + blocks + " --tier warm --to int2");
  EXPECT_EQ(least.code, 1);
  EXPECT_THAT(least.text, HasSubstr("tier \"warm\" has least = int4"));
}

TEST_F(CliTest, OneBadKeyIsOneBadAnswer) {
  ASSERT_EQ(Firn("put " + Sample() + " --model m").code, 0);
  Json keys = Firn("--json keys " + Sample() + " --model m").json()["keys"];
  std::string good = keys[0]["key"].get<std::string>();
  const std::string named = " --model m --key " + good + " --opaque " + std::string(5000, 'x') + " --opaque none";
  for (const char* command : {"exists", "stat", "get", "prefetch", "demote --tier warm", "delete"}) {
    Outcome outcome = Firn("--json " + std::string(command) + named);
    EXPECT_EQ(outcome.code, 1) << command << "\n" << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr("opaque key of 5000 bytes")) << command;
  }
  EXPECT_EQ(Firn("--json exists --model m --key " + good).json()["blocks"][0]["found"], false) << "it was deleted";
  ASSERT_EQ(Firn("put " + Sample() + " --model m").code, 0);
  Json there = Firn("--json exists --model m --key " + good).json()["blocks"][0];
  EXPECT_EQ(there["found"], true);
  EXPECT_EQ(there["precision"], "exact");
  EXPECT_EQ(there["tier"], "hot");
}

TEST_F(CliTest, ManyNamespacesAreNotAllRecited) {
  for (int i = 0; i < 13; ++i) {
    ASSERT_EQ(Firn("keys " + Sample() + " --model m --revision " + std::to_string(i)).code, 0);
  }
  ASSERT_EQ(Firn("keys " + Sample() + " --model other").code, 0);
  Outcome outcome = Firn("ls --model m");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.text, HasSubstr("13 of 14 namespaces are --model m; name one with --ns:"));
  EXPECT_THAT(outcome.text, HasSubstr("and 3 more"));
  EXPECT_THAT(outcome.text, testing::Not(HasSubstr(" other")));
  Outcome absent = Firn("ls --model nosuch");
  EXPECT_EQ(absent.code, 2);
  EXPECT_THAT(absent.text, HasSubstr("none of 14 namespaces is --model nosuch; name one with --ns:"));
  EXPECT_THAT(Firn("ls").text, HasSubstr("there are 14 namespaces; name one with --ns:"));
}

// Keys of content have no room for them: two adapters' blocks would be one.
TEST_F(CliTest, ExtrasWithoutTokenIdsAreRefused) {
  std::vector<uint8_t> values(size_t{2} * 16 * 64 * 2);
  Tensor tensor{.name = "", .type = ElementType::kF16, .shape = {2, 1, 1, 16, 64}, .bytes = values};
  ASSERT_TRUE(WriteNpy(Path("kv.npy"), tensor).ok());
  for (const char* command : {"put ", "keys ", "exists --file "}) {
    Outcome refused = Firn(command + Path("kv.npy") + " --model m --extra salt");
    EXPECT_EQ(refused.code, 2) << command << refused.text;
    EXPECT_THAT(refused.text, HasSubstr("--extra salt: goes into keys of token ids alone")) << command;
  }
  EXPECT_EQ(Firn("put " + Path("kv.npy") + " --model m").code, 0);
  EXPECT_EQ(Firn("put " + Sample() + " --model m --extra salt").code, 0) << "it has ids";
}

TEST(Cli, SaysItsVersion) {
  Outcome plain = RunFirn("/no/such/socket", "--version");
  EXPECT_EQ(plain.code, 0);
  EXPECT_EQ(plain.text.substr(0, 7), "firn 0.");
  EXPECT_EQ("firn " + RunFirn("/no/such/socket", "--json --version").json()["version"].get<std::string>() + "\n",
            plain.text);
}

TEST_F(CliTest, MeasuresAndWatches) {
  Outcome bench = Firn("--json bench --size 256KiB --count 16 --threads 2");
  ASSERT_EQ(bench.code, 0) << bench.text;
  EXPECT_GT(bench.json()["put"]["gb_per_s"], 0.0);
  EXPECT_EQ(bench.json()["get"]["failed"], 0);
  EXPECT_TRUE(Firn("--json namespaces").json()["namespaces"].empty()) << "what it made it removes";
  ASSERT_EQ(Firn("put " + Sample()).code, 0);
  Outcome watched = Firn("--json watch --after 0 --count 3");
  EXPECT_EQ(watched.code, 0);
  EXPECT_THAT(watched.text, HasSubstr("\"stored\""));
  EXPECT_EQ(Firn("clear --everything --yes").code, 0);
  EXPECT_EQ(Firn("clear --everything --yes").code, 0);
}

}  // namespace
}  // namespace firn
