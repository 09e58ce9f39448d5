// The words of the API as C++: precision, element types, namespaces and their plans, memory layouts.
//
// Every number has the meaning it has in proto/firn/v1/types.proto. Threads: values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "firnkv/key.h"

namespace firnkv {

// How much of a value is kept; larger is finer.
enum class Precision : uint8_t { kNone = 0, kInt2 = 2, kInt3 = 3, kInt4 = 4, kInt8 = 8, kExact = 16 };
std::string_view PrecisionName(Precision precision);  // "none", "int2", ..., "exact"
std::optional<Precision> PrecisionFromName(std::string_view name);

// K and V apart. A part of width 0 counts as exact.
struct PrecisionPair {
  Precision k = Precision::kNone;
  Precision v = Precision::kNone;
  bool operator==(const PrecisionPair&) const = default;
  Precision Min() const { return k < v ? k : v; }
};

enum class DType : uint8_t {
  kUnspecified = 0,
  kFp16 = 1,
  kBf16 = 2,
  kFp8E4m3 = 3,
  kFp8E5m2 = 4,
  kBytes = 5,
  kFp32 = 6
};
uint32_t DTypeBytes(DType dtype);
std::string_view DTypeName(DType dtype);  // "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "bytes", "fp32"
std::optional<DType> DTypeFromName(std::string_view name);

struct RopeFacts {
  double theta = 0;         // 0: no rotary embedding.
  uint32_t rotary_dim = 0;  // Channels rotated; 0: all.
  bool interleaved = false;
  std::string scaling = {};
  std::map<std::string, double> scaling_params = {};
  bool operator==(const RopeFacts&) const = default;
};

// What defines a namespace: different in any of these, never a hit.
struct NamespaceFacts {
  std::string model_id = {};
  std::string revision = {};
  DType dtype = DType::kFp16;
  uint32_t layer_first = 0;  // Layers [layer_first, layer_last) of the model.
  uint32_t layer_last = 0;
  uint32_t kv_heads = 0;  // Of one shard.
  uint32_t k_width = 0;
  uint32_t v_width = 0;
  uint32_t block_tokens = 0;
  uint32_t shards = 1;
  RopeFacts rope = {};
  bool k_pre_rope = false;
  bool operator==(const NamespaceFacts&) const = default;
  uint32_t layers() const { return layer_last - layer_first; }
};

enum class KeyMethod : uint8_t { kPerChannel = 0, kBalancedRotated = 1, kRotated = 2 };
enum class Ladder : uint8_t { kMinMax = 0, kGain = 1, kTrellis = 2 };
enum class Part : uint8_t { kK = 0, kV = 1 };

enum class Codec : uint16_t {
  kLadder = 0,
  kFp8E4m3 = 2,
  kFp8E5m2 = 3,
  kFp8E4m3Tensor = 4,
  kFp8E5m2Tensor = 5,
  kIntToken = 32,
  kIntChannel = 33,
  kIntTensor = 34,
  kNuqChannel = 40,
  kNuqToken = 41,
  kNvFp4 = 48,
  kMxFp4 = 49
};

// What is done to the values of a part before they are coded, and how they are coded.
struct Coding {
  Codec codec = Codec::kLadder;
  uint32_t bits = 0;  // 8, 4, 3 or 2 where the codec has a choice.
  // Values that share a scale, of kNuqChannel tokens that share their outliers; 0 where the codec has one of its own.
  uint32_t group = 0;
  uint32_t outliers_per_mille = 0;  // Values kept exactly beside the codes.
  bool symmetric = false;
  bool calibrated = false;
  bool pre_rope = false;
  bool centred = false;
  bool balanced = false;
  bool rotated = false;
  std::optional<Digest> artifact = {};
  bool operator==(const Coding&) const = default;
};

// How one part is coded in a tier.
struct TierRule {
  std::string tier = {};  // Empty: every tier without a rule of its own that does not keep values exactly.
  Part part = Part::kK;
  Coding coding = {};
  std::vector<Precision> heads = {};  // [layer][KV head of the shard]; empty: all alike.
  bool operator==(const TierRule&) const = default;
};

// How precise the blocks of a namespace are in each tier; may change at run time.
struct PrecisionPlan {
  KeyMethod key_method = KeyMethod::kPerChannel;
  std::optional<Digest> balance_artifact = {};  // Needed by kBalancedRotated.
  uint32_t key_group = 0;                       // 0: the method's default.
  uint32_t value_group = 0;
  uint32_t keep_first_tokens = 4;  // Attention sinks, kept exact.
  // 0 to 1: the share of a block's tokens kept exact where their importance is given, sinks first; 0: off.
  float important_fraction = 0;
  // 0 to 1048576: the last tokens of a sequence that grows stay as they are while anything else can go; 0: off.
  uint32_t recent_tokens = 0;
  PrecisionPair floor = {};                               // Never stored coarser.
  float max_relative_error = 0;                           // 0: no limit.
  std::map<std::string, PrecisionPair> tier_target = {};  // By tier name.
  Ladder ladder = Ladder::kMinMax;
  std::vector<TierRule> rules = {};  // At most one a tier and part.
  bool operator==(const PrecisionPlan&) const = default;
};

// A registered namespace. Plain data: valid as long as the daemon knows it, also across restarts and in other
// processes.
struct Namespace {
  Digest fingerprint = {};
  Digest model_fingerprint = {};
  NamespaceFacts facts = {};
  PrecisionPlan plan = {};
  uint64_t block_bytes = 0;  // Payload of one shard of a full block, FP8 scales included.

