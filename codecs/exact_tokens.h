// Which tokens of a block are kept exact: the leading ones (attention sinks), or any set of them (MiKV).
//
// A set is a number of tokens and a map. The map is empty where the tokens are the leading ones, else it has one bit a
// token, lowest first, ceil(tokens / 64) words, zeros behind the last token. So every set has one form.
// Threads: pure functions. Limits: kTokensMax.
// Source: MiKV (arXiv 2402.18096): what matters little is kept at few bits instead of being evicted.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "codecs/types.h"

namespace firn {

using TokenMap = std::vector<uint64_t>;

inline uint64_t TokenMapWords(uint32_t tokens) { return (uint64_t{tokens} + 63) / 64; }
inline bool MapHas(const TokenMap& map, uint32_t token) { return (map[token / 64] >> token % 64) & 1; }

struct ExactTokens {
  uint32_t count = 0;
  TokenMap map;
  bool operator==(const ExactTokens&) const = default;
};

// The set of these positions, which are below `tokens`.
ExactTokens ExactTokensOf(std::span<const uint32_t> positions, uint32_t tokens);
// InvalidArgument unless `exact` is the one form of a set of a block of so many tokens.
absl::Status CheckExactTokens(uint32_t count, const TokenMap& map, uint32_t tokens);

// Positions of a block's tokens that are in a set that is not leading, and of the others, both ascending.
struct TokenPositions {
  std::vector<uint32_t> exact, coded;
};
TokenPositions PositionsOf(const TokenMap& map, uint32_t tokens);

// Calls visit(index, position, count) for stretches of consecutive positions.
template <typename Visit>
void ForEachStretch(std::span<const uint32_t> positions, Visit visit) {
  for (size_t begin = 0, end = 0; begin < positions.size(); begin = end) {
    for (end = begin + 1; end < positions.size() && positions[end] == positions[end - 1] + 1;) ++end;
    visit(static_cast<uint32_t>(begin), positions[begin], static_cast<uint32_t>(end - begin));
  }
}

// InvalidArgument naming `what`, the value and the limit, unless there is one finite value of 0 or more for each token,
// or none at all.
absl::Status CheckImportance(std::string_view what, std::span<const float> importance, uint32_t tokens);

// The importance of a block's tokens as it is kept: 255 for the highest, one less for the next lower value, and so on;
// where there are more than 256 values, neighbours share a number evenly. Only the order matters, and up to 256 values
// it is exact. `importance` is finite.
std::vector<uint8_t> RankImportance(std::span<const float> importance);

// How many tokens of a block a share of them is, rounded to the nearest, halves up.
uint32_t ImportantTokens(float fraction, uint32_t tokens);

// The tokens to keep exact: the `leading` ones, and of the others those of the highest rank, the lower position first
// where ranks are equal, until ImportantTokens are kept with the leading ones. Without ranks, the leading ones alone.
ExactTokens ChooseExactTokens(uint32_t tokens, uint32_t leading, float fraction, std::span<const uint8_t> ranks);

}  // namespace firn
