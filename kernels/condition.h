// What rows go through before a codec sees them, and back, on a GPU: the rotary embedding, channel arrays and the
// Hadamard transform, each where it is asked for (docs/formats/conditioning.md); of finite values the same bytes as
// codecs/block gives. The nested kernels transform rows themselves, and those of kernels/nuq.h centre them.
//
// NaN and Inf show in the survey of the code that follows; what is surveyed here is what that does not see: rotated
// rows whose magnitudes pass 3.3e38 over the channels that rotation mixes cannot come back.
//
// Streams, threads, errors: as kernels/nested.h. Limits: rows of at most kRowWidthMax channels, fewer than 2^31 rows a
// call, values of FP16, BF16 or FP32.
// Fast where width is 64, 128 or 256 and rows and arrays are contiguous and 16-byte aligned (FP32 rows too), and, with
// halves paired, the pairs are a multiple of eight. Right everywhere.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "codecs/types.h"
#include "kernels/views.h"

namespace firn::kernels {

// Cosines and sines of the rotary embedding, [blocks][tokens][pairs] each: codecs/rope's, or TurnPositions'.
struct RopeView {
  const float* cosines = nullptr;  // Null: no rotary embedding.
  const float* sines = nullptr;
  uint32_t pairs = 0;
  bool interleaved = false;  // Neighbours are paired, else halves of the first 2 * pairs channels.
};

struct ConditionJob {
  uint32_t blocks = 0, layers = 0, heads = 0, width = 0;
  uint32_t tokens = 0;
  DType values = DType::kFp16;       // Of `rows`.
  DType conditioned = DType::kFp32;  // kFp32, which codecs take, or that of `rows`.
  bool rotated = false;              // The Hadamard transform of the largest power of two that divides the width.
  RopeView rope;
  TransformView transform;  // Rotation's 1/sqrt(size) is part of all scales.
  // May be the same, if they are of the same type.
  RowsView rows, conditioned_rows;
  // [blocks], as of kernels/nested.h; of ConditionRows alone, kSurveyUnfit where rows cannot come back.
  uint32_t* survey = nullptr;
};

// From rows to conditioned rows: takes the rotary embedding back, centres and scales, rotates.
absl::Status ConditionRows(const ConditionJob& job, cudaStream_t stream);
// The way back. What passes FP32 on it, Inf too, becomes the largest value of the rows' type.
absl::Status RestoreRows(const ConditionJob& job, cudaStream_t stream);

// Fills in the table of a RopeView as codecs/rope computes it; all addresses are the device's.
struct RopeTableJob {
  uint32_t blocks = 0, tokens = 0, pairs = 0;
  const double* frequencies = nullptr;  // [pairs]
  const uint32_t* positions = nullptr;  // [blocks][tokens], of tokens in their sequences.
  float* cosines = nullptr;
  float* sines = nullptr;
};
absl::Status TurnPositions(const RopeTableJob& job, cudaStream_t stream);

}  // namespace firn::kernels
