#include "codecs/rope/rope_table.h"

#include <cmath>

namespace firn {
namespace {

// pi / 2 in three parts, of which the first two have 26 bits: their products with up to 2^27 are exact.
constexpr double kHalfPiHigh = 0x1.921fb5p+0, kHalfPiMiddle = 0x1.110b46p-26, kHalfPiLow = 0x1.1a62633145c07p-54;
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;

// Taylor series on [-pi/4, pi/4], from the smallest term up: off by less than 2^-53 of the result's size.
double SineOf(double r) {
  double s = r * r;
  double t = -1.0 / 1307674368000.0;  // 15!
  t = 1.0 / 6227020800.0 + s * t;
  t = -1.0 / 39916800.0 + s * t;
  t = 1.0 / 362880.0 + s * t;
  t = -1.0 / 5040.0 + s * t;
  t = 1.0 / 120.0 + s * t;
  t = -1.0 / 6.0 + s * t;
  return r + r * (s * t);
}

double CosineOf(double r) {
  double s = r * r;
  double t = 1.0 / 20922789888000.0;  // 16!
  t = -1.0 / 87178291200.0 + s * t;
  t = 1.0 / 479001600.0 + s * t;
  t = -1.0 / 3628800.0 + s * t;
  t = 1.0 / 40320.0 + s * t;
  t = -1.0 / 720.0 + s * t;
  t = 1.0 / 24.0 + s * t;
  t = -0.5 + s * t;
  return 1.0 + s * t;
}

}  // namespace

Turn TurnOf(uint32_t position, double frequency) {
  double angle = static_cast<double>(position) * frequency;
  double quarters = std::nearbyint(angle * kTwoOverPi);
  double rest = ((angle - quarters * kHalfPiHigh) - quarters * kHalfPiMiddle) - quarters * kHalfPiLow;
  double sine = SineOf(rest), cosine = CosineOf(rest);
  switch (static_cast<uint64_t>(quarters) & 3) {
    case 0:
      return {static_cast<float>(cosine), static_cast<float>(sine)};
    case 1:
      return {static_cast<float>(-sine), static_cast<float>(cosine)};
    case 2:
      return {static_cast<float>(-cosine), static_cast<float>(-sine)};
    default:
      return {static_cast<float>(sine), static_cast<float>(-cosine)};
  }
}

RopeTable::RopeTable(const Rope& rope, uint32_t first_position, uint32_t tokens)
    : pairs_(static_cast<uint32_t>(rope.frequencies.size())), interleaved_(rope.interleaved) {
  for (uint32_t t = 0; t < tokens; ++t) Add(rope, first_position + t);
}

RopeTable::RopeTable(const Rope& rope, uint32_t first_position, std::span<const uint32_t> offsets)
    : pairs_(static_cast<uint32_t>(rope.frequencies.size())), interleaved_(rope.interleaved) {
  for (uint32_t offset : offsets) Add(rope, first_position + offset);
}

void RopeTable::Add(const Rope& rope, uint32_t position) {
  for (double frequency : rope.frequencies) {
    Turn turn = TurnOf(position, frequency);
    cosines_.push_back(turn.cosine);
    sines_.push_back(turn.sine);
  }
}

}  // namespace firn
