// What firn says of precision and space: errors by class, tiers, what a get found, and the importance of tokens.

#include <cmath>
#include <fstream>
#include <set>

#include "client/cli/cli_test_util.h"
#include "client/cpp/tensor/tensor_file.h"
#include "client/cpp/testing/patterns.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace firn {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class PrecisionTest : public CliTest {
 protected:
  // Stores the sample by a preset or other options of a plan, and takes it to `tier`.
  std::string Stored(const std::string& model, const std::string& options, const std::string& tier) {
    Outcome put = Firn("put " + Sample() + " --model " + model + " " + options);
    EXPECT_EQ(put.code, 0) << put.text;
    std::string blocks = "--file " + Sample() + " --model " + model;
    Outcome demoted = Firn("demote " + blocks + " --tier " + tier);
    EXPECT_EQ(demoted.code, 0) << demoted.text;
    return blocks;
  }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name)) << text;
    return Path(name);
  }
  std::string WriteFloats(const std::string& name, const std::vector<float>& values) const {
    ByteSpan bytes(reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float));
    Tensor tensor{.name = "", .type = ElementType::kF32, .shape = {values.size()}, .bytes = bytes};
    EXPECT_TRUE(WriteNpy(Path(name), tensor).ok());
    return Path(name);
  }
};

// Codes of 3 bits are told as what they are, also where only the disk has them.
TEST_F(PrecisionTest, StatNamesTheClassesThatThereAre) {
  for (const char* tier : {"warm", "cold"}) {
    const std::string blocks = Stored(std::string("three-") + tier, "--preset mikv", tier);
    Outcome text = Firn("stat " + blocks);
    EXPECT_THAT(text.text, HasSubstr(std::string("copies: ") + tier + " int3"));
    EXPECT_THAT(text.text, HasSubstr("relative error of K: int3 0."));
    EXPECT_THAT(text.text, HasSubstr("relative error of V: int3 0."));
    EXPECT_THAT(text.text, Not(HasSubstr("int4")));
    Json block = Firn("--json stat " + blocks).json()["blocks"][0];
    for (const char* part : {"k_errors", "v_errors"}) {
      ASSERT_EQ(block[part].size(), 1u) << block;
      EXPECT_GT(block[part]["int3"].get<double>(), 0.0) << block;
    }
  }
  const std::string mixed =
      Stored("mixed", "--preset kvmix --ranking " + Write("r.csv", "layer,k_bits,v_bits\n0,3,4\n1,2,3\n"), "warm");
  Outcome text = Firn("stat " + mixed);
  EXPECT_THAT(text.text, HasSubstr("relative error of K: int2 0.")) << "K is served at the coarsest of its heads";
  EXPECT_THAT(text.text, HasSubstr("relative error of V: int3 0."));
  const std::string ladder = Stored("ladder", "--preset firn", "warm");
  EXPECT_THAT(Firn("stat " + ladder).text, testing::ContainsRegex("of K: int8 0\\.[0-9]+, int4 0\\.[0-9]+, int2 0\\."));
  ASSERT_EQ(Firn("put " + Sample() + " --model whole").code, 0);
  EXPECT_THAT(Firn("stat --file " + Sample() + " --model whole").text, HasSubstr("relative error of K: not measured"));
}

TEST_F(PrecisionTest, TiersTellLiveBytesFromWhatTheMediumHolds) {
  const std::string blocks = Stored("m", "", "cold");
  ASSERT_EQ(Firn("flush").code, 0);
  Outcome text = Firn("tiers");
  EXPECT_THAT(text.text,
              testing::ContainsRegex("copies +live bytes +on medium +capacity +% full +ecc +copies by precision"));
  auto cold = [&] { return Firn("--json tiers").json()["tiers"][2]; };
  Json before = cold();
  EXPECT_EQ(before["copies"], 2);
  uint64_t copies = 0;
  const Json described = Firn("--json stat " + blocks).json();
  for (const Json& block : described["blocks"]) {
    for (const Json& copy : block["copies"]) copies += copy["bytes"].get<uint64_t>();
  }
  EXPECT_EQ(before["live_bytes"], copies);
  EXPECT_GT(before["on_medium_bytes"].get<uint64_t>(), copies);
  EXPECT_EQ(before["on_medium_bytes"], before["counters"]["used_bytes"]);
  EXPECT_EQ(before["capacity_bytes"], before["counters"]["capacity_bytes"]);
  ASSERT_EQ(Firn("delete " + blocks).code, 0);
  Json after = cold();
  EXPECT_EQ(after["live_bytes"], 0) << "what was removed is dead at once,";
  EXPECT_GT(after["on_medium_bytes"].get<uint64_t>(), 0u) << "and its segment is reclaimed later";
}

