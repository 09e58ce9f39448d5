// What the codes "gain" and "trellis" share: signs, scales, gains and metadata of rotated rows
// (docs/formats/nested_gain.md).
//
// A row is one token of one head. Its values are multiplied by fixed signs and rotated; divided by the row's one scale
// they are "steps", integers of which 2048 are the scale. Threads: pure functions. Limits: widths with a rotation of at
// least kRotationMin channels, up to kWidthMax; they are multiples of 64, so rows have no odd ends.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "base/bytes.h"
#include "codecs/numeric/float_formats.h"
#include "codecs/record.h"
#include "codecs/tile.h"

namespace firn::ladder {

inline constexpr uint32_t kRotationMin = 64;
inline constexpr uint32_t kWidthMax = 32768;
inline constexpr int32_t kUnit = 2048;

// Rotated values beyond this are left to identity coding: no arithmetic on smaller ones overflows.
inline constexpr float kMagnitudeMax = 0x1p108f;

// Channel c is negated where bit c % 64 of word c / 64 % 16 is set: SplitMix64 from 0.
constexpr std::array<uint64_t, 16> MakeSigns() {
  std::array<uint64_t, 16> words{};
  uint64_t state = 0;
  for (uint64_t& word : words) {
    state += 0x9E3779B97F4A7C15u;
    uint64_t x = state;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    word = x ^ x >> 31;
  }
  return words;
}
inline constexpr std::array<uint64_t, 16> kSigns = MakeSigns();
inline constexpr uint32_t kSignPeriod = 64 * 16;
constexpr bool IsNegated(uint32_t channel) { return (kSigns[channel / 64 % 16] >> channel % 64 & 1) != 0; }

// The same as bits to be joined to FP32 values.
constexpr std::array<uint32_t, kSignPeriod> MakeSignBits() {
  std::array<uint32_t, kSignPeriod> bits{};
  for (uint32_t c = 0; c < kSignPeriod; ++c) bits[c] = IsNegated(c) ? 0x80000000u : 0;
  return bits;
}
alignas(64) inline constexpr std::array<uint32_t, kSignPeriod> kSignBits = MakeSignBits();

// What a code makes of its rows.
struct RowLimits {
  float inverse_reach;  // 1 / r: the scale is at least the largest magnitude / r.
  float steps_max;      // r * 2048, rounded: no value has more steps.
};

// Scales are rms * kRmsPart, rounded upwards.
inline constexpr float kRmsPart = 0.94f;

// Scale bytes: code 0 is 0, code c is (8 + c % 8) * 2^(c / 8 - 18), from 3.4e-5 to 122,880.
inline constexpr int32_t kScaleCodeMax = 255;
inline float ScaleOfCode(uint32_t code) {
  return code == 0 ? 0.0f : BitsFloat(((code >> 3) + 112u) << 23 | (code & 7u) << 20);
}
// The smallest code whose scale is not below `scale` > 0; beyond 1 to 255 where no byte holds it.
inline int32_t ScaleCodeOf(float scale) {
  return static_cast<int32_t>((FloatBits(scale) + 0xFFFFFu) >> 20) - (112 << 3);
}

// One row's scale: as stored, as encoding multiplies with, and as decoding does.
struct RowScale {
  uint8_t code = 0;
  float stored = 0;   // FP32 metadata: the scale. Otherwise that of the code.
  float inverse = 0;  // 2048 / scale of the (prescaled) row; 0 for rows of zeros and rows that do not fit.
};

inline float WantedScale(float square_sum, float magnitude_max, uint32_t width, const RowLimits& limits) {
  float rms = std::sqrt(square_sum / static_cast<float>(width));
  return std::max(rms * kRmsPart, magnitude_max * limits.inverse_reach);
}

// Of a row with the given sum of squares and largest magnitude, as a byte.
inline RowScale ByteScale(float square_sum, float magnitude_max, uint32_t width, const RowLimits& limits) {
  if (magnitude_max == 0) return {};
  int32_t code = ScaleCodeOf(WantedScale(square_sum, magnitude_max, width, limits));
  auto byte = static_cast<uint8_t>(std::clamp(code, 1, kScaleCodeMax));
  float stored = ScaleOfCode(byte);
  return {byte, stored, code > kScaleCodeMax ? 0.0f : static_cast<float>(kUnit) / stored};
}

// Rows whose scale is stored in FP32 are first multiplied by 2^-e, e the exponent of their largest magnitude, so that
// squares neither overflow nor vanish.
inline int32_t PrescaleExponent(float magnitude_max) {
  return std::clamp(static_cast<int32_t>(FloatBits(magnitude_max) >> 23) - 127, -100, 126);
}
inline float PowerOfTwo(int32_t exponent) { return BitsFloat(static_cast<uint32_t>(exponent + 127) << 23); }

// The same of a row that has been multiplied by 2^-exponent; `magnitude_max` is of the multiplied row.
inline RowScale FloatScale(float square_sum, float magnitude_max, int32_t exponent, uint32_t width,
                           const RowLimits& limits) {
  if (magnitude_max == 0) return {};
  float scale = WantedScale(square_sum, magnitude_max, width, limits);
  return {0, scale * PowerOfTwo(exponent), static_cast<float>(kUnit) / scale};
}

// What a row asks of the metadata; magnitudes that are NaN count as out of range.
inline Survey SurveyRow(float square_sum, float magnitude_max, uint32_t width, MetaType type, const RowLimits& limits) {
  Survey survey;
  survey.out_of_range = !(magnitude_max <= kMagnitudeMax);
  if (survey.out_of_range || type == MetaType::kFp32 || magnitude_max == 0) return survey;
  int32_t code = ScaleCodeOf(WantedScale(square_sum, magnitude_max, width, limits));
  survey.needs_float = code < 1 || code > kScaleCodeMax;
  return survey;
}

// Gains: the sum of squares over the sum of products with the levels, so that decoded rows keep <x, x^> = <x, x>.
// At 2 bits keys get a little less: what is left of their error shrinks the softmax less than it spreads it.
inline constexpr float kKeyGain = 0.98f;
inline float GainPart(Part part) { return part == Part::kK ? kKeyGain : 1.0f; }
inline float GainOf(int64_t squares, int64_t products, float part) {
  return static_cast<float>(squares) * part / static_cast<float>(std::max<int64_t>(products, 1));
}
inline uint8_t RoundedWithin(float value, float most) {
  return static_cast<uint8_t>(std::nearbyintf(std::clamp(value, 0.0f, most)));
}
inline uint8_t TwoBitGainCode(float gain) { return RoundedWithin((gain - 0.70f) * 50.0f, 63.0f); }
inline uint8_t FourBitGainCode(float gain) { return RoundedWithin((gain - 0.875f) * 1024.0f, 255.0f); }
inline float TwoBitGain(uint8_t code) { return 0.70f + static_cast<float>(code) * 0.02f; }
inline float FourBitGain(uint8_t code) { return 0.875f + static_cast<float>(code) * 0x1p-10f; }

// The integers that a row's codes leave behind: exact, and so in any order.
struct RowSums {
  int64_t squares = 0;        // Of the steps.
  int64_t two_products = 0;   // Of the steps and their 2-bit levels.
  int64_t four_products = 0;  // Of the steps and their 4-bit levels.
};

// Metadata of a row: the scale (a byte, or FP32), n2 << 2 | start, n4.
inline uint32_t MetaRowBytes(MetaType type) { return type == MetaType::kFp32 ? 6 : 3; }
inline uint8_t* WriteMeta(uint8_t* to, MetaType type, const RowScale& scale, const RowSums& sums, float gain_part,
                          uint8_t start) {
  if (type == MetaType::kFp32) {
    StoreLe<float>(to, scale.stored);
    to += 4;
  } else {
    *to++ = scale.code;
  }
  uint8_t two = TwoBitGainCode(GainOf(sums.squares, sums.two_products, gain_part));
  to[0] = static_cast<uint8_t>(two << 2 | start);
  to[1] = FourBitGainCode(GainOf(sums.squares, sums.four_products, 1.0f));
  return to + 2;
}

// What a class's levels of one row are multiplied with, and the row's start state.
struct RowFactor {
  float factor;
  uint8_t start;
};
inline RowFactor ReadMeta(const uint8_t* from, MetaType type, PrecisionClass precision) {
  float scale = type == MetaType::kFp32 ? LoadLe<float>(from) : ScaleOfCode(*from);
  from += MetaRowBytes(type) - 2;
  float step = scale * (1.0f / static_cast<float>(kUnit));
  if (precision == PrecisionClass::k2Bit) step = TwoBitGain(from[0] >> 2) * step;
  if (precision == PrecisionClass::k4Bit) step = FourBitGain(from[1]) * step;
  return {step, static_cast<uint8_t>(from[0] & 3u)};
}

}  // namespace firn::ladder
