#include "daemon/core/convert.h"

#include <cmath>
#include <limits>

#include "base/block_key.h"
#include "base/status.h"
#include "daemon/core/stat_table.h"

namespace firn {

absl::StatusOr<PrecisionClass> ToClass(int value, const char* field) {
  switch (value) {
    case 0:
    case 2:
    case 3:
    case 4:
    case 8:
    case 16:
      return static_cast<PrecisionClass>(value);
    default:
      return InvalidArgument("{} = {} is no precision class; allowed: 0, 2, 3, 4, 8, 16", field, value);
  }
}

absl::StatusOr<ClassPair> ToClassPair(const v1::ClassPair& pair, const char* field) {
  ClassPair out;
  FIRN_ASSIGN_OR_RETURN(out.k, ToClass(pair.k(), field));
  FIRN_ASSIGN_OR_RETURN(out.v, ToClass(pair.v(), field));
  return out;
}

void FromClassPair(const ClassPair& pair, v1::ClassPair* out) {
  out->set_k(static_cast<v1::PrecisionClass>(pair.k));
  out->set_v(static_cast<v1::PrecisionClass>(pair.v));
}

absl::StatusOr<Digest> ToKey(const v1::BlockKey& key, const char* field) {
  switch (key.kind_case()) {
    case v1::BlockKey::kDigest: {
      auto digest = Digest::FromBytes(AsBytes(key.digest()));
      if (!digest.has_value()) {
        return InvalidArgument("{}.digest has {} bytes; a chained key has 32", field, key.digest().size());
      }
      return *digest;
    }
    case v1::BlockKey::kOpaque: {
      auto digest = OpaqueBlockKey(AsBytes(key.opaque()));
      if (!digest.ok()) return InvalidArgument("{}.opaque: {}", field, Message(digest.status()));
      return digest;
    }
    default:
      return InvalidArgument("{} is empty; it has a digest or an opaque key", field);
  }
}

KeyBatch ToKeys(const google::protobuf::RepeatedPtrField<v1::BlockKey>& keys) {
  KeyBatch batch;
  batch.keys.reserve(static_cast<size_t>(keys.size()));
  batch.statuses.reserve(static_cast<size_t>(keys.size()));
  for (const v1::BlockKey& key : keys) {
    auto digest = ToKey(key, "key");
    batch.statuses.push_back(digest.status());
    batch.keys.push_back(digest.ok() ? *digest : Digest{});
  }
  return batch;
}

absl::StatusOr<NamespaceFacts> ToFacts(const v1::NamespaceFacts& facts, const std::string& tenant) {
  NamespaceFacts out;
  out.tenant = tenant;
  out.model_id = facts.model_id();
  out.revision = facts.revision();
  if (facts.dtype() < v1::DTYPE_FP16 || facts.dtype() > v1::DTYPE_BYTES) {
    return InvalidArgument("dtype = {} cannot be stored; allowed: FP16, BF16, FP8_E4M3, FP8_E5M2, BYTES",
                           static_cast<int>(facts.dtype()));
  }
  out.dtype = static_cast<DType>(facts.dtype());
  out.layer_first = facts.layer_first();
  out.layer_last = facts.layer_last();
  out.kv_heads = facts.kv_heads();
  out.k_width = facts.k_width();
  out.v_width = facts.v_width();
  out.block_tokens = facts.block_tokens();
  out.shards = facts.shards() == 0 ? 1 : facts.shards();
  out.rope.theta = facts.rope().theta();
  out.rope.rotary_dim = facts.rope().rotary_dim();
  out.rope.interleaved = facts.rope().interleaved();
  out.rope.scaling = facts.rope().scaling();
  for (const auto& [name, value] : facts.rope().scaling_params()) out.rope.scaling_params[name] = value;
  out.k_pre_rope = facts.k_pre_rope();
  FIRN_RETURN_IF_ERROR(ValidateFacts(out));
  return out;
}

void FromFacts(const NamespaceFacts& facts, v1::NamespaceFacts* out) {
  out->set_model_id(facts.model_id);
  out->set_revision(facts.revision);
  out->set_dtype(static_cast<v1::DType>(facts.dtype));
  out->set_layer_first(facts.layer_first);
  out->set_layer_last(facts.layer_last);
  out->set_kv_heads(facts.kv_heads);
  out->set_k_width(facts.k_width);
  out->set_v_width(facts.v_width);
  out->set_block_tokens(facts.block_tokens);
  out->set_shards(facts.shards);
  auto* rope = out->mutable_rope();
  rope->set_theta(facts.rope.theta);
  rope->set_rotary_dim(facts.rope.rotary_dim);
  rope->set_interleaved(facts.rope.interleaved);
  rope->set_scaling(facts.rope.scaling);
  for (const auto& [name, value] : facts.rope.scaling_params) (*rope->mutable_scaling_params())[name] = value;
  out->set_k_pre_rope(facts.k_pre_rope);
}

namespace {

// Which flag of a coding each field sets.
struct CodingFlag {
  uint8_t flag;
  bool (v1::Coding::*get)() const;
  void (v1::Coding::*set)(bool);
};
constexpr CodingFlag kCodingFlags[] = {
    {PartCoding::kSymmetric, &v1::Coding::symmetric, &v1::Coding::set_symmetric},
    {PartCoding::kCalibrated, &v1::Coding::calibrated, &v1::Coding::set_calibrated},
    {PartCoding::kPreRope, &v1::Coding::pre_rope, &v1::Coding::set_pre_rope},
    {PartCoding::kCentred, &v1::Coding::centred, &v1::Coding::set_centred},
    {PartCoding::kBalanced, &v1::Coding::balanced, &v1::Coding::set_balanced},
    {PartCoding::kRotated, &v1::Coding::rotated, &v1::Coding::set_rotated},
};

absl::StatusOr<PartCoding> ToCoding(const v1::Coding& coding) {
  PartCoding out;
  out.codec = static_cast<CodecId>(coding.codec());
  if (coding.codec() < 0 || coding.codec() > 255) {
    return InvalidArgument("plan.rules.coding.codec = {} is not known", static_cast<int>(coding.codec()));
  }
  struct Number {
    const char* name;
    uint32_t value, most;
  };
  for (const Number& number : {Number{"bits", coding.bits(), 8}, Number{"group", coding.group(), 65535},
                               Number{"outliers_per_mille", coding.outliers_per_mille(), PartCoding::kOutliersMax}}) {
    if (number.value <= number.most) continue;
    return InvalidArgument("plan.rules.coding.{} = {}; allowed: 0 to {}", number.name, number.value, number.most);
  }
  out.bits = static_cast<uint8_t>(coding.bits());
  out.group = static_cast<uint16_t>(coding.group());
  out.outliers = static_cast<uint8_t>(coding.outliers_per_mille());
  for (const CodingFlag& flag : kCodingFlags) {
    if ((coding.*flag.get)()) out.flags |= flag.flag;
  }
  if (coding.artifact().empty()) return out;
  auto digest = Digest::FromBytes(AsBytes(coding.artifact()));
  if (!digest.has_value()) {
    return InvalidArgument("plan.rules.coding.artifact has {} bytes; an artifact's name has 32",
                           coding.artifact().size());
  }
  out.artifact = *digest;
  return out;
}

absl::StatusOr<TierRule> ToRule(const v1::TierRule& rule) {
  TierRule out;
  out.tier = rule.tier();
  if (rule.part() != v1::PART_K && rule.part() != v1::PART_V) {
    return InvalidArgument("plan.rules.part = {}; allowed: 0 and 1", static_cast<int>(rule.part()));
  }
  out.part = static_cast<Part>(rule.part());
  if (rule.has_coding()) {
    FIRN_ASSIGN_OR_RETURN(out.coding, ToCoding(rule.coding()));
  }
  for (int c : rule.heads()) {
    FIRN_ASSIGN_OR_RETURN(PrecisionClass converted, ToClass(c, "plan.rules.heads"));
    out.classes.push_back(converted);
  }
  return out;
}

void FromRule(const TierRule& rule, v1::TierRule* out) {
  out->set_tier(rule.tier);
  out->set_part(static_cast<v1::Part>(rule.part));
  for (PrecisionClass c : rule.classes) out->add_heads(static_cast<v1::PrecisionClass>(c));
  if (rule.coding.codec == CodecId::kNone) return;
  v1::Coding* coding = out->mutable_coding();
  coding->set_codec(static_cast<v1::Codec>(rule.coding.codec));
  coding->set_bits(rule.coding.bits);
  coding->set_group(rule.coding.group);
  coding->set_outliers_per_mille(rule.coding.outliers);
  for (const CodingFlag& flag : kCodingFlags) {
    if ((rule.coding.flags & flag.flag) != 0) (coding->*flag.set)(true);
  }
  if (!rule.coding.artifact.IsZero()) coding->set_artifact(BytesOf(rule.coding.artifact));
}

}  // namespace

absl::StatusOr<PrecisionPlan> ToPlan(const v1::PrecisionPlan& plan) {
  PrecisionPlan out;
  if (plan.key_method() < v1::KEY_METHOD_PER_CHANNEL || plan.key_method() > v1::KEY_METHOD_ROTATED) {
    return InvalidArgument("plan.key_method = {}; allowed: 0 to 2", static_cast<int>(plan.key_method()));
  }
  out.key_method = static_cast<KeyMethod>(plan.key_method());
  if (!plan.balance_artifact().empty()) {
    auto digest = Digest::FromBytes(AsBytes(plan.balance_artifact()));
    if (!digest.has_value()) {
      return InvalidArgument("plan.balance_artifact has {} bytes; an artifact's name has 32",
                             plan.balance_artifact().size());
    }
    out.balance = *digest;
  }
  for (auto [value, name, target] : {std::tuple{plan.key_group(), "plan.key_group", &out.key_group},
                                     std::tuple{plan.value_group(), "plan.value_group", &out.value_group}}) {
    if (value > std::numeric_limits<uint16_t>::max())
      return InvalidArgument("{} = {}; allowed: 0 to 65535", name, value);
    *target = static_cast<uint16_t>(value);
  }
  if (plan.has_keep_first_tokens()) out.keep_first_tokens = plan.keep_first_tokens();
  if (!(plan.important_fraction() >= 0 && plan.important_fraction() <= 1)) {
    return InvalidArgument("plan.important_fraction = {}; allowed: 0 to 1", plan.important_fraction());
  }
  out.important_fraction = plan.important_fraction();
  if (plan.recent_tokens() > kRecentTokensMax) {
    return InvalidArgument("plan.recent_tokens = {}; allowed: 0 to {}", plan.recent_tokens(), kRecentTokensMax);
  }
  out.recent_tokens = plan.recent_tokens();
  FIRN_ASSIGN_OR_RETURN(out.floor, ToClassPair(plan.floor(), "plan.floor"));
  if (!std::isfinite(plan.max_relative_error()) || plan.max_relative_error() < 0) {
    return InvalidArgument("plan.max_relative_error = {}; allowed: 0 (no limit) or a positive number",
                           plan.max_relative_error());
  }
  out.max_relative_error = plan.max_relative_error();
  for (const auto& [tier, classes] : plan.tier_target()) {
    FIRN_ASSIGN_OR_RETURN(out.tier_target[tier], ToClassPair(classes, "plan.tier_target"));
  }
  if (plan.ladder() < v1::LADDER_MIN_MAX || plan.ladder() > v1::LADDER_TRELLIS) {
    return InvalidArgument("plan.ladder = {}; allowed: 0 to 2", static_cast<int>(plan.ladder()));
  }
  out.ladder = static_cast<Ladder>(plan.ladder());
  for (const v1::TierRule& rule : plan.rules()) {
    FIRN_ASSIGN_OR_RETURN(TierRule converted, ToRule(rule));
    out.rules.push_back(std::move(converted));
  }
  return out;
}

void FromPlan(const PrecisionPlan& plan, v1::PrecisionPlan* out) {
  out->set_key_method(static_cast<v1::KeyMethod>(plan.key_method));
  if (!plan.balance.IsZero()) out->set_balance_artifact(BytesOf(plan.balance));
  out->set_key_group(plan.key_group);
  out->set_value_group(plan.value_group);
  out->set_keep_first_tokens(plan.keep_first_tokens);
  out->set_important_fraction(plan.important_fraction);
  out->set_recent_tokens(plan.recent_tokens);
  FromClassPair(plan.floor, out->mutable_floor());
  out->set_max_relative_error(plan.max_relative_error);
  for (const auto& [tier, classes] : plan.tier_target) FromClassPair(classes, &(*out->mutable_tier_target())[tier]);
  out->set_ladder(static_cast<v1::Ladder>(plan.ladder));
  for (const TierRule& rule : plan.rules) FromRule(rule, out->add_rules());
}

CallerLayout ToLayout(const v1::Layout& layout) {
  auto part = [](const v1::PartLayout& p) {
    return PartLayout{p.offset(), p.layer_stride(), p.head_stride(), p.token_stride(),
                      p.channel_stride() == 0 ? 1 : p.channel_stride()};
  };
  return {part(layout.k()), part(layout.v())};
}

void FromBlockInfo(const BlockInfo& info, v1::BlockInfo* out) {
  out->set_key(BytesOf(info.key));
  if (info.parent.has_value()) out->set_parent(BytesOf(*info.parent));
  out->set_shard(info.shard);
  out->set_first_token(info.first_token);
  out->set_tokens(info.tokens);
  out->set_generation(info.generation);
  out->set_expires_unix_ms(info.expires_unix_ms);
  out->set_pins(info.pins);
  for (const auto& copy : info.copies) {
    auto* shown = out->add_copies();
    shown->set_tier(copy.tier);
    FromClassPair(copy.served, shown->mutable_served());
    shown->set_bytes(copy.bytes);
  }
  for (auto [errors, target] :
       {std::pair{info.errors[0], out->mutable_k_errors()}, std::pair{info.errors[1], out->mutable_v_errors()}}) {
    target->set_int8(errors.int8);
    target->set_int4(errors.int4);
    target->set_int3(errors.int3);
    target->set_int2(errors.int2);
  }
}

void FromLocated(const LocatedBlock& located, v1::Located* out) {
  if (located.state != BlockState::kPresent) return;
  out->set_found(true);
  FromClassPair(located.served, out->mutable_served());
  out->set_tier(located.tier);
  out->set_tokens(located.tokens);
}

void FromPutResult(const absl::StatusOr<PutResult>& result, v1::PutResponse* out) {
  if (!result.ok()) {
    bool exists = result.status().code() == absl::StatusCode::kAlreadyExists;
    out->set_outcome(exists ? v1::PUT_OUTCOME_EXISTS : v1::PUT_OUTCOME_FAILED);
    if (!exists) FromStatus(result.status(), out->mutable_status());
    return;
  }
  out->set_outcome(result->stored ? v1::PUT_OUTCOME_STORED : v1::PUT_OUTCOME_EXISTS);
  out->set_generation(result->generation);
  FromClassPair(result->stored_class, out->mutable_stored_class());
  FromClassPair(result->durable_class, out->mutable_durable_class());
  out->set_stored_bytes(result->bytes);
}

void FromStats(const StoreStats& stats, v1::StatsResponse* out) {
  for (const StoreStatRow& row : StoreStatTable()) {
    auto& target = row.kind == StatKind::kGauge ? *out->mutable_gauges() : *out->mutable_counters();
    target[row.name] = stats.*row.value;
  }
  for (size_t i = 0; i < kMissReasons; ++i) {
    (*out->mutable_misses())[std::string(MissReasonName(static_cast<MissReason>(i)))] = stats.misses[i];
  }
  for (const TierStats& tier : stats.tiers) {
    v1::TierStats* shown = out->add_tiers();
    shown->set_name(tier.name);
    for (const TierStatRow& row : TierStatTable()) {
      // Fields are set by name, so that the list of stat_table.h is the only one.
      const auto* field = shown->GetDescriptor()->FindFieldByName(row.name);
      FIRN_CHECK(field != nullptr);
      shown->GetReflection()->SetUInt64(shown, field, row.value(tier));
    }
    for (PrecisionClass c : kReportedClasses) {
      (*shown->mutable_blocks_by_class())[std::string(PrecisionClassName(c))] =
          tier.blocks_by_class[static_cast<size_t>(c)];
    }
  }
}

}  // namespace firn