TEST_F(PrecisionTest, AMissHasItsReasonInAColumnOfItsOwn) {
  ASSERT_EQ(Firn("put " + Sample() + " --model m").code, 0);
  Json keys = Firn("--json keys " + Sample() + " --model m").json()["keys"];
  const std::string good = keys[0]["key"], named = " --model m --key " + good + " --key " + std::string(64, 'a');
  Outcome text = Firn("get" + named);
  EXPECT_EQ(text.code, 1);
  EXPECT_THAT(text.text, testing::ContainsRegex("key +tier +served +tokens +bytes +status\n"));
  EXPECT_THAT(text.text, testing::ContainsRegex(good.substr(0, 24) + " +hot +exact +64 +[0-9.]+ KiB +found\n"));
  EXPECT_THAT(text.text, testing::ContainsRegex("a{24} +- +- +- +- +miss \\(unknown\\): block")) << text.text;
  Json got = Firn("--json get" + named).json();
  EXPECT_EQ(got["blocks"][0]["status"], "found");
  EXPECT_FALSE(got["blocks"][0].contains("error"));
  EXPECT_EQ(got["blocks"][1]["status"], "missed");
  EXPECT_EQ(got["blocks"][1]["found"], false);
  EXPECT_FALSE(got["blocks"][1].contains("tier"));
  EXPECT_THAT(got["blocks"][1]["error"].get<std::string>(), HasSubstr("miss"));
}

// The tokens that matter most come back as they were put, bit for bit; the others do not.
TEST_F(PrecisionTest, ImportantTokensStayExact) {
  constexpr uint64_t kHeads = 2, kTokens = 40, kWidth = 64;
  std::vector<uint8_t> values = firnkv::HalfPattern(2 * kHeads * kTokens * kWidth * 2, 5);  // K and V of one layer.
  Tensor tensor{.name = "", .type = ElementType::kF16, .shape = {2, 1, kHeads, kTokens, kWidth}, .bytes = values};
  ASSERT_TRUE(WriteNpy(Path("kv.npy"), tensor).ok());
  std::vector<float> importance(kTokens, 0.25f);
  // A fifth of each block of 16 are 3 tokens, of the tail of 8 two; no sinks.
  const std::set<uint64_t> favoured = {3, 9, 15, 16, 20, 31, 33, 39};
  for (uint64_t token : favoured) importance[token] = 2;
  const std::string plan = Write("plan.toml", "preset = \"mikv\"\nkeep_first_tokens = 0\n");
  const std::string put = "put " + Path("kv.npy") + " --model m --block-tokens 16 --plan " + plan + " --importance ";
  Outcome stored = Firn(put + WriteFloats("importance.npy", importance));
  ASSERT_EQ(stored.code, 0) << stored.text;
  EXPECT_THAT(stored.text, Not(HasSubstr("changes nothing")));
  EXPECT_THAT(stored.text, Not(HasSubstr("was not taken")));
  EXPECT_THAT(Firn(put + Path("importance.npy")).text, HasSubstr("was not taken for 3 blocks that were there already"));
  const std::string blocks = " --file " + Path("kv.npy") + " --model m --block-tokens 16";
  ASSERT_EQ(Firn("demote" + blocks + " --tier warm").code, 0);
  ASSERT_EQ(Firn("get" + blocks + " --out " + Path("out.safetensors")).code, 0);
  auto out = TensorFile::Open(Path("out.safetensors"));
  ASSERT_TRUE(out.ok()) << out.status();
  Json got = Firn("--json get" + blocks).json()["blocks"];
  for (uint64_t token = 0; token < kTokens; ++token) {
    uint64_t block = token / 16, count = block == 2 ? 8 : 16;
    const Tensor* k = out->Find(got[block]["key"].get<std::string>() + ".k");
    ASSERT_NE(k, nullptr);
    bool exact = true;
    for (uint64_t head = 0; head < kHeads; ++head) {
      const uint8_t* was = values.data() + (head * kTokens + token) * kWidth * 2;
      const uint8_t* is = k->bytes.data() + (head * count + token % 16) * kWidth * 2;
      exact = exact && std::equal(was, was + kWidth * 2, is);
    }
    EXPECT_EQ(exact, favoured.contains(token)) << token;
  }
}

