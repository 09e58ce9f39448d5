#include "kernels/finite/launch.h"

namespace firn::kernels {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint64_t kBlocksMax = 132 * 8;
constexpr uint32_t kValuesALoad = 8;

__device__ bool AnyIn(uint32_t pair, uint32_t exponent) {
  return (pair & exponent) == exponent || (pair >> 16 & exponent) == exponent;
}

__global__ void __launch_bounds__(kThreads)
    FindNonFinite(const uint16_t* values, uint64_t count, uint32_t exponent, uint32_t* found) {
  const uint64_t loads = count / kValuesALoad, stride = uint64_t{gridDim.x} * kThreads;
  const uint64_t first = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  bool any = false;
  for (uint64_t i = first; i < loads; i += stride) {
    uint4 eight = reinterpret_cast<const uint4*>(values)[i];
    any |= AnyIn(eight.x, exponent) | AnyIn(eight.y, exponent) | AnyIn(eight.z, exponent) | AnyIn(eight.w, exponent);
  }
  if (first < count % kValuesALoad) any |= AnyIn(values[loads * kValuesALoad + first], exponent);
  if (any) *found = 1;
}

}  // namespace

cudaError_t LaunchFindNonFinite(const uint16_t* values, uint64_t count, uint32_t exponent, uint32_t* found,
                                cudaStream_t stream) {
  uint64_t blocks = (count / kValuesALoad + kThreads) / kThreads;
  FindNonFinite<<<static_cast<uint32_t>(blocks < kBlocksMax ? blocks : kBlocksMax), kThreads, 0, stream>>>(
      values, count, exponent, found);
  return cudaGetLastError();
}

}  // namespace firn::kernels
