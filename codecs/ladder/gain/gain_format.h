// The nested code of signs and magnitudes (docs/formats/nested_gain.md): its numbers, and the code of one value.
//
// A code is sign << 7 | cell << 4 | step. Its top two bits are the sign and whether the value is in an outer cell.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>

#include "codecs/ladder/row_format.h"

namespace firn::ladder::gain {

inline constexpr RowLimits kLimits = {1.0f / 3.6f, 7373.0f};

// Magnitudes, in steps: where each cell begins, and how wide its 16 parts are.
inline constexpr int32_t kCellStart[8] = {0, 512, 1024, 1568, 2144, 2848, 3696, 4848};
inline constexpr int32_t kPartWidth[8] = {32, 32, 34, 36, 44, 53, 72, 158};
inline constexpr int32_t kFourBitLevel[8] = {253, 764, 1291, 1847, 2478, 3230, 4165, 5537};
inline constexpr int32_t kTwoBitLevel[2] = {980, 3206};

inline uint8_t CodeOf(int32_t steps) {
  int32_t magnitude = std::abs(steps), cell = 0;
  while (cell < 7 && magnitude >= kCellStart[cell + 1]) ++cell;
  int32_t part = std::min((magnitude - kCellStart[cell]) / kPartWidth[cell], 15);
  return static_cast<uint8_t>((steps < 0 ? 128 : 0) | cell << 4 | part);
}

// Signed, by the code's top bits; at 8 bits the middle of the part.
constexpr float Signed(uint32_t negative, float magnitude) { return negative != 0 ? -magnitude : magnitude; }
constexpr float TwoBitLevelOf(uint32_t pair) { return Signed(pair >> 1, static_cast<float>(kTwoBitLevel[pair & 1])); }
constexpr float FourBitLevelOf(uint32_t nibble) {
  return Signed(nibble >> 3, static_cast<float>(kFourBitLevel[nibble & 7]));
}
constexpr float EightBitLevelOf(uint32_t code) {
  uint32_t cell = code >> 4 & 7u;
  float part = static_cast<float>(code & 15u) + 0.5f;
  return Signed(code >> 7, static_cast<float>(kCellStart[cell]) + static_cast<float>(kPartWidth[cell]) * part);
}
constexpr float LevelOf(uint8_t code, PrecisionClass precision) {
  if (precision == PrecisionClass::k8Bit) return EightBitLevelOf(code);
  if (precision == PrecisionClass::k4Bit) return FourBitLevelOf(code >> 4);
  return TwoBitLevelOf(code >> 6);
}

}  // namespace firn::ladder::gain
