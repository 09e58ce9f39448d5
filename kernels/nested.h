// The nested code on a GPU: the same bytes as codecs/nested gives (docs/formats/nested.md).
//
// One call codes one part of a batch of equal blocks. Encoding reads rows where an engine has them and writes the runs
// straight to where they are wanted, device memory or a registered arena; decoding is the way back. Runs that are
// absent are not made: INT4 is p2 and p4, INT2 is p2 alone.
//
// Streams: every function enqueues on `stream` and returns; all memory must stay until the stream has passed it, the
// job itself need not. Threads: reentrant.
// Errors: InvalidArgument or Unimplemented, naming the value and the limit, before anything is enqueued; Internal with
// CUDA's own words if a launch fails. What a kernel finds in values it reports in `survey`.
// Limits: rows of at most kRowWidthMax channels, fewer than 2^31 rows a call.
// Fastest where width is 64, 128 or 256, groups are whole rows (per token) or at most 64 tokens (per channel); fast
// where width is a multiple of 16; both want contiguous, 16-byte aligned rows, pages of runs of 1 KiB or more, and
// metadata of the values' type. Right everywhere.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "codecs/types.h"
#include "kernels/views.h"

namespace firn::kernels {

inline constexpr uint32_t kRowWidthMax = 24576;

// Bits of a survey word, OR-ed by encoding; the codes of a block with any of them set mean nothing.
inline constexpr uint32_t kSurveyUnfit = 1;       // NaN, Inf, or a range that FP32 cannot hold: keep source precision.
inline constexpr uint32_t kSurveyNeedsFloat = 2;  // Encode again with FP32 metadata.

struct NestedJob {
  bool per_channel = false;  // Groups of tokens of one channel, else of channels of one token.
  uint32_t blocks = 0, layers = 0, heads = 0, width = 0;
  uint32_t tokens = 0;              // Coded ones, of every block.
  DType values = DType::kFp16;      // kFp16 or kBf16.
  MetaType meta = MetaType::kFp16;  // The values' own, or kFp32.
  uint32_t group = 0;
  bool rotated = false;                              // Per token only.
  PrecisionClass precision = PrecisionClass::k8Bit;  // What decoding reads.
  TransformView transform;                           // Per token only.
  RowsView rows;                                     // Source or target.
  RunView meta_run, p2, p4, p8;
  uint32_t* survey = nullptr;  // [blocks], set to 0 by the caller; null: not asked for.
};

absl::Status EncodeNested(const NestedJob& job, cudaStream_t stream);
absl::Status DecodeNested(const NestedJob& job, cudaStream_t stream);

}  // namespace firn::kernels
