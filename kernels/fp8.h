// FP16 and BF16 to FP8 and back on a GPU: the same bytes as codecs/fp8 gives (docs/formats/fp8.md), with one scale a
// head, a layer, or a group of channels of a token.
//
// Streams, threads, errors: as kernels/nested.h. Limits: fewer than 2^31 rows a call, blocks of fewer than 2^32 values;
// rows of any width with a scale a head, else of at most kRowWidthMax channels.
// Fast with a scale a head where values are FP16 or BF16, width is a multiple of 8 and rows are contiguous and 16-byte
// aligned; right everywhere.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "codecs/types.h"
#include "kernels/views.h"

namespace firn::kernels {

struct Fp8Job {
  bool e5m2 = false;  // Else E4M3.
  uint32_t blocks = 0, layers = 0, heads = 0, width = 0;
  uint32_t tokens = 0;          // Coded ones, of every block.
  DType values = DType::kFp16;  // kFp16, kBf16, or kFp32 of rows that have been conditioned (kernels/condition.h).
  bool per_layer = false;       // One scale for all heads of a layer.
  uint32_t group = 0;           // Channels of a token that share a scale; 0: all of a head's, or of a layer's.
  // Calibrated scales of heads, [layers][heads], positive and finite; null: the largest magnitude's, kept in
  // `meta_run`.
  const float* scales = nullptr;
  RowsView rows;
  RunView meta_run, codes;
  uint32_t* survey = nullptr;  // [blocks], set to 0 by the caller: kSurveyUnfit where a value is NaN or Inf.
};

absl::Status EncodeFp8(const Fp8Job& job, cudaStream_t stream);
absl::Status DecodeFp8(const Fp8Job& job, cudaStream_t stream);

}  // namespace firn::kernels
