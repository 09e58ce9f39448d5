// What the launchers of the FP8 kernels are given once the checks have passed. Internal to kernels/.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/device/rows.cuh"
#include "kernels/fp8.h"

namespace firn::kernels {

struct Fp8Launch {
  Fp8Job job;
  BatchShape shape;
  FastDivisor by_page, by_chunks;  // Chunks of eight values of a row, or single values.
  uint32_t chunks = 0;
  Places places = Places::kAny;  // kLinear: the values of a head lie one after another, runs at even distances.
  bool wide = false;             // Rows are read and written 16 bytes at a time.
  uint32_t groups = 0;           // Of a row, where channels share scales in groups.
};

// FP16 and BF16 with a scale a head.
cudaError_t LaunchEncodeFp8(const Fp8Launch& launch, cudaStream_t stream);
cudaError_t LaunchDecodeFp8(const Fp8Launch& launch, cudaStream_t stream);
// For any values and scales.
cudaError_t LaunchEncodeFp8Any(const Fp8Launch& launch, cudaStream_t stream);
cudaError_t LaunchDecodeFp8Any(const Fp8Launch& launch, cudaStream_t stream);

}  // namespace firn::kernels
