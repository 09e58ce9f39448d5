// CRC-64/XZ as arithmetic of polynomials over GF(2), for a sum in parallel: host and device.
//
// Reflected: the coefficient of x^0 is the highest bit. The state after bytes of two stretches A and B is
// A's state times x^(8 |B|), plus B's state from zero.
#pragma once

#include <cstdint>

#include "kernels/views.h"

namespace firn::kernels {

inline constexpr uint64_t kCrcPolynomial = 0xC96C5795D7870F42;  // ECMA-182, reflected.
inline constexpr uint64_t kCrcOne = uint64_t{1} << 63;          // The polynomial 1.

FIRN_HOST_DEVICE constexpr uint64_t CrcTimesX(uint64_t a) { return a >> 1 ^ ((a & 1) != 0 ? kCrcPolynomial : 0); }

FIRN_HOST_DEVICE constexpr uint64_t CrcTimes(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  for (int i = 0; i < 64; ++i) {
    product ^= (b >> (63 - i) & 1) != 0 ? a : 0;
    a = CrcTimesX(a);
  }
  return product;
}

// x^(8 * bytes).
FIRN_HOST_DEVICE constexpr uint64_t CrcShift(uint64_t bytes) {
  uint64_t result = kCrcOne, power = kCrcOne >> 8;
  for (; bytes != 0; bytes >>= 1) {
    if ((bytes & 1) != 0) result = CrcTimes(result, power);
    power = CrcTimes(power, power);
  }
  return result;
}

// Words that are summed side by side.
inline constexpr uint32_t kCrcStride = 256;

// of_byte[i][b]: byte i of a word (its lowest first), b, times x^(64 * kCrcStride).
struct CrcStepTables {
  uint64_t of_byte[8][256];
};
constexpr CrcStepTables MakeCrcStepTables() {
  CrcStepTables tables{};
  const uint64_t step = CrcShift(8 * uint64_t{kCrcStride});
  for (uint32_t byte = 0; byte < 8; ++byte) {
    for (uint32_t value = 1; value < 256; ++value) {
      uint32_t lowest = value & (~value + 1);
      tables.of_byte[byte][value] = value == lowest
                                        ? CrcTimes(uint64_t{value} << (8 * byte), step)
                                        : tables.of_byte[byte][value - lowest] ^ tables.of_byte[byte][lowest];
    }
  }
  return tables;
}
// powers[i]: x^(64 * (i + 1)), from word i before the end to the end.
struct CrcEndPowers {
  uint64_t powers[kCrcStride];
};
constexpr CrcEndPowers MakeCrcEndPowers() {
  CrcEndPowers end{};
  uint64_t power = kCrcOne;
  for (uint64_t& each : end.powers) {
    for (int bit = 0; bit < 64; ++bit) power = CrcTimesX(power);
    each = power;
  }
  return end;
}

}  // namespace firn::kernels
