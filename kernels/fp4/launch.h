// What the launchers of the FP4 kernels are given once the checks have passed. Internal to kernels/.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/device/chunks.cuh"
#include "kernels/fp4.h"

namespace firn::kernels {

struct Fp4Launch {
  Fp4Job job;
  BatchShape shape;
  FastDivisor by_page;
  Places places = Places::kAny;
  uint32_t row_scales = 0;  // Blocks of a row, each of which has a byte of metadata.
  // Of the kernels that work on chunks.
  ChunkShape chunks;
  FastDivisor by_layer_chunks;
};

// On chunks: rows of whole blocks.
cudaError_t LaunchEncodeMxFp4(const Fp4Launch& launch, cudaStream_t stream);
cudaError_t LaunchEncodeNvFp4(const Fp4Launch& launch, cudaStream_t stream);
cudaError_t LaunchDecodeFp4(const Fp4Launch& launch, cudaStream_t stream);

// For any shape.
cudaError_t LaunchEncodeFp4Any(const Fp4Launch& launch, cudaStream_t stream);
cudaError_t LaunchDecodeFp4Any(const Fp4Launch& launch, cudaStream_t stream);

}  // namespace firn::kernels
