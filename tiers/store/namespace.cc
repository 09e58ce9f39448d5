#include "tiers/store/namespace.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/bytes.h"
#include "base/status.h"
#include "codecs/codec_table.h"

namespace firn {
namespace {

constexpr std::string_view kFactsDomain("firn.facts.v1\0", 14);
constexpr std::string_view kNamespaceDomain("firn.ns.v1\0", 11);
// Version 1 had neither ladder nor rules, version 2 no important_fraction, version 3 no recent_tokens.
constexpr uint32_t kSerializedVersion = 4;
constexpr size_t kNameBytesMax = 1024;
constexpr size_t kScalingParamsMax = 64;
constexpr size_t kTierTargetsMax = 16;
constexpr size_t kRulesMax = 2 * (kTierTargetsMax + 1);
constexpr uint32_t kBlockTokensMax = kTokensMax;
constexpr uint32_t kShardsMax = 1024;
constexpr size_t kMappedHeadsMax = size_t{1}
                                   << 17;  // Of all layers: a map has a quarter of a byte for each, K and V apart.

void WriteText(ByteWriter* writer, std::string_view text) {
  writer->Write<uint32_t>(static_cast<uint32_t>(text.size()));
  writer->WriteBytes(AsBytes(text));
}

absl::StatusOr<std::string> ReadText(ByteReader* reader) {
  uint32_t size = reader->Read<uint32_t>();
  if (size > kNameBytesMax)
    return DataLoss("a text of {} bytes in a namespace; at most {} are written", size, kNameBytesMax);
  return std::string(AsText(reader->ReadBytes(size)));
}

// Every field in a fixed order, texts length-prefixed, maps sorted and counted: two different facts never share bytes.
void WriteFacts(ByteWriter* writer, const NamespaceFacts& facts) {
  WriteText(writer, facts.model_id);
  WriteText(writer, facts.revision);
  writer->Write<uint8_t>(static_cast<uint8_t>(facts.dtype));
  for (uint32_t value : {facts.layer_first, facts.layer_last, facts.kv_heads, facts.k_width, facts.v_width,
                         facts.block_tokens, facts.shards, facts.rope.rotary_dim}) {
    writer->Write<uint32_t>(value);
  }
  writer->Write<double>(facts.rope.theta);
  writer->Write<uint8_t>(facts.rope.interleaved ? 1 : 0);
  writer->Write<uint8_t>(facts.k_pre_rope ? 1 : 0);
  WriteText(writer, facts.rope.scaling);
  writer->Write<uint32_t>(static_cast<uint32_t>(facts.rope.scaling_params.size()));
  for (const auto& [name, value] : facts.rope.scaling_params) {
    WriteText(writer, name);
    writer->Write<double>(value);
  }
}

absl::StatusOr<NamespaceFacts> ReadFacts(ByteReader* reader) {
  NamespaceFacts facts;
  FIRN_ASSIGN_OR_RETURN(facts.model_id, ReadText(reader));
  FIRN_ASSIGN_OR_RETURN(facts.revision, ReadText(reader));
  facts.dtype = static_cast<DType>(reader->Read<uint8_t>());
  for (uint32_t* value : {&facts.layer_first, &facts.layer_last, &facts.kv_heads, &facts.k_width, &facts.v_width,
                          &facts.block_tokens, &facts.shards, &facts.rope.rotary_dim}) {
    *value = reader->Read<uint32_t>();
  }
  facts.rope.theta = reader->Read<double>();
  facts.rope.interleaved = reader->Read<uint8_t>() != 0;
  facts.k_pre_rope = reader->Read<uint8_t>() != 0;
  FIRN_ASSIGN_OR_RETURN(facts.rope.scaling, ReadText(reader));
  uint32_t params = reader->Read<uint32_t>();
  if (params > kScalingParamsMax) return DataLoss("{} RoPE scaling parameters; at most {}", params, kScalingParamsMax);
  for (uint32_t i = 0; i < params && reader->ok(); ++i) {
    FIRN_ASSIGN_OR_RETURN(std::string name, ReadText(reader));
    facts.rope.scaling_params[name] = reader->Read<double>();
  }
  return facts;
}

absl::Status CheckName(const char* what, const std::string& text, size_t least) {
  if (text.size() < least || text.size() > kNameBytesMax) {
    return InvalidArgument("{} has {} bytes; it has {} to {}", what, text.size(), least, kNameBytesMax);
  }
  return absl::OkStatus();
}

absl::Status CheckRange(const char* what, uint64_t value, uint64_t least, uint64_t most) {
  if (value < least || value > most) return InvalidArgument("{} is {}; it is {} to {}", what, value, least, most);
  return absl::OkStatus();
}

absl::Status CheckClass(const char* what, PrecisionClass c) {
  if (PrecisionClassName(c) == "unknown")
    return InvalidArgument("{} is class {}; classes are 0, 2, 3, 4, 8, 16", what, int(c));
  return absl::OkStatus();
}

}  // namespace

namespace {

void WriteRule(ByteWriter* writer, const TierRule& rule) {
  WriteText(writer, rule.tier);
  writer->Write<uint8_t>(static_cast<uint8_t>(rule.part));
  writer->Write<uint16_t>(static_cast<uint16_t>(rule.coding.codec));
  writer->Write<uint8_t>(rule.coding.flags);
  writer->Write<uint16_t>(rule.coding.group);
  writer->Write<uint8_t>(rule.coding.bits);
  writer->Write<uint8_t>(rule.coding.outliers);
  writer->WriteBytes(rule.coding.artifact.span());
  writer->Write<uint32_t>(static_cast<uint32_t>(rule.classes.size()));
  for (PrecisionClass c : rule.classes) writer->Write<uint8_t>(static_cast<uint8_t>(c));
}

absl::StatusOr<TierRule> ReadRule(ByteReader* reader) {
  TierRule rule;
  FIRN_ASSIGN_OR_RETURN(rule.tier, ReadText(reader));
  rule.part = static_cast<Part>(reader->Read<uint8_t>());
  rule.coding.codec = static_cast<CodecId>(reader->Read<uint16_t>());
  rule.coding.flags = reader->Read<uint8_t>();
  rule.coding.group = reader->Read<uint16_t>();
  rule.coding.bits = reader->Read<uint8_t>();
  rule.coding.outliers = reader->Read<uint8_t>();
  if (auto digest = Digest::FromBytes(reader->ReadBytes(32))) rule.coding.artifact = *digest;
  uint32_t classes = reader->Read<uint32_t>();
  for (uint8_t c : reader->ReadBytes(classes)) rule.classes.push_back(static_cast<PrecisionClass>(c));
  return rule;
}

// What a rule's codes need of the codec's own row: a type of scales is chosen with the values.
absl::Status CheckRuleCoding(const NamespaceFacts& facts, const TierRule& rule, PrecisionClass c) {
  PartCoding coding = rule.coding;
  const CodecRow* row = FindCodec(coding.codec);
  if (row == nullptr || FamilyOf(coding.codec) != CodecFamily::kCodes) {
    return InvalidArgument("codec {} cannot be asked for by a rule", static_cast<int>(coding.codec));
  }
  if (UsesArtifact(coding) == coding.artifact.IsZero()) {
    return InvalidArgument("a rule for {} {} an artifact", row->name,
                           coding.artifact.IsZero() ? "lacks" : "has no use for");
  }
  if (coding.bits != 0) coding.bits = static_cast<uint8_t>(c);
  uint32_t width = rule.part == Part::kK ? facts.k_width : facts.v_width;
  absl::Status last;
  for (MetaType type : {MetaType::kFp16, MetaType::kFp32, MetaType::kNone}) {
    coding.meta_type = type;
    last = row->validate(coding, facts.dtype == DType::kBf16 ? DType::kBf16 : DType::kFp16, width);
    if (last.ok()) return last;
  }
  return last;
}

// What keeps a part's heads from having precisions of their own.
absl::Status CheckHeadsMayDiffer(const NamespaceFacts& facts, const PrecisionPlan& plan, const TierRule& rule) {
  const CodecRow* row = FindCodec(rule.coding.codec);
  if (row != nullptr && row->scope == TileScope::kLayer) {
    return InvalidArgument("a rule tells heads apart, and {} has one precision for all heads of a layer", row->name);
  }
  bool fp8 = facts.dtype == DType::kFp8E4m3 || facts.dtype == DType::kFp8E5m2;
  if (!fp8 || (plan.keep_first_tokens == 0 && plan.important_fraction == 0)) return absl::OkStatus();
  return InvalidArgument(
      "a rule tells heads of FP8 values apart, and tokens are kept exact (keep_first_tokens {}, important_fraction "
      "{}); one of the two must go",
      plan.keep_first_tokens, plan.important_fraction);
}

absl::Status CheckRule(const NamespaceFacts& facts, const PrecisionPlan& plan, const TierRule& rule) {
  if (rule.part != Part::kK && rule.part != Part::kV) return InvalidArgument("a rule for part {}", int(rule.part));
  const char* part = rule.part == Part::kK ? "K" : "V";
  FIRN_RETURN_IF_ERROR(CheckName("a rule's tier", rule.tier, 0));
  uint64_t heads = uint64_t{facts.layers()} * facts.kv_heads;
  if (!rule.classes.empty() && rule.classes.size() != heads) {
    return InvalidArgument("a rule for {} with {} classes; {} layers of {} heads have {}", part, rule.classes.size(),
                           facts.layers(), facts.kv_heads, heads);
  }
  if (rule.classes.size() > kMappedHeadsMax) {
    return InvalidArgument("a rule for {} tells {} heads apart; a record has room for {}", part, rule.classes.size(),
                           kMappedHeadsMax);
  }
  if (!rule.classes.empty()) FIRN_RETURN_IF_ERROR(CheckHeadsMayDiffer(facts, plan, rule));
  if (facts.k_pre_rope && (rule.coding.flags & PartCoding::kPreRope) != 0) {
    return InvalidArgument(
        "a rule takes the rotary embedding back (pre_rope), and the namespace's keys are without it (k_pre_rope); one "
        "of the two must go");
  }
  bool ladder = rule.coding.codec == CodecId::kNone;
  if (ladder && rule.classes.empty()) return InvalidArgument("a rule for {} that says neither codec nor classes", part);
  if (ladder && rule.coding != PartCoding{}) return InvalidArgument("a rule for {} with parameters and no codec", part);
  if (!ladder && ClassOfCodes(rule.coding) == PrecisionClass::kNone) {
    return InvalidArgument("a rule for {} with codes of {} bits; 8, 4, 3 or 2", part, rule.coding.bits);
  }
  for (PrecisionClass c : rule.classes) {
    FIRN_RETURN_IF_ERROR(CheckClass("a head of a rule", c));
    if (c == PrecisionClass::kNone || c == PrecisionClass::kExact || (ladder && c == PrecisionClass::k3Bit)) {
      return InvalidArgument("a rule gives a head of {} class {}; int2, int4 or int8, and int3 where the codec has it",
                             part, PrecisionClassName(c));
    }
    if (!ladder && rule.coding.bits == 0) {
      return InvalidArgument("a rule for {} tells heads apart, and its codec has one precision", part);
    }
    if (!ladder) FIRN_RETURN_IF_ERROR(CheckRuleCoding(facts, rule, c));
  }
  return ladder ? absl::OkStatus() : CheckRuleCoding(facts, rule, ClassOfCodes(rule.coding));
}

absl::Status CheckRules(const NamespaceFacts& facts, const PrecisionPlan& plan) {
  const std::vector<TierRule>& rules = plan.rules;
  FIRN_RETURN_IF_ERROR(CheckRange("the number of rules", rules.size(), 0, kRulesMax));
  for (size_t i = 0; i < rules.size(); ++i) {
    FIRN_RETURN_IF_ERROR(CheckRule(facts, plan, rules[i]));
    for (size_t j = 0; j < i; ++j) {
      if (rules[j].tier != rules[i].tier || rules[j].part != rules[i].part) continue;
      return InvalidArgument("two rules for {} of tier \"{}\"", rules[i].part == Part::kK ? "K" : "V", rules[i].tier);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateFacts(const NamespaceFacts& facts) {
  FIRN_RETURN_IF_ERROR(CheckName("tenant", facts.tenant, 0));
  FIRN_RETURN_IF_ERROR(CheckName("model_id", facts.model_id, 1));
  FIRN_RETURN_IF_ERROR(CheckName("revision", facts.revision, 0));
  FIRN_RETURN_IF_ERROR(CheckName("rope.scaling", facts.rope.scaling, 0));
  if (DTypeBytes(facts.dtype) == 0 || facts.dtype == DType::kFp32) {
    return InvalidArgument("dtype {} cannot be stored; fp16, bf16, fp8_e4m3, fp8_e5m2 and bytes can", int(facts.dtype));
  }
  if (facts.layer_last <= facts.layer_first) {
    return InvalidArgument("the layer range [{}, {}) is empty; it needs at least 1 layer", facts.layer_first,
                           facts.layer_last);
  }
  FIRN_RETURN_IF_ERROR(CheckRange("the number of layers", facts.layers(), 1, kLayersMax));
  FIRN_RETURN_IF_ERROR(CheckRange("kv_heads", facts.kv_heads, 1, kHeadsMax));
  FIRN_RETURN_IF_ERROR(CheckRange("k_width", facts.k_width, 0, kWidthMax));
  FIRN_RETURN_IF_ERROR(CheckRange("v_width", facts.v_width, 0, kWidthMax));
  if (facts.k_width == 0 && facts.v_width == 0)
    return InvalidArgument("k_width and v_width are both 0; one must be 1 to {}", kWidthMax);
  FIRN_RETURN_IF_ERROR(CheckRange("block_tokens", facts.block_tokens, 1, kBlockTokensMax));
  FIRN_RETURN_IF_ERROR(CheckRange("shards", facts.shards, 1, kShardsMax));
  uint64_t bytes = facts.Shape(facts.block_tokens).values() * DTypeBytes(facts.dtype);
  FIRN_RETURN_IF_ERROR(CheckRange("the size of one shard of a block in bytes", bytes, 1, kBlockBytesMax));
  if (!std::isfinite(facts.rope.theta) || facts.rope.theta < 0)
    return InvalidArgument("rope.theta is {}; it is finite and not negative", facts.rope.theta);
  FIRN_RETURN_IF_ERROR(CheckRange("rope.rotary_dim", facts.rope.rotary_dim, 0, facts.k_width));
  FIRN_RETURN_IF_ERROR(
      CheckRange("the number of rope.scaling_params", facts.rope.scaling_params.size(), 0, kScalingParamsMax));
  for (const auto& [name, value] : facts.rope.scaling_params) {
    FIRN_RETURN_IF_ERROR(CheckName("a RoPE scaling parameter's name", name, 1));
    if (!std::isfinite(value)) return InvalidArgument("rope.scaling_params[\"{}\"] is {}; it is finite", name, value);
  }
  return absl::OkStatus();
}

Digest ModelFingerprint(const NamespaceFacts& facts) {
  ByteWriter writer;
  writer.WriteBytes(AsBytes(kFactsDomain));
  WriteFacts(&writer, facts);
  return Sha256(writer.bytes());
}

Digest NamespaceFingerprint(const NamespaceFacts& facts) {
  ByteWriter writer;
  writer.WriteBytes(AsBytes(kNamespaceDomain));
  WriteText(&writer, facts.tenant);
  writer.WriteBytes(ModelFingerprint(facts).span());
  return Sha256(writer.bytes());
}

absl::Status ValidatePlan(const NamespaceFacts& facts, const PrecisionPlan& plan) {
  if (plan.key_method > KeyMethod::kRotated)
    return InvalidArgument("key_method is {}; it is 0 to 2", int(plan.key_method));
  if (plan.key_method == KeyMethod::kBalancedRotated && plan.balance.IsZero()) {
    return InvalidArgument("key_method balanced_rotated needs the digest of a calibrated artifact; none was given");
  }
  FIRN_RETURN_IF_ERROR(CheckRange("key_group", plan.key_group, 0, 4096));
  FIRN_RETURN_IF_ERROR(CheckRange("value_group", plan.value_group, 0, 4096));
  FIRN_RETURN_IF_ERROR(CheckRange("keep_first_tokens", plan.keep_first_tokens, 0, kTokensMax));
  if (!(plan.important_fraction >= 0 && plan.important_fraction <= 1)) {
    return InvalidArgument("important_fraction is {}; it is 0 to 1", plan.important_fraction);
  }
  FIRN_RETURN_IF_ERROR(CheckRange("recent_tokens", plan.recent_tokens, 0, kRecentTokensMax));
  if (!std::isfinite(plan.max_relative_error) || plan.max_relative_error < 0) {
    return InvalidArgument("max_relative_error is {}; it is finite and not negative", plan.max_relative_error);
  }
  FIRN_RETURN_IF_ERROR(CheckClass("floor.k", plan.floor.k));
  FIRN_RETURN_IF_ERROR(CheckClass("floor.v", plan.floor.v));
  FIRN_RETURN_IF_ERROR(CheckRange("the number of tier targets", plan.tier_target.size(), 0, kTierTargetsMax));
  for (const auto& [name, target] : plan.tier_target) {
    FIRN_RETURN_IF_ERROR(CheckName("a tier's name", name, 1));
    FIRN_RETURN_IF_ERROR(CheckClass("a tier target", target.k));
    FIRN_RETURN_IF_ERROR(CheckClass("a tier target", target.v));
    if (target.Min() == PrecisionClass::kNone)
      return InvalidArgument("the target of tier \"{}\" is class none; it is int2 to exact", name);
    if (!target.AtLeast(plan.floor)) {
      return InvalidArgument("the target of tier \"{}\" (k {}, v {}) is below the plan's floor (k {}, v {})", name,
                             PrecisionClassName(target.k), PrecisionClassName(target.v),
                             PrecisionClassName(plan.floor.k), PrecisionClassName(plan.floor.v));
    }
  }
  if (plan.ladder > Ladder::kTrellis) return InvalidArgument("ladder is {}; it is 0 to 2", int(plan.ladder));
  return CheckRules(facts, plan);
}

const TierRule* PrecisionPlan::RuleFor(const std::string& tier, Part part) const {
  const TierRule* general = nullptr;
  for (const TierRule& rule : rules) {
    if (rule.part != part) continue;
    if (rule.tier == tier) return &rule;
    if (rule.tier.empty()) general = &rule;
  }
  return general;
}

PrecisionClass TierRule::Class() const {
  if (!classes.empty()) return *std::min_element(classes.begin(), classes.end());
  return ClassOfCodes(coding);
}

std::vector<uint8_t> SerializeNamespace(const NamespaceFacts& facts, const PrecisionPlan& plan) {
  ByteWriter writer;
  writer.Write<uint32_t>(kSerializedVersion);
  WriteText(&writer, facts.tenant);
  WriteFacts(&writer, facts);
  writer.Write<uint8_t>(static_cast<uint8_t>(plan.key_method));
  writer.WriteBytes(plan.balance.span());
  writer.Write<uint16_t>(plan.key_group);
  writer.Write<uint16_t>(plan.value_group);
  writer.Write<uint32_t>(plan.keep_first_tokens);
  writer.Write<uint8_t>(static_cast<uint8_t>(plan.floor.k));
  writer.Write<uint8_t>(static_cast<uint8_t>(plan.floor.v));
  writer.Write<float>(plan.max_relative_error);
  writer.Write<uint32_t>(static_cast<uint32_t>(plan.tier_target.size()));
  for (const auto& [name, target] : plan.tier_target) {
    WriteText(&writer, name);
    writer.Write<uint8_t>(static_cast<uint8_t>(target.k));
    writer.Write<uint8_t>(static_cast<uint8_t>(target.v));
  }
  writer.Write<uint8_t>(static_cast<uint8_t>(plan.ladder));
  writer.Write<uint32_t>(static_cast<uint32_t>(plan.rules.size()));
  for (const TierRule& rule : plan.rules) WriteRule(&writer, rule);
  writer.Write<float>(plan.important_fraction);
  writer.Write<uint32_t>(plan.recent_tokens);
  return writer.Take();
}

absl::StatusOr<std::pair<NamespaceFacts, PrecisionPlan>> ParseNamespace(ByteSpan bytes) {
  ByteReader reader(bytes);
  uint32_t version = reader.Read<uint32_t>();
  if (version == 0 || version > kSerializedVersion) {
    return DataLoss("a namespace of version {}; this build reads versions 1 to {}", version, kSerializedVersion);
  }
  FIRN_ASSIGN_OR_RETURN(std::string tenant, ReadText(&reader));
  FIRN_ASSIGN_OR_RETURN(NamespaceFacts facts, ReadFacts(&reader));
  facts.tenant = std::move(tenant);
  PrecisionPlan plan;
  plan.key_method = static_cast<KeyMethod>(reader.Read<uint8_t>());
  if (auto digest = Digest::FromBytes(reader.ReadBytes(32))) plan.balance = *digest;
  plan.key_group = reader.Read<uint16_t>();
  plan.value_group = reader.Read<uint16_t>();
  plan.keep_first_tokens = reader.Read<uint32_t>();
  plan.floor.k = static_cast<PrecisionClass>(reader.Read<uint8_t>());
  plan.floor.v = static_cast<PrecisionClass>(reader.Read<uint8_t>());
  plan.max_relative_error = reader.Read<float>();
  uint32_t targets = reader.Read<uint32_t>();
  if (targets > kTierTargetsMax) return DataLoss("{} tier targets in a plan; at most {}", targets, kTierTargetsMax);
  for (uint32_t i = 0; i < targets && reader.ok(); ++i) {
    FIRN_ASSIGN_OR_RETURN(std::string name, ReadText(&reader));
    ClassPair target;
    target.k = static_cast<PrecisionClass>(reader.Read<uint8_t>());
    target.v = static_cast<PrecisionClass>(reader.Read<uint8_t>());
    plan.tier_target[name] = target;
  }
  if (version >= 2) {
    plan.ladder = static_cast<Ladder>(reader.Read<uint8_t>());
    uint32_t rules = reader.Read<uint32_t>();
    if (rules > kRulesMax) return DataLoss("{} rules in a plan; at most {}", rules, kRulesMax);
    for (uint32_t i = 0; i < rules && reader.ok(); ++i) {
      FIRN_ASSIGN_OR_RETURN(TierRule rule, ReadRule(&reader));
      plan.rules.push_back(std::move(rule));
    }
  }
  if (version >= 3) plan.important_fraction = reader.Read<float>();
  if (version >= 4) plan.recent_tokens = reader.Read<uint32_t>();
  if (!reader.ok() || reader.remaining() != 0) return DataLoss("a namespace of {} bytes does not parse", bytes.size());
  FIRN_RETURN_IF_ERROR(ValidateFacts(facts));
  return std::pair(std::move(facts), std::move(plan));
}

}  // namespace firn
