#include "codecs/exact_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "base/status.h"

namespace firn {
namespace {

TEST(ExactTokens, EverySetHasOneForm) {
  EXPECT_EQ(ExactTokensOf(std::vector<uint32_t>{}, 70), (ExactTokens{0, {}}));
  EXPECT_EQ(ExactTokensOf(std::vector<uint32_t>{2, 0, 1}, 70), (ExactTokens{3, {}}));
  EXPECT_EQ(ExactTokensOf(std::vector<uint32_t>{0, 2, 69}, 70), (ExactTokens{3, {5, 32}}));
  auto refused = [](uint32_t count, const TokenMap& map, uint32_t tokens) {
    return absl::IsInvalidArgument(CheckExactTokens(count, map, tokens));
  };
  EXPECT_TRUE(CheckExactTokens(3, {5, 32}, 70).ok());
  EXPECT_TRUE(CheckExactTokens(70, {}, 70).ok());
  EXPECT_TRUE(refused(71, {}, 70));
  EXPECT_TRUE(refused(2, {5, 32}, 70)) << "a bit more than tokens";
  EXPECT_TRUE(refused(4, {5, 32}, 70)) << "a bit less";
  EXPECT_TRUE(refused(3, {5, 64}, 70)) << "behind the last token";
  EXPECT_TRUE(refused(3, {5, 32, 0}, 70)) << "a word too many";
  EXPECT_TRUE(refused(2, {5}, 70)) << "a word too few";
  EXPECT_TRUE(refused(3, {7, 0}, 70)) << "leading tokens need no map";
  EXPECT_TRUE(refused(0, {0, 0}, 70));
  EXPECT_TRUE(refused(64, {~uint64_t{0}}, 64)) << "all";
}

TEST(ExactTokens, PositionsAndStretchesCoverTheBlock) {
  TokenMap map = ExactTokensOf(std::vector<uint32_t>{1, 2, 5}, 7).map;
  TokenPositions positions = PositionsOf(map, 7);
  EXPECT_EQ(positions.exact, (std::vector<uint32_t>{1, 2, 5}));
  EXPECT_EQ(positions.coded, (std::vector<uint32_t>{0, 3, 4, 6}));
  std::vector<std::array<uint32_t, 3>> stretches;
  ForEachStretch(positions.coded, [&](uint32_t index, uint32_t position, uint32_t count) {
    stretches.push_back({index, position, count});
  });
  EXPECT_EQ(stretches, (std::vector<std::array<uint32_t, 3>>{{0, 0, 1}, {1, 3, 2}, {3, 6, 1}}));
  EXPECT_TRUE(PositionsOf({}, 7).coded.empty());
}

TEST(ExactTokens, RanksKeepTheOrder) {
  EXPECT_EQ(RankImportance(std::vector<float>{0.5f, 0, 3e38f, 0.5f, 1e-30f}),
            (std::vector<uint8_t>{254, 252, 255, 254, 253}));
  EXPECT_EQ(RankImportance(std::vector<float>{-0.0f, 0.0f}), (std::vector<uint8_t>{255, 255}));
  EXPECT_TRUE(RankImportance({}).empty());
  uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (size_t tokens : {size_t{256}, size_t{257}, size_t{5000}}) {
    std::vector<float> values(tokens);
    for (size_t i = 0; i < tokens; ++i) values[i] = static_cast<float>(i) * 1.5f;
    std::shuffle(values.begin(), values.end(), random);
    std::vector<uint8_t> ranks = RankImportance(values);
    std::array<size_t, 256> of_rank{};
    for (size_t a = 0; a < tokens; ++a) {
      ++of_rank[ranks[a]];
      size_t b = random() % tokens;
      bool higher = values[a] > values[b];
      EXPECT_TRUE(!higher || ranks[a] >= ranks[b]);
      EXPECT_TRUE(!higher || tokens > 256 || ranks[a] > ranks[b]);
    }
    for (size_t count : of_rank) {
      EXPECT_GE(count, tokens / 256);
      EXPECT_LE(count, tokens / 256 + 1);
    }
  }
}

TEST(ExactTokens, TheHighestAreChosenAfterTheLeadingOnes) {
  std::vector<uint8_t> ranks = {1, 9, 3, 9, 200, 9, 2, 9, 0, 5};
  auto chosen = [&](uint32_t leading, float fraction) {
    ExactTokens exact = ChooseExactTokens(10, leading, fraction, ranks);
    if (exact.map.empty()) {
      std::vector<uint32_t> positions(exact.count);
      std::iota(positions.begin(), positions.end(), 0);
      return positions;
    }
    return PositionsOf(exact.map, 10).exact;
  };
  using Positions = std::vector<uint32_t>;
  EXPECT_EQ(chosen(0, 0.1f), (Positions{4}));
  EXPECT_EQ(chosen(0, 0.3f), (Positions{1, 3, 4})) << "the lower position first among equals";
  EXPECT_EQ(chosen(2, 0.3f), (Positions{0, 1, 4})) << "leading tokens count first";
  EXPECT_EQ(chosen(4, 0.3f), (Positions{0, 1, 2, 3})) << "and all of them stay";
  EXPECT_EQ(chosen(2, 0), (Positions{0, 1}));
  EXPECT_EQ(chosen(0, 0.04f), Positions{}) << "rounded to the nearest";
  EXPECT_EQ(chosen(0, 0.05f), Positions{4});
  EXPECT_EQ(chosen(0, 1).size(), 10u);
  EXPECT_EQ(ChooseExactTokens(10, 2, 0.9f, {}), (ExactTokens{2, {}})) << "nothing is known of importance";
}

// The set holds the number asked for, and no token outside it is worth more than one inside.
TEST(ExactTokens, RandomChoices) {
  uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 500; ++round) {
    auto tokens = static_cast<uint32_t>(1 + random() % 200), leading = static_cast<uint32_t>(random() % (tokens + 1));
    float fraction = static_cast<float>(random() % 1001) / 1000;
    std::vector<uint8_t> ranks(tokens);
    for (uint8_t& rank : ranks) rank = static_cast<uint8_t>(random() % 20);
    ExactTokens exact = ChooseExactTokens(tokens, leading, fraction, ranks);
    ASSERT_TRUE(CheckExactTokens(exact.count, exact.map, tokens).ok());
    ASSERT_EQ(exact.count, std::max(leading, ImportantTokens(fraction, tokens)));
    auto has = [&](uint32_t t) { return exact.map.empty() ? t < exact.count : MapHas(exact.map, t); };
    for (uint32_t t = 0; t < leading; ++t) ASSERT_TRUE(has(t));
    for (uint32_t in = leading; in < tokens; ++in) {
      for (uint32_t out = leading; out < tokens && has(in); ++out) {
        ASSERT_TRUE(has(out) || ranks[in] > ranks[out] || (ranks[in] == ranks[out] && in < out));
      }
    }
  }
}

}  // namespace
}  // namespace firn
