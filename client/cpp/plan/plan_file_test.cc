// Plan files: what is printed reads back the same, what is wrong is refused with key, value and what is allowed, and
// numbers of layers become the classes of heads.
#include "firnkv/plan_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "base/status.h"
#include "client/cpp/plan/plan_test_util.h"
#include "client/cpp/plan/plan_words.h"

namespace firnkv {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string ErrorOf(std::string_view toml) {
  auto file = ParsePlanFile(toml);
  EXPECT_FALSE(file.ok()) << toml;
  return file.ok() ? "" : firn::Message(file.status());
}

TEST(PlanFile, AnEmptyFileIsTheDefault) { EXPECT_EQ(Parsed(""), PlanFile{}); }

TEST(PlanFile, SaysEverythingThatAPlanHolds) {
  const std::string digest(64, 'a');
  PlanFile file = Parsed(R"(
key_method = "balanced"
balance_artifact = ")" + digest +
                         R"("
ladder = "trellis"
key_group = 32
value_group = 128
keep_first_tokens = 0
floor = { k = "int4", v = "none" }
max_error = 0.25
[targets]
warm = "int8"
"odd name" = { k = "exact", v = "int3" }
[[rules]]
tier = "cold"
part = "k"
codec = "int-token"
bits = 8
symmetric = true
calibrated = true
pre_rope = true
centred = true
balanced = true
rotated = true
artifact = ")" + digest + R"("
[[rules]]
part = "v"
codec = "nuq-channel"
bits = 3
group = 64
outliers_per_mille = 10
artifact = ")" + digest + R"("
heads = ["int4 x 3", "int2"]
)");
  PrecisionPlan expected{.key_method = KeyMethod::kBalancedRotated,
                         .balance_artifact = Digest::FromHex(digest),
                         .key_group = 32,
                         .value_group = 128,
                         .keep_first_tokens = 0,
                         .floor = {k4, Precision::kNone},
                         .max_relative_error = 0.25f,
                         .tier_target = {{"warm", {k8, k8}}, {"odd name", {Precision::kExact, k3}}},
                         .ladder = Ladder::kTrellis,
                         .rules = {}};
  expected.rules.push_back({.tier = "cold",
                            .part = Part::kK,
                            .coding = {.codec = Codec::kIntToken,
                                       .bits = 8,
                                       .symmetric = true,
                                       .calibrated = true,
                                       .pre_rope = true,
                                       .centred = true,
                                       .balanced = true,
                                       .rotated = true,
                                       .artifact = Digest::FromHex(digest)}});
  expected.rules.push_back({.part = Part::kV,
                            .coding = {.codec = Codec::kNuqChannel,
                                       .bits = 3,
                                       .group = 64,
                                       .outliers_per_mille = 10,
                                       .artifact = Digest::FromHex(digest)},
                            .heads = {k4, k4, k4, k2}});
  EXPECT_EQ(file.plan, expected);
  EXPECT_EQ(Parsed(PrintPlan(file.plan)), file);
}

TEST(PlanFile, APresetIsTheBaseOfWhatTheFileSays) {
  auto kivi = Preset("kivi-2", {});
  ASSERT_TRUE(kivi.ok());
  EXPECT_EQ(Parsed("preset = \"kivi-2\"").plan, *kivi);
  EXPECT_EQ(kivi->recent_tokens, 128u);
  EXPECT_EQ(Parsed("preset = \"kivi-2\"\nrecent_tokens = 0").plan.recent_tokens, 0u);
  PlanFile file = Parsed(R"(
preset = "kivi-2"
keep_first_tokens = 1
[[rules]]
part = "v"
codec = "int-token"
bits = 4
group = 64
[[rules]]
tier = "cold"
part = "v"
codec = "nvfp4"
)");
  PrecisionPlan expected = *kivi;
  expected.keep_first_tokens = 1;
  expected.rules[1].coding = {.codec = Codec::kIntToken, .bits = 4, .group = 64};
  expected.rules.push_back({.tier = "cold", .part = Part::kV, .coding = {.codec = Codec::kNvFp4}});
  EXPECT_EQ(file.plan, expected);
  const std::string artifacts =
      "[artifacts]\nkeys = \"" + std::string(64, '1') + "\"\nvalues = \"" + std::string(64, '2') + "\"\n";
  EXPECT_EQ(Parsed("preset = \"kvquant-3\"\n" + artifacts).plan.rules[1].coding.artifact,
            Digest::FromHex(std::string(64, '2')));
}

TEST(PlanFile, FirnWithAFloorAt8BitsHasTheLadderThatIsFinestThere) {
  auto ladder_of = [](const std::string& toml) { return Parsed("preset = \"firn\"\n" + toml).plan.ladder; };
  EXPECT_EQ(ladder_of(""), Ladder::kTrellis);
  EXPECT_EQ(ladder_of("floor = \"int8\""), Ladder::kMinMax);
  EXPECT_EQ(ladder_of("floor = { k = \"int8\", v = \"int4\" }"), Ladder::kTrellis);
  EXPECT_EQ(ladder_of("floor = \"int8\"\nladder = \"trellis\""), Ladder::kTrellis) << "the file has the last word";
}

TEST(PlanFile, WhatIsWrongIsSaidWithItsValueAndWhatIsAllowed) {
  struct Case {
    std::string toml;
    std::vector<std::string> said;
  };
  const std::string rule = "[[rules]]\npart = \"k\"\n", digest = "artifact = \"" + std::string(64, 'a') + "\"\n";
  for (const Case& c : std::initializer_list<Case>{
           {"keep_first = 4", {"keep_first = 4: unknown key", "keep_first_tokens", "line 1"}},
           {"keep_first_tokens = \"4\"", {"keep_first_tokens = \"4\": not a whole number; allowed: 0 to 65536"}},
           {"important_fraction = 1.5", {"important_fraction = 1.5", "allowed: 0 to 1"}},
           {"recent_tokens = 1048577", {"recent_tokens = 1048577: out of range; allowed: 0 to 1048576"}},
           {"recent_tokens = -1", {"allowed: 0 to 1048576"}},
           {"recent_tokens = 1.5", {"not a whole number; allowed: 0 to 1048576"}},
           {"keep_first_tokens = 65537", {"65537: out of range; allowed: 0 to 65536"}},
           {"key_group = 4097", {"allowed: 0 to 4096"}},
           {"key_method = \"best\"", {"key_method = \"best\": allowed: \"per-channel\", \"balanced\", \"rotated\""}},
           {"key_method = \"balanced\"", {"needs balance_artifact"}},
           {"balance_artifact = \"" + std::string(64, 'a') + "\"", {"with key_method = \"balanced\" alone"}},
           {"key_method = \"balanced\"\nbalance_artifact = \"ab\"", {"\"ab\"", "64 hexadecimal digits"}},
           {"floor = \"int5\"",
            {"floor = \"int5\": allowed: \"exact\", \"int8\", \"int4\", \"int3\", \"int2\", \"none\""}},
           {"floor = { k = \"int4\" }", {"or { k = ..., v = ... } of these"}},
           {"max_error = -1", {"max_error = -1: out of range; allowed: 0 to 3.4"}},
           {"max_error = nan", {"out of range"}},
           {"preset = \"best\"", {"preset 'best' is not known; there are fp8"}},
           {"preset = \"kvquant-3\"", {"needs an artifact of keys and one of values"}},
           {"preset = \"kvmix\"", {"needs a ranking"}},
           {"preset = \"int8\"\nranking = \"/no/such\"", {"/no/such", "No such file"}},
           {"ranking = \"x\"", {"only preset = \"kvmix\" uses it"}},
           {"[artifacts]\nkeys = \"" + std::string(64, 'a') + "\"", {"only a preset uses them"}},
           {"[targets]\ncold = \"none\"", {"targets.cold = \"none\": allowed: \"exact\""}},
           {"floor = \"int4\"\n[targets]\ncold = \"int2\"", {"targets.cold = \"int2\": coarser than the floor"}},
           {"[[rules]]\ncodec = \"nvfp4\"", {"rules[0].part: missing; allowed: \"k\", \"v\""}},
           {rule, {"rules[0].codec: a rule names a codec, or the precision of heads"}},
           {rule + "codec = \"int4\"", {"rules[0].codec = \"int4\": allowed: \"ladder\", \"fp8-e4m3\""}},
           {rule + "codec = \"ladder\"\nbits = 4\nheads = [\"int4\"]", {"rules[0].bits = 4: unknown key"}},
           {rule + "codec = \"int-token\"\ngroup = 32", {"rules[0].bits: codec \"int-token\": allowed: 8, 4, 3, 2"}},
           {rule + "codec = \"int-token\"\nbits = 5\ngroup = 32", {"rules[0].bits = 5", "allowed: 8, 4, 3, 2"}},
           {rule + "codec = \"nuq-channel\"\nbits = 8\n" + digest, {"rules[0].bits = 8", "allowed: 4, 3, 2"}},
           {rule + "codec = \"int-channel\"\nbits = 2", {"rules[0].group", "allowed: 1 to 65535"}},
           {rule + "codec = \"int-tensor\"\nbits = 2\ngroup = 8", {"rules[0].group = 8", "allowed: 0"}},
           {rule + "codec = \"int-token\"\nbits = 2\ngroup = 70000", {"allowed: 0 to 65535"}},
           {rule + "codec = \"fp8-e4m3\"\nbits = 8", {"rules[0].bits = 8", "has one precision"}},
           {rule + "codec = \"fp8-e4m3-tensor\"\ngroup = 8", {"rules[0].group = 8"}},
           {rule + "codec = \"int-token\"\nbits = 2\ngroup = 8\noutliers_per_mille = 5", {"keeps none; allowed: 0"}},
           {rule + "codec = \"nuq-channel\"\nbits = 3\noutliers_per_mille = 51\n" + digest, {"allowed: 0 to 50"}},
           {rule + "codec = \"nuq-channel\"\nbits = 3", {"rules[0].artifact", "missing"}},
           {rule + "codec = \"nvfp4\"\n" + digest, {"rules[0].artifact", "has no use for one"}},
           {rule + "codec = \"nuq-channel\"\nbits = 3\nrotated = true\n" + digest, {"rules[0].rotated = true"}},
           {rule + "codec = \"int-token\"\nbits = 4\nsymmetric = true\ncalibrated = true\n" + digest,
            {"rules[0].calibrated = true", "bits = 8"}},
           {rule + "heads = [\"int4 x 0\"]", {"rules[0].heads", "allowed: a list of precisions (int8, int4, int2)"}},
           {rule + "heads = [\"int3\"]", {"allowed: a list of precisions (int8, int4, int2)"}},
           {rule + "heads = \"int4\"", {"allowed: a list of 1 to"}},
           {rule + "codec = \"nvfp4\"\nheads = [\"int4\"]", {"none, the codec has one precision"}},
           {rule + "codec = \"nuq-token\"\nbits = 3\nheads = [\"int4\"]\n" + digest,
            {"none, the codec has one precision for all heads"}},
           {rule + "codec = \"nvfp4\"\n" + rule + "codec = \"mxfp4\"", {"rules[1].part = \"k\": there is such a rule"}},
           {rule + "codec = \"nvfp4\"\nartifact = { file = \"/no/such\" }", {"rules[0].artifact.file = \"/no/such\""}},
           {"[[layers]]\nk = \"int8\"", {"layers[0].layers: missing"}},
           {"[[layers]]\nlayers = \"3-1\"\nk = \"int8\"", {"layers[0].layers = \"3-1\"", "0 to 1023"}},
           {"[[layers]]\nlayers = \"1,1\"\nk = \"int8\"", {"ascending"}},
           {"[[layers]]\nlayers = \"all\"", {"layers[0].k: missing"}},
           {"[[layers]]\nlayers = \"all\"\nk = \"exact\"", {"allowed: \"int8\", \"int4\", \"int3\", \"int2\""}},
           {"boundary_layers = { at = \"int8\" }", {"boundary_layers.first: allowed: first, last or both"}},
           {"boundary_layers = { first = 1 }", {"boundary_layers.at: missing"}},
           {"boundary_layers = { first = 1, at = \"exact\" }", {"boundary_layers.at = \"exact\""}},
           {"this is no plan", {"line 1"}}}) {
    std::string error = ErrorOf(c.toml);
    for (const std::string& said : c.said) EXPECT_THAT(error, HasSubstr(said)) << c.toml;
  }
}

TEST(PlanFile, EverythingThatIsWrongIsSaidAtOnce) {
  EXPECT_THAT(ErrorOf("key_group = -1\nladder = 3\n[[rules]]\npart = \"q\"\n"),
              AllOf(HasSubstr("plan: key_group"), HasSubstr("\nplan: ladder"), HasSubstr("\nplan: rules[0].part")));
}

TEST(PlanFile, ArtifactsByFileAreReadRelativeToThePlan) {
  auto folder = std::filesystem::temp_directory_path() / ("plan-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder / "deep");
  std::ofstream(folder / "deep" / "keys") << "FVAR and more";
  std::ofstream(folder / "deep" / "junk") << "something else";
  std::ofstream(folder / "plan.toml") << "preset = \"firn\"\n[artifacts]\nkeys = { file = \"deep/keys\" }\n";
  std::ofstream(folder / "junk.toml") << "preset = \"firn\"\n[artifacts]\nkeys = { file = \"deep/junk\" }\n";
  auto file = LoadPlanFile((folder / "plan.toml").string());
  auto junk = LoadPlanFile((folder / "junk.toml").string());
  std::filesystem::remove_all(folder);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->artifacts.size(), 1u);
  EXPECT_EQ(file->artifacts[0].serialized, "FVAR and more");
  EXPECT_EQ(file->artifacts[0].digest.Hex(), "34f8bf70bf94ff0f25e062937c1ca3bea0027a90ef943057b0c3af8d23fac9b0");
  EXPECT_EQ(file->plan.balance_artifact, file->artifacts[0].digest);
  EXPECT_EQ(file->plan.key_method, KeyMethod::kBalancedRotated);
  EXPECT_THAT(firn::Message(junk.status()),
              AllOf(HasSubstr("junk.toml: artifacts.keys.file"), HasSubstr("no artifact")));
}

// The manual's examples are plans.
TEST(PlanFile, TheExamplesOfTheManualAreRight) {
  auto folder = std::filesystem::temp_directory_path() / ("manual-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  for (const char* name : {"scales.k", "scales.v", "nuq.k", "nuq.v", "mikv.k", "balance.artifact"}) {
    std::ofstream(folder / name) << "FVAR " << name;
  }
  std::ofstream(folder / "ranking.csv") << "layer,k_bits,v_bits\n0,3,4\n1,2,2\n2,2,2\n3,2,2\n";
  std::ifstream manual(std::string(FIRN_SOURCE_DIR) + "/docs/plan.md");
  std::string line, example;
  size_t examples = 0;
  bool inside = false;
  while (std::getline(manual, line)) {
    if (line == "```toml") {
      inside = true;
      example.clear();
    } else if (line == "```" && inside) {
      inside = false;
      ++examples;
      auto file = ParsePlanFile(example, {.folder = folder.string()});
      ASSERT_TRUE(file.ok()) << file.status() << "\n" << example;
      auto plan = PlanFor(*file, Facts(4, 2), Tiers());
      EXPECT_TRUE(plan.ok()) << plan.status() << "\n" << example;
    } else if (inside) {
      example += line + "\n";
    }
  }
  std::filesystem::remove_all(folder);
  EXPECT_GE(examples, 7u);
}

// --- Printed and read back, whatever it says

class RandomPlan {
 public:
  explicit RandomPlan(uint32_t seed) : random_(seed) {}

