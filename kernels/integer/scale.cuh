// Scales and codes of plain integers, one IEEE operation at a time (docs/formats/integer.md).
//
// Built with -fmad=false: nothing below may be fused.
#pragma once

#include "kernels/device/code_chunks.cuh"
#include "kernels/device/nested_scale.cuh"
#include "kernels/integer/launch.h"

namespace firn::kernels {

// As stored, and what encoding multiplies with. -0 as a base leaves every product as it is.
struct IntegerScale {
  float base, step, inverse;
};

// R(1 / x) of what FP16 or BF16 holds, or of any float. InverseOfStep is right up to 2^125, below 0 too.
template <typename Type>
__device__ __forceinline__ float InverseOf(float x) {
  if constexpr (MetaTraits<Type>::kIsFloat) return __fdiv_rn(1.0f, x);
  if constexpr (MetaTraits<Type>::kMagnitudeMax > 0x1p125f) {
    if (fabsf(x) > 0x1p125f) return __fdiv_rn(1.0f, x);
  }
  return InverseOfStep(x);
}

// Of values that are all alike. `Value` is a type that holds them.
template <typename Value, typename Meta>
__device__ __forceinline__ IntegerScale ConstantScale(float value, const IntegerForm& form) {
  using Traits = MetaTraits<Meta>;
  float nearest = Traits::ToFloat(Traits::Nearest(value));
  if (!form.symmetric) return {nearest, copysignf(0.0f, nearest), 0.0f};
  if (fabsf(value) < 0x1p-126f) return {-0.0f, copysignf(0.0f, value), 0.0f};
  return {-0.0f, nearest, InverseOf<Value>(value)};
}

// Of a group whose extremes are given, -0 counting as below +0.
template <typename Value, typename Meta>
__device__ __forceinline__ IntegerScale IntegerScaleOf(float lowest, float highest, const IntegerForm& form) {
  using Traits = MetaTraits<Meta>;
  if (lowest == highest) return ConstantScale<Value, Meta>(lowest, form);
  float spread = form.symmetric ? fmaxf(fabsf(lowest), fabsf(highest)) : highest - lowest;
  float quotient =
      Traits::kIsFloat ? __fdiv_rn(spread, form.steps) : SpreadOverSteps(spread, form.steps, form.steps_inverse);
  float step = fmaxf(Traits::ToFloat(Traits::Nearest(quotient)), Traits::kStepMin);
  float base = form.symmetric ? -0.0f : Traits::ToFloat(Traits::Nearest(lowest));
  return {base, step, InverseOf<Meta>(step)};
}

template <typename Meta>
__device__ __forceinline__ uint32_t IntegerSurveyOf(float lowest, float highest, const IntegerForm& form) {
  float range = highest - lowest, magnitude = fmaxf(fabsf(lowest), fabsf(highest));
  if (!(range <= 3.3e38f && magnitude <= form.value_max)) return kSurveyUnfit;
  if (MetaTraits<Meta>::kIsFloat) return 0;
  // No float below steps times a power of two is divided by steps to that power: it lies too far below.
  float spread = form.symmetric ? magnitude : range;
  bool narrow = range > 0 && spread < form.steps * MetaTraits<Meta>::kStepMin;
  return magnitude > MetaTraits<Meta>::kMagnitudeMax || narrow ? kSurveyNeedsFloat : 0;
}

// The code stands in the last bits of kRounding + code.
__device__ __forceinline__ uint32_t IntegerCodeSum(float value, const IntegerScale& scale, const IntegerForm& form) {
  float position = (value - scale.base) * scale.inverse;
  position = fminf(fmaxf(position, form.lowest), form.highest);
  return __float_as_uint(position + (kRounding + form.offset));
}

template <typename Value, int kBits>
__device__ __forceinline__ ChunkCodes EncodeChunk(uint4 raw, const IntegerScale& scale, const IntegerForm& form) {
  float v[8];
  ToFloats8<Value>(raw, v);
  uint32_t sums[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) sums[i] = IntegerCodeSum(v[i], scale, form);
  return PackChunk<kBits>(sums);
}

}  // namespace firn::kernels
