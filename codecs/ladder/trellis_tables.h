// The trellis code's numbers as vectors look them up.
#pragma once

#include <array>
#include <cstdint>

#include "codecs/ladder/trellis_format.h"

namespace firn::ladder::trellis {

// Of upper levels (0 to 3 for j = 4 to 7), in 16-bit lanes. Entries by stretch are in rows of eight.
struct StepTables {
  alignas(64) uint16_t start[32], reciprocal[32], first_part[32];  // x / width = (x * reciprocal) >> 19.
  alignas(64) uint16_t four[32];                                   // 4-bit levels, rows of eight by cell.
  alignas(16) uint16_t below[kStretches][8];  // One less than each stretch's start, by upper level.
  alignas(16) uint16_t two[8];                // 2-bit levels, by upper level.
};
constexpr StepTables MakeStepTables() {
  StepTables tables{};
  for (uint32_t upper = 0; upper < 4; ++upper) {
    for (uint32_t i = 0; i < kStretches; ++i) {
      const Stretch& stretch = kStretch[upper][i];
      tables.start[8 * upper + i] = static_cast<uint16_t>(stretch.start);
      tables.reciprocal[8 * upper + i] = static_cast<uint16_t>(((1 << 19) + stretch.width - 1) / stretch.width);
      tables.first_part[8 * upper + i] = static_cast<uint16_t>(kFirstPart[i] << 3);
      tables.below[i][upper] = static_cast<uint16_t>(stretch.start - 1);
    }
    for (uint32_t cell = 0; cell < 4; ++cell) {
      tables.four[8 * upper + cell] = static_cast<uint16_t>(kFourBitLevel[upper][cell]);
    }
    tables.two[upper] = static_cast<uint16_t>(kLevel[4 + upper]);
  }
  return tables;
}
inline constexpr StepTables kSteps = MakeStepTables();

// Every residual of every upper level, as vectors compute it.
constexpr bool ResidualsDivideExactly() {
  for (uint32_t upper = 0; upper < 4; ++upper) {
    for (int32_t steps = -6452; steps <= 6451; ++steps) {
      uint32_t at = 8 * upper;
      for (uint32_t i = 1; i < kStretches; ++i) at += steps >= kStretch[upper][i].start ? 1 : 0;
      int32_t x = std::max(steps - static_cast<int16_t>(kSteps.start[at]), 0);
      int32_t part = std::min((((x * kSteps.reciprocal[at]) >> 16) + kSteps.first_part[at]) >> 3, 63);
      if (static_cast<uint32_t>(part) != UpperResidual(steps, upper)) return false;
    }
  }
  return true;
}
static_assert(ResidualsDivideExactly());

// Levels by what is looked up at each class: j; 4 j + cell; 64 j + residual.
struct LevelTables {
  alignas(64) float two[16], four[32], eight[512];
};
constexpr LevelTables MakeLevelTables() {
  LevelTables tables{};
  for (uint32_t i = 0; i < 16; ++i) tables.two[i] = static_cast<float>(kLevel[i % 8]);
  for (uint32_t i = 0; i < 32; ++i) tables.four[i] = static_cast<float>(FourBitLevelOf(i / 4, i % 4));
  for (uint32_t i = 0; i < 512; ++i) tables.eight[i] = EightBitLevelOf(i / 64, i % 64);
  return tables;
}
inline constexpr LevelTables kLevels = MakeLevelTables();

}  // namespace firn::ladder::trellis
