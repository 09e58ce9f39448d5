// CUDA's errors as ours.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "base/status.h"

namespace firn::kernels {

inline absl::Status LaunchStatus(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return absl::OkStatus();
  return InternalError("{}: {} ({})", doing, cudaGetErrorString(error), static_cast<int>(error));
}

}  // namespace firn::kernels
