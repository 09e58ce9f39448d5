// Minimum, step and code of the nested code, one IEEE operation at a time (docs/formats/nested.md).
//
// Built with -fmad=false: nothing below may be fused.
#pragma once

#include "kernels/device/values.cuh"
#include "kernels/nested.h"

namespace firn::kernels {

// As stored, and what encoding multiplies with.
struct GroupScale {
  float minimum, step, inverse;
};

// Metadata of one type: FP16 and BF16 are their values' own.
template <typename Value>
struct MetaTraits {
  using Stored = Value;
  static constexpr float kStepMin = ValueTraits<Value>::kStepMin;
  static constexpr float kMagnitudeMax = ValueTraits<Value>::kMagnitudeMax;
  static constexpr bool kIsFloat = false;
  static __device__ __forceinline__ float ToFloat(Value v) { return ValueTraits<Value>::ToFloat(v); }
  static __device__ __forceinline__ Value Nearest(float v) { return ValueTraits<Value>::Nearest(v); }
  static __device__ __forceinline__ Value Down(float v) { return ValueTraits<Value>::Down(v); }
  static __device__ __forceinline__ Value Up(float v) { return ValueTraits<Value>::Up(v); }
};
template <>
struct MetaTraits<float> {
  using Stored = float;
  static constexpr float kStepMin = 0x1p-126f;
  static constexpr float kMagnitudeMax = 3.3e38f;
  static constexpr bool kIsFloat = true;
  static __device__ __forceinline__ float ToFloat(float v) { return v; }
  static __device__ __forceinline__ float Nearest(float v) { return v; }
  static __device__ __forceinline__ float Down(float v) { return v; }
  static __device__ __forceinline__ float Up(float v) { return v; }
};

// R(x / 240) for x of 240 * 2^-126 and more; less for less. The remainder of a quotient that is off by one unit at
// most, times a correctly rounded reciprocal, rounds it correctly (Markstein 1990).
__device__ __forceinline__ float DividedBySteps(float x) {
  constexpr float kReciprocal = 1.0f / 240.0f;
  float quotient = x * kReciprocal;
  return __fmaf_rn(__fmaf_rn(-quotient, 240.0f, x), kReciprocal, quotient);
}

// R(1 / step) of a step that FP16 or BF16 holds, from 2^-126 to 2^125: kernels_test tries each of them.
__device__ __forceinline__ float InverseOfStep(float step) {
  float estimate;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(estimate) : "f"(step));
  return __fmaf_rn(__fmaf_rn(-step, estimate, 1.0f), estimate, estimate);
}

template <typename Meta>
__device__ __forceinline__ GroupScale ScaleOf(float lowest, float highest) {
  using Traits = MetaTraits<Meta>;
  if (lowest == highest) {
    float minimum = Traits::ToFloat(Traits::Nearest(lowest));
    return {minimum, copysignf(0.0f, minimum), 0.0f};
  }
  float minimum = Traits::ToFloat(Traits::Down(lowest));
  float step = Traits::ToFloat(Traits::Up(DividedBySteps(highest - minimum)));
  step = fmaxf(step, Traits::kStepMin);
  return {minimum, step, Traits::kIsFloat ? __fdiv_rn(1.0f, step) : InverseOfStep(step)};
}

// `lowest` is NaN where any value was. `rotation` values are added up in decoding.
template <typename Meta>
__device__ __forceinline__ uint32_t SurveyOf(float lowest, float highest, uint32_t rotation) {
  float range = highest - lowest, range_max = 3.3e38f / static_cast<float>(rotation);
  if (!(range <= range_max && fabsf(lowest) <= range_max && fabsf(highest) <= range_max)) return kSurveyUnfit;
  if (MetaTraits<Meta>::kIsFloat) return 0;
  bool wide = lowest < -MetaTraits<Meta>::kMagnitudeMax || highest > MetaTraits<Meta>::kMagnitudeMax;
  // No float below 240 times a power of two is divided by 240 to that power: it lies too far below.
  bool narrow = range > 0 && range < 240.0f * MetaTraits<Meta>::kStepMin;
  return wide || narrow ? kSurveyNeedsFloat : 0;
}

// The code is the low byte of the result: 2^23 * 1.5 + 8 brings the nearest even integer, plus 8, into the last bits.
__device__ __forceinline__ uint32_t CodeBits(float value, float minimum, float inverse) {
  return __float_as_uint((value - minimum) * inverse + 12582920.0f);
}

// Level of a code byte that stands in an exponent of 2^23; `offset` is 2^23 and what the class takes off.
__device__ __forceinline__ float LevelFloat(uint32_t word, uint32_t byte, float offset) {
  return __uint_as_float(__byte_perm(word, 0x4B000000u, 0x7440u | byte)) - offset;
}

}  // namespace firn::kernels
