// The figure's low rates rest on arithmetic alone: here it meets draws, at rates where both can be had.
#include "tests/bench/reliability/expectation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/bench/reliability/bit_flips.h"

namespace firn::bench {
namespace {

constexpr uint64_t kSeed = 11;

// Bits flip on their own: their number has the mean and the variance of a binomial one.
TEST(BitFlips, AreBinomial) {
  constexpr double kRate = 0.002;
  constexpr uint64_t kBits = 1000, kDraws = 40'000;
  std::mt19937_64 random(kSeed);
  const BitFlips flips(kRate, kBits);
  double sum = 0, squares = 0;
  for (uint64_t i = 0; i < kDraws; ++i) {
    double count = 0;
    uint64_t next = 0;
    flips.Draw(&random, [&](uint64_t bit) {
      ASSERT_TRUE(bit >= next && bit < kBits);
      next = bit + 1;
      ++count;
    });
    sum += count;
    squares += count * count;
  }
  const double mean = sum / kDraws;
  EXPECT_NEAR(mean, kRate * kBits, 0.03);
  EXPECT_NEAR(squares / kDraws - mean * mean, kRate * (1 - kRate) * kBits, 0.1);
}

// Given that there is one, it is anywhere alike where flips are rare, and the mean is that of all draws by their share.
TEST(BitFlips, AtLeastOne) {
  constexpr double kRate = 1e-5;
  constexpr uint64_t kBits = 1000, kDraws = 40'000;
  std::mt19937_64 random(kSeed);
  const BitFlips flips(kRate, kBits);
  EXPECT_NEAR(flips.any(), 1 - std::pow(1 - kRate, kBits), 1e-12);
  double count = 0, places = 0;
  for (uint64_t i = 0; i < kDraws; ++i) {
    uint64_t before = static_cast<uint64_t>(count);
    flips.DrawSome(&random, [&](uint64_t bit) {
      ASSERT_LT(bit, kBits);
      ++count;
      places += static_cast<double>(bit);
    });
    ASSERT_GT(count, static_cast<double>(before));
  }
  EXPECT_NEAR(count / kDraws, kRate * kBits / flips.any(), 0.003);
  EXPECT_NEAR(places / count, kBits / 2.0, 8);
}

// Flips data and parity, corrects, and counts how often other data is left.
double DrawnLoss(EccCode code, uint64_t bytes, double rate, uint64_t draws) {
  std::mt19937_64 random(kSeed);
  std::vector<uint8_t> good(bytes + ParityBytes(code, bytes));
  for (uint64_t i = 0; i < bytes; ++i) good[i] = static_cast<uint8_t>(random());
  auto data_of = [&](std::vector<uint8_t>& all) { return MutableByteSpan(all).first(bytes); };
  auto parity_of = [&](std::vector<uint8_t>& all) { return MutableByteSpan(all).subspan(bytes); };
  ComputeParity(code, MutableRunBytes(data_of(good)), MutableRunBytes(parity_of(good)));
  const BitFlips flips(rate, good.size() * 8);
  uint64_t lost = 0;
  for (uint64_t i = 0; i < draws; ++i) {
    std::vector<uint8_t> now = good;
    flips.Draw(&random, [&](uint64_t bit) { now[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8); });
    CorrectInPlace(code, MutableRunBytes(data_of(now)), MutableRunBytes(parity_of(now)));
    lost += !std::equal(now.begin(), now.begin() + static_cast<ptrdiff_t>(bytes), good.begin());
  }
  return static_cast<double>(lost) / static_cast<double>(draws);
}

TEST(LossOf, MeetsDraws) {
  constexpr uint64_t kDraws = 6000;
  for (EccCode code : {EccCode::kNone, EccCode::kSecded, EccCode::kReedSolomon}) {
    for (uint64_t bytes : {488u, 5000u, 70'000u}) {
      if (bytes > 10'000 && code == EccCode::kNone) continue;
      for (double rate : {1e-5, 1e-4, 1e-3}) {
        const double expected = LossOf(code, bytes, rate);
        if (expected < 0.005 || expected > 0.995) continue;
        const uint64_t draws = bytes > 10'000 ? kDraws / 10 : kDraws;
        const double deviation = std::sqrt(expected * (1 - expected) / static_cast<double>(draws));
        EXPECT_NEAR(DrawnLoss(code, bytes, rate, draws), expected, 4 * deviation)
            << EccCodeName(code) << " " << bytes << " bytes at " << rate;
      }
    }
  }
}

// What cannot be drawn: two flips in one of the words, three shards of a stripe.
TEST(LossOf, IsItsFirstTermWhereFlipsAreRare) {
  constexpr double kRate = 1e-9;
  EXPECT_NEAR(LossOf(EccCode::kNone, 1000, kRate) / (8000 * kRate), 1, 1e-4);
  // 72 bits have 2,556 pairs, 28 of them in the check byte.
  EXPECT_NEAR(LossOf(EccCode::kSecded, 8000, kRate) / (1000 * (2556 - 28) * kRate * kRate), 1, 1e-4);
  // 18 shards have 816 triples; of 32,832 bits each, and 64 of those in a checksum.
  const double triples = 816 * std::pow(32'832 * kRate, 3);
  EXPECT_NEAR(LossOf(EccCode::kReedSolomon, 65'536, kRate) / triples, 1, 0.01);
}

}  // namespace
}  // namespace firn::bench
