#include "client/cpp/api/convert.h"

#include <limits>

#include "base/status.h"

namespace firnkv {
namespace {

std::optional<Digest> OptionalDigest(const std::string& bytes) { return Digest::FromBytes(bytes); }

Digest DigestOrZero(const std::string& bytes) { return Digest::FromBytes(bytes).value_or(Digest{}); }

PartErrors FromProto(const firn::v1::PartErrors& errors) {
  return {.int8 = errors.int8(),
          .int4 = errors.int4(),
          .int3 = errors.has_int3() ? errors.int3() : std::numeric_limits<float>::quiet_NaN(),
          .int2 = errors.int2()};
}

}  // namespace

absl::Status FromProto(const firn::v1::Status& status) {
  if (status.code() == 0) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.code()), status.message());
}

PrecisionPair FromProto(const firn::v1::ClassPair& pair) {
  return {static_cast<Precision>(pair.k()), static_cast<Precision>(pair.v())};
}

NamespaceFacts FromProto(const firn::v1::NamespaceFacts& facts) {
  NamespaceFacts out{.model_id = facts.model_id(),
                     .revision = facts.revision(),
                     .dtype = static_cast<DType>(facts.dtype()),
                     .layer_first = facts.layer_first(),
                     .layer_last = facts.layer_last(),
                     .kv_heads = facts.kv_heads(),
                     .k_width = facts.k_width(),
                     .v_width = facts.v_width(),
                     .block_tokens = facts.block_tokens(),
                     .shards = facts.shards() == 0 ? 1 : facts.shards(),
                     .rope = {.theta = facts.rope().theta(),
                              .rotary_dim = facts.rope().rotary_dim(),
                              .interleaved = facts.rope().interleaved(),
                              .scaling = facts.rope().scaling(),
                              .scaling_params = {}},
                     .k_pre_rope = facts.k_pre_rope()};
  for (const auto& [name, value] : facts.rope().scaling_params()) out.rope.scaling_params[name] = value;
  return out;
}

TierRule FromProto(const firn::v1::TierRule& rule) {
  TierRule out{.tier = rule.tier(), .part = static_cast<Part>(rule.part())};
  const firn::v1::Coding& coding = rule.coding();
  out.coding = {.codec = static_cast<Codec>(coding.codec()),
                .bits = coding.bits(),
                .group = coding.group(),
                .outliers_per_mille = coding.outliers_per_mille(),
                .symmetric = coding.symmetric(),
                .calibrated = coding.calibrated(),
                .pre_rope = coding.pre_rope(),
                .centred = coding.centred(),
                .balanced = coding.balanced(),
                .rotated = coding.rotated(),
                .artifact = OptionalDigest(coding.artifact())};
  for (int head : rule.heads()) out.heads.push_back(static_cast<Precision>(head));
  return out;
}

PrecisionPlan FromProto(const firn::v1::PrecisionPlan& plan) {
  PrecisionPlan out;
  out.key_method = static_cast<KeyMethod>(plan.key_method());
  out.balance_artifact = OptionalDigest(plan.balance_artifact());
  out.key_group = plan.key_group();
  out.value_group = plan.value_group();
  if (plan.has_keep_first_tokens()) out.keep_first_tokens = plan.keep_first_tokens();
  out.important_fraction = plan.important_fraction();
  out.recent_tokens = plan.recent_tokens();
  out.floor = FromProto(plan.floor());
  out.max_relative_error = plan.max_relative_error();
  for (const auto& [tier, target] : plan.tier_target()) out.tier_target[tier] = FromProto(target);
  out.ladder = static_cast<Ladder>(plan.ladder());
  for (const firn::v1::TierRule& rule : plan.rules()) out.rules.push_back(FromProto(rule));
  return out;
}

