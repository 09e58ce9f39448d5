#include "kernels/attention/attend.cuh"
#include "kernels/attention/dispatch.h"

namespace firn::kernels {

cudaError_t LaunchFp8(const AttentionLaunch& launch, cudaStream_t stream) {
  if (launch.job.width == 64) return LaunchLayout<TileLayout<Code::kFp8, Code::kFp8, 64>>(launch, stream);
  return LaunchLayout<TileLayout<Code::kFp8, Code::kFp8, 128>>(launch, stream);
}

}  // namespace firn::kernels
