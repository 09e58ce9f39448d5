// Decode attention on a packed cache: one query token a sequence reads keys and values as the nested code has them (at
// 8, 4 or 2 bits, each part its own) or as FP8 E4M3, without decoding them to memory.
//
// With keys k = (H z) d + m and values v = n (H z'), H the Hadamard transform and z = minimum + step * level, scores
// are q.k = (H(q d)).z + q.m and outputs n H(sum p z'): queries are rotated and balanced once, outputs once, and what
// is read of a token is its planes and its two scales. Products run on tensor cores: levels exact in FP16, queries and
// softmax weights rounded to FP16, sums in FP32. FP8 has one scale a head in place of minimum and step.
//
// Tokens that an engine keeps exact (sinks, the recent window) are attended to in the same call: up to two sets of
// FP16 or BF16 rows of the engine's own. What else is attended to elsewhere can be merged by `lse`, the natural
// logarithm of the sum of the exponentials: weights are exp(lse - max lse).
//
// One kernel where `arrivals` is given or nothing is cut, otherwise two. Streams, threads, errors: as kernels/nested.h.
// Two calls that share a workspace or arrivals must not run at once. Limits: width 64 or 128, up to 8 query heads a KV
// head, blocks of a multiple of 16 tokens, runs without pages of their own (RunView::pages), a GPU with 110 KB of
// shared memory a block (compute capability 8.0, 9.0 or 10.0). Codes that are NaN in E4M3 count as 480; what lies
// behind a sequence's last token in its last block may be anything. Source: split-KV decoding as in FlashDecoding (Dao
// et al., 2023); the algebra is FirnKV's.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "codecs/types.h"
#include "kernels/views.h"

namespace firn::kernels {

// Rows that are not coded, as attention takes keys: after rotary embedding. A sequence is a "block" of the views; the
// order of its tokens is of no account, so a ring will do. Rows must be contiguous and 16-byte aligned. Values of BF16
// beyond FP16's largest count as that.
struct ExactTokens {
  DType type = DType::kFp16;  // kFp16 or kBf16.
  RowsView keys, values;
  const uint32_t* lengths = nullptr;  // [sequences]
  uint32_t length_max = 0;            // The largest of them, or more; 0: no such tokens.
};

struct AttentionJob {
  uint32_t sequences = 0, query_heads = 0, kv_heads = 0, width = 128;
  // Where a sequence's tokens are: block table[s][t / block_tokens], of which every block is full but the last.
  const uint32_t* block_table = nullptr;  // [sequences][blocks_per_sequence]
  uint32_t blocks_per_sequence = 0, block_tokens = 0;
  const uint32_t* lengths = nullptr;  // [sequences], at most blocks_per_sequence * block_tokens.
  uint32_t length_max = 0;            // The largest of them, or more.
  uint32_t layers = 0, layer = 0;     // Runs hold [layers][kv_heads][block_tokens].
  MetaType meta = MetaType::kFp16;    // kFp16 or kBf16.
  PrecisionClass k_precision = PrecisionClass::k4Bit, v_precision = PrecisionClass::k4Bit;
  RunView k_meta, k_p2, k_p4, k_p8, v_meta, v_p2, v_p4, v_p8;
  // E4M3 as kernels/fp8.h writes it, in place of planes. Scales [layers][kv_heads] of all blocks; null: k_meta and
  // v_meta have a block's own.
  bool fp8 = false;
  RunView k_codes, v_codes;
  const float *k_scales = nullptr, *v_scales = nullptr;
  bool rotated = true;        // Both keys and values.
  TransformView k_transform;  // As decoding has it: mean and decode_scale, or uniform_scale.
  float v_scale = 1.0f;       // Values' uniform scale.
  float softmax_scale = 0;    // Usually 1 / sqrt(width).
  ExactTokens exact[2];
  const void* queries = nullptr;  // FP16 [sequences][query_heads][width]
  void* out = nullptr;            // FP16, the same
  float* lse = nullptr;           // [sequences][query_heads]; null: not wanted.
  void* workspace = nullptr;      // AttentionWorkspaceBytes, 256-byte aligned; null where that is 0.
  // [sequences][kv_heads], zeros before the first call and after each; null: a second kernel puts parts together.
  uint32_t* arrivals = nullptr;
  uint32_t splits = 0;  // Of a sequence; AttentionSplits, or any from 1 to 1024.
};

// How many parts to cut sequences into, so that a GPU of so many multiprocessors is full.
uint32_t AttentionSplits(const AttentionJob& job, uint32_t multiprocessors);
uint64_t AttentionWorkspaceBytes(const AttentionJob& job);
absl::Status DecodeAttention(const AttentionJob& job, cudaStream_t stream);

}  // namespace firn::kernels
