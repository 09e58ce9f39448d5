#include "codecs/exact_tokens.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/status.h"

namespace firn {

ExactTokens ExactTokensOf(std::span<const uint32_t> positions, uint32_t tokens) {
  ExactTokens exact{static_cast<uint32_t>(positions.size()), TokenMap(TokenMapWords(tokens))};
  bool leading = true;
  for (uint32_t position : positions) {
    FIRN_CHECK(position < tokens);
    exact.map[position / 64] |= uint64_t{1} << position % 64;
    leading &= position < exact.count;
  }
  if (leading) exact.map.clear();
  return exact;
}

absl::Status CheckExactTokens(uint32_t count, const TokenMap& map, uint32_t tokens) {
  if (count > tokens) return InvalidArgument("{} exact tokens of {}", count, tokens);
  if (map.empty()) return absl::OkStatus();
  if (map.size() != TokenMapWords(tokens)) {
    return InvalidArgument("a map of {} words for the exact ones of {} tokens, {} expected", map.size(), tokens,
                           TokenMapWords(tokens));
  }
  uint64_t marked = 0;
  for (uint64_t word : map) marked += static_cast<uint64_t>(std::popcount(word));
  if (marked != count) return InvalidArgument("{} exact tokens, and a map of {}", count, marked);
  if (tokens % 64 != 0 && (map.back() >> tokens % 64) != 0) {
    return InvalidArgument("a map of exact tokens goes on behind the last of {}", tokens);
  }
  uint32_t leading = 0;
  while (leading < count && MapHas(map, leading)) ++leading;
  if (leading == count)
    return InvalidArgument("the exact tokens are the {} leading ones, which is said otherwise", count);
  return absl::OkStatus();
}

TokenPositions PositionsOf(const TokenMap& map, uint32_t tokens) {
  TokenPositions positions;
  if (map.empty()) return positions;
  for (uint32_t token = 0; token < tokens; ++token) {
    (MapHas(map, token) ? positions.exact : positions.coded).push_back(token);
  }
  return positions;
}

absl::Status CheckImportance(std::string_view what, std::span<const float> importance, uint32_t tokens) {
  if (!importance.empty() && importance.size() != tokens) {
    return InvalidArgument("{} has {} values for {} tokens; it has one a token, or none", what, importance.size(),
                           tokens);
  }
  for (size_t i = 0; i < importance.size(); ++i) {
    if (std::isfinite(importance[i]) && importance[i] >= 0) continue;
    return InvalidArgument("{}[{}] is {}; it is finite and not negative", what, i, importance[i]);
  }
  return absl::OkStatus();
}

std::vector<uint8_t> RankImportance(std::span<const float> importance) {
  std::vector<float> values(importance.begin(), importance.end());
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  std::vector<uint8_t> ranks;
  ranks.reserve(importance.size());
  for (float value : importance) {
    auto below = static_cast<size_t>(std::lower_bound(values.begin(), values.end(), value) - values.begin());
    size_t from_top = values.size() - 1 - below;
    if (values.size() > 256) from_top = from_top * 256 / values.size();
    ranks.push_back(static_cast<uint8_t>(255 - from_top));
  }
  return ranks;
}

uint32_t ImportantTokens(float fraction, uint32_t tokens) {
  return static_cast<uint32_t>(std::floor(double{fraction} * tokens + 0.5));
}

ExactTokens ChooseExactTokens(uint32_t tokens, uint32_t leading, float fraction, std::span<const uint8_t> ranks) {
  uint32_t wanted = ranks.empty() ? 0 : std::min(ImportantTokens(fraction, tokens), tokens);
  if (wanted <= leading) return {leading, {}};
  std::vector<uint32_t> positions(tokens);
  std::iota(positions.begin(), positions.end(), 0);
  std::stable_sort(positions.begin() + leading, positions.end(),
                   [&](uint32_t a, uint32_t b) { return ranks[a] > ranks[b]; });
  return ExactTokensOf(std::span(positions).first(wanted), tokens);
}

}  // namespace firn
