// KVQuant's codebook codes of 2 to 4 bits with exact outliers on a GPU: the same bytes as codecs/nuq gives
// (docs/formats/nuq.md).
//
// Streams, threads, errors: as kernels/nested.h. Limits: rows of at most kRowWidthMax channels, fewer than 2^31 rows a
// call, blocks of fewer than 2^32 values.
// Fast where values are FP16 or BF16 with metadata of their own type, rows are contiguous and 16-byte aligned, and runs
// are aligned to 4 bytes: per channel at widths 64, 128 and 256 and one token a vector; per token where width is a
// multiple of 8 (3 bits: 32) and all heads together have at most 2,048 values, of which at most 32 are outliers. Right
// everywhere, and slow elsewhere: every outlier takes a look at the whole vector.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "codecs/types.h"
#include "kernels/views.h"

namespace firn::kernels {

struct NuqJob {
  bool per_channel = false;  // Calibrated ranges of channels (keys), else ranges of tokens over all heads (values).
  uint32_t bits = 4;
  uint32_t outliers = 0;  // In thousandths of a vector: tokens of one head (per channel), or one token of all heads.
  uint32_t group = 1;     // Per channel: how many consecutive tokens a vector has; a head's last may have fewer.
  uint32_t blocks = 0, layers = 0, heads = 0, width = 0;
  uint32_t tokens = 0;              // Coded ones, of every block.
  DType values = DType::kFp16;      // kFp16, kBf16, or kFp32 of rows that have been conditioned (kernels/condition.h).
  MetaType meta = MetaType::kFp16;  // The values' own or kFp32; any where values are FP32.
  // Of the artifact, [layers][2^bits]: ascending levels to encode, what codes stand for to decode.
  const float* levels = nullptr;
  const float* decoded = nullptr;
  // Per channel: mean is the centre, encode_scale one over the reach, decode_scale the reach.
  TransformView ranges;
  RowsView rows;
  RunView meta_run, codes;     // Per channel without outliers there is no metadata.
  uint32_t* survey = nullptr;  // [blocks], set to 0 by the caller: bits as of kernels/nested.h.
};

absl::Status EncodeNuq(const NuqJob& job, cudaStream_t stream);
absl::Status DecodeNuq(const NuqJob& job, cudaStream_t stream);

}  // namespace firn::kernels
