// The Hadamard transform in registers, in the reference's order and rounding.
#pragma once

#include <cstdint>

namespace firn::kernels {

// Butterflies of strides kFrom, 2 kFrom, ... below kTo.
template <int kFrom, int kTo, int kCount>
__device__ __forceinline__ void Butterflies(float (&v)[kCount]) {
#pragma unroll
  for (int stride = kFrom; stride < kTo; stride *= 2) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if ((i & stride) != 0) continue;
      float a = v[i], b = v[i + stride];
      v[i] = a + b;
      v[i + stride] = a - b;
    }
  }
}

// Of rows whose lanes hold channels as device/nested_planes.cuh says: strides 1, 2 and 4 and the quarters are within a
// lane, those between are exchanged.
template <int kLanes>
__device__ __forceinline__ void RotateRow(float (&v)[32], uint32_t lane) {
  Butterflies<1, 8>(v);
#pragma unroll
  for (int apart = 1; apart < kLanes; apart *= 2) {
    float sign = (lane & apart) != 0 ? -1.0f : 1.0f;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      // other + sign * own, rounded once: the product is exact.
      v[i] = __fmaf_rn(v[i], sign, __shfl_xor_sync(0xFFFFFFFFu, v[i], apart));
    }
  }
  Butterflies<8, 32>(v);
}

}  // namespace firn::kernels