  PlanFile Next() {
    PlanFile file;
    PrecisionPlan& plan = file.plan;
    plan.key_method = static_cast<KeyMethod>(Below(3));
    if (plan.key_method == KeyMethod::kBalancedRotated) plan.balance_artifact = NextDigest();
    plan.key_group = Below(4097);
    plan.value_group = Below(2) * Below(4097);
    plan.keep_first_tokens = Below(65537);
    plan.important_fraction = static_cast<float>(Below(1001)) / 1000;
    plan.recent_tokens = Below(2) * Below(1048577);
    plan.floor = {Below(2) == 0 ? Precision::kNone : k2, Below(2) == 0 ? Precision::kNone : k2};
    if (Below(3) != 0)
      plan.max_relative_error = static_cast<float>(random_()) / 3e9f * static_cast<float>(1u << Below(20));
    plan.ladder = static_cast<Ladder>(Below(3));
    for (uint32_t i = Below(4); i > 0; --i) plan.tier_target[Name()] = {Class(true), Class(true)};
    for (uint32_t i = Below(5); i > 0; --i) AddRule(&plan);
    for (uint32_t i = Below(4); i > 0; --i) file.layers.push_back(Layers());
    if (Below(2) == 0) file.boundary = {1 + Below(1024), Below(1025), {Class(false), Class(false)}};
    return file;
  }

