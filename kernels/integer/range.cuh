// Extremes of 2-byte values in one word: the smallest value, and the smallest of their negatives, so that one minimum
// finds both. -0 is below +0, and NaN stays.
#pragma once

#include "kernels/device/values.cuh"

namespace firn::kernels {

template <typename Value>
__device__ __forceinline__ uint32_t RangeOfChunk(uint4 chunk) {
  constexpr uint32_t kSigns = 0x80008000u;
  uint32_t low = MinPair<Value>(MinPair<Value>(chunk.x, chunk.y), MinPair<Value>(chunk.z, chunk.w));
  uint32_t high = MaxPair<Value>(MaxPair<Value>(chunk.x, chunk.y), MaxPair<Value>(chunk.z, chunk.w)) ^ kSigns;
  // Even places of both beside one another, and odd ones.
  return MinPair<Value>(__byte_perm(low, high, 0x5410u), __byte_perm(low, high, 0x7632u));
}

// The smallest value and the largest.
template <typename Value>
__device__ __forceinline__ float2 EndsOf(uint32_t range) {
  float2 ends = ValueTraits<Value>::ToFloats(range);
  return {ends.x, -ends.y};
}

}  // namespace firn::kernels
