// Plain integers of 8, 4, 3 or 2 bits on a GPU: the same bytes as codecs/integer gives (docs/formats/integer.md).
//
// Streams, threads, errors: as kernels/nested.h. Limits: rows of at most kRowWidthMax channels, fewer than 2^31 rows a
// call, blocks of fewer than 2^32 values.
// Fast where values are FP16 or BF16 with metadata of their own type, rows are contiguous and 16-byte aligned, runs are
// aligned to 16 bytes, and width is a multiple of 8 (3 bits: 32) that has whole groups of 8, 16, 32, ... 512 channels;
// per channel, width 64, 128 or 256 and groups of up to 128 tokens. Right everywhere.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "codecs/types.h"
#include "kernels/views.h"

namespace firn::kernels {

// What shares a scale: G channels of a token, G tokens of a channel, a layer of the part.
enum class ScaleAxis : uint8_t { kToken, kChannel, kTensor };

struct IntegerJob {
  ScaleAxis axis = ScaleAxis::kToken;
  uint32_t bits = 8;
  bool symmetric = false;  // A scale without a minimum.
  uint32_t blocks = 0, layers = 0, heads = 0, width = 0;
  uint32_t tokens = 0;              // Coded ones, of every block.
  DType values = DType::kFp16;      // kFp16, kBf16, or kFp32 of rows that have been conditioned (kernels/condition.h).
  MetaType meta = MetaType::kFp16;  // The values' own or kFp32; any where values are FP32.
  uint32_t group = 0;               // Per token and per channel.
  // Calibrated, [layers][heads], positive and finite: for symmetric codes of 8 bits per token (then without groups) or
  // per layer (that of head 0); null: the values' own, kept in `meta_run`.
  const float* scales = nullptr;
  RowsView rows;
  RunView meta_run, codes;
  uint32_t* survey = nullptr;  // [blocks], set to 0 by the caller: bits as of kernels/nested.h.
};

absl::Status EncodeIntegers(const IntegerJob& job, cudaStream_t stream);
absl::Status DecodeIntegers(const IntegerJob& job, cudaStream_t stream);

}  // namespace firn::kernels