 private:
  uint32_t Below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }
  Digest NextDigest() {
    Digest digest;
    for (uint8_t& byte : digest.bytes) byte = static_cast<uint8_t>(random_());
    return digest;
  }
  Precision Class(bool exact) {
    constexpr Precision kClasses[] = {k2, k3, k4, k8, Precision::kExact};
    return kClasses[Below(exact ? 5 : 4)];
  }
  std::string Name() {
    constexpr const char* kNames[] = {"warm", "cold", "a b", "quo\"te", "back\\slash", "line\nend", "\x01", "größe"};
    return kNames[Below(8)];
  }
  std::vector<NumberRange> Ranges(uint32_t limit) {
    std::vector<NumberRange> ranges;
    for (uint32_t at = Below(limit / 4); ranges.size() < 3 && at < limit; at += 1 + Below(limit / 4)) {
      uint32_t last = std::min(limit - 1, at + Below(3));
      ranges.push_back({at, last});
      at = last + 1;
    }
    return ranges;
  }
  LayerClasses Layers() {
    LayerClasses entry;
    if (Below(2) == 0) entry.tier = Name();
    if (Below(3) != 0) entry.layers = Ranges(1024);
    if (Below(3) == 0) entry.heads = Ranges(4096);
    if (Below(2) == 0) entry.k = Class(false);
    if (Below(2) == 0 || !entry.k.has_value()) entry.v = Class(false);
    return entry;
  }
  void AddRule(PrecisionPlan* plan) {
    TierRule rule;
    if (Below(3) != 0) rule.tier = Name();
    rule.part = static_cast<Part>(Below(2));
    for (const TierRule& other : plan->rules) {
      if (other.tier == rule.tier && other.part == rule.part) return;
    }
    const CodecWord* word = WordOf(Codec::kLadder);
    if (uint32_t codec = Below(12); codec < 11) {
      word = &CodecWords()[codec];
      rule.coding = CodingOf(*word);
    }
    if (word->bits_most != 0 && !word->heads_alike && (Below(2) == 0 || word->codec == Codec::kLadder)) {
      while (rule.heads.size() < 40) {
        Precision precision = Class(false);
        if (word->Has(precision)) rule.heads.insert(rule.heads.end(), 1 + Below(9), precision);
      }
    }
    plan->rules.push_back(std::move(rule));
  }
  Coding CodingOf(const CodecWord& word) {
    Coding coding{.codec = word.codec};
    while (word.bits_most != 0 && !word.Has(static_cast<Precision>(coding.bits))) coding.bits = Below(9);
    coding.symmetric = word.symmetric && Below(2) == 0;
    coding.calibrated = word.calibrated && Below(2) == 0 && (!word.symmetric || (coding.symmetric && coding.bits == 8));
    if (word.group == CodecWord::Group::kNeeded && !coding.calibrated) coding.group = 1 + Below(65535);
    if (word.group == CodecWord::Group::kOptional && !coding.calibrated) coding.group = Below(2) * Below(65536);
    if (word.outliers) coding.outliers_per_mille = Below(51);
    coding.pre_rope = Below(2) == 0;
    if (!word.channels_alone) {
      coding.centred = Below(2) == 0;
      coding.balanced = Below(2) == 0;
      coding.rotated = Below(2) == 0;
    }
    if (UsesArtifact(coding)) coding.artifact = NextDigest();
    return coding;
  }

