// Levels, ranges and what a survey says of codebook codes, one IEEE operation at a time (docs/formats/nuq.md).
//
// Built with -fmad=false: nothing below may be fused.
#pragma once

#include "kernels/device/code_chunks.cuh"
#include "kernels/device/code_rows.cuh"
#include "kernels/device/launching.cuh"
#include "kernels/device/nested_scale.cuh"
#include "kernels/nuq/launch.h"

namespace firn::kernels {

inline constexpr uint32_t kLevelsMax = 16;

// Fills in what lies between neighbouring levels of a layer; a value on it belongs to the lower level. The threads of a
// block do it together, and wait for one another before they use it.
__device__ __forceinline__ void LoadThresholds(const NuqJob& job, uint32_t layer, float* thresholds) {
  const float* levels = job.levels + (uint64_t{layer} << job.bits);
  for (uint32_t i = threadIdx.x; i + 1 < 1u << job.bits; i += blockDim.x) {
    thresholds[i] = (levels[i] + levels[i + 1]) * 0.5f;
  }
}
__device__ __forceinline__ void LoadDecoded(const NuqJob& job, uint32_t layer, float* decoded) {
  for (uint32_t i = threadIdx.x; i < 1u << job.bits; i += blockDim.x) {
    decoded[i] = job.decoded[(uint64_t{layer} << job.bits) + i];
  }
}

// How many thresholds, which ascend, lie below the value. NaN is above none.
__device__ __forceinline__ uint32_t NearestLevel(const float* thresholds, uint32_t bits, float value) {
  uint32_t code = 0;
#pragma unroll
  for (uint32_t half = 1u << (bits - 1); half > 0; half /= 2) {
    code += value > thresholds[code + half - 1] ? half : 0;
  }
  return code;
}

// What is left of a token without its outliers.
struct NuqRange {
  float centre, reach, inverse;
};
template <typename Meta>
__device__ __forceinline__ NuqRange NuqRangeOf(float lowest, float highest) {
  using Traits = MetaTraits<Meta>;
  auto stored = [](float value) { return Traits::ToFloat(Traits::Nearest(value)); };
  if (lowest == highest) return {stored(lowest), 0, 0};
  float low = lowest * 0.5f, high = highest * 0.5f;
  float reach = fmaxf(stored(high - low), Traits::kStepMin);
  return {stored(low + high), reach, __fdiv_rn(1.0f, reach)};
}
__device__ __forceinline__ float NuqValueOf(float decoded, float centre, float reach) {
  return reach == 0 ? centre : centre + reach * decoded;
}

// Of the largest magnitude, NaN where a value is not a number. `stored` says whether values are stored at all.
template <typename Meta>
__device__ __forceinline__ uint32_t MagnitudeSurvey(float magnitude, bool stored) {
  if (!(magnitude <= 3.3e38f)) return kSurveyUnfit;
  return stored && !MetaTraits<Meta>::kIsFloat && magnitude > MetaTraits<Meta>::kMagnitudeMax ? kSurveyNeedsFloat : 0;
}
template <typename Meta>
__device__ __forceinline__ uint32_t ReachSurvey(float lowest, float highest) {
  if (MetaTraits<Meta>::kIsFloat || lowest == highest) return 0;
  return highest * 0.5f - lowest * 0.5f < MetaTraits<Meta>::kStepMin ? kSurveyNeedsFloat : 0;
}

__device__ __forceinline__ void TellSurvey(const NuqLaunch& launch, uint32_t block, uint32_t found) {
  if (found != 0 && launch.job.survey != nullptr) atomicOr(launch.job.survey + block, found);
}

// f<Value, kBits, kPlaces>(), for the kernels that work on chunks.
template <typename F>
cudaError_t ForNuq(const NuqLaunch& launch, const F& f) {
  auto for_bits = [&]<typename Value, int kBits>() {
    if (launch.places == Places::kLinear) return f.template operator()<Value, kBits, Places::kLinear>();
    return f.template operator()<Value, kBits, Places::kAny>();
  };
  return ForValue(launch.job.values, [&]<typename Value>() {
    if (launch.job.bits == 4) return for_bits.template operator()<Value, 4>();
    if (launch.job.bits == 3) return for_bits.template operator()<Value, 3>();
    return for_bits.template operator()<Value, 2>();
  });
}

}  // namespace firn::kernels
