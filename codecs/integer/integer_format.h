// Single-value arithmetic of plain integers (docs/formats/integer.md): what every implementation shares.
//
// Position = (x - base) * inverse, clamped to the code's positions and rounded; the code stored is position + offset.
// Value = base + step * (code - offset). Threads: pure functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "codecs/nested/nested_format.h"
#include "codecs/record.h"
#include "codecs/tile.h"

namespace firn::integer {

// The positions of codes of so many bits.
struct Positions {
  float lowest, highest, offset;
  float steps;  // What a range (a largest magnitude, where symmetric) is divided by.
};

inline bool IsSymmetric(const PartCoding& coding) { return (coding.flags & PartCoding::kSymmetric) != 0; }
inline bool IsCalibrated(const PartCoding& coding) { return (coding.flags & PartCoding::kCalibrated) != 0; }

inline Positions PositionsOf(const PartCoding& coding) {
  auto most = static_cast<float>((1u << coding.bits) - 1);
  if (!IsSymmetric(coding)) return {0, most, 0, most};
  auto half = static_cast<float>(1u << (coding.bits - 1));
  return {1 - half, half - 1, half, half - 1};
}

// Values stored for a group: (minimum, step), or a step alone.
inline uint32_t ValuesAGroup(const PartCoding& coding) {
  return IsCalibrated(coding) ? 0 : IsSymmetric(coding) ? 1 : 2;
}

// Encoding and decoding of one group. -0 as a base leaves every product as it is, zeros too.
struct GroupScale {
  float base = 0, step = 0, inverse = 0;
};
inline constexpr float kNoBase = -0.0f;

// The scale of a group whose extremes are given, -0 counting as below +0. Constant groups come back as near as the
// metadata's type has them; no group divides by zero.
inline GroupScale ScaleOf(float lowest, float highest, const PartCoding& coding) {
  using nested::StepMin, nested::StoredNearest;
  MetaType type = coding.meta_type;
  float steps = PositionsOf(coding).steps;
  if (IsSymmetric(coding)) {
    float magnitude = std::max(std::fabs(lowest), std::fabs(highest));
    if (lowest == highest) {
      // Every value is one step, whose sign is the value's.
      float step = StoredNearest(magnitude < kFloatMinNormal ? std::copysign(0.0f, lowest) : lowest, type);
      return {kNoBase, step, magnitude < kFloatMinNormal ? 0.0f : 1.0f / lowest};
    }
    float step = std::max(StoredNearest(magnitude / steps, type), StepMin(type));
    return {kNoBase, step, 1.0f / step};
  }
  float minimum = StoredNearest(lowest, type);
  if (lowest == highest) return {minimum, std::copysign(0.0f, minimum), 0.0f};
  float step = std::max(StoredNearest((highest - lowest) / steps, type), StepMin(type));
  return {minimum, step, 1.0f / step};
}

inline GroupScale CalibratedScale(float step) { return {kNoBase, step, 1.0f / step}; }

// Whether ScaleOf loses nothing that a wider type would keep. `value_max` is the largest magnitude whose differences
// FP32 holds.
inline Survey SurveyGroup(float lowest, float highest, const PartCoding& coding, float value_max) {
  Survey survey;
  if (IsCalibrated(coding)) return survey;
  MetaType type = coding.meta_type;
  float range = highest - lowest, magnitude = std::max(std::fabs(lowest), std::fabs(highest));
  survey.out_of_range = !(range <= nested::kRangeMax && magnitude <= value_max);
  if (survey.out_of_range || type == MetaType::kFp32) return survey;
  float spread = IsSymmetric(coding) ? magnitude : range;
  survey.needs_float = (type == MetaType::kFp16 && magnitude > kHalfMax) ||
                       (range > 0 && spread / PositionsOf(coding).steps < nested::StepMin(type));
  return survey;
}

inline uint8_t CodeOf(float value, const GroupScale& scale, const Positions& positions) {
  float position = (value - scale.base) * scale.inverse;
  // NaN too becomes the lowest: a tile that holds one is thrown away, but no cast is undefined.
  if (!(position > positions.lowest)) position = positions.lowest;
  position = std::min(position, positions.highest);
  return static_cast<uint8_t>(std::nearbyintf(position) + positions.offset);
}

inline float ValueOf(uint8_t code, const GroupScale& scale, const Positions& positions) {
  return scale.base + scale.step * (static_cast<float>(code) - positions.offset);
}

}  // namespace firn::integer