  std::mt19937 random_;
};

TEST(PlanFile, PrintedPlansReadBackTheSame) {
  const uint32_t seed = std::random_device{}();
  RandomPlan plans(seed);
  size_t rules = 0;
  for (int i = 0; i < 2000; ++i) {
    PlanFile file = plans.Next();
    std::string printed = PrintPlanFile(file);
    auto read = ParsePlanFile(printed);
    ASSERT_TRUE(read.ok()) << "seed " << seed << ", plan " << i << ": " << read.status() << "\n" << printed;
    ASSERT_EQ(*read, file) << "seed " << seed << ", plan " << i << "\n" << printed;
    ASSERT_EQ(PrintPlanFile(*read), printed) << "seed " << seed << ", plan " << i;
    rules += file.plan.rules.size();
  }
  EXPECT_GT(rules, 2000u) << "seed " << seed;
}

TEST(PlanFile, PresetsSayHowManyOutliersTheyKeep) {
  for (const PresetInfo& preset : Presets()) {
    if (!preset.name.starts_with("kvquant")) continue;
    PrecisionPlan plan = *Preset(preset.name, {.keys = Digest{}, .values = Digest{}});
    auto percent = [&](size_t rule) { return 0.1 * plan.rules[rule].coding.outliers_per_mille; };
    EXPECT_THAT(std::string(preset.summary),
                HasSubstr(fmt::format("{:.3g} % outliers of keys, {:.3g} % of", percent(0), percent(1))));
  }
}

}  // namespace
}  // namespace firnkv
