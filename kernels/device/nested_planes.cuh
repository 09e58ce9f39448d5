// Codes of 32 channels to bytes of planes and back, for a lane that holds eight neighbouring channels of each quarter
// of a row: channel q * W/4 + lane * 8 + j. Its bytes of every plane are then neighbours too.
#pragma once

#include <cstdint>

#include "codecs/types.h"

namespace firn::kernels {

// codes[q * 2 + w]: four channels of quarter q, w the lower or upper four.
struct LaneCodes {
  uint32_t words[8];
};

__device__ __forceinline__ uint32_t JoinBytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return __byte_perm(__byte_perm(a, b, 0x0040u), __byte_perm(c, d, 0x0040u), 0x5410u);
}

__device__ __forceinline__ uint2 PackTopPair(const LaneCodes& c) {
  auto word = [&](int w) {
    return (c.words[w] >> 6 & 0x03030303u) | (c.words[2 + w] >> 4 & 0x0C0C0C0Cu) | (c.words[4 + w] >> 2 & 0x30303030u) |
           (c.words[6 + w] & 0xC0C0C0C0u);
  };
  return {word(0), word(1)};
}
__device__ __forceinline__ uint2 PackSecondPair(const LaneCodes& c) {
  auto word = [&](int w) {
    return (c.words[w] >> 4 & 0x03030303u) | (c.words[2 + w] >> 2 & 0x0C0C0C0Cu) | (c.words[4 + w] & 0x30303030u) |
           (c.words[6 + w] << 2 & 0xC0C0C0C0u);
  };
  return {word(0), word(1)};
}
// Quarters `low` and `low` + 2 share bytes.
__device__ __forceinline__ uint2 PackNibbles(const LaneCodes& c, int low) {
  auto word = [&](int w) {
    return (c.words[low * 2 + w] & 0x0F0F0F0Fu) | (c.words[(low + 2) * 2 + w] << 4 & 0xF0F0F0F0u);
  };
  return {word(0), word(1)};
}

// What LevelFloat takes off, beside the 2^23 that its code stands in: at 2 bits values are cell middles.
__device__ __forceinline__ float LevelOffset(PrecisionClass precision) {
  if (precision == PrecisionClass::k8Bit) return 8388616.0f;
  return precision == PrecisionClass::k4Bit ? 8388608.0f : 8388608.0f - 24.0f;
}

// Codes with the bits of absent planes 0.
__device__ __forceinline__ void UnpackTopPair(uint2 p2, LaneCodes* c) {
  const uint32_t words[2] = {p2.x, p2.y};
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    c->words[w] = words[w] << 6 & 0xC0C0C0C0u;
    c->words[2 + w] = words[w] << 4 & 0xC0C0C0C0u;
    c->words[4 + w] = words[w] << 2 & 0xC0C0C0C0u;
    c->words[6 + w] = words[w] & 0xC0C0C0C0u;
  }
}
__device__ __forceinline__ void UnpackSecondPair(uint2 p4, LaneCodes* c) {
  const uint32_t words[2] = {p4.x, p4.y};
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    c->words[w] |= words[w] << 4 & 0x30303030u;
    c->words[2 + w] |= words[w] << 2 & 0x30303030u;
    c->words[4 + w] |= words[w] & 0x30303030u;
    c->words[6 + w] |= words[w] >> 2 & 0x30303030u;
  }
}
__device__ __forceinline__ void UnpackNibbles(uint2 p8, int low, LaneCodes* c) {
  const uint32_t words[2] = {p8.x, p8.y};
#pragma unroll
  for (int w = 0; w < 2; ++w) {
    c->words[low * 2 + w] |= words[w] & 0x0F0F0F0Fu;
    c->words[(low + 2) * 2 + w] |= words[w] >> 4 & 0x0F0F0F0Fu;
  }
}

}  // namespace firn::kernels
