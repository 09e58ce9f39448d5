// Which kernel reads which precisions of the nested code.
#pragma once

#include "kernels/attention/attend.cuh"

namespace firn::kernels {

template <Code kKeys, uint32_t kWidth>
cudaError_t LaunchValues(const AttentionLaunch& launch, cudaStream_t stream) {
  switch (launch.job.v_precision) {
    case PrecisionClass::k8Bit:
      return LaunchLayout<TileLayout<kKeys, Code::kInt8, kWidth>>(launch, stream);
    case PrecisionClass::k4Bit:
      return LaunchLayout<TileLayout<kKeys, Code::kInt4, kWidth>>(launch, stream);
    default:
      return LaunchLayout<TileLayout<kKeys, Code::kInt2, kWidth>>(launch, stream);
  }
}

template <uint32_t kWidth>
cudaError_t LaunchNested(const AttentionLaunch& launch, cudaStream_t stream) {
  switch (launch.job.k_precision) {
    case PrecisionClass::k8Bit:
      return LaunchValues<Code::kInt8, kWidth>(launch, stream);
    case PrecisionClass::k4Bit:
      return LaunchValues<Code::kInt4, kWidth>(launch, stream);
    default:
      return LaunchValues<Code::kInt2, kWidth>(launch, stream);
  }
}

}  // namespace firn::kernels
