// Parts put together: those of the warps of a block of threads, then those of a sequence, which the last block to
// arrive or a second kernel does. One warp a query head, a lane with neighbouring channels.
#pragma once

#include "kernels/attention/query.cuh"
#include "kernels/device/values.cuh"

namespace firn::kernels {

template <int kEach>
struct HeadResult {
  float highest = -INFINITY, weight = 0;
  float values[kEach] = {};

  __device__ __forceinline__ void Add(const HeadResult& other) {
    if (other.highest == -INFINITY) return;
    float most = fmaxf(highest, other.highest);
    float own = PowerOfTwo(highest - most), others = PowerOfTwo(other.highest - most);
    highest = most, weight = weight * own + other.weight * others;
#pragma unroll
    for (int i = 0; i < kEach; ++i) values[i] = values[i] * own + other.values[i] * others;
  }
};

template <int kEach>
__device__ __forceinline__ void LoadChannels(const float* from, float (&v)[kEach]) {
  if constexpr (kEach == 4) {
    float4 four = __ldcg(reinterpret_cast<const float4*>(from));
    v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
  } else {
    float2 two = __ldcg(reinterpret_cast<const float2*>(from));
    v[0] = two.x, v[1] = two.y;
  }
}

// Of the warps' parts in shared memory.
template <uint32_t kWidth>
__device__ __forceinline__ HeadResult<kWidth / 32> MergeWarps(const PartSums (*sums)[kQueriesMax],
                                                              const uint8_t* values, uint32_t warp_bytes) {
  constexpr int kEach = kWidth / 32;
  uint32_t head = threadIdx.x / 32, first = threadIdx.x % 32 * kEach;
  HeadResult<kEach> to;
#pragma unroll
  for (uint32_t w = 0; w < kQueriesMax; ++w) to.highest = fmaxf(to.highest, sums[w][head].highest);
#pragma unroll
  for (uint32_t w = 0; w < kQueriesMax; ++w) {
    float own = sums[w][head].highest, factor = own == -INFINITY ? 0.0f : PowerOfTwo(own - to.highest);
    to.weight += sums[w][head].weight * factor;
    const float* from = reinterpret_cast<const float*>(values + w * warp_bytes) + head * kWidth + first;
#pragma unroll
    for (int i = 0; i < kEach; ++i) to.values[i] += from[i] * factor;
  }
  return to;
}

template <uint32_t kWidth>
__device__ __forceinline__ void StorePart(const AttentionLaunch& launch, uint64_t query, uint32_t part,
                                          const HeadResult<kWidth / 32>& from) {
  uint64_t at = query * launch.job.splits + part;
  if (threadIdx.x % 32 == 0) launch.sums[at] = {from.highest, from.weight};
  float* to = launch.values + at * kWidth + threadIdx.x % 32 * (kWidth / 32);
#pragma unroll
  for (int i = 0; i < static_cast<int>(kWidth / 32); ++i) to[i] = from.values[i];
}

// Of a sequence's parts, by all threads: warp w has head w % group and every so many-th part. The result is with the
// first warps, one a head. `memory` has room for a row a warp. A part without tokens has a highest score of minus
// infinity and no values.
template <uint32_t kWidth>
__device__ __forceinline__ HeadResult<kWidth / 32> MergeParts(const AttentionLaunch& launch, uint64_t first_query,
                                                              float* memory) {
  constexpr int kEach = kWidth / 32;
  constexpr uint32_t kAtOnce = 8;
  uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, parts = launch.job.splits;
  uint32_t slices = kQueriesMax / launch.group, head = warp % launch.group, slice = warp / launch.group;
  uint64_t first_part = (first_query + head) * parts;
  const auto* sums = reinterpret_cast<const float2*>(launch.sums) + first_part;
  const float* values = launch.values + first_part * kWidth + lane * kEach;
  HeadResult<kEach> to;
  for (uint32_t p = lane; p < parts; p += 32) to.highest = fmaxf(to.highest, __ldcg(sums + p).x);
  to.highest = MostOfWarp(to.highest);
  for (uint32_t from = 0; from < parts && slice < slices; from += 32) {
    float2 own = from + lane < parts ? __ldcg(sums + from + lane) : float2{-INFINITY, 0.0f};
    float own_factor = own.x == -INFINITY ? 0.0f : PowerOfTwo(own.x - to.highest);
    to.weight += own.y * own_factor;
    uint32_t count = min(32u, parts - from);
    for (uint32_t p = slice; p < count; p += slices * kAtOnce) {
      // All asked for at once, what nobody wrote too, which is not looked at.
      float v[kAtOnce][kEach];
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        LoadChannels(values + (from + min(p + i * slices, count - 1)) * kWidth, v[i]);
      }
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        uint32_t part = p + i * slices;
        float factor = __shfl_sync(kAllLanes, own_factor, min(part, 31u));
        bool counts = part < count && factor != 0.0f;
#pragma unroll
        for (int c = 0; c < kEach; ++c) to.values[c] += counts ? v[i][c] * factor : 0.0f;
      }
    }
  }
  to.weight = SumOfWarp(to.weight);
#pragma unroll
  for (int i = 0; i < kEach; ++i) memory[warp * kWidth + lane * kEach + i] = to.values[i];
  __syncthreads();
  for (uint32_t other = 1; other < slices && warp < launch.group; ++other) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) to.values[i] += memory[(other * launch.group + warp) * kWidth + lane * kEach + i];
  }
  return to;
}

// Of no tokens: zeros, and an lse of minus infinity.
template <uint32_t kWidth>
__device__ __forceinline__ void StoreResult(const AttentionJob& job, uint64_t query, HeadResult<kWidth / 32> result) {
  constexpr int kEach = kWidth / 32;
  float inverse = result.weight > 0 ? job.v_scale / result.weight : 0.0f;
#pragma unroll
  for (float& value : result.values) value = result.weight > 0 ? value * inverse : 0.0f;
  if (job.rotated) Rotate(result.values);
  auto* to = static_cast<uint32_t*>(job.out) + query * (kWidth / 2) + threadIdx.x % 32 * (kEach / 2);
#pragma unroll
  for (int i = 0; i < kEach / 2; ++i) {
    to[i] = ValueTraits<__half>::ToSaturatedPair(result.values[2 * i], result.values[2 * i + 1]);
  }
  if (threadIdx.x % 32 != 0 || job.lse == nullptr) return;
  job.lse[query] = result.weight > 0 ? (result.highest + __log2f(result.weight)) / kLog2E : -INFINITY;
}

// Whether this block of threads is the last of its sequence and head to get here. The barrier and the addition together
// order all its stores before what the last block reads.
__device__ __forceinline__ bool LastToArrive(uint32_t* arrivals, uint32_t parts) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32_t before;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(arrivals) : "memory");
    last = before == parts - 1;
    if (last) *arrivals = 0;
  }
  __syncthreads();
  return last;
}

}  // namespace firn::kernels
