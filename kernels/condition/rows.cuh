// Rows of either side of conditioning, and what is done to their channels, one IEEE operation at a time
// (docs/formats/conditioning.md).
//
// Built with -fmad=false: nothing below may be fused.
#pragma once

#include "kernels/condition/launch.h"
#include "kernels/device/code_rows.cuh"
#include "kernels/device/launching.cuh"
#include "kernels/nested.h"

namespace firn::kernels {

// Finite values beyond the type become its largest; Inf and NaN stay.
template <typename Value>
__device__ __forceinline__ Value RoundedTo(float value) {
  if constexpr (sizeof(Value) == 4) {
    return value;
  } else {
    constexpr float kLargest = ValueTraits<Value>::kLargest;
    return ValueTraits<Value>::Nearest(isfinite(value) ? fminf(fmaxf(value, -kLargest), kLargest) : value);
  }
}

// On the way back Inf, too, becomes the largest finite value; NaN stays.
__device__ __forceinline__ float SaturatedBack(float value) {
  constexpr float kLargest = 0x1.FFFFFEp127f;
  return fabsf(value) > kLargest ? copysignf(kLargest, value) : value;
}

// Channel 0 of a row of the engine's, or of a conditioned one.
template <typename Value>
__device__ __forceinline__ Value* EngineRow(const ConditionLaunch& launch, const RowAt& at) {
  return RowOf<Value>(launch.job.rows, launch.by_page, at);
}
template <typename Value>
__device__ __forceinline__ Value* ConditionedRow(const ConditionLaunch& launch, const RowAt& at) {
  return RowOf<Value>(launch.job.conditioned_rows, launch.by_conditioned_page, at);
}

// NaN is not within.
__device__ __forceinline__ bool CanComeBack(const ConditionLaunch& launch, float value) {
  return fabsf(value) <= launch.magnitude_max;
}
__device__ __forceinline__ void TellUnfit(const ConditionLaunch& launch, uint32_t block, bool unfit) {
  if (unfit && launch.job.survey != nullptr) atomicOr(launch.job.survey + block, kSurveyUnfit);
}

// Where a token's cosines and sines begin.
__device__ __forceinline__ uint64_t TurnsOf(const ConditionLaunch& launch, const RowAt& at) {
  return (uint64_t{at.block} * launch.shape.tokens + at.token) * launch.job.rope.pairs;
}

// f<Engine, Conditioned>()
template <typename F>
cudaError_t ForConditioned(const ConditionJob& job, const F& f) {
  if (job.values == DType::kFp32) return f.template operator()<float, float>();
  return ForValue(job.values, [&]<typename Value>() {
    return job.conditioned == DType::kFp32 ? f.template operator()<Value, float>()
                                           : f.template operator()<Value, Value>();
  });
}

}  // namespace firn::kernels
