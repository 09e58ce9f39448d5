// Queries as the products take them, and outputs as the caller wants them. One warp a query head; a lane has
// neighbouring channels.
#pragma once

#include "kernels/attention/lane.cuh"
#include "kernels/attention/launch.h"

namespace firn::kernels {

constexpr float kLog2E = 1.4426950408889634f;
constexpr uint32_t kAllLanes = 0xFFFFFFFFu;

__device__ __forceinline__ float SumOfWarp(float value) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) value += __shfl_xor_sync(kAllLanes, value, apart);
  return value;
}
__device__ __forceinline__ float MostOfWarp(float value) {
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, apart));
  return value;
}

// The Hadamard transform of a row of 32 * kEach channels, not scaled.
template <int kEach>
__device__ __forceinline__ void Rotate(float (&v)[kEach]) {
#pragma unroll
  for (int stride = 1; stride < kEach; stride *= 2) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if ((i & stride) != 0) continue;
      float a = v[i], b = v[i + stride];
      v[i] = a + b, v[i + stride] = a - b;
    }
  }
#pragma unroll
  for (int apart = 1; apart < 32; apart *= 2) {
    float sign = (threadIdx.x & static_cast<uint32_t>(apart)) != 0 ? -1.0f : 1.0f;
#pragma unroll
    for (int i = 0; i < kEach; ++i) v[i] = fmaf(sign, v[i], __shfl_xor_sync(kAllLanes, v[i], apart));
  }
}

// Queries of one KV head in shared memory. Rows are padded so that lanes read them from different banks.
template <uint32_t kWidth>
struct Queries {
  __half operands[kQueriesMax][kWidth + 8];
  // A score, in units of log 2, is unit * (step * product + minimum * sum) + constant.
  float unit[kQueriesMax], sum[kQueriesMax], constant[kQueriesMax];
};

// By all threads; those that read what it makes wait at a barrier. Queries beyond the group are zeros.
template <Code kCode, uint32_t kWidth>
__device__ __forceinline__ void PrepareQueries(const AttentionLaunch& launch, Queries<kWidth>* queries) {
  constexpr int kEach = kWidth / 32;
  constexpr bool kExact = kCode == Code::kRows;
  using Traits = CodeTraits<kCode>;
  const AttentionJob& job = launch.job;
  uint32_t sequence = blockIdx.z, kv_head = blockIdx.y;
  uint32_t head = threadIdx.x / 32, first = threadIdx.x % 32 * kEach;
  float v[kEach] = {}, constant = 0;
  if (head < launch.group) {
    uint64_t query = uint64_t{sequence} * job.query_heads + kv_head * launch.group + head;
    const __half* from = static_cast<const __half*>(job.queries) + query * kWidth + first;
    uint64_t channel = (uint64_t{job.layer} * job.kv_heads + kv_head) * kWidth + first;
    bool arrays = !kExact && job.k_transform.mean != nullptr;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      v[i] = __half2float(from[i]) * (job.softmax_scale * kLog2E);
      if (arrays) {
        constant += v[i] * job.k_transform.mean[channel + i];
        v[i] *= job.k_transform.decode_scale[channel + i];
      } else if (!kExact) {
        v[i] *= job.k_transform.uniform_scale;
      }
    }
  }
  if (!kExact && job.rotated) Rotate(v);
  float largest = 1e-30f, sum = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) largest = fmaxf(largest, fabsf(v[i]));
  // A power of two, so that the largest is from 128 on and nothing is divided.
  uint32_t exponent = __float_as_uint(MostOfWarp(largest)) >> 23;
  float unit = __uint_as_float((exponent - 7) << 23), inverse = __uint_as_float((254 + 7 - exponent) << 23);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    uint32_t channel = first + static_cast<uint32_t>(i);
    uint32_t log2 = Traits::MultipleLog2(Traits::kNested ? channel / (kWidth / 4) : 0);
    __half rounded = __float2half_rn(v[i] * inverse * __uint_as_float((127 - log2) << 23));
    queries->operands[head][QueryPlace<kCode, kWidth>(channel)] = rounded;
    sum = fmaf(__half2float(rounded), __uint_as_float((127 + log2) << 23), sum);
  }
  sum = SumOfWarp(sum), constant = SumOfWarp(constant);
  if (threadIdx.x % 32 != 0) return;
  queries->unit[head] = unit * Traits::kLevel;
  queries->sum[head] = sum / Traits::kLevel;
  queries->constant[head] = constant;
}

// A lane's part of the queries: two registers a product.
template <uint32_t kWidth>
struct QueryOperands {
  uint32_t even[kWidth / 16], odd[kWidth / 16];
  float unit[2], sum[2];

  __device__ __forceinline__ QueryOperands(const Lane& lane, const Queries<kWidth>& queries) {
    const auto* words = reinterpret_cast<const uint32_t*>(queries.operands[lane.g]);
#pragma unroll
    for (int i = 0; i < static_cast<int>(kWidth / 16); ++i) {
      even[i] = words[i * 8 + lane.t], odd[i] = words[i * 8 + 4 + lane.t];
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) unit[i] = queries.unit[2 * lane.t + i], sum[i] = queries.sum[2 * lane.t + i];
  }
};

}  // namespace firn::kernels
