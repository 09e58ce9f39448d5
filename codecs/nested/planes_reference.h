// Rows of codes to rows of planes and back, one value at a time: the definition of the bit order.
//
// Byte i of a 2-bit row of B bytes holds values i, i+B, i+2B, i+3B from its low bits up; byte i of a 4-bit row of B
// bytes holds values i and i+B. Bits of values at or beyond the width are zero.
#pragma once

#include <cstdint>

#include "codecs/nested/nested_format.h"

namespace firn::nested {

// `codes` has `width` bytes. Null planes are skipped.
inline void PackRowReference(const uint8_t* codes, uint32_t width, uint8_t* p2, uint8_t* p4, uint8_t* p8) {
  uint64_t pair_bytes = TwoBitRowBytes(width), nibble_bytes = FourBitRowBytes(width);
  auto two_bits = [&](uint8_t* row, uint32_t shift) {
    for (uint64_t i = 0; i < pair_bytes; ++i) {
      uint32_t packed = 0;
      for (uint32_t part = 0; part < 4; ++part) {
        uint64_t at = i + part * pair_bytes;
        if (at < width) packed |= (codes[at] >> shift & 3u) << (2 * part);
      }
      row[i] = static_cast<uint8_t>(packed);
    }
  };
  if (p2 != nullptr) two_bits(p2, 6);
  if (p4 != nullptr) two_bits(p4, 4);
  if (p8 == nullptr) return;
  for (uint64_t i = 0; i < nibble_bytes; ++i) {
    uint32_t high = i + nibble_bytes < width ? codes[i + nibble_bytes] & 15u : 0;
    p8[i] = static_cast<uint8_t>((codes[i] & 15u) | high << 4);
  }
}

// Fills `codes` (`width` bytes) from the planes that `precision` needs; bits of other planes are zero.
inline void UnpackCodesReference(const uint8_t* p2, const uint8_t* p4, const uint8_t* p8, uint32_t width,
                                 PrecisionClass precision, uint8_t* codes) {
  uint64_t pair_bytes = TwoBitRowBytes(width), nibble_bytes = FourBitRowBytes(width);
  for (uint64_t at = 0; at < width; ++at) {
    uint32_t shift = static_cast<uint32_t>(2 * (at / pair_bytes));
    uint32_t code = (p2[at % pair_bytes] >> shift & 3u) << 6;
    if (precision >= PrecisionClass::k4Bit) code |= (p4[at % pair_bytes] >> shift & 3u) << 4;
    if (precision >= PrecisionClass::k8Bit) {
      code |= at < nibble_bytes ? p8[at] & 15u : p8[at - nibble_bytes] >> 4;
    }
    codes[at] = static_cast<uint8_t>(code);
  }
}

// The levels of the offset code.
inline void UnpackRowReference(const uint8_t* p2, const uint8_t* p4, const uint8_t* p8, uint32_t width,
                               PrecisionClass precision, uint8_t* levels) {
  UnpackCodesReference(p2, p4, p8, width, precision, levels);
  for (uint32_t at = 0; at < width; ++at) levels[at] = LevelOf(levels[at], precision);
}

}  // namespace firn::nested
