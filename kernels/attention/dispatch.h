// The kernels of each width, in files of their own so that they compile side by side.
#pragma once

#include "kernels/attention/launch.h"

namespace firn::kernels {

cudaError_t LaunchNested128(const AttentionLaunch& launch, cudaStream_t stream);
cudaError_t LaunchNested64(const AttentionLaunch& launch, cudaStream_t stream);
cudaError_t LaunchFp8(const AttentionLaunch& launch, cudaStream_t stream);

}  // namespace firn::kernels
