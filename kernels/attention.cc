#include "kernels/attention.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "kernels/attention/launch.h"
#include "kernels/launch_check.h"
#include "kernels/view_checks.h"

namespace firn::kernels {
namespace {

constexpr uint32_t kSplitsMax = 1024;
constexpr uint64_t kAlignment = 256;

uint64_t RoundedUp(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
uint64_t Heads(const AttentionJob& job) { return uint64_t{job.sequences} * job.query_heads; }
uint64_t QueriesBytes(const AttentionJob& job) { return RoundedUp(Heads(job) * job.width * 2); }
uint64_t FactsBytes(const AttentionJob& job) { return RoundedUp(Heads(job) * sizeof(QueryFacts)); }

absl::Status CheckShape(const AttentionJob& job) {
  if (job.width != kAttentionWidth) {
    return Unimplemented("attention over heads of width {}; {} is there", job.width, kAttentionWidth);
  }
  if (job.kv_heads == 0 || job.query_heads % job.kv_heads != 0) {
    return InvalidArgument("{} query heads for {} KV heads; a multiple expected", job.query_heads, job.kv_heads);
  }
  if (job.query_heads / job.kv_heads > kQueriesMax) {
    return Unimplemented("{} query heads a KV head; up to {} are there", job.query_heads / job.kv_heads, kQueriesMax);
  }
  if (job.sequences > 65535 || job.kv_heads > 65535) {
    return InvalidArgument("{} sequences, {} KV heads; the limits are 65535", job.sequences, job.kv_heads);
  }
  if (job.block_tokens == 0 || job.block_tokens % kTileTokens != 0 || job.block_tokens > kTokensMax) {
    return InvalidArgument("blocks of {} tokens; a multiple of {} up to {} expected", job.block_tokens, kTileTokens,
                           kTokensMax);
  }
  if (job.length_max > uint64_t{job.blocks_per_sequence} * job.block_tokens) {
    return InvalidArgument("up to {} tokens in {} blocks of {}", job.length_max, job.blocks_per_sequence,
                           job.block_tokens);
  }
  if (job.layer >= job.layers || job.layers > kLayersMax) {
    return InvalidArgument("layer {} of {}", job.layer, job.layers);
  }
  if (uint64_t{job.layers} * job.kv_heads * job.block_tokens * job.width >= uint64_t{1} << 32) {
    return InvalidArgument("blocks of {} layers, {} heads, {} tokens have 2^32 values or more", job.layers,
                           job.kv_heads, job.block_tokens);
  }
  if (job.splits == 0 || job.splits > kSplitsMax) {
    return InvalidArgument("sequences in {} parts; 1 to {} expected", job.splits, kSplitsMax);
  }
  return absl::OkStatus();
}

absl::Status CheckPlane(const RunView& run, const char* name) {
  if (!run.present()) return InvalidArgument("no run {}", name);
  if (run.pages != nullptr) return Unimplemented("{} in pages of an arena", name);
  return CheckRun(run, name, 16);
}

absl::Status CheckCodes(const AttentionJob& job) {
  for (PrecisionClass precision : {job.k_precision, job.v_precision}) {
    if (precision == PrecisionClass::k4Bit || precision == PrecisionClass::k2Bit) continue;
    return Unimplemented("attention on {} planes; int4 and int2 are there", PrecisionClassName(precision));
  }
  if (job.meta != MetaType::kFp16 && job.meta != MetaType::kBf16) {
    return Unimplemented("attention with metadata of type {}", static_cast<int>(job.meta));
  }
  FIRN_RETURN_IF_ERROR(CheckPlane(job.k_meta, "the keys' metadata"));
  FIRN_RETURN_IF_ERROR(CheckPlane(job.v_meta, "the values' metadata"));
  FIRN_RETURN_IF_ERROR(CheckPlane(job.k_p2, "the keys' p2"));
  FIRN_RETURN_IF_ERROR(CheckPlane(job.v_p2, "the values' p2"));
  if (job.k_precision == PrecisionClass::k4Bit) FIRN_RETURN_IF_ERROR(CheckPlane(job.k_p4, "the keys' p4"));
  if (job.v_precision == PrecisionClass::k4Bit) FIRN_RETURN_IF_ERROR(CheckPlane(job.v_p4, "the values' p4"));
  if ((job.k_transform.mean == nullptr) != (job.k_transform.decode_scale == nullptr)) {
    return InvalidArgument("one of the keys' mean and decode_scale is null");
  }
  return absl::OkStatus();
}

absl::Status CheckScale(float scale, const char* name) {
  if (scale > 0 && std::isfinite(scale)) return absl::OkStatus();
  return InvalidArgument("{} of {}; a positive finite number expected", name, scale);
}

absl::Status CheckMemory(const AttentionJob& job) {
  if (job.block_table == nullptr || job.lengths == nullptr) return InvalidArgument("no block table, or no lengths");
  if (!Aligned(job.queries, 16) || !Aligned(job.out, 16) || job.queries == nullptr || job.out == nullptr) {
    return InvalidArgument("queries and out are wanted, aligned to 16 bytes");
  }
  if (job.workspace == nullptr || !Aligned(job.workspace, kAlignment)) {
    return InvalidArgument("a workspace of {} bytes is wanted, aligned to {}", AttentionWorkspaceBytes(job),
                           kAlignment);
  }
  return absl::OkStatus();
}

}  // namespace

uint32_t AttentionSplits(const AttentionJob& job, uint32_t multiprocessors) {
  // About four rounds of three blocks of threads a multiprocessor, and at least 256 tokens a part.
  uint64_t heads = std::max<uint64_t>(1, uint64_t{job.sequences} * job.kv_heads);
  uint64_t wanted = (uint64_t{multiprocessors} * 12 + heads - 1) / heads;
  uint64_t most = std::max<uint64_t>(1, job.length_max / 256);
  return static_cast<uint32_t>(std::clamp<uint64_t>(wanted, 1, std::min<uint64_t>(most, kSplitsMax)));
}

uint64_t AttentionWorkspaceBytes(const AttentionJob& job) {
  return QueriesBytes(job) + FactsBytes(job) + Heads(job) * job.splits * sizeof(Partial);
}

absl::Status DecodeAttention(const AttentionJob& job, cudaStream_t stream) {
  if (job.sequences == 0 || job.query_heads == 0) return absl::OkStatus();
  FIRN_RETURN_IF_ERROR(CheckShape(job));
  FIRN_RETURN_IF_ERROR(CheckCodes(job));
  FIRN_RETURN_IF_ERROR(CheckScale(job.softmax_scale, "a softmax scale"));
  FIRN_RETURN_IF_ERROR(CheckScale(job.v_scale, "a scale of values"));
  FIRN_RETURN_IF_ERROR(CheckMemory(job));
  AttentionLaunch launch;
  launch.job = job;
  launch.group = job.query_heads / job.kv_heads;
  uint32_t each = (job.length_max + job.splits - 1) / job.splits;
  launch.tokens_per_split = std::max(1u, (each + kTileTokens - 1) / kTileTokens) * kTileTokens;
  launch.by_block = FastDivisor(job.block_tokens);
  auto* memory = static_cast<uint8_t*>(job.workspace);
  launch.queries = memory;
  launch.facts = reinterpret_cast<QueryFacts*>(memory + QueriesBytes(job));
  launch.partials = reinterpret_cast<Partial*>(memory + QueriesBytes(job) + FactsBytes(job));
  return LaunchStatus(LaunchAttention(launch, stream), "attention on packed planes");
}

}  // namespace firn::kernels
