// The Hadamard transform of rows whose lanes hold channels as device/nested_planes.cuh says: strides 1, 2 and 4 and the
// quarters are within a lane, those between are exchanged. Order and rounding are the reference's.
#pragma once

#include <cstdint>

namespace firn::kernels {

template <int kLanes>
__device__ __forceinline__ void RotateRow(float (&v)[32], uint32_t lane) {
#pragma unroll
  for (int stride = 1; stride < 8; stride *= 2) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      if ((i & stride) != 0) continue;
      float a = v[i], b = v[i + stride];
      v[i] = a + b;
      v[i + stride] = a - b;
    }
  }
#pragma unroll
  for (int apart = 1; apart < kLanes; apart *= 2) {
    float sign = (lane & apart) != 0 ? -1.0f : 1.0f;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      // other + sign * own, rounded once: the product is exact.
      v[i] = __fmaf_rn(v[i], sign, __shfl_xor_sync(0xFFFFFFFFu, v[i], apart));
    }
  }
#pragma unroll
  for (int stride = 8; stride < 32; stride *= 2) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      if ((i & stride) != 0) continue;
      float a = v[i], b = v[i + stride];
      v[i] = a + b;
      v[i + stride] = a - b;
    }
  }
}

}  // namespace firn::kernels
