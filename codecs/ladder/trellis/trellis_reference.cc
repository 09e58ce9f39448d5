// The scalar reference of the trellis code: the definition that SIMD must match byte for byte.

#include "codecs/ladder/ladder_codec.h"
#include "codecs/ladder/row_reference.h"
#include "codecs/ladder/trellis/trellis_format.h"

namespace firn::ladder {
namespace {

// The cheapest path through the four states, as symbols; returns the state before the first value.
uint8_t CheapestPath(const int32_t* steps, uint32_t width, uint8_t* symbols) {
  // Which of its two predecessors (state / 2, or that + 2) each state of each position came from.
  std::vector<std::array<bool, 4>> from_upper(width);
  std::array<int32_t, 4> costs{};
  for (uint32_t c = 0; c < width; ++c) {
    int32_t position = trellis::SearchPosition(steps[c]);
    std::array<int32_t, 4> next;
    for (uint32_t state = 0; state < 4; ++state) {
      uint32_t lower = state >> 1, upper = lower + 2;
      auto reached = [&](uint32_t from) {
        int32_t cost = costs[from] + trellis::CostOf(position, trellis::LevelIndex(state & 1u, from));
        return std::min(cost, trellis::kMetricMax);
      };
      from_upper[c][state] = reached(upper) < reached(lower);
      next[state] = std::min(reached(lower), reached(upper));
    }
    int32_t least = *std::min_element(next.begin(), next.end());
    for (uint32_t state = 0; state < 4; ++state) costs[state] = next[state] - least;
  }
  auto state = static_cast<uint32_t>(std::min_element(costs.begin(), costs.end()) - costs.begin());
  for (uint32_t c = width; c-- > 0;) {
    uint32_t before = (state >> 1) + (from_upper[c][state] ? 2 : 0);
    uint32_t pair = trellis::LevelIndex(state & 1u, before);
    bool upper = trellis::TakesUpper(trellis::SearchPosition(steps[c]), pair);
    symbols[c] = static_cast<uint8_t>((upper ? 2u : 0u) | (state & 1u));
    state = before;
  }
  return static_cast<uint8_t>(state);
}

}  // namespace

void EncodeTrellisReference(const EncodeTile& tile) {
  EncodeRowsReference(tile, trellis::kLimits, [&](const int32_t* steps, uint8_t* codes, RowSums* sums) {
    uint8_t start = CheapestPath(steps, tile.width, codes);
    uint32_t state = start;
    for (uint32_t c = 0; c < tile.width; ++c) {
      uint32_t symbol = codes[c], level = trellis::LevelIndex(symbol, state);
      uint32_t residual = trellis::ResidualOf(steps[c], level);
      sums->two_products += int64_t{steps[c]} * trellis::kLevel[level];
      sums->four_products += int64_t{steps[c]} * trellis::FourBitLevelOf(level, residual >> 4);
      codes[c] = static_cast<uint8_t>(symbol << 6 | residual);
      state = trellis::NextState(symbol, state);
    }
    return start;
  });
}

void DecodeTrellisReference(const DecodeTile& tile) {
  DecodeRowsReference(tile, [&](const uint8_t* codes, uint8_t start, float* levels) {
    uint32_t state = start;
    for (uint32_t c = 0; c < tile.width; ++c) {
      uint32_t symbol = codes[c] >> 6;
      levels[c] = trellis::LevelOf(trellis::LevelIndex(symbol, state), codes[c] & 63u, tile.precision);
      state = trellis::NextState(symbol, state);
    }
  });
}

Survey SurveyTrellisReference(const EncodeTile& tile) { return SurveyRowsReference(tile, trellis::kLimits); }

}  // namespace firn::ladder
