// Scales and codes of FP8, one IEEE operation at a time (docs/formats/fp8.md).
//
// Built with -fmad=false: nothing below may be fused.
#pragma once

#include <cuda_fp8.h>

#include "kernels/device/values.cuh"
#include "kernels/fp8/launch.h"
#include "kernels/nested.h"

namespace firn::kernels {

template <bool kE5m2>
__device__ __forceinline__ float Fp8ScaleOf(float magnitude) {
  return magnitude == 0 ? 1.0f : fmaxf(__fdiv_rn(magnitude, kE5m2 ? 57344.0f : 448.0f), 0x1p-126f);
}

// The code of `a` in the low byte, that of `b` in the next.
template <bool kE5m2>
__device__ __forceinline__ uint32_t Fp8CodePair(float a, float b, float inverse) {
  constexpr auto kKind = kE5m2 ? __NV_E5M2 : __NV_E4M3;
  return __nv_cvt_float2_to_fp8x2({a * inverse, b * inverse}, __NV_SATFINITE, kKind);
}
template <bool kE5m2>
__device__ __forceinline__ float2 Fp8Floats(uint32_t pair) {
  __half2_raw halves = __nv_cvt_fp8x2_to_halfraw2(static_cast<uint16_t>(pair), kE5m2 ? __NV_E5M2 : __NV_E4M3);
  return __half22float2(__half2(halves));
}

// Finite values beyond the output's largest become it; Inf and NaN stay.
template <typename Value>
__device__ __forceinline__ Value Fp8Rounded(float value) {
  if constexpr (sizeof(Value) == 4) {
    return value;
  } else {
    constexpr float kLargest = ValueTraits<Value>::kLargest;
    return ValueTraits<Value>::Nearest(isfinite(value) ? fminf(fmaxf(value, -kLargest), kLargest) : value);
  }
}

__device__ __forceinline__ void TellUnfit(const Fp8Launch& launch, uint32_t block, bool unfit) {
  if (unfit && launch.job.survey != nullptr) atomicOr(launch.job.survey + block, kSurveyUnfit);
}
__device__ __forceinline__ float* Fp8ScaleAt(const Fp8Launch& launch, uint32_t block, uint64_t index) {
  return reinterpret_cast<float*>(launch.job.meta_run.At(block, index * sizeof(float)));
}

}  // namespace firn::kernels
