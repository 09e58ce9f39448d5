// k-means in one dimension, in double precision over sorted samples: a cluster is a range of them, and prefix sums give
// its mean.

#include <algorithm>
#include <cmath>
#include <limits>

#include "codecs/nuq/nuq_calibrator.h"

namespace firn::nuq {
namespace {

constexpr int kRoundsMax = 200;

class Sums {
 public:
  explicit Sums(std::span<const Sample> samples) : samples_(samples), prefix_(samples.size() + 1) {
    for (size_t i = 0; i < samples.size(); ++i) {
      double w = samples[i].weight, x = samples[i].value;
      prefix_[i + 1] = {prefix_[i].weight + w, prefix_[i].first + w * x};
    }
  }

  // The samples that each of the levels, ascending, is nearest to: those from bounds[i] up to bounds[i + 1].
  std::vector<size_t> BoundsOf(const std::vector<double>& levels) const {
    std::vector<size_t> bounds{0};
    for (size_t i = 0; i + 1 < levels.size(); ++i) {
      double middle = (levels[i] + levels[i + 1]) / 2;
      auto at = std::upper_bound(samples_.begin(), samples_.end(), middle,
                                 [](double value, const Sample& sample) { return value < sample.value; });
      bounds.push_back(std::max(bounds.back(), static_cast<size_t>(at - samples_.begin())));
    }
    bounds.push_back(samples_.size());
    return bounds;
  }
  double Weight(size_t from, size_t to) const { return prefix_[to].weight - prefix_[from].weight; }
  double Mean(size_t from, size_t to) const { return (prefix_[to].first - prefix_[from].first) / Weight(from, to); }

 private:
  struct Prefix {
    double weight = 0, first = 0;
  };
  std::span<const Sample> samples_;
  std::vector<Prefix> prefix_;
};

// Moves levels to the means of what is nearest to them until nothing moves. A level that is nearest to nothing stays.
std::vector<double> Settle(const Sums& sums, std::vector<double> levels) {
  std::vector<size_t> before;
  for (int round = 0; round < kRoundsMax; ++round) {
    std::vector<size_t> bounds = sums.BoundsOf(levels);
    if (bounds == before) break;
    for (size_t i = 0; i < levels.size(); ++i) {
      if (sums.Weight(bounds[i], bounds[i + 1]) > 0) levels[i] = sums.Mean(bounds[i], bounds[i + 1]);
    }
    before = std::move(bounds);
  }
  return levels;
}

// As floats that ascend strictly.
std::vector<float> Rounded(std::vector<double> levels) {
  std::sort(levels.begin(), levels.end());
  std::vector<float> rounded(levels.begin(), levels.end());
  for (size_t i = 1; i < rounded.size(); ++i) {
    if (rounded[i] > rounded[i - 1]) continue;
    rounded[i] = std::nextafter(rounded[i - 1], std::numeric_limits<float>::infinity());
  }
  return rounded;
}

// Levels that have as much weight each.
std::vector<double> Quantiles(std::span<const Sample> samples, const Sums& sums, size_t count) {
  std::vector<double> levels;
  double total = sums.Weight(0, samples.size()), passed = 0;
  for (const Sample& sample : samples) {
    passed += sample.weight;
    while (levels.size() < count && passed * static_cast<double>(count) >= total * (levels.size() + 0.5)) {
      levels.push_back(sample.value);
    }
  }
  levels.resize(count, samples.back().value);
  return levels;
}

}  // namespace

std::vector<float> UniformLevels(uint32_t bits, bool with_ends) {
  uint32_t count = 1u << bits;
  std::vector<float> levels;
  for (uint32_t i = 0; i < count; ++i) {
    double at = with_ends ? 2.0 * i / (count - 1) : (2.0 * i + 1) / count;
    levels.push_back(static_cast<float>(at - 1));
  }
  return levels;
}

double LevelCost(std::span<const Sample> samples, std::span<const float> levels) {
  double cost = 0;
  size_t i = 0;
  for (const Sample& sample : samples) {
    while (i + 1 < levels.size() && sample.value > (double{levels[i]} + levels[i + 1]) / 2) ++i;
    cost += sample.weight * (sample.value - levels[i]) * (sample.value - levels[i]);
  }
  return cost;
}

std::vector<float> FitLevels(std::span<const Sample> samples, uint32_t bits) {
  std::vector<std::vector<float>> candidates{UniformLevels(bits, true), UniformLevels(bits, false)};
  Sums sums(samples);
  if (!samples.empty() && sums.Weight(0, samples.size()) > 0) {
    for (bool with_ends : {true, false}) {
      std::vector<float> grid = UniformLevels(bits, with_ends);
      candidates.push_back(Rounded(Settle(sums, {grid.begin(), grid.end()})));
    }
    candidates.push_back(Rounded(Settle(sums, Quantiles(samples, sums, size_t{1} << bits))));
  }
  std::vector<double> costs;
  for (const auto& levels : candidates) costs.push_back(LevelCost(samples, levels));
  return candidates[static_cast<size_t>(std::min_element(costs.begin(), costs.end()) - costs.begin())];
}

}  // namespace firn::nuq