// NaN has no distance to anything: such a block is left out and told, and never makes the others' error 0.
TEST_F(PrecisionTest, ErrorsLeaveOutWhatIsNotFinite) {
  constexpr uint64_t kTokens = 32, kWidth = 64, kPart = kTokens * kWidth * 2;
  std::vector<uint8_t> values = firnkv::HalfPattern(2 * kPart, 5);
  const uint8_t nan[2] = {0x00, 0x7e}, infinity[2] = {0x00, 0x7c};
  std::copy_n(nan, 2, values.begin() + 20 * kWidth * 2);               // K of the second block of 16,
  std::copy_n(infinity, 2, values.begin() + kPart + 16 * kWidth * 2);  // and its V.
  Tensor tensor{.name = "", .type = ElementType::kF16, .shape = {2, 1, 1, kTokens, kWidth}, .bytes = values};
  ASSERT_TRUE(WriteNpy(Path("kv.npy"), tensor).ok());
  const std::string blocks = Path("kv.npy") + " --model m --block-tokens 16";
  ASSERT_EQ(Firn("put " + blocks).code, 0);
  ASSERT_EQ(Firn("demote --tier warm --file " + blocks).code, 0);
  Json got = Firn("--json get --check --file " + blocks).json();
  EXPECT_GT(got["relative_error_k"].get<double>(), 0.0) << got;
  EXPECT_EQ(got["relative_error_k"], got["blocks"][0]["relative_error_k"]) << "that of the block that can be compared";
  EXPECT_TRUE(got["blocks"][1]["relative_error_k"].is_null()) << got;
  EXPECT_EQ(got["not_finite_k"], 1);
  EXPECT_EQ(got["not_finite_v"], 1);
  Outcome text = Firn("get --check --file " + blocks);
  EXPECT_THAT(text.text,
              HasSubstr("the error of K leaves out 1 of 2 blocks, which have NaN or infinities: 1 values of "));
  EXPECT_THAT(text.text, HasSubstr("not finite"));

  std::copy_n(nan, 2, values.begin());
  std::copy_n(nan, 2, values.begin() + kPart);
  ASSERT_TRUE(WriteNpy(Path("none.npy"), tensor).ok());
  const std::string none = Path("none.npy") + " --model none --block-tokens 16";
  ASSERT_EQ(Firn("put " + none).code, 0);
  EXPECT_TRUE(Firn("--json get --check --file " + none).json()["relative_error_k"].is_null());
  EXPECT_THAT(Firn("get --check --file " + none).text, HasSubstr("relative error: K none, V none"));
}

TEST_F(PrecisionTest, WrongImportanceIsSaidBeforeAnythingIsPut) {
  const std::string put = "put " + Sample() + " --model m --preset mikv --importance ";
  Outcome few = Firn(put + WriteFloats("few.npy", std::vector<float>(100)));
  EXPECT_EQ(few.code, 2);
  EXPECT_THAT(few.text, HasSubstr("is F32 (100); allowed: (128), a value a token, or (2, 64)"));
  std::vector<float> values(128);
  values[70] = NAN;
  Outcome nan = Firn(put + WriteFloats("nan.npy", values));
  EXPECT_EQ(nan.code, 2);
  EXPECT_THAT(nan.text, HasSubstr("the importance of token 70 (block 1, its token 6) is nan; allowed: finite"));
  EXPECT_EQ(Firn(put + Path("absent.npy")).code, 2);
  EXPECT_TRUE(Firn("--json namespaces").json()["namespaces"].empty());
  // A plan that does not go by it: stored, and told.
  Outcome unused =
      Firn("put " + Sample() + " --model m --importance " + WriteFloats("ones.npy", std::vector<float>(128)));
  EXPECT_EQ(unused.code, 0);
  EXPECT_THAT(unused.text, HasSubstr("changes nothing while important_fraction of the namespace's plan is 0"));
}

}  // namespace
}  // namespace firn
