// Whether values are all finite: what decides, when they arrive on a GPU, that a block may be coded.
//
// Streams, threads, errors: as kernels/nested.h. Limits: FP16 and BF16, in one piece, aligned to 16 bytes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "codecs/types.h"

namespace firn::kernels {

struct FiniteJob {
  const void* values = nullptr;
  uint64_t count = 0;
  DType type = DType::kFp16;
  uint32_t* found = nullptr;  // Set to 1 where a value is NaN or Inf; cleared by the caller.
};

absl::Status FindNonFinite(const FiniteJob& job, cudaStream_t stream);

}  // namespace firn::kernels
