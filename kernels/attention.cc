#include "kernels/attention.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "kernels/attention/dispatch.h"
#include "kernels/attention/launch.h"
#include "kernels/launch_check.h"
#include "kernels/view_checks.h"

namespace firn::kernels {
namespace {

constexpr uint32_t kSplitsMax = 1024;
constexpr uint64_t kAlignment = 256;

uint64_t RoundedUp(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
uint64_t HeadParts(const AttentionJob& job) { return uint64_t{job.sequences} * job.query_heads * job.splits; }
uint32_t TilesOf(uint32_t tokens, uint32_t splits) {
  uint32_t each = (tokens + splits - 1) / splits;
  return (each + kTileTokens - 1) / kTileTokens;
}
// How many neighbouring tiles a warp takes, which saves looking up addresses: up to four of a block, while every warp
// has four turns or more.
uint32_t TurnOf(const AttentionJob& job) {
  uint32_t tiles = TilesOf(job.length_max, job.splits) / kQueriesMax;
  for (uint32_t turn : {4u, 2u}) {
    if (job.block_tokens / kTileTokens % turn == 0 && tiles >= 4 * turn) return turn;
  }
  return 1;
}

absl::Status CheckShape(const AttentionJob& job) {
  if (job.width != 128 && job.width != 64) {
    return Unimplemented("attention over heads of width {}; 64 and 128 are there", job.width);
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
  if (job.length_max > kRowsMax / 2) {
    return InvalidArgument("sequences of {} tokens; the limit is {}", job.length_max, kRowsMax / 2);
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

absl::Status CheckPart(const RunView& run, const char* name, uint64_t access_bytes) {
  if (!run.present()) return InvalidArgument("no run {}", name);
  if (run.pages != nullptr) return Unimplemented("{} in pages of an arena", name);
  return CheckRun(run, name, access_bytes);
}

absl::Status CheckPlanes(PrecisionClass precision, const RunView& meta, const RunView& p2, const RunView& p4,
                         const RunView& p8, const char* const (&names)[4]) {
  if (precision != PrecisionClass::k8Bit && precision != PrecisionClass::k4Bit && precision != PrecisionClass::k2Bit) {
    return Unimplemented("attention on {} planes; int8, int4 and int2 are there", PrecisionClassName(precision));
  }
  FIRN_RETURN_IF_ERROR(CheckPart(meta, names[0], 16));
  FIRN_RETURN_IF_ERROR(CheckPart(p2, names[1], 16));
  if (precision != PrecisionClass::k2Bit) FIRN_RETURN_IF_ERROR(CheckPart(p4, names[2], 16));
  if (precision == PrecisionClass::k8Bit) FIRN_RETURN_IF_ERROR(CheckPart(p8, names[3], 16));
  return absl::OkStatus();
}

absl::Status CheckFp8(const AttentionJob& job) {
  FIRN_RETURN_IF_ERROR(CheckPart(job.k_codes, "of the keys' codes", 16));
  FIRN_RETURN_IF_ERROR(CheckPart(job.v_codes, "of the values' codes", 16));
  if (job.k_scales == nullptr) FIRN_RETURN_IF_ERROR(CheckPart(job.k_meta, "of the keys' scales", sizeof(float)));
  if (job.v_scales == nullptr) FIRN_RETURN_IF_ERROR(CheckPart(job.v_meta, "of the values' scales", sizeof(float)));
  return absl::OkStatus();
}

absl::Status CheckCodes(const AttentionJob& job) {
  if ((job.k_transform.mean == nullptr) != (job.k_transform.decode_scale == nullptr)) {
    return InvalidArgument("one of the keys' mean and decode_scale is null");
  }
  if (job.fp8) return CheckFp8(job);
  if (job.meta != MetaType::kFp16 && job.meta != MetaType::kBf16) {
    return Unimplemented("attention with metadata of type {}", static_cast<int>(job.meta));
  }
  constexpr const char* kKeys[4] = {"the keys' metadata", "the keys' p2", "the keys' p4", "the keys' p8"};
  constexpr const char* kValues[4] = {"the values' metadata", "the values' p2", "the values' p4", "the values' p8"};
  FIRN_RETURN_IF_ERROR(CheckPlanes(job.k_precision, job.k_meta, job.k_p2, job.k_p4, job.k_p8, kKeys));
  return CheckPlanes(job.v_precision, job.v_meta, job.v_p2, job.v_p4, job.v_p8, kValues);
}

absl::Status CheckExact(const ExactTokens& exact) {
  if (exact.length_max == 0) return absl::OkStatus();
  if (exact.type != DType::kFp16 && exact.type != DType::kBf16) {
    return Unimplemented("exact tokens of type {}; FP16 and BF16 are there", DTypeName(exact.type));
  }
  if (exact.lengths == nullptr) return InvalidArgument("up to {} exact tokens, but no lengths", exact.length_max);
  for (const RowsView* rows : {&exact.keys, &exact.values}) {
    FIRN_RETURN_IF_ERROR(CheckRows(*rows, exact.length_max));
    if (!AlignedRows(*rows)) return Unimplemented("exact rows that are not contiguous and aligned to 16 bytes");
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
  uint64_t bytes = AttentionWorkspaceBytes(job);
  if (bytes > 0 && (job.workspace == nullptr || !Aligned(job.workspace, kAlignment))) {
    return InvalidArgument("a workspace of {} bytes is wanted, aligned to {}", bytes, kAlignment);
  }
  return absl::OkStatus();
}

AttentionLaunch Prepare(const AttentionJob& job) {
  AttentionLaunch launch;
  launch.job = job;
  launch.group = job.query_heads / job.kv_heads;
  launch.turn = TurnOf(job);
  uint32_t tiles = std::max(1u, TilesOf(job.length_max, job.splits));
  launch.tokens_per_split = (tiles + launch.turn - 1) / launch.turn * launch.turn * kTileTokens;
  launch.by_block = FastDivisor(job.block_tokens);
  for (int i = 0; i < 2; ++i) {
    const ExactTokens& exact = job.exact[i];
    if (exact.length_max == 0) continue;
    launch.exact_per_split[i] = TilesOf(exact.length_max, job.splits) * kTileTokens;
    launch.by_exact_page[i][0] = FastDivisor(exact.keys.page_tokens);
    launch.by_exact_page[i][1] = FastDivisor(exact.values.page_tokens);
  }
  launch.sums = static_cast<PartSums*>(job.workspace);
  launch.values =
      reinterpret_cast<float*>(static_cast<uint8_t*>(job.workspace) + RoundedUp(HeadParts(job) * sizeof(PartSums)));
  return launch;
}

}  // namespace

uint32_t AttentionSplits(const AttentionJob& job, uint32_t multiprocessors) {
  // In tokens' time of a multiprocessor: it has two blocks of threads at once, or one that is a tenth slower than half
  // of it; what every block does once, what putting parts together takes at all, and each part of it.
  constexpr uint64_t kOnce = 512, kMerge = 400, kMergePart = 16, kTokensLeast = 8 * kTileTokens;
  uint64_t processors = std::max<uint64_t>(1, multiprocessors);
  uint64_t heads = std::max<uint64_t>(1, uint64_t{job.sequences} * job.kv_heads);
  uint64_t most = std::clamp<uint64_t>(job.length_max / kTokensLeast, 1, kSplitsMax), best = 1, least = UINT64_MAX;
  for (uint64_t splits = 1; splits <= most; ++splits) {
    uint64_t blocks = (heads * splits + processors - 1) / processors, tokens = (job.length_max + splits - 1) / splits;
    uint64_t cost = blocks * tokens + (blocks % 2 == 1 ? tokens / 10 : 0) + (blocks + 1) / 2 * kOnce;
    if (splits > 1) cost += kMerge + splits * kMergePart;
    if (cost < least) least = cost, best = splits;
  }
  return static_cast<uint32_t>(best);
}

uint64_t AttentionWorkspaceBytes(const AttentionJob& job) {
  if (job.splits == 1) return 0;
  return RoundedUp(HeadParts(job) * sizeof(PartSums)) + HeadParts(job) * job.width * sizeof(float);
}

absl::Status DecodeAttention(const AttentionJob& job, cudaStream_t stream) {
  if (job.sequences == 0 || job.query_heads == 0) return absl::OkStatus();
  FIRN_RETURN_IF_ERROR(CheckShape(job));
  FIRN_RETURN_IF_ERROR(CheckCodes(job));
  for (const ExactTokens& exact : job.exact) FIRN_RETURN_IF_ERROR(CheckExact(exact));
  FIRN_RETURN_IF_ERROR(CheckScale(job.softmax_scale, "a softmax scale"));
  FIRN_RETURN_IF_ERROR(CheckScale(job.v_scale, "a scale of values"));
  FIRN_RETURN_IF_ERROR(CheckMemory(job));
  auto* run = job.fp8 ? LaunchFp8 : job.width == 64 ? LaunchNested64 : LaunchNested128;
  return LaunchStatus(run(Prepare(job), stream), "attention on a packed cache");
}

}  // namespace firn::kernels
