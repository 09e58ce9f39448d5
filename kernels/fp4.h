// NVFP4 and MXFP4, blocks of E2M1 numbers with a scale each, on a GPU: the same bytes as codecs/fp4 gives
// (docs/formats/fp4.md).
//
// Streams, threads, errors: as kernels/nested.h. Limits: rows of at most kRowWidthMax channels, fewer than 2^31 rows a
// call, blocks of fewer than 2^32 values.
// Fast where values are FP16 or BF16, rows are contiguous and 16-byte aligned, runs are aligned to 4 bytes, and width
// is a multiple of a block of 16 (NVFP4) or 32 (MXFP4). Right everywhere.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "codecs/types.h"
#include "kernels/views.h"

namespace firn::kernels {

struct Fp4Job {
  bool mx = false;  // MXFP4: blocks of 32, powers of two. Else NVFP4: blocks of 16, E4M3 times a scale a layer.
  uint32_t blocks = 0, layers = 0, heads = 0, width = 0;
  uint32_t tokens = 0;          // Coded ones, of every block.
  DType values = DType::kFp16;  // kFp16, kBf16, or kFp32 of rows that have been conditioned (kernels/condition.h).
  RowsView rows;
  RunView meta_run, codes;
  uint32_t* survey = nullptr;  // [blocks], set to 0 by the caller: kSurveyUnfit where a value is NaN or Inf.
};

absl::Status EncodeFp4(const Fp4Job& job, cudaStream_t stream);
absl::Status DecodeFp4(const Fp4Job& job, cudaStream_t stream);

}  // namespace firn::kernels