  // Chained keys of a token sequence from its start.
  std::vector<Digest> Keys(std::span<const uint32_t> tokens, std::span<const std::string_view> extras = {},
                           bool with_tail = false) const;
  // Canonical bytes of one part (K or V) of a block of `tokens` tokens, and of its FP8 scales (0 for other types).
  uint64_t KBytes(uint32_t tokens) const;
  uint64_t VBytes(uint32_t tokens) const;
  uint64_t KScaleBytes() const;
  uint64_t VScaleBytes() const;
};

// Where the values of one part lie in the caller's memory, in values from the start of it.
struct PartLayout {
  uint64_t offset = 0;
  uint64_t layer_stride = 0;
  uint64_t head_stride = 0;
  uint64_t token_stride = 0;
  uint64_t channel_stride = 1;
};

// The caller's own arrangement of K and V in one space of bytes: K/V first, block first, fused, a transposed view.
struct Layout {
  PartLayout k = {};
  PartLayout v = {};
  uint64_t payload_bytes = 0;  // Of K and V together, gaps included.
};

struct TierInfo {
  std::string name = {};
  std::string medium = {};  // "dram", "cxl", "nvme", "gpu:N"
  bool persistent = false;
  PrecisionPair precision = {};  // What enters it.
  PrecisionPair least = {};      // Degrading in place stops here.
  uint64_t capacity_bytes = 0;
  std::string ecc = {};  // "none", "secded", "rs", or a code by class; empty from daemons of API revision 4 and before.
};

struct Limits {
  uint64_t block_bytes_max = 0;
  uint32_t chunk_bytes_max = 0;
  uint32_t message_bytes_max = 0;
  uint32_t keys_max = 0;
  uint32_t opaque_key_bytes_max = 0;
  uint32_t streams_max = 0;
  uint64_t put_idle_ms_max = 0;
  uint64_t read_stall_ms_max = 0;
  uint64_t held_bytes_max = 0;
};

struct Capabilities {
  std::string version = {};
  uint32_t api_revision = 0;
  Limits limits = {};
  std::vector<TierInfo> tiers = {};  // Hot to cold: what `tier` numbers refer to.
  std::vector<DType> dtypes = {};
  std::vector<std::string> byte_paths = {};
  bool admin = false;
};

struct TierStats {
  std::string name = {};
  uint64_t capacity_bytes = 0;
  uint64_t used_bytes = 0;
  uint64_t copies = 0;
  std::map<std::string, uint64_t> counters = {};         // "hits", "demotions_in", ... as in TierStats of kv.proto.
  std::map<std::string, uint64_t> blocks_by_class = {};  // "int2" ... "exact", of the coarser of K and V.
};

struct Stats {
  std::vector<TierStats> tiers = {};  // Hot to cold.
  std::map<std::string, uint64_t> gauges = {};
  std::map<std::string, uint64_t> counters = {};
  std::map<std::string, uint64_t> misses = {};  // By reason.
};

}  // namespace firnkv
