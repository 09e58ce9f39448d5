// The trellis code's numbers as vectors look them up.
#pragma once

#include <array>
#include <cstdint>

#include "codecs/ladder/trellis/trellis_format.h"

namespace firn::ladder::trellis {

// Of upper levels (0 to 3 for j = 4 to 7), in rows of eight 16-bit lanes: by block, by stretch, by cell.
struct StepTables {
  alignas(64) uint16_t finder[32];                 // Stretch = (position in block + entry) >> 9.
  alignas(64) uint16_t start[32], reciprocal[32];  // x / width = (x * reciprocal) >> 19.
  alignas(64) uint16_t first_part[32];             // Times 8.
  alignas(64) uint16_t four[32], two[32];          // Levels of 4 and 2 bits.
};
// Steps relative to the level are looked up in eight blocks of 512. None holds two ends of stretches, and no stretch
// ends outside.
inline constexpr int32_t kBlocksBegin = -1792, kBlocksEnd = kBlocksBegin + 8 * 512;
constexpr int32_t RelativeStart(uint32_t upper, uint32_t stretch) {
  return kStretch[upper][stretch].start - kLevel[4 + upper];
}
constexpr StepTables MakeStepTables() {
  StepTables tables{};
  for (uint32_t upper = 0; upper < 4; ++upper) {
    for (uint32_t block = 0; block < 8; ++block) {
      int32_t first = kBlocksBegin + static_cast<int32_t>(block) * 512, entry = 0;
      for (uint32_t i = 1; i < kStretches; ++i) {
        int32_t inside = RelativeStart(upper, i) - first;
        entry += inside <= 0 ? 512 : inside < 512 ? 512 - inside : 0;
      }
      tables.finder[8 * upper + block] = static_cast<uint16_t>(entry);
    }
    for (uint32_t i = 0; i < kStretches; ++i) {
      const int32_t width = kStretch[upper][i].width;
      tables.start[8 * upper + i] = static_cast<uint16_t>(RelativeStart(upper, i));
      tables.reciprocal[8 * upper + i] = static_cast<uint16_t>(((1 << 19) + width - 1) / width);
      tables.first_part[8 * upper + i] = static_cast<uint16_t>(kFirstPart[i] << 3);
    }
    for (uint32_t cell = 0; cell < 4; ++cell) {
      tables.four[8 * upper + cell] = static_cast<uint16_t>(kFourBitLevel[upper][cell]);
    }
    for (uint32_t i = 0; i < 8; ++i) tables.two[8 * upper + i] = static_cast<uint16_t>(kLevel[4 + upper]);
  }
  return tables;
}
inline constexpr StepTables kSteps = MakeStepTables();

// Every residual of an upper level, as vectors compute it.
constexpr bool ResidualsAreExact(uint32_t upper) {
  for (int32_t steps = -6452; steps <= 6451; ++steps) {
    int32_t relative = steps - kLevel[4 + upper];
    int32_t within = std::clamp(relative, kBlocksBegin, kBlocksEnd - 1) - kBlocksBegin;
    int32_t stretch = (within % 512 + kSteps.finder[8 * upper + static_cast<uint32_t>(within / 512)]) >> 9;
    uint32_t at = 8 * upper + static_cast<uint32_t>(stretch);
    int32_t x = std::max(relative - static_cast<int16_t>(kSteps.start[at]), 0);
    int32_t part = std::min((((x * kSteps.reciprocal[at]) >> 16) + kSteps.first_part[at]) >> 3, 63);
    if (static_cast<uint32_t>(part) != UpperResidual(steps, upper)) return false;
  }
  return true;
}
static_assert(ResidualsAreExact(0) && ResidualsAreExact(1) && ResidualsAreExact(2) && ResidualsAreExact(3));

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

// Residuals of upper levels taken apart: the stretch and which of its parts, and, in rows of eight by upper level, the
// middle of a stretch's first part and the width of its parts.
struct PartingTables {
  alignas(64) uint8_t stretch[64], part[64];
  alignas(64) float start[32], width[32];
};
constexpr PartingTables MakePartingTables() {
  PartingTables tables{};
  for (uint32_t residual = 0; residual < 64; ++residual) {
    uint32_t at = 0;
    while (at + 1 < kStretches && residual >= static_cast<uint32_t>(kFirstPart[at + 1])) ++at;
    tables.stretch[residual] = static_cast<uint8_t>(at);
    tables.part[residual] = static_cast<uint8_t>(residual - static_cast<uint32_t>(kFirstPart[at]));
  }
  for (uint32_t upper = 0; upper < 4; ++upper) {
    for (uint32_t i = 0; i < kStretches; ++i) {
      tables.start[8 * upper + i] = UpperEightBit(upper, static_cast<uint32_t>(kFirstPart[i]));
      tables.width[8 * upper + i] = static_cast<float>(kStretch[upper][i].width);
    }
  }
  return tables;
}
inline constexpr PartingTables kParting = MakePartingTables();

}  // namespace firn::ladder::trellis
