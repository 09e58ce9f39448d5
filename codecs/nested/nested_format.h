// Geometry and single-value arithmetic of the nested code (docs/formats/nested.md): what every implementation shares.
//
// A code is a byte from 8 to 248. Its top two bits are plane p2, the next two p4, the low four p8. A "level" is what a
// class makes of a code: value = minimum + step * level. Threads: pure functions. Units: bytes of rows; a row is one
// token's channels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "codecs/numeric/float_formats.h"
#include "codecs/record.h"
#include "codecs/tile.h"
#include "codecs/types.h"

namespace firn::nested {

inline constexpr uint32_t kCodeOffset = 8;
inline constexpr float kSteps = 240.0f;

// Ranges and values beyond this are left to identity coding: FP32 arithmetic on them could overflow.
inline constexpr float kRangeMax = 3.3e38f;
// The same of values that decoding adds up again, so many at a time.
inline float RangeMaxOf(uint32_t rotation) { return kRangeMax / static_cast<float>(rotation); }
// Whether every value is one that RangeMaxOf allows. Sums that overflowed in rotating show as NaN or Inf, which no
// minimum or maximum need keep.
inline bool WithinRange(const float* row, uint32_t width, uint32_t rotation) {
  bool fits = true;
  for (uint32_t c = 0; c < width; ++c) fits &= std::fabs(row[c]) <= RangeMaxOf(rotation);
  return fits;
}
// Rows of smaller magnitudes cannot get there, whatever a sane artifact scales them by.
inline constexpr float kRangeSafe = 0x1p64f;

inline uint64_t TwoBitRowBytes(uint32_t width) { return (uint64_t{width} + 3) / 4; }
inline uint64_t FourBitRowBytes(uint32_t width) { return (uint64_t{width} + 1) / 2; }

inline uint32_t MetaValueBytes(MetaType type) { return type == MetaType::kNone ? 0 : type == MetaType::kFp32 ? 4 : 2; }

// Rotation works on blocks of this many consecutive channels: the largest power of two that divides the width.
inline uint32_t RotationSize(uint32_t width) { return width & (~width + 1); }
// 1/sqrt(size), rounded once.
inline float RotationScale(uint32_t size) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(size))); }

inline float ReadMeta(const uint8_t* bytes, MetaType type) {
  if (type == MetaType::kFp32) return LoadLe<float>(bytes);
  uint16_t bits = LoadLe<uint16_t>(bytes);
  return type == MetaType::kFp16 ? HalfToFloat(bits) : BfloatToFloat(bits);
}

// A group's minimum and step as stored, and what encoding multiplies with.
struct GroupScale {
  float minimum = 0, step = 0, inverse = 0;
};

inline float StepMin(MetaType type) { return type == MetaType::kFp16 ? kHalfMinNormal : kFloatMinNormal; }

inline float StoredNearest(float value, MetaType type) {
  if (type == MetaType::kFp16) return HalfToFloat(FloatToHalf(value));
  if (type == MetaType::kBf16) return BfloatToFloat(FloatToBfloat(value));
  return value;
}
inline float StoredDown(float value, MetaType type) {
  if (type == MetaType::kFp16) return HalfToFloat(FloatToHalfDown(value));
  if (type == MetaType::kBf16) return BfloatToFloat(FloatToBfloatDown(value));
  return value;
}
inline float StoredUp(float value, MetaType type) {
  if (type == MetaType::kFp16) return HalfToFloat(FloatToHalfUp(value));
  if (type == MetaType::kBf16) return BfloatToFloat(FloatToBfloatUp(value));
  return value;
}

// The scale of a group whose smallest and largest values are given. A constant group keeps its value as near as the
// type has it, with a step of zero of the same sign, so that even -0 comes back.
inline GroupScale ScaleOf(float lowest, float highest, MetaType type) {
  if (lowest == highest) {
    float minimum = StoredNearest(lowest, type);
    return {minimum, std::copysign(0.0f, minimum), 0.0f};
  }
  float minimum = StoredDown(lowest, type);
  float step = StoredUp((highest - minimum) / kSteps, type);
  step = std::max(step, StepMin(type));
  return {minimum, step, 1.0f / step};
}

// Whether ScaleOf with this type loses nothing that a wider type would keep.
inline Survey SurveyGroup(float lowest, float highest, MetaType type, float range_max = kRangeMax) {
  Survey survey;
  float range = highest - lowest;
  if (!(range <= range_max && std::fabs(lowest) <= range_max && std::fabs(highest) <= range_max)) {
    survey.out_of_range = true;
    return survey;
  }
  if (type == MetaType::kFp16) survey.needs_float = lowest < -kHalfMax || highest > kHalfMax;
  survey.needs_float |= range > 0 && range / kSteps < StepMin(type) && type != MetaType::kFp32;
  return survey;
}

// A cheap look at one row per token, before rotation: whether its scale could overflow or sink below StepMin, so that
// the row must be rotated to know. A row that passes may still have a range below StepMin * 240 where its values nearly
// cancel; its step is then StepMin, no more than 2^-8 of the row's largest value.
struct RowScreen {
  RowScreen(const ChannelTransform& transform, uint32_t width, uint32_t rotation, MetaType type) {
    float scale_max = transform.uniform_scale, scale_min = transform.uniform_scale;
    if (transform.encode_scale != nullptr) {
      scale_max = *std::max_element(transform.encode_scale, transform.encode_scale + width);
      scale_min = *std::min_element(transform.encode_scale, transform.encode_scale + width);
    }
    for (uint32_t c = 0; transform.mean != nullptr && c < width; ++c) {
      mean_max = std::max(mean_max, std::fabs(transform.mean[c]));
    }
    bound_factor = scale_max * static_cast<float>(rotation) * 1.01f;
    small_factor = scale_min * std::sqrt(static_cast<float>(rotation));
    limit = type == MetaType::kFp16 ? kHalfMax : RangeMaxOf(rotation) / 2;
    small = type == MetaType::kFp16 ? 0x1p-6f : type == MetaType::kBf16 ? 0x1p-110f : 0.0f;
  }
  bool Suspicious(float magnitude_max) const {
    bool fits = (magnitude_max + mean_max) * bound_factor <= limit;
    return !fits || (magnitude_max > 0 && magnitude_max * small_factor < small);
  }
  float mean_max = 0, bound_factor, small_factor, limit, small;
};

inline uint8_t CodeOf(float value, const GroupScale& scale) {
  float position = (value - scale.minimum) * scale.inverse;
  if (!(position > 0)) return kCodeOffset;  // NaN too: a tile that holds one is thrown away, but no cast is undefined.
  position = std::min(position, kSteps);
  return static_cast<uint8_t>(static_cast<uint32_t>(std::nearbyintf(position)) + kCodeOffset);
}

// Arithmetic is modulo 256: a code below 8 appears only in damaged bytes.
inline uint8_t LevelOf(uint8_t code, PrecisionClass precision) {
  if (precision == PrecisionClass::k8Bit) return static_cast<uint8_t>(code - kCodeOffset);
  if (precision == PrecisionClass::k4Bit) return code & 0xF0u;
  return static_cast<uint8_t>((code & 0xC0u) + 24u);
}

// Saturates everything, Inf too: a step rounded upwards may pass the largest value of the output type.
inline float Saturated(float value, float limit) { return std::min(std::max(value, -limit), limit); }

}  // namespace firn::nested
