// Rows of codes of 2, 3, 4 or 8 bits as one LSB-first stream of bits: code j stands at bit `bits` * j.
//
// A row is padded to whole bytes with zero bits. Codes in memory are one byte each, below 2^bits. Threads: pure
// functions. These are the definition; codecs/numeric/bit_stream-inl.h gives the same bytes.
#pragma once

#include <algorithm>
#include <cstdint>

namespace firn {

inline uint64_t CodeRowBytes(uint32_t width, uint32_t bits) { return (uint64_t{width} * bits + 7) / 8; }

inline void PackCodesReference(const uint8_t* codes, uint64_t count, uint32_t bits, uint8_t* to) {
  std::fill_n(to, (count * bits + 7) / 8, uint8_t{0});
  for (uint64_t j = 0; j < count; ++j) {
    uint64_t at = j * bits;
    uint32_t word = uint32_t{codes[j]} << at % 8;
    to[at / 8] |= static_cast<uint8_t>(word);
    if (at % 8 + bits > 8) to[at / 8 + 1] |= static_cast<uint8_t>(word >> 8);
  }
}

inline void UnpackCodesReference(const uint8_t* from, uint64_t count, uint32_t bits, uint8_t* codes) {
  uint32_t mask = (1u << bits) - 1;
  for (uint64_t j = 0; j < count; ++j) {
    uint64_t at = j * bits;
    uint32_t word = from[at / 8];
    if (at % 8 + bits > 8) word |= uint32_t{from[at / 8 + 1]} << 8;
    codes[j] = static_cast<uint8_t>(word >> at % 8 & mask);
  }
}

}  // namespace firn