absl::StatusOr<Namespace> FromProto(const firn::v1::NamespaceInfo& info) {
  auto fingerprint = Digest::FromBytes(info.namespace_fingerprint());
  auto model = Digest::FromBytes(info.model_fingerprint());
  if (!fingerprint.has_value() || !model.has_value()) {
    return firn::DataLoss("the daemon named a namespace by {} and its model by {} bytes; both are 32",
                          info.namespace_fingerprint().size(), info.model_fingerprint().size());
  }
  return Namespace{.fingerprint = *fingerprint,
                   .model_fingerprint = *model,
                   .facts = FromProto(info.facts()),
                   .plan = FromProto(info.plan()),
                   .block_bytes = info.block_bytes()};
}

Limits FromProto(const firn::v1::Limits& limits) {
  return {.block_bytes_max = limits.block_bytes_max(),
          .chunk_bytes_max = limits.chunk_bytes_max(),
          .message_bytes_max = limits.message_bytes_max(),
          .keys_max = limits.keys_max(),
          .opaque_key_bytes_max = limits.opaque_key_bytes_max(),
          .streams_max = limits.streams_max(),
          .put_idle_ms_max = limits.put_idle_ms_max(),
          .read_stall_ms_max = limits.read_stall_ms_max(),
          .held_bytes_max = limits.held_bytes_max()};
}

Capabilities FromProto(const firn::v1::CapabilitiesResponse& response) {
  Capabilities out{.version = response.version(),
                   .api_revision = response.api_revision(),
                   .limits = FromProto(response.limits()),
                   .tiers = {},
                   .dtypes = {},
                   .byte_paths = {response.byte_paths().begin(), response.byte_paths().end()},
                   .admin = response.admin()};
  for (const auto& tier : response.tiers()) {
    out.tiers.push_back({.name = tier.name(),
                         .medium = tier.medium(),
                         .persistent = tier.persistent(),
                         .precision = FromProto(tier.precision()),
                         .least = FromProto(tier.least()),
                         .capacity_bytes = tier.capacity_bytes(),
                         .ecc = tier.ecc()});
  }
  for (int dtype : response.dtypes()) out.dtypes.push_back(static_cast<DType>(dtype));
  return out;
}

Stats FromProto(const firn::v1::StatsResponse& response) {
  Stats out;
  for (const auto& tier : response.tiers()) {
    TierStats& row = out.tiers.emplace_back();
    row.name = tier.name();
    // Every number of the message, by its name there, so that a new one needs no new code here.
    const auto* reflection = tier.GetReflection();
    for (int i = 0; i < tier.GetDescriptor()->field_count(); ++i) {
      const auto* field = tier.GetDescriptor()->field(i);
      if (!field->is_repeated() && field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_UINT64) {
        row.counters[field->name()] = reflection->GetUInt64(tier, field);
      }
    }
    row.capacity_bytes = tier.capacity_bytes();
    row.used_bytes = tier.used_bytes();
    row.copies = tier.copies();
    row.blocks_by_class.insert(tier.blocks_by_class().begin(), tier.blocks_by_class().end());
  }
  out.gauges.insert(response.gauges().begin(), response.gauges().end());
  out.counters.insert(response.counters().begin(), response.counters().end());
  out.misses.insert(response.misses().begin(), response.misses().end());
  return out;
}

PutResult FromProto(const firn::v1::PutResponse& response) {
  PutResult out{.status = FromProto(response.status()),
                .stored = response.outcome() == firn::v1::PUT_OUTCOME_STORED,
                .generation = response.generation(),
                .stored_class = FromProto(response.stored_class()),
                .durable_class = FromProto(response.durable_class()),
                .stored_bytes = response.stored_bytes()};
  bool good = out.stored || response.outcome() == firn::v1::PUT_OUTCOME_EXISTS ||
              response.outcome() == firn::v1::PUT_OUTCOME_FILLED;
  // A failure must not pass for a success because its words are missing.
  if (!good && out.status.ok()) {
    out.status = firn::InternalError("the daemon reported put outcome {} without saying why",
                                     static_cast<int>(response.outcome()));
  }
  return out;
}

