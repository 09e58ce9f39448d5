#include "tests/bench/reliability/measure.h"

#include <cmath>
#include <random>
#include <utility>

#include "base/check.h"
#include "codecs/numeric/convert.h"
#include "tests/bench/reliability/bit_flips.h"

namespace firn::bench {
namespace {

ErrorSum ErrorOf(const std::vector<float>& source, const std::vector<uint8_t>& decoded) {
  std::vector<float> values(source.size());
  ConvertValues(decoded.data(), DType::kFp16, values.size(), DType::kFp32, reinterpret_cast<uint8_t*>(values.data()));
  ErrorSum sum{.values = values.size()};
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) {
      ++sum.not_finite;
      continue;
    }
    const double difference = double{source[i]} - values[i];
    sum.difference += difference * difference;
    sum.norm += double{source[i]} * source[i];
  }
  return sum;
}

// Sums over records, by Part, of shares that add up to 1.
struct Weighted {
  std::array<double, 2> difference{}, norm{};
  void Add(const std::array<ErrorSum, 2>& errors, double weight) {
    for (size_t part = 0; part < 2; ++part) {
      difference[part] += weight * errors[part].difference;
      norm[part] += weight * errors[part].norm;
    }
  }
  std::array<double, 2> Relative() const {
    std::array<double, 2> out{};
    for (size_t part = 0; part < 2; ++part) out[part] = norm[part] > 0 ? std::sqrt(difference[part] / norm[part]) : 0;
    return out;
  }
};

}  // namespace

CodedBlocks::CodedBlocks(const RealBlocks* real, Ladder ladder, PrecisionClass at) : real_(*real) {
  for (size_t i = 0; i < real_.sources().size(); ++i) {
    auto block = real_.Encoded(i, ladder, at);
    FIRN_CHECK(block.ok());
    // Blocks that would not take the codes stay at source precision: none of this does.
    FIRN_CHECK(ClassOf(*block->header, block->present) == (ClassPair{at, at}));
    blocks_.push_back(*std::move(block));
    sources_.push_back({real_.SourceValues(i, Part::kK), real_.SourceValues(i, Part::kV)});
  }
}

bool CodedBlocks::Decode(size_t i, const EncodedBlock& block, RunMask use, Served* out) const {
  for (size_t part = 0; part < 2; ++part) out->values[part].resize(sources_[i][part].size() * 2);
  return firn::Decode(block, real_, {.use = use}, out->values[0], out->values[1]).ok();
}

std::array<ErrorSum, 2> CodedBlocks::Errors(size_t i, const Served& served) const {
  return {ErrorOf(sources_[i][0], served.values[0]), ErrorOf(sources_[i][1], served.values[1])};
}

const Served& CodedBlocks::Undamaged(size_t i, RunMask use) {
  auto [at, is_new] = undamaged_.try_emplace({i, use.bits()});
  Served& served = at->second;
  if (is_new) {
    FIRN_CHECK(Decode(i, blocks_[i], use, &served));
    served.errors = Errors(i, served);
  }
  return served;
}

Point Measure(CodedBlocks* coded, const std::vector<StoredRecord>& records, bool checked, double rate, uint64_t tries,
              uint64_t seed) {
  Point point;
  point.rate = rate;
  point.tried = tries;
  std::mt19937_64 random(seed);
  const BitFlips flips(rate, records[0].image().size() * 8);
  point.damaged_share = flips.any();
  const double whole_weight = (1 - flips.any()) / static_cast<double>(coded->size());
  const double weight = flips.any() / static_cast<double>(tries);
  Weighted served, read;
  for (size_t i = 0; i < coded->size(); ++i) {
    const Served& good = coded->Undamaged(i, coded->block(i).present);
    served.Add(good.errors, whole_weight);
    read.Add(good.errors, whole_weight);
  }
  std::vector<uint8_t> image;
  Served got;
  for (uint64_t trial = 0; trial < tries; ++trial) {
    const size_t i = trial % coded->size();
    image = records[i].image();
    flips.DrawSome(&random, [&](uint64_t bit) { image[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8); });
    const ReadBack back = records[i].Read(image);
    point.corrected += back.corrected;
    const bool decodes = !back.missed && coded->Decode(i, back.block, back.used, &got);
    if (!decodes) {
      ++point.missed;
      std::array<ErrorSum, 2> exact = coded->Undamaged(i, coded->block(i).present).errors;
      exact[0].difference = exact[1].difference = 0;
      read.Add(exact, weight);
      continue;
    }
    point.coarser += back.coarser;
    const Served& good = coded->Undamaged(i, back.used);
    std::array<ErrorSum, 2> errors = good.errors;
    if (got.values != good.values) {
      ++point.wrong;
      errors = coded->Errors(i, got);
      point.not_finite += errors[0].not_finite + errors[1].not_finite > 0;
    }
    FIRN_CHECK(!checked || got.values == good.values);  // The promise: what passes its checks is what was stored.
    served.Add(errors, weight);
    read.Add(errors, weight);
  }
  point.missed_share = static_cast<double>(point.missed) * weight;
  point.coarser_share = static_cast<double>(point.coarser) * weight;
  point.expected = records[0].Expected(rate);
  point.served_error = served.Relative();
  point.read_error = read.Relative();
  return point;
}

}  // namespace firn::bench
