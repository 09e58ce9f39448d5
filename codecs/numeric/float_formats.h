// Scalar conversions between FP32 and the small floating-point formats, exact to the bit: the definition that SIMD
// follows.
//
// Rounding is to nearest, ties to even, unless a name says otherwise. Works on bit patterns, so neither compiler flags
// nor the processor's rounding mode change a result. Threads: pure functions. Source: IEEE 754-2019; OCP 8-bit Floating
// Point Specification 1.0 (E4M3, E5M2); OCP Microscaling Formats 1.0 (E2M1, E8M0).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace firn {

inline constexpr float kHalfMax = 65504.0f;
inline constexpr float kHalfMinNormal = 0x1p-14f;
inline constexpr float kFloatMinNormal = 0x1p-126f;
inline constexpr float kBfloatMax = 0x1.FEp127f;
inline constexpr float kE4m3Max = 448.0f;
inline constexpr float kE5m2Max = 57344.0f;

inline uint32_t FloatBits(float value) { return std::bit_cast<uint32_t>(value); }
inline float BitsFloat(uint32_t bits) { return std::bit_cast<float>(bits); }

inline float HalfToFloat(uint16_t half) {
  uint32_t sign = uint32_t{half & 0x8000u} << 16;
  uint32_t magnitude = half & 0x7FFFu;
  if (magnitude >= 0x7C00u) return BitsFloat(sign | 0x7F800000u | (magnitude & 0x3FFu) << 13);
  if (magnitude < 0x400u) return BitsFloat(sign | FloatBits(static_cast<float>(magnitude) * 0x1p-24f));
  return BitsFloat(sign | ((magnitude << 13) + (112u << 23)));
}

// Overflow gives Inf; NaN stays NaN.
inline uint16_t FloatToHalf(float value) {
  uint32_t bits = FloatBits(value);
  uint32_t sign = bits >> 16 & 0x8000u;
  uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u | (magnitude >> 13 & 0x1FFu));
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7C00u);
  if (magnitude < 0x38800000u) {
    // Adding 0.5 aligns the value to steps of 2^-24; the hardware's addition rounds.
    return static_cast<uint16_t>(sign | (FloatBits(BitsFloat(magnitude) + 0.5f) - 0x3F000000u));
  }
  uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u);
  return static_cast<uint16_t>(sign | (rounded - (112u << 23)) >> 13);
}

inline float BfloatToFloat(uint16_t bfloat) { return BitsFloat(uint32_t{bfloat} << 16); }

inline uint16_t FloatToBfloat(float value) {
  uint32_t bits = FloatBits(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

// Saturates finite and infinite values to +-448 (7E, FE); NaN becomes 7F or FF.
inline uint8_t FloatToE4m3(float value) {
  uint32_t bits = FloatBits(value);
  uint32_t sign = bits >> 24 & 0x80u;
  uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint8_t>(sign | 0x7Fu);
  if (magnitude > 0x43E00000u) magnitude = 0x43E00000u;
  if (magnitude < 0x3C800000u) {
    return static_cast<uint8_t>(sign | (FloatBits(BitsFloat(magnitude) + 0x1p14f) - FloatBits(0x1p14f)));
  }
  uint32_t rounded = magnitude + 0x7FFFFu + (magnitude >> 20 & 1u);
  return static_cast<uint8_t>(sign | ((rounded >> 20) - (120u << 3)));
}

inline float E4m3ToFloat(uint8_t code) {
  uint32_t sign = uint32_t{code & 0x80u} << 24;
  uint32_t magnitude = code & 0x7Fu;
  if (magnitude == 0x7Fu) return BitsFloat(sign | 0x7FC00000u);
  if (magnitude < 8) return BitsFloat(sign | FloatBits(static_cast<float>(magnitude) * 0x1p-9f));
  return BitsFloat(sign | ((magnitude << 20) + (120u << 23)));
}

// Saturates finite and infinite values to +-57344 (7B, FB); NaN becomes 7F or FF.
inline uint8_t FloatToE5m2(float value) {
  uint32_t bits = FloatBits(value);
  uint32_t sign = bits >> 24 & 0x80u;
  uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint8_t>(sign | 0x7Fu);
  if (magnitude > 0x47600000u) magnitude = 0x47600000u;
  if (magnitude < 0x38800000u) {
    return static_cast<uint8_t>(sign | (FloatBits(BitsFloat(magnitude) + 0x1p7f) - FloatBits(0x1p7f)));
  }
  uint32_t rounded = magnitude + 0xFFFFFu + (magnitude >> 21 & 1u);
  return static_cast<uint8_t>(sign | ((rounded >> 21) - (112u << 2)));
}

inline float E5m2ToFloat(uint8_t code) { return HalfToFloat(static_cast<uint16_t>(code << 8)); }

// E2M1 in the low four bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives; there is no NaN or Inf. Saturates to +-6.
inline uint8_t FloatToE2m1(float value) {
  uint32_t bits = FloatBits(value);
  uint32_t sign = bits >> 28 & 8u;
  uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x40C00000u) magnitude = 0x40C00000u;
  if (magnitude < 0x3F800000u) {
    return static_cast<uint8_t>(sign | (FloatBits(BitsFloat(magnitude) + 0x1p22f) - FloatBits(0x1p22f)));
  }
  uint32_t rounded = magnitude + 0x1FFFFFu + (magnitude >> 22 & 1u);
  return static_cast<uint8_t>(sign | ((rounded >> 22) - (126u << 1)));
}

inline constexpr float kE2m1Max = 6.0f;
inline constexpr float kE2m1Values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                          -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// Finite values outside +-limit become +-limit; Inf and NaN stay.
inline float SaturateFinite(float value, float limit) {
  if (!std::isfinite(value) || std::fabs(value) <= limit) return value;
  return std::copysign(limit, value);
}

// The largest half or bfloat that is not above `value`, which is finite and within the type's range.
inline uint16_t FloatToHalfDown(float value) {
  uint16_t half = FloatToHalf(value);
  if (HalfToFloat(half) <= value) return half;
  return static_cast<uint16_t>(half & 0x8000u ? half + 1 : half - 1);
}
inline uint16_t FloatToBfloatDown(float value) {
  uint16_t bfloat = FloatToBfloat(value);
  if (BfloatToFloat(bfloat) <= value) return bfloat;
  return static_cast<uint16_t>(bfloat & 0x8000u ? bfloat + 1 : bfloat - 1);
}
// The smallest one that is not below `value`, which is not negative.
inline uint16_t FloatToHalfUp(float value) {
  uint16_t half = FloatToHalf(value);
  return HalfToFloat(half) >= value ? half : static_cast<uint16_t>(half + 1);
}
inline uint16_t FloatToBfloatUp(float value) {
  uint16_t bfloat = FloatToBfloat(value);
  return BfloatToFloat(bfloat) >= value ? bfloat : static_cast<uint16_t>(bfloat + 1);
}

// A number that orders all finite values and the two zeros: -0 comes just before +0.
inline int32_t TotalOrder(float value) {
  int32_t bits = static_cast<int32_t>(FloatBits(value));
  return bits ^ static_cast<int32_t>(static_cast<uint32_t>(bits >> 31) >> 1);
}
inline float FromTotalOrder(int32_t order) {
  return BitsFloat(static_cast<uint32_t>(order ^ static_cast<int32_t>(static_cast<uint32_t>(order >> 31) >> 1)));
}

}  // namespace firn
