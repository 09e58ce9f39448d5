// What a warp has gathered, and how scores become weights.
//
// Weights are 2^(score - highest) with a `highest` that need only be near the highest score so far: it is raised, and
// all sums with it, once a score lies kSlack above it. Weights that values are multiplied with carry the values' steps,
// times a scale that keeps them within FP16.
#pragma once

#include "kernels/attention/query.cuh"

namespace firn::kernels {

constexpr float kSlack = 4.0f;         // In units of log 2: weights stay below 16.
constexpr float kLargestStep = 16.0f;  // Of the step that the scale is for.
constexpr float kStepWeight = 16.0f;   // What a weight of 1 with that step becomes.
constexpr float kStepLeast = 1e-30f;   // Smaller steps weigh nothing.
constexpr float kHighestLeast = -1e30f;

// Minimum and step of a token.
struct Scale {
  float minimum, step;
};

template <uint32_t kWidth>
struct State {
  // Of queries 2t and 2t + 1; the sums are over this lane's tokens, and over all lanes g in the end.
  float highest[2] = {-INFINITY, -INFINITY};
  float weight[2] = {}, base[2] = {};  // Sums of weights, and of weights times minima.
  float step_scale = 1.0f, step_limit = 0.0f;
  float values[kWidth / 16][4] = {};  // By product: channel and query, channel and next query, next channel and both.

  __device__ __forceinline__ void RaiseHighest(const float (&score)[4], const float (&unit)[2]) {
#pragma unroll
    for (int q = 0; q < 2; ++q) {
      float most = fmaxf(score[q], score[2 + q]) * unit[q];
#pragma unroll
      for (int apart = 4; apart < 32; apart *= 2) most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, apart));
      most = fmaxf(fmaxf(most, highest[q]), kHighestLeast);
      float factor = PowerOfTwo(highest[q] - most);
      highest[q] = most, weight[q] *= factor, base[q] *= factor;
#pragma unroll
      for (auto& value : values) value[q] *= factor, value[2 + q] *= factor;
    }
  }
  __device__ __forceinline__ void RaiseStep(float step) {
#pragma unroll
    for (int apart = 4; apart < 32; apart *= 2) step = fmaxf(step, __shfl_xor_sync(kAllLanes, step, apart));
    if (step <= step_limit) return;
    float scale = kStepWeight / fmaxf(step, kStepLeast), factor = scale / step_scale;
    step_scale = scale, step_limit = fmaxf(step, kStepLeast) * kLargestStep;
#pragma unroll
    for (auto& value : values) {
#pragma unroll
      for (float& v : value) v *= factor;
    }
  }

  // Scores (without `unit`) of tokens a and b, by query. Gives the weights as the second product takes them.
  template <bool kMinima>
  __device__ __forceinline__ void Weigh(const float (&score)[4], const float (&unit)[2], const Scale& a, const Scale& b,
                                        uint32_t (&operands)[2]) {
    float above[4];
    bool raise = a.step > step_limit || b.step > step_limit;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      above[i] = fmaf(score[i], unit[i % 2], -highest[i % 2]);
      raise = raise || above[i] > kSlack;
    }
    if (__any_sync(kAllLanes, raise)) {
      RaiseHighest(score, unit);
      RaiseStep(fmaxf(a.step, b.step));
#pragma unroll
      for (int i = 0; i < 4; ++i) above[i] = fmaf(score[i], unit[i % 2], -highest[i % 2]);
    }
    float step_a = a.step * step_scale, step_b = b.step * step_scale;
    float plain[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      plain[i] = PowerOfTwo(above[i]);
      weight[i % 2] += plain[i];
      if constexpr (kMinima) base[i % 2] = fmaf(plain[i], i < 2 ? a.minimum : b.minimum, base[i % 2]);
    }
    __half2 first = __floats2half2_rn(plain[0] * step_a, plain[1] * step_a);
    __half2 second = __floats2half2_rn(plain[2] * step_b, plain[3] * step_b);
    operands[0] = Transposed(*reinterpret_cast<const uint32_t*>(&first));
    operands[1] = Transposed(*reinterpret_cast<const uint32_t*>(&second));
  }

  // The warp's sums, for queries of the group: outputs to `values_of` ([query][channel]), the rest to `sums_of`.
  template <Code kCode>
  __device__ __forceinline__ void Store(const Lane& lane, uint32_t group, float* values_of, PartSums* sums_of) {
    using Traits = CodeTraits<kCode>;
    float level = Traits::kLevel / step_scale;
#pragma unroll
    for (int q = 0; q < 2; ++q) {
#pragma unroll
      for (int apart = 4; apart < 32; apart *= 2) {
        weight[q] += __shfl_xor_sync(kAllLanes, weight[q], apart);
        base[q] += __shfl_xor_sync(kAllLanes, base[q], apart);
      }
      uint32_t query = 2 * lane.t + q;
      if (query >= group) continue;
      if (lane.g == 0) sums_of[query] = {highest[q], weight[q]};
#pragma unroll
      for (uint32_t m = 0; m < kWidth / 16; ++m) {
        float unit = level * (1.0f / static_cast<float>(1u << Traits::MultipleLog2(m % 4)));
        float2 pair = {fmaf(values[m][q], unit, base[q]), fmaf(values[m][2 + q], unit, base[q])};
        *reinterpret_cast<float2*>(values_of + query * kWidth + OutputChannel<kCode, kWidth>(m, lane.g)) = pair;
      }
    }
  }
};

}  // namespace firn::kernels