Located FromProto(const firn::v1::Located& located) {
  return {.found = located.found(),
          .served = FromProto(located.served()),
          .tier = located.tier(),
          .tokens = located.tokens(),
          .status = FromProto(located.status())};
}

Prefix FromProto(const firn::v1::LookupResponse& response) {
  Prefix out{
      .blocks = response.prefix_blocks(), .tokens = response.prefix_tokens(), .located = {}, .keys = {}, .stopped = {}};
  for (const auto& located : response.blocks()) out.located.push_back(FromProto(located));
  for (const auto& key : response.keys()) out.keys.push_back(DigestOrZero(key));
  out.stopped = FromProto(response.stopped());
  return out;
}

BlockInfo FromProto(const firn::v1::BlockInfo& info) {
  BlockInfo out{.key = DigestOrZero(info.key()),
                .parent = OptionalDigest(info.parent()),
                .shard = info.shard(),
                .first_token = info.first_token(),
                .tokens = info.tokens(),
                .generation = info.generation(),
                .expires_unix_ms = info.expires_unix_ms(),
                .pins = info.pins(),
                .copies = {},
                .k_errors = FromProto(info.k_errors()),
                .v_errors = FromProto(info.v_errors())};
  for (const auto& copy : info.copies()) out.copies.push_back({copy.tier(), FromProto(copy.served()), copy.bytes()});
  return out;
}

EventBatch FromProto(const firn::v1::WatchResponse& response) {
  EventBatch out{.events = {}, .sequence = response.sequence(), .gap = response.gap()};
  for (const auto& event : response.events()) {
    out.events.push_back({.sequence = event.sequence(),
                          .kind = static_cast<EventKind>(event.kind()),
                          .ns = DigestOrZero(event.namespace_fingerprint()),
                          .key = DigestOrZero(event.key()),
                          .shard = event.shard(),
                          .tier = event.tier(),
                          .now = FromProto(event.now())});
  }
  return out;
}

std::vector<absl::Status> FromProto(const google::protobuf::RepeatedPtrField<firn::v1::Status>& statuses) {
  std::vector<absl::Status> out;
  for (const auto& status : statuses) out.push_back(FromProto(status));
  return out;
}

std::vector<MoveAnswer> FromProto(const firn::v1::MoveResponse& response) {
  std::vector<MoveAnswer> out;
  for (const auto& answer : response.answers()) out.push_back({FromProto(answer.status()), FromProto(answer.now())});
  return out;
}

void ReadFound(const firn::v1::GetBlock& found, GetResult* result) {
  result->served = FromProto(found.served());
  result->tier = found.tier();
  result->dtype = static_cast<DType>(found.dtype());
  result->tokens = found.tokens();
  result->first_token = found.first_token();
  result->layers = found.layers();
  result->k_bytes = found.k_bytes();
  result->v_bytes = found.v_bytes();
  result->k_scale_bytes = found.k_scale_bytes();
  result->v_scale_bytes = found.v_scale_bytes();
  result->payload_bytes = found.payload_bytes();
  result->generation = found.generation();
  result->expires_unix_ms = found.expires_unix_ms();
  result->parent = OptionalDigest(found.parent().digest());
  result->record_header = found.record_header();
  result->runs = found.runs();
}

void ToProto(PrecisionPair pair, firn::v1::ClassPair* out) {
  out->set_k(static_cast<firn::v1::PrecisionClass>(pair.k));
  out->set_v(static_cast<firn::v1::PrecisionClass>(pair.v));
}

