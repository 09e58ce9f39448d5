// Scales and codes of FP4 blocks, one IEEE operation at a time (docs/formats/fp4.md).
//
// Built with -fmad=false: nothing below may be fused.
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "kernels/device/code_chunks.cuh"
#include "kernels/device/code_rows.cuh"
#include "kernels/device/launching.cuh"
#include "kernels/fp4/launch.h"
#include "kernels/nested.h"

namespace firn::kernels {

// What a block's codes are multiplied by, and what encoding multiplies with.
struct Fp4Scale {
  uint32_t stored;
  float inverse;
};

__device__ __forceinline__ float LayerScaleOf(float magnitude) {
  if (magnitude == 0) return 1.0f;
  return fmaxf(__fdiv_rn(magnitude, 2688.0f), 0x1p-116f);
}
__device__ __forceinline__ float NvScaleOf(uint32_t stored, float layer_scale) {
  __half_raw half = __nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(stored), __NV_E4M3);
  return __half2float(__half(half)) * layer_scale;
}
__device__ __forceinline__ Fp4Scale NvBlockScaleOf(float magnitude, float layer_scale) {
  float ratio = __fdiv_rn(magnitude, 6.0f * layer_scale);
  uint32_t stored = __nv_cvt_float_to_fp8(ratio, __NV_SATFINITE, __NV_E4M3);
  float scale = NvScaleOf(stored, layer_scale);
  return {stored, scale == 0 ? 0.0f : __fdiv_rn(1.0f, scale)};
}

// 2^(stored - 127); 255 is taken as 254.
__device__ __forceinline__ float MxScaleOf(uint32_t stored) {
  uint32_t exponent = min(stored, 254u);
  return __uint_as_float(exponent == 0 ? 0x00400000u : exponent << 23);
}
__device__ __forceinline__ Fp4Scale MxBlockScaleOf(float magnitude) {
  uint32_t exponent = __float_as_uint(magnitude) >> 23;
  uint32_t stored = min(max(exponent, 2u), 254u) - 2;
  return {stored, __uint_as_float((254u - stored) << 23)};
}

// The nearest E2M1, ties to even codes. Adding 2^22 times the unit of the value's binade, or of 1's, rounds to it.
__device__ __forceinline__ uint32_t E2m1Of(float value) {
  uint32_t bits = __float_as_uint(value);
  uint32_t magnitude = min(bits & 0x7FFFFFFFu, 0x40C00000u);
  uint32_t binade = max(magnitude & 0x7F800000u, 0x3F800000u);
  uint32_t sum = __float_as_uint(__uint_as_float(magnitude) + __uint_as_float(binade + (22u << 23)));
  uint32_t code = sum - (binade + (22u << 23)) + ((binade - 0x3F800000u) >> 22);
  return code | (bits >> 28 & 8u);
}
// Its exponent and mantissa bits mean 2^14 times less as those of a half.
__device__ __forceinline__ float2 E2m1Pair(uint32_t halves) {
  __half2 tiny = *reinterpret_cast<const __half2*>(&halves);
  float2 pair = __half22float2(tiny);
  return {pair.x * 16384.0f, pair.y * 16384.0f};
}
__device__ __forceinline__ float E2m1Value(uint32_t code) { return E2m1Pair((code & 8u) << 12 | (code & 7u) << 9).x; }

__device__ __forceinline__ void TellUnfit(const Fp4Launch& launch, uint32_t block, bool unfit) {
  if (unfit && launch.job.survey != nullptr) atomicOr(launch.job.survey + block, kSurveyUnfit);
}

// f<Value, kPlaces>(), for the kernels that work on chunks.
template <typename F>
cudaError_t ForFp4(const Fp4Launch& launch, const F& f) {
  return ForValue(launch.job.values, [&]<typename Value>() {
    if (launch.places == Places::kLinear) return f.template operator()<Value, Places::kLinear>();
    return f.template operator()<Value, Places::kAny>();
  });
}

}  // namespace firn::kernels
