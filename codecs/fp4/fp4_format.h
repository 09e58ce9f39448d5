// Scales of blocks of E2M1 numbers (docs/formats/fp4.md): what every implementation shares.
//
// Threads: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "codecs/numeric/float_formats.h"
#include "codecs/record.h"

namespace firn::fp4 {

inline constexpr uint32_t kNvBlock = 16, kMxBlock = 32;  // Channels of one token that share a scale.

inline uint32_t BlocksOf(uint32_t width, uint32_t block) { return (width + block - 1) / block; }

// What a block's codes are multiplied by, and what encoding multiplies with.
struct BlockScale {
  uint8_t stored = 0;
  float scale = 0, inverse = 0;
};

// The scale of a layer, which puts its largest magnitude on the largest product of the two formats. Large enough that
// no product of it is subnormal.
inline constexpr float kLayerScaleMin = 0x1p-116f;
inline float LayerScale(float magnitude_max) {
  if (magnitude_max == 0) return 1.0f;
  return std::max(magnitude_max / (kE2m1Max * kE4m3Max), kLayerScaleMin);
}

inline float NvScale(uint8_t stored, float layer_scale) { return E4m3ToFloat(stored) * layer_scale; }
// `ratio` is the block's largest magnitude divided by 6 layer scales. A scale of 0 leaves the signs alone.
inline BlockScale NvBlockScale(float ratio, float layer_scale) {
  uint8_t stored = FloatToE4m3(ratio);
  float scale = NvScale(stored, layer_scale);
  return {stored, scale, scale == 0 ? 0.0f : 1.0f / scale};
}

// 2^(stored - 127). 255 means NaN and is never written; read, it is taken as 254.
inline float MxScale(uint8_t stored) {
  uint32_t exponent = std::min<uint32_t>(stored, 254);
  return BitsFloat(exponent == 0 ? 0x00400000u : exponent << 23);
}
// The exponent of the largest magnitude, less 2: then it lies from 4 up to 8, where 6 is the largest code.
inline BlockScale MxBlockScale(float magnitude_max) {
  uint32_t exponent = FloatBits(magnitude_max) >> 23;
  auto stored = static_cast<uint8_t>(std::clamp<uint32_t>(exponent, 2, 254) - 2);
  return {stored, MxScale(stored), BitsFloat((254u - stored) << 23)};
}

}  // namespace firn::fp4
