#include "tests/bench/reliability/expectation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "base/check.h"
#include "codecs/ecc/reed_solomon.h"

namespace firn::bench {
namespace {

// At least one of `count` independent things of probability `p`.
double AnyOf(double p, uint64_t count) { return -std::expm1(static_cast<double>(count) * std::log1p(-p)); }

// Two flips or more, but for two in the check byte, which leave the data as they are. Three or more there are taken for
// a loss; often they are none.
double SecdedWordLoss(uint32_t data_bits, double rate) {
  const uint32_t bits = data_bits + 8;
  // Summed term by term: 1 minus the probability of at most one flip would be all rounding.
  double term = std::pow(1 - rate, bits), loss = 0;
  for (uint32_t flips = 1; flips <= bits; ++flips) {
    term *= rate / (1 - rate) * (bits - flips + 1) / flips;
    if (flips >= 2) loss += term;
    if (flips == 2) loss -= term * 28 / (bits * (bits - 1) / 2.0);
  }
  return loss;
}

double SecdedLoss(uint64_t bytes, double rate) {
  double kept = static_cast<double>(bytes / 8) * std::log1p(-SecdedWordLoss(64, rate));
  if (bytes % 8 != 0) kept += std::log1p(-SecdedWordLoss(static_cast<uint32_t>(bytes % 8) * 8, rate));
  return -std::expm1(kept);
}

// More shards wrong than two, each with its own probability.
double MoreThanTwo(std::span<const double> wrong) {
  std::array<double, 4> by_count{1, 0, 0, 0};
  for (double p : wrong) {
    by_count[3] += by_count[2] * p;
    for (size_t count = 2; count > 0; --count) by_count[count] += p * (by_count[count - 1] - by_count[count]);
    by_count[0] *= 1 - p;
  }
  return by_count[3];
}

// Three shards or more have to be wrong, in their bytes or their checksums, and of them one of the data in its bytes.
double StripeLoss(const rs::StripeShape& shape, double rate) {
  std::vector<double> wrong, checksum_wrong;
  double data_right = 0;
  for (uint32_t shard = 0; shard < shape.shards(); ++shard) {
    const uint64_t bits = uint64_t{shape.BytesOf(shard)} * 8;
    wrong.push_back(AnyOf(rate, bits + 64));
    const bool is_data = shard < shape.data_shards;
    checksum_wrong.push_back(is_data ? AnyOf(rate, 64) : wrong.back());
    if (is_data) data_right += static_cast<double>(bits) * std::log1p(-rate);
  }
  // Rounding alone leaves the bounds.
  return std::clamp(MoreThanTwo(wrong) - std::exp(data_right) * MoreThanTwo(checksum_wrong), 0.0, 1.0);
}

double ReedSolomonLoss(uint64_t bytes, double rate) {
  const uint64_t whole = bytes / rs::kStripeBytesMax, rest = bytes % rs::kStripeBytesMax;
  double kept = 0;
  if (whole > 0) {
    kept += static_cast<double>(whole) * std::log1p(-StripeLoss(rs::StripeShape::Of(rs::kStripeBytesMax), rate));
  }
  if (rest > 0) kept += std::log1p(-StripeLoss(rs::StripeShape::Of(rest), rate));
  return -std::expm1(kept);
}

}  // namespace

double LossOf(EccCode code, uint64_t data_bytes, double rate) {
  switch (code) {
    case EccCode::kNone:
      return AnyOf(rate, data_bytes * 8);
    case EccCode::kSecded:
      return SecdedLoss(data_bytes, rate);
    case EccCode::kReedSolomon:
      return ReedSolomonLoss(data_bytes, rate);
  }
  FIRN_CHECK(false);
}

}  // namespace firn::bench
