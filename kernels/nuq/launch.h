// What the launchers of the codebook kernels are given once the checks have passed. Internal to kernels/.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/device/chunks.cuh"
#include "kernels/nuq.h"

namespace firn::kernels {

struct NuqLaunch {
  NuqJob job;
  BatchShape shape;
  FastDivisor by_page, by_row_chunks;  // Chunks of eight channels.
  Places places = Places::kAny;
  uint32_t vector = 0;        // Values that outliers are chosen from.
  uint32_t outliers = 0;      // Of a vector.
  uint32_t index_bytes = 2;   // Of an entry.
  uint32_t vector_bytes = 0;  // Of metadata.
  // Per channel: tokens of a vector, vectors of a head, of which the last may be shorter, and a head's metadata.
  uint32_t group = 1, groups = 0;
  uint32_t last_vector = 0, last_outliers = 0, last_index_bytes = 2;
  uint32_t head_bytes = 0;
  FastDivisor by_groups, by_width;
};

// For widths of 64, 128 and 256.
cudaError_t LaunchEncodeNuqChannel(const NuqLaunch& launch, cudaStream_t stream);
cudaError_t LaunchDecodeNuqChannel(const NuqLaunch& launch, cudaStream_t stream);
// For vectors of whole chunks, at most kTokenVectorMax values, at most kTokenOutliersMax outliers.
inline constexpr uint32_t kTokenVectorMax = 2048, kTokenOutliersMax = 32;
cudaError_t LaunchEncodeNuqToken(const NuqLaunch& launch, cudaStream_t stream);
cudaError_t LaunchDecodeNuqToken(const NuqLaunch& launch, cudaStream_t stream);

// For any shape.
cudaError_t LaunchEncodeNuqAny(const NuqLaunch& launch, cudaStream_t stream);
cudaError_t LaunchDecodeNuqAny(const NuqLaunch& launch, cudaStream_t stream);

}  // namespace firn::kernels
