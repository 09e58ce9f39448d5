#include "daemon/gpu/cuda_check.h"

#include "base/status.h"

namespace firn::gpu {

absl::Status CudaStatus(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return absl::OkStatus();
  std::string text = fmt::format("{}: {} (CUDA {})", what, cudaGetErrorString(error), static_cast<int>(error));
  if (error == cudaErrorMemoryAllocation) return ResourceExhausted("{}", text);
  return InternalError("{}", text);
}

bool IsSticky(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
    case cudaErrorInvalidValue:
    case cudaErrorMemoryAllocation:
    case cudaErrorNotReady:
    case cudaErrorInvalidConfiguration:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorInvalidDevicePointer:
    case cudaErrorHostMemoryAlreadyRegistered:
    case cudaErrorHostMemoryNotRegistered:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorNotSupported:
      return false;
    default:
      return true;
  }
}

}  // namespace firn::gpu
