#include "tiers/store/namespace.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <set>

#include "base/status.h"

namespace firn {
namespace {

NamespaceFacts Facts() {
  NamespaceFacts facts;
  facts.tenant = "t";
  facts.model_id = "m";
  facts.revision = "r";
  facts.layer_last = 4;
  facts.kv_heads = 8;
  facts.k_width = 128;
  facts.v_width = 128;
  facts.block_tokens = 64;
  facts.rope = {
      .theta = 10000, .rotary_dim = 128, .interleaved = false, .scaling = "yarn", .scaling_params = {{"factor", 4}}};
  return facts;
}

TEST(Namespace, C44_every_fact_is_identity) {
  const NamespaceFacts base = Facts();
  std::vector<std::function<void(NamespaceFacts&)>> changes = {
      [](auto& f) { f.model_id = "m2"; },
      [](auto& f) { f.revision = "r2"; },
      [](auto& f) { f.dtype = DType::kBf16; },
      [](auto& f) { f.layer_first = 1; },
      [](auto& f) { f.layer_last = 5; },
      [](auto& f) { f.kv_heads = 4; },
      [](auto& f) { f.k_width = 256; },
      [](auto& f) { f.v_width = 0; },
      [](auto& f) { f.block_tokens = 32; },
      [](auto& f) { f.shards = 2; },
      [](auto& f) { f.rope.theta = 1e6; },
      [](auto& f) { f.rope.rotary_dim = 64; },
      [](auto& f) { f.rope.interleaved = true; },
      [](auto& f) { f.rope.scaling = "linear"; },
      [](auto& f) { f.rope.scaling_params["factor"] = 8; },
      [](auto& f) { f.k_pre_rope = true; },
  };
  std::set<Digest> seen = {ModelFingerprint(base)};
  for (auto& change : changes) {
    NamespaceFacts facts = base;
    change(facts);
    ASSERT_TRUE(ValidateFacts(facts).ok()) << Message(ValidateFacts(facts));
    EXPECT_TRUE(seen.insert(ModelFingerprint(facts)).second);
    EXPECT_NE(NamespaceFingerprint(facts), NamespaceFingerprint(base));
  }
  NamespaceFacts other = base;
  other.tenant = "u";
  EXPECT_EQ(ModelFingerprint(other), ModelFingerprint(base));  // Clients compute keys without knowing their tenant.
  EXPECT_NE(NamespaceFingerprint(other), NamespaceFingerprint(base));
  NamespaceFacts moved = base;
  moved.model_id = "mr";
  moved.revision = "";
  NamespaceFacts joined = base;
  joined.model_id = "m";
  joined.revision = "r";
  EXPECT_NE(ModelFingerprint(moved), ModelFingerprint(joined));
}

TEST(Namespace, RefusalsNameValueAndLimit) {
  auto refusal = [](std::function<void(NamespaceFacts&)> change) {
    NamespaceFacts facts = Facts();
    change(facts);
    absl::Status status = ValidateFacts(facts);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return Message(status);
  };
  EXPECT_NE(refusal([](auto& f) { f.layer_last = 5000; }).find("5000"), std::string::npos);
  EXPECT_NE(refusal([](auto& f) { f.kv_heads = 0; }).find("1 to 4096"), std::string::npos);
  refusal([](auto& f) { f.layer_last = 0; });
  refusal([](auto& f) { f.k_width = f.v_width = f.rope.rotary_dim = 0; });
  refusal([](auto& f) { f.block_tokens = 0; });
  refusal([](auto& f) { f.block_tokens = 65537; });
  refusal([](auto& f) {
    f.block_tokens = 65536;
    f.kv_heads = 4096;
  });  // Over the largest block.
  refusal([](auto& f) { f.dtype = DType::kFp32; });
  refusal([](auto& f) { f.dtype = DType(99); });
  refusal([](auto& f) { f.model_id = ""; });
  refusal([](auto& f) { f.model_id = std::string(1025, 'm'); });
  refusal([](auto& f) { f.shards = 0; });
  refusal([](auto& f) { f.rope.theta = -1; });
  PrecisionPlan plan;
  plan.max_relative_error = -1;
  EXPECT_FALSE(ValidatePlan(Facts(), plan).ok());
  plan = {};
  plan.recent_tokens = kRecentTokensMax;
  EXPECT_TRUE(ValidatePlan(Facts(), plan).ok());
  ++plan.recent_tokens;
  EXPECT_EQ(Message(ValidatePlan(Facts(), plan)), "recent_tokens is 1048577; it is 0 to 1048576");
  plan = {};
  plan.key_method = KeyMethod::kBalancedRotated;
  EXPECT_FALSE(ValidatePlan(Facts(), plan).ok());
  plan = {};
  plan.floor = {PrecisionClass::k8Bit, PrecisionClass::k4Bit};
  plan.tier_target["cold"] = {PrecisionClass::k4Bit, PrecisionClass::k4Bit};
  EXPECT_NE(Message(ValidatePlan(Facts(), plan)).find("cold"), std::string::npos);
}

// What tests/golden/namespace_v4.bin says of Facts(); older versions end before the last of it.
PrecisionPlan GoldenPlan() {
  PrecisionPlan plan;
  plan.key_method = KeyMethod::kRotated;
  plan.floor = {PrecisionClass::k4Bit, PrecisionClass::k2Bit};
  plan.max_relative_error = 0.25f;
  plan.tier_target["warm"] = {PrecisionClass::k8Bit, PrecisionClass::k4Bit};
  plan.ladder = Ladder::kTrellis;
  plan.important_fraction = 0.25f;
  TierRule heads{.tier = "cold", .part = Part::kV, .coding = {}, .classes = {}};
  heads.classes.assign(size_t{Facts().layers()} * Facts().kv_heads, PrecisionClass::k2Bit);
  heads.classes.back() = PrecisionClass::k4Bit;
  plan.rules = {heads};
  plan.recent_tokens = 128;
  return plan;
}

std::vector<uint8_t> Golden(int version) {
  std::ifstream file(std::string(FIRN_SOURCE_DIR) + "/tests/golden/namespace_v" + std::to_string(version) + ".bin",
                     std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(Namespace, EveryVersionThatWasWrittenIsRead) {
  EXPECT_EQ(SerializeNamespace(Facts(), GoldenPlan()), Golden(4)) << "bytes that are on disks changed their meaning";
  PrecisionPlan plan = GoldenPlan();
  for (int version = 4; version > 0; --version) {
    if (version < 4) plan.recent_tokens = 0;
    if (version < 3) plan.important_fraction = 0;
    if (version < 2) {
      plan.rules.clear();
      plan.ladder = Ladder::kMinMax;
    }
    auto parsed = ParseNamespace(Golden(version));
    ASSERT_TRUE(parsed.ok()) << version << ": " << Message(parsed.status());
    EXPECT_EQ(parsed->first, Facts()) << version;
    EXPECT_EQ(parsed->second, plan) << version;
  }
  std::vector<uint8_t> later = Golden(4);
  later[0] = 5;
  EXPECT_NE(Message(ParseNamespace(later).status()).find("version 5; this build reads versions 1 to 4"),
            std::string::npos);
}

TEST(Namespace, SerializedFormRoundTripsAndSurvivesAnyBytes) {
  PrecisionPlan plan = GoldenPlan();
  std::vector<uint8_t> bytes = SerializeNamespace(Facts(), plan);
  auto parsed = ParseNamespace(bytes);
  ASSERT_TRUE(parsed.ok()) << Message(parsed.status());
  EXPECT_EQ(parsed->first, Facts());
  EXPECT_EQ(parsed->second, plan);
  for (size_t cut = 0; cut < bytes.size(); ++cut) EXPECT_FALSE(ParseNamespace(ByteSpan(bytes).first(cut)).ok());
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 rng(seed);
  for (int i = 0; i < 20000; ++i) {
    std::vector<uint8_t> spoiled = bytes;
    for (int flips = 1 + static_cast<int>(rng() % 4); flips > 0; --flips)
      spoiled[rng() % spoiled.size()] = static_cast<uint8_t>(rng());
    auto again = ParseNamespace(spoiled);  // Either refused, or facts that pass every limit.
    EXPECT_TRUE(!again.ok() || ValidateFacts(again->first).ok());
  }
}

TEST(Namespace, KeysWithoutTheRotaryEmbeddingHaveNoneToTakeBack) {
  NamespaceFacts facts = Facts();
  TierRule rule{.tier = "cold", .part = Part::kK, .coding = {}, .classes = {}};
  rule.coding.codec = CodecId::kIntChannel;
  rule.coding.bits = 4;
  rule.coding.group = 32;
  rule.coding.flags = PartCoding::kPreRope;
  rule.coding.artifact.bytes.fill(1);
  PrecisionPlan plan;
  plan.rules = {rule};
  EXPECT_TRUE(ValidatePlan(facts, plan).ok()) << ValidatePlan(facts, plan);
  facts.k_pre_rope = true;
  EXPECT_NE(Message(ValidatePlan(facts, plan)).find("k_pre_rope"), std::string::npos);
}

TEST(Namespace, HeadsOfFp8ValuesDifferOnlyWhereNoTokenIsKeptExact) {
  NamespaceFacts facts = Facts();
  facts.dtype = DType::kFp8E4m3;
  TierRule rule{.tier = "cold", .part = Part::kK, .coding = {}, .classes = {}};
  rule.classes.assign(size_t{facts.layers()} * facts.kv_heads, PrecisionClass::k4Bit);
  rule.classes[0] = PrecisionClass::k2Bit;
  PrecisionPlan plan;
  plan.rules = {rule};
  plan.keep_first_tokens = 4;
  absl::Status refused = ValidatePlan(facts, plan);
  EXPECT_NE(Message(refused).find("keep_first_tokens 4"), std::string::npos) << refused;
  plan.keep_first_tokens = 0;
  EXPECT_TRUE(ValidatePlan(facts, plan).ok());
}

TEST(Namespace, RulesThatMeanNothingAreRefused) {
  auto refused = [](auto change) {
    TierRule rule{.tier = "cold", .part = Part::kK, .coding = {}, .classes = {}};
    rule.classes.assign(size_t{Facts().layers()} * Facts().kv_heads, PrecisionClass::k4Bit);
    rule.classes[0] = PrecisionClass::k2Bit;
    PrecisionPlan plan;
    plan.rules = {rule};
    change(plan);
    return !ValidatePlan(Facts(), plan).ok();
  };
  EXPECT_FALSE(refused([](PrecisionPlan&) {}));
  EXPECT_TRUE(refused([](PrecisionPlan& plan) { plan.rules.push_back(plan.rules[0]); })) << "twice";
  EXPECT_TRUE(refused([](PrecisionPlan& plan) { plan.rules[0].classes.clear(); })) << "neither codec nor classes";
  EXPECT_TRUE(refused([](PrecisionPlan& plan) { plan.rules[0].classes.pop_back(); }));
  EXPECT_TRUE(refused([](PrecisionPlan& plan) { plan.rules[0].classes[1] = PrecisionClass::kExact; }));
  EXPECT_TRUE(refused([](PrecisionPlan& plan) { plan.rules[0].classes[1] = PrecisionClass::k3Bit; }));
  EXPECT_TRUE(refused([](PrecisionPlan& plan) { plan.rules[0].coding.bits = 4; })) << "parameters without a codec";
  EXPECT_TRUE(refused([](PrecisionPlan& plan) {
    plan.rules[0].coding.codec = CodecId::kIntTensor;
    plan.rules[0].coding.bits = 4;
  })) << "a layer's codec has no heads";
  EXPECT_TRUE(refused([](PrecisionPlan& plan) { plan.rules[0].coding.codec = CodecId::kIdentity; }));
  EXPECT_TRUE(refused([](PrecisionPlan& plan) { plan.rules[0].coding.codec = static_cast<CodecId>(9999); }));
  EXPECT_TRUE(refused([](PrecisionPlan& plan) { plan.rules[0].coding.codec = CodecId::kFp8E4m3; }))
      << "one precision for all heads";
  EXPECT_TRUE(refused([](PrecisionPlan& plan) { plan.rules[0].part = static_cast<Part>(2); }));
  EXPECT_TRUE(refused([](PrecisionPlan& plan) { plan.ladder = static_cast<Ladder>(3); }));
}

}  // namespace
}  // namespace firn
