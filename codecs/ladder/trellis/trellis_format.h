// The nested trellis code (docs/formats/nested_trellis.md): its numbers, and what is done to one value.
//
// A code is symbol << 6 | residual. The symbol is (p << 1) | b; with the bits b of the two values before it, which are
// the state, it names one of eight levels j = 4 p + 2 (b ^ b[-2]) + b[-1]. The residual is which of 64 parts around
// that level a value lies in: its upper two bits the cell, 4 bits in all.
#pragma once

#include <array>
#include <cstdint>

#include "codecs/ladder/row_format.h"

namespace firn::ladder::trellis {

inline constexpr RowLimits kLimits = {1.0f / 3.15f, 6451.0f};

inline constexpr int32_t kLevel[8] = {-3776, -2176, -1280, -384, 384, 1280, 2176, 3776};

// The symbol and the state before it: (b[-2] << 1) | b[-1].
constexpr uint32_t LevelIndex(uint32_t symbol, uint32_t state) {
  return 4 * (symbol >> 1) + 2 * ((symbol & 1u) ^ (state >> 1)) + (state & 1u);
}
constexpr uint32_t NextState(uint32_t symbol, uint32_t state) { return (state & 1u) << 1 | (symbol & 1u); }

// --- The search. Positions and levels in 64ths of ... steps: a step of the search is 64 steps of the code.
inline constexpr int32_t kSearchShift = 6;
constexpr int32_t SearchPosition(int32_t steps) { return (steps + 32) >> kSearchShift; }
inline constexpr int32_t kDistanceMax = 63;
inline constexpr int32_t kMetricMax = 255;
// The cost of a distance: about r^2 + r^4 up to r = 1 (a distance of 32), then 2 r^2.
constexpr uint8_t MetricOf(int32_t distance) {
  int32_t square = distance * distance;
  int32_t cost = square + ((square * (std::min(square, 1023) << 6)) >> 16);
  return static_cast<uint8_t>(std::min((cost + 16) >> 5, kMetricMax));
}
constexpr std::array<uint8_t, 64> MakeMetric() {
  std::array<uint8_t, 64> metric{};
  for (int32_t i = 0; i <= kDistanceMax; ++i) metric[static_cast<size_t>(i)] = MetricOf(i);
  return metric;
}
inline constexpr std::array<uint8_t, 64> kMetric = MakeMetric();

// Four pairs of levels (p = 0 and 1), by the lower two bits of j. A position above `middle` is nearer to the upper one.
struct LevelPair {
  int32_t lower, upper, middle;
};
inline constexpr LevelPair kPairs[4] = {{-59, 6, -27}, {-34, 20, -7}, {-20, 34, 7}, {-6, 59, 26}};
constexpr bool PairsAreTheLevels() {
  for (int i = 0; i < 4; ++i) {
    const LevelPair& pair = kPairs[i];
    if (pair.lower * 64 != kLevel[i] || pair.upper * 64 != kLevel[i + 4]) return false;
    if (2 * pair.middle > pair.lower + pair.upper || 2 * (pair.middle + 1) <= pair.lower + pair.upper) return false;
  }
  return true;
}
static_assert(PairsAreTheLevels());
constexpr bool TakesUpper(int32_t position, uint32_t pair) { return position > kPairs[pair].middle; }
constexpr uint8_t CostOf(int32_t position, uint32_t pair) {
  int32_t level = TakesUpper(position, pair) ? kPairs[pair].upper : kPairs[pair].lower;
  int32_t distance = position > level ? position - level : level - position;
  return kMetric[static_cast<size_t>(std::min(distance, kDistanceMax))];
}

// --- The residual. Of j = 4 to 7; j < 4 mirrors 7 - j: steps x and residual q of the one are ~x and 63 - q of the
// other. Each has six stretches of parts of one width, in ascending order.
inline constexpr int32_t kFourBitLevel[4][4] = {
    {-356, 146, 605, 1106}, {554, 1068, 1558, 2136}, {1410, 1951, 2467, 3045}, {2957, 3656, 4460, 5596}};
inline constexpr uint32_t kStretches = 6;
inline constexpr int32_t kFirstPart[kStretches] = {0, 6, 16, 32, 48, 58};

struct Stretch {
  int32_t start;  // In steps, of the stretch's first part.
  int32_t width;  // Of one part.
};
struct Parts {
  int32_t edges[3];  // Between the four cells, relative to the level.
  int32_t inner[2];  // Widths in the two inner cells.
  int32_t near_[2];  // In the outer cells, the ten parts next to the inner ones: below, above.
  int32_t far_[2];   // The six parts beyond them.
};
inline constexpr Parts kParts[4] = {{{-488, -8, 472}, {30, 30}, {78, 80}, {130, 130}},
                                    {{-463, 33, 561}, {31, 33}, {81, 71}, {130, 130}},
                                    {{-495, 33, 577}, {33, 34}, {77, 69}, {131, 131}},
                                    {{-470, 282, 1258}, {47, 61}, {80, 78}, {130, 107}}};
constexpr std::array<std::array<Stretch, kStretches>, 4> MakeStretches() {
  std::array<std::array<Stretch, kStretches>, 4> all{};
  for (size_t i = 0; i < 4; ++i) {
    const Parts& parts = kParts[i];
    const int32_t level = kLevel[i + 4];
    const int32_t near_start = level + parts.edges[0] - 10 * parts.near_[0];
    all[i] = {{{near_start - 6 * parts.far_[0], parts.far_[0]},
               {near_start, parts.near_[0]},
               {level + parts.edges[0], parts.inner[0]},
               {level + parts.edges[1], parts.inner[1]},
               {level + parts.edges[2], parts.near_[1]},
               {level + parts.edges[2] + 10 * parts.near_[1], parts.far_[1]}}};
  }
  return all;
}
inline constexpr std::array<std::array<Stretch, kStretches>, 4> kStretch = MakeStretches();

// Of an upper level, 0 to 3 for j = 4 to 7.
constexpr uint32_t UpperResidual(int32_t steps, uint32_t upper) {
  const auto& stretches = kStretch[upper];
  uint32_t at = 0;
  while (at + 1 < kStretches && steps >= stretches[at + 1].start) ++at;
  int32_t part = std::max(steps - stretches[at].start, 0) / stretches[at].width;
  return static_cast<uint32_t>(std::min(kFirstPart[at] + part, 63));
}
constexpr uint32_t ResidualOf(int32_t steps, uint32_t level) {
  return level >= 4 ? UpperResidual(steps, level - 4) : 63 - UpperResidual(~steps, 3 - level);
}

// --- Decoding.
constexpr int32_t FourBitLevelOf(uint32_t level, uint32_t cell) {
  return level >= 4 ? kFourBitLevel[level - 4][cell] : -kFourBitLevel[3 - level][3 - cell];
}
constexpr float UpperEightBit(uint32_t upper, uint32_t residual) {
  uint32_t at = 0;
  while (at + 1 < kStretches && residual >= static_cast<uint32_t>(kFirstPart[at + 1])) ++at;
  const Stretch& stretch = kStretch[upper][at];
  float part = static_cast<float>(static_cast<int32_t>(residual) - kFirstPart[at]) + 0.5f;
  return static_cast<float>(stretch.start) + static_cast<float>(stretch.width) * part;
}
// The middle of the part.
constexpr float EightBitLevelOf(uint32_t level, uint32_t residual) {
  return level >= 4 ? UpperEightBit(level - 4, residual) : -UpperEightBit(3 - level, 63 - residual);
}
inline float LevelOf(uint32_t level, uint32_t residual, PrecisionClass precision) {
  if (precision == PrecisionClass::k8Bit) return EightBitLevelOf(level, residual);
  if (precision == PrecisionClass::k4Bit) return static_cast<float>(FourBitLevelOf(level, residual >> 4));
  return static_cast<float>(kLevel[level]);
}

}  // namespace firn::ladder::trellis
