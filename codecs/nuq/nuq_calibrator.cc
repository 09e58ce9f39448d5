#include "codecs/nuq/nuq_calibrator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status.h"
#include "codecs/numeric/float_formats.h"
#include "codecs/nuq/nuq_format.h"
#include "codecs/record.h"

namespace firn {
namespace {

using nuq::Sample;

// Between the two nearest of `sorted`, at `fraction` of the way from the first to the last.
double Percentile(const std::vector<float>& sorted, double fraction) {
  double at = fraction * static_cast<double>(sorted.size() - 1);
  auto below = static_cast<size_t>(at);
  size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (double{sorted[above]} - sorted[below]);
}

// A channel that hardly changes still has a reach that divides, and that a later value is likely to stay within.
float UsableReach(double reach, double centre) {
  return static_cast<float>(std::max({reach, std::fabs(centre) / 1024, 0x1p-24}));
}

// The mean and deviation of values, and of what `levels` makes of them.
struct Moments {
  double mean, deviation;
};
template <typename Value>
Moments MomentsOf(const std::vector<Sample>& samples, const Value& value) {
  double sum = 0, squares = 0;
  for (const Sample& sample : samples) sum += value(sample.value);
  double mean = samples.empty() ? 0 : sum / static_cast<double>(samples.size());
  for (const Sample& sample : samples) squares += (value(sample.value) - mean) * (value(sample.value) - mean);
  return {mean, samples.empty() ? 0 : std::sqrt(squares / static_cast<double>(samples.size()))};
}

// Q-Norm: what the codes stand for, moved so that the moments of the values come back.
std::vector<float> Normalised(const std::vector<Sample>& samples, const std::vector<float>& levels) {
  auto nearest = [&](double value) {
    size_t i = 0;
    while (i + 1 < levels.size() && value > (double{levels[i]} + levels[i + 1]) / 2) ++i;
    return double{levels[i]};
  };
  Moments before = MomentsOf(samples, [](double value) { return value; }), after = MomentsOf(samples, nearest);
  if (!(after.deviation > 0) || !(before.deviation > 0)) return levels;
  double ratio = before.deviation / after.deviation;
  std::vector<float> decoded;
  for (float level : levels) decoded.push_back(static_cast<float>(level * ratio + before.mean - after.mean * ratio));
  for (size_t i = 1; i < decoded.size(); ++i) {
    if (!(decoded[i] > decoded[i - 1])) return levels;  // Levels as near as floats are.
  }
  return decoded;
}

}  // namespace

absl::StatusOr<NuqCalibrator> NuqCalibrator::Create(NuqOptions options) {
  FIRN_RETURN_IF_ERROR(CheckArtifactShape(options.layers, options.heads, options.width));
  if (options.outliers > PartCoding::kOutliersMax) {
    return InvalidArgument("{} thousandths of outliers, at most {}", options.outliers, PartCoding::kOutliersMax);
  }
  if (options.tokens_max < 2 || options.tokens_max % 2 != 0 || options.tokens_max > kTokensMax) {
    return InvalidArgument("{} tokens to keep, an even number up to {}", options.tokens_max, kTokensMax);
  }
  uint32_t before = 1;
  for (uint32_t bits : options.bits) {
    if (bits <= before || bits > 4) return InvalidArgument("codebooks of {} bits, 2 to 4, ascending", bits);
    before = bits;
  }
  if (options.bits.empty()) return InvalidArgument("no codebook is asked for");
  return NuqCalibrator(std::move(options));
}

NuqCalibrator::NuqCalibrator(NuqOptions options) : options_(std::move(options)), layers_(options_.layers) {}

absl::Status NuqCalibrator::Add(uint32_t layer, uint32_t tokens, std::span<const float> values,
                                std::span<const float> weights) {
  if (layer >= options_.layers) return InvalidArgument("layer {} of {}", layer, options_.layers);
  if (values.size() != tokens * row() || (!weights.empty() && weights.size() != values.size())) {
    return InvalidArgument("{} values and {} weights of {} tokens of {} values", values.size(), weights.size(), tokens,
                           row());
  }
  Layer& to = layers_[layer];
  if (tokens == 0) return absl::OkStatus();
  if (to.seen > 0 && to.weights.empty() != weights.empty()) {
    return InvalidArgument("layer {} has weights for some of its tokens only", layer);
  }
  for (float value : values) {
    if (!std::isfinite(value)) return InvalidArgument("layer {}: a value of {}", layer, value);
  }
  for (float weight : weights) {
    if (!(weight >= 0) || !std::isfinite(weight)) return InvalidArgument("layer {}: a weight of {}", layer, weight);
  }
  for (uint32_t t = 0; t < tokens; ++t, ++to.seen) {
    if (to.seen % to.stride != 0) continue;
    if (to.kept == options_.tokens_max) {
      Thin(&to);
      if (to.seen % to.stride != 0) continue;
    }
    auto take = [&](std::span<const float> from, std::vector<float>* all) {
      auto at = from.begin() + static_cast<ptrdiff_t>(t * row());
      if (!from.empty()) all->insert(all->end(), at, at + static_cast<ptrdiff_t>(row()));
    };
    take(values, &to.values);
    take(weights, &to.weights);
    ++to.kept;
  }
  return absl::OkStatus();
}

// Every other token goes: those that are kept are as evenly spaced as before, however they came.
void NuqCalibrator::Thin(Layer* layer) const {
  for (std::vector<float>* all : {&layer->values, &layer->weights}) {
    if (all->empty()) continue;
    for (uint32_t t = 0; t < layer->kept / 2; ++t) {
      std::copy_n(all->begin() + static_cast<ptrdiff_t>(2 * t * row()), row(),
                  all->begin() + static_cast<ptrdiff_t>(t * row()));
    }
    all->resize(layer->kept / 2 * row());
  }
  layer->kept /= 2;
  layer->stride *= 2;
}

std::vector<Sample> NuqCalibrator::KeySamples(const Layer& layer, ArtifactSections* sections) const {
  std::vector<Sample> samples;
  std::vector<float> sorted(layer.kept);
  double tail = options_.outliers / 2000.0;
  for (size_t c = 0; c < row(); ++c) {
    for (uint32_t t = 0; t < layer.kept; ++t) sorted[t] = layer.values[t * row() + c];
    std::sort(sorted.begin(), sorted.end());
    double low = Percentile(sorted, tail), high = Percentile(sorted, 1 - tail);
    auto centre = static_cast<float>((high + low) / 2);
    float reach = UsableReach((high - low) / 2, centre);
    sections->centre.push_back(centre);
    sections->reach.push_back(reach);
    for (uint32_t t = 0; t < layer.kept; ++t) {
      double a = (double{layer.values[t * row() + c]} - centre) / reach;
      if (std::fabs(a) > 1) continue;
      // An error of a is an error of r * a of the value, whose weight is the gradient's.
      double weight = layer.weights.empty() ? 1 : double{layer.weights[t * row() + c]} * reach * reach;
      samples.push_back({a, weight});
    }
  }
  return samples;
}

std::vector<Sample> NuqCalibrator::ValueSamples(const Layer& layer) const {
  PartCoding coding;
  coding.outliers = static_cast<uint8_t>(options_.outliers);
  auto size = static_cast<uint32_t>(row());
  uint32_t outliers = nuq::OutlierCount(coding, size), high = nuq::HighCount(outliers);
  std::vector<Sample> samples;
  std::vector<uint32_t> keys(size), taken(outliers + 1);
  for (uint32_t t = 0; t < layer.kept && outliers < size; ++t) {
    const float* token = layer.values.data() + t * row();
    std::transform(token, token + size, keys.begin(), nuq::HighKey);
    nuq::TakeLargest(keys.data(), size, high, taken.data());
    for (uint32_t i = 0; i < size; ++i) keys[i] = keys[i] == 0 ? 0 : nuq::LowKey(token[i]);
    nuq::TakeLargest(keys.data(), size, outliers - high, taken.data());
    float lowest = HUGE_VALF, highest = -HUGE_VALF;
    for (uint32_t i = 0; i < size; ++i) {
      if (keys[i] == 0) continue;
      lowest = std::min(lowest, token[i]);
      highest = std::max(highest, token[i]);
    }
    nuq::Range range = nuq::RangeOf(lowest, highest, MetaType::kFp32);
    if (range.reach == 0) continue;
    for (uint32_t i = 0; i < size; ++i) {
      if (keys[i] == 0) continue;
      double weight = layer.weights.empty() ? 1 : double{layer.weights[t * row() + i]} * range.reach * range.reach;
      samples.push_back({(double{token[i]} - range.centre) / range.reach, weight});
    }
  }
  return samples;
}

absl::StatusOr<ArtifactSections> NuqCalibrator::Finish() const {
  ArtifactSections sections;
  sections.layers = options_.layers, sections.heads = options_.heads, sections.width = options_.width;
  for (uint32_t bits : options_.bits) sections.codebooks.push_back({.bits = bits, .levels = {}, .decoded = {}});
  for (uint32_t at = 0; at < options_.layers; ++at) {
    const Layer& layer = layers_[at];
    if (layer.kept < 2) return FailedPrecondition("layer {} has had {} tokens, at least 2 needed", at, layer.seen);
    std::vector<Sample> samples = options_.part == Part::kK ? KeySamples(layer, &sections) : ValueSamples(layer);
    std::sort(samples.begin(), samples.end(), [](const Sample& a, const Sample& b) {
      return a.value != b.value ? a.value < b.value : a.weight < b.weight;
    });
    for (Codebook& book : sections.codebooks) {
      std::vector<float> levels = nuq::FitLevels(samples, book.bits);
      std::vector<float> decoded = options_.q_norm ? Normalised(samples, levels) : levels;
      book.levels.insert(book.levels.end(), levels.begin(), levels.end());
      book.decoded.insert(book.decoded.end(), decoded.begin(), decoded.end());
    }
  }
  return sections;
}

}  // namespace firn
