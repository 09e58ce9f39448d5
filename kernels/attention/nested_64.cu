#include "kernels/attention/dispatch.h"
#include "kernels/attention/nested.cuh"

namespace firn::kernels {

cudaError_t LaunchNested64(const AttentionLaunch& launch, cudaStream_t stream) {
  return LaunchNested<64>(launch, stream);
}

}  // namespace firn::kernels