void ToProto(const NamespaceFacts& facts, firn::v1::NamespaceFacts* out) {
  out->set_model_id(facts.model_id);
  out->set_revision(facts.revision);
  out->set_dtype(static_cast<firn::v1::DType>(facts.dtype));
  out->set_layer_first(facts.layer_first);
  out->set_layer_last(facts.layer_last);
  out->set_kv_heads(facts.kv_heads);
  out->set_k_width(facts.k_width);
  out->set_v_width(facts.v_width);
  out->set_block_tokens(facts.block_tokens);
  out->set_shards(facts.shards);
  firn::v1::RopeFacts* rope = out->mutable_rope();
  rope->set_theta(facts.rope.theta);
  rope->set_rotary_dim(facts.rope.rotary_dim);
  rope->set_interleaved(facts.rope.interleaved);
  rope->set_scaling(facts.rope.scaling);
  rope->mutable_scaling_params()->insert(facts.rope.scaling_params.begin(), facts.rope.scaling_params.end());
  out->set_k_pre_rope(facts.k_pre_rope);
}

void ToProto(const TierRule& rule, firn::v1::TierRule* out) {
  out->set_tier(rule.tier);
  out->set_part(static_cast<firn::v1::Part>(rule.part));
  for (Precision head : rule.heads) out->add_heads(static_cast<firn::v1::PrecisionClass>(head));
  if (rule.coding == Coding{}) return;
  firn::v1::Coding* coding = out->mutable_coding();
  coding->set_codec(static_cast<firn::v1::Codec>(rule.coding.codec));
  coding->set_bits(rule.coding.bits);
  coding->set_group(rule.coding.group);
  coding->set_outliers_per_mille(rule.coding.outliers_per_mille);
  coding->set_symmetric(rule.coding.symmetric);
  coding->set_calibrated(rule.coding.calibrated);
  coding->set_pre_rope(rule.coding.pre_rope);
  coding->set_centred(rule.coding.centred);
  coding->set_balanced(rule.coding.balanced);
  coding->set_rotated(rule.coding.rotated);
  if (rule.coding.artifact.has_value()) coding->set_artifact(Bytes(*rule.coding.artifact));
}

void ToProto(const PrecisionPlan& plan, firn::v1::PrecisionPlan* out) {
  out->set_key_method(static_cast<firn::v1::KeyMethod>(plan.key_method));
  if (plan.balance_artifact.has_value()) out->set_balance_artifact(Bytes(*plan.balance_artifact));
  out->set_key_group(plan.key_group);
  out->set_value_group(plan.value_group);
  out->set_keep_first_tokens(plan.keep_first_tokens);
  out->set_important_fraction(plan.important_fraction);
  out->set_recent_tokens(plan.recent_tokens);
  ToProto(plan.floor, out->mutable_floor());
  out->set_max_relative_error(plan.max_relative_error);
  for (const auto& [tier, target] : plan.tier_target) ToProto(target, &(*out->mutable_tier_target())[tier]);
  out->set_ladder(static_cast<firn::v1::Ladder>(plan.ladder));
  for (const TierRule& rule : plan.rules) ToProto(rule, out->add_rules());
}

void ToProto(const BlockKey& key, firn::v1::BlockKey* out) {
  if (const Digest* digest = key.digest(); digest != nullptr) {
    out->set_digest(Bytes(*digest));
  } else {
    out->set_opaque(key.opaque());
  }
}

void ToProto(const Layout& layout, firn::v1::Layout* out) {
  for (auto [part, target] : {std::pair(&layout.k, out->mutable_k()), std::pair(&layout.v, out->mutable_v())}) {
    target->set_offset(part->offset);
    target->set_layer_stride(part->layer_stride);
    target->set_head_stride(part->head_stride);
    target->set_token_stride(part->token_stride);
    target->set_channel_stride(part->channel_stride);
  }
  out->set_payload_bytes(layout.payload_bytes);
}

void ToProto(std::span<const BlockKey> keys, google::protobuf::RepeatedPtrField<firn::v1::BlockKey>* out) {
  for (const BlockKey& key : keys) ToProto(key, out->Add());
}

}  // namespace firnkv
