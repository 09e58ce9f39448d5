// Namespaces: whose blocks, of which model part, in which form. Different in any fact -> never a hit.
//
// The fingerprint is SHA-256 over a canonical tagged encoding of tenant and facts, so that it survives restarts and is
// the same on every machine. The precision plan is not part of it: precision is not identity, and a plan may change at
// run time. Threads: values. Limits: ValidateFacts.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/digest.h"
#include "codecs/block_codec.h"
#include "codecs/types.h"

namespace firn {

struct RopeFacts {
  double theta = 0;          // 0: no rotary embedding.
  uint32_t rotary_dim = 0;   // Channels rotated; 0: all.
  bool interleaved = false;  // Pairs (2i, 2i+1) instead of halves (i, i + dim/2).
  std::string scaling;       // As the model names it ("yarn", "linear", ...) with its parameters in `scaling_params`.
  std::map<std::string, double> scaling_params;
  bool operator==(const RopeFacts&) const = default;
};

struct NamespaceFacts {
  std::string tenant;  // From the authenticated identity, never from a field that a client sets.
  std::string model_id;
  std::string revision;
  DType dtype = DType::kFp16;
  uint32_t layer_first = 0;  // Range [layer_first, layer_last) of the model's layers.
  uint32_t layer_last = 0;
  uint32_t kv_heads = 0;  // Of one shard.
  uint32_t k_width = 0;
  uint32_t v_width = 0;
  uint32_t block_tokens = 0;
  uint32_t shards = 1;
  RopeFacts rope;
  bool k_pre_rope = false;
  bool operator==(const NamespaceFacts&) const = default;

  uint32_t layers() const { return layer_last - layer_first; }
  BlockShape Shape(uint32_t tokens) const { return {layers(), kv_heads, k_width, v_width, tokens}; }
};

// InvalidArgument naming the fact, its value and the limit.
absl::Status ValidateFacts(const NamespaceFacts& facts);
// What block keys are chained under: all facts but the tenant, so that a client can compute keys by itself.
Digest ModelFingerprint(const NamespaceFacts& facts);
// Tenant and facts: the identity of the namespace.
Digest NamespaceFingerprint(const NamespaceFacts& facts);

// How a part is coded in a tier, where it is not the ladder or not all heads get the same.
struct TierRule {
  std::string tier;  // Its name; empty: every tier without a rule of its own that does not keep values as they came.
  Part part = Part::kK;
  PartCoding coding;             // Codec kNone: the ladder. Scales get the type that suits the values.
  ClassMap classes;              // [layer][head]; empty: all alike.
  PrecisionClass Class() const;  // Of its coarsest head; kNone where the codec is the ladder's and all are alike.
  bool operator==(const TierRule&) const = default;
};

// How precise the blocks of a namespace are in each tier.
struct PrecisionPlan {
  KeyMethod key_method = KeyMethod::kPerChannel;
  Ladder ladder = Ladder::kMinMax;
  Digest balance;          // The artifact of kBalancedRotated; zero otherwise.
  uint16_t key_group = 0;  // 0: the method's default.
  uint16_t value_group = 0;
  uint32_t keep_first_tokens = 4;  // Attention sinks kept exact.
  // The share of a block's tokens kept exact where their importance is given: the sinks, then the most important.
  float important_fraction = 0;
  // The last tokens of a sequence that grows stay as they are while anything else can go; 0: no such window.
  uint32_t recent_tokens = 0;
  ClassPair floor;               // Never below; kNone: no floor.
  float max_relative_error = 0;  // A demotion that would exceed it stops at the finer class; 0: no limit.
  std::map<std::string, ClassPair> tier_target;  // By tier name; overrides the tier's own precision.
  std::vector<TierRule> rules;                   // At most one a tier and part.
  // The rule of a tier's part; null where there is none.
  const TierRule* RuleFor(const std::string& tier, Part part) const;
  bool operator==(const PrecisionPlan&) const = default;
};
inline constexpr uint32_t kRecentTokensMax = uint32_t{1} << 20;
absl::Status ValidatePlan(const NamespaceFacts& facts, const PrecisionPlan& plan);

// Canonical bytes of facts and plan: what the log keeps. Parse accepts any bytes and bounds everything; the facts are
// valid, the plan is whatever was written.
std::vector<uint8_t> SerializeNamespace(const NamespaceFacts& facts, const PrecisionPlan& plan);
absl::StatusOr<std::pair<NamespaceFacts, PrecisionPlan>> ParseNamespace(ByteSpan bytes);

}  // namespace firn
