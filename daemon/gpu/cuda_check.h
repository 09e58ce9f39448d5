// CUDA's errors as statuses, and which of them end a process's use of its GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "absl/status/status.h"

namespace firn::gpu {

// ResourceExhausted for lack of memory, Internal for everything else, with CUDA's code and words; OK for success.
absl::Status CudaStatus(cudaError_t error, const std::string& what);

// After these every later call fails too: the process must end. Everything but what is known to pass is one.
bool IsSticky(cudaError_t error);

}  // namespace firn::gpu
