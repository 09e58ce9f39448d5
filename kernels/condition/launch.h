// What the launchers of the conditioning kernels are given once the checks have passed. Internal to kernels/.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/condition.h"
#include "kernels/device/rows.cuh"

namespace firn::kernels {

struct ConditionLaunch {
  ConditionJob job;
  BatchShape shape;
  FastDivisor by_page, by_conditioned_page;
  FastDivisor by_lanes;     // Chunks of eight channels of a row: the kernel with lanes alone.
  uint32_t rotation = 1;    // Channels that the Hadamard transform mixes.
  float magnitude_max = 0;  // Of conditioned values that can come back; looked at where there is a survey.
  bool forward = true;
};

// For widths of 64, 128 and 256.
cudaError_t LaunchConditionHeads(const ConditionLaunch& launch, cudaStream_t stream);
// For any shape.
cudaError_t LaunchConditionAny(const ConditionLaunch& launch, cudaStream_t stream);

cudaError_t LaunchTurnPositions(const RopeTableJob& job, cudaStream_t stream);

}  // namespace firn::kernels
