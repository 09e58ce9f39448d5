#include "codecs/calibrate.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"

namespace firn {
namespace {

// Weights keep within this factor of their head's middle: a channel that hardly varies must not blow up the others'
// share.
constexpr double kWeightSpreadMax = 1e4;

absl::Status CheckFinite(std::span<const float> values, const char* what) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) return InvalidArgument("calibration: value {} of the {} is {}", i, what, values[i]);
  }
  return absl::OkStatus();
}

}  // namespace

KeyCalibrator::KeyCalibrator(uint32_t layers, uint32_t kv_heads, uint32_t query_heads, uint32_t width)
    : layers_(layers), kv_heads_(kv_heads), query_heads_(query_heads), width_(width) {
  heads_.resize(size_t{layers} * kv_heads);
  for (Head& head : heads_) {
    head.key_mean.resize(width);
    head.key_squares.resize(width);
    head.query_squares.resize(width);
    head.key_most.resize(width);
    head.query_most.resize(width);
  }
}

absl::StatusOr<KeyCalibrator> KeyCalibrator::Create(uint32_t layers, uint32_t kv_heads, uint32_t query_heads,
                                                    uint32_t width) {
  FIRN_RETURN_IF_ERROR(CheckArtifactShape(layers, kv_heads, width));
  if (query_heads == 0 || query_heads % kv_heads != 0) {
    return InvalidArgument("calibration: {} query heads do not divide among {} KV heads", query_heads, kv_heads);
  }
  return KeyCalibrator(layers, kv_heads, query_heads, width);
}

absl::Status KeyCalibrator::Add(uint32_t layer, uint32_t tokens, std::span<const float> keys,
                                std::span<const float> queries) {
  if (layer >= layers_) return InvalidArgument("calibration: layer {} of {}", layer, layers_);
  size_t key_values = size_t{tokens} * kv_heads_ * width_, query_values = size_t{tokens} * query_heads_ * width_;
  if (keys.size() != key_values || (!queries.empty() && queries.size() != query_values)) {
    return InvalidArgument("calibration: {} key and {} query values, {} and {} (or none) expected", keys.size(),
                           queries.size(), key_values, query_values);
  }
  FIRN_RETURN_IF_ERROR(CheckFinite(keys, "keys"));
  FIRN_RETURN_IF_ERROR(CheckFinite(queries, "queries"));
  uint32_t group = query_heads_ / kv_heads_;
  for (uint32_t t = 0; t < tokens; ++t) {
    for (uint32_t h = 0; h < kv_heads_; ++h) {
      Head& head = heads_[size_t{layer} * kv_heads_ + h];
      const float* key = keys.data() + (size_t{t} * kv_heads_ + h) * width_;
      double count = static_cast<double>(++head.keys);
      for (uint32_t c = 0; c < width_; ++c) {
        double distance = key[c] - head.key_mean[c];
        head.key_mean[c] += distance / count;
        head.key_squares[c] += distance * (key[c] - head.key_mean[c]);
        head.key_most[c] = std::max(head.key_most[c], std::abs(key[c]));
      }
      if (queries.empty()) continue;
      head.queries += group;
      const float* query = queries.data() + (size_t{t} * query_heads_ + size_t{h} * group) * width_;
      for (uint32_t i = 0; i < group * width_; ++i) {
        head.query_squares[i % width_] += double{query[i]} * query[i];
        head.query_most[i % width_] = std::max(head.query_most[i % width_], std::abs(query[i]));
      }
    }
  }
  return absl::OkStatus();
}

std::vector<double> KeyCalibrator::Weights(const Head& head, Balancing balancing) const {
  std::vector<double> logs(width_);
  double sum = 0;
  uint32_t counted = 0;
  for (uint32_t c = 0; c < width_; ++c) {
    bool most = balancing == Balancing::kMaximum;
    double key = most ? head.key_most[c] : std::sqrt(head.key_squares[c] / static_cast<double>(head.keys));
    double query = most ? head.query_most[c] : std::sqrt(head.query_squares[c] / static_cast<double>(head.queries));
    if (head.queries == 0) query = 1;
    bool usable = key > 0 && query > 0;
    logs[c] = usable ? 0.5 * std::log(key / query) : std::nan("");
    if (usable) sum += logs[c], ++counted;
  }
  // Normalised per head: the weights' geometric mean is 1. Channels without keys or queries take 1.
  double middle = counted == 0 ? 0 : sum / counted, most = std::log(kWeightSpreadMax);
  std::vector<double> weights(width_, 1.0);
  for (uint32_t c = 0; c < width_; ++c) {
    if (!std::isnan(logs[c])) weights[c] = std::exp(std::clamp(logs[c] - middle, -most, most));
  }
  return weights;
}

absl::StatusOr<std::shared_ptr<const Artifact>> KeyCalibrator::Finish(Balancing balancing) const {
  std::vector<float> mean, weight;
  mean.reserve(heads_.size() * width_);
  weight.reserve(heads_.size() * width_);
  for (size_t i = 0; i < heads_.size(); ++i) {
    if (heads_[i].keys < 2) {
      return FailedPrecondition("calibration: layer {} has seen {} tokens, 2 are the least", i / kv_heads_,
                                heads_[i].keys);
    }
    for (double m : heads_[i].key_mean) mean.push_back(balancing == Balancing::kMaximum ? 0 : static_cast<float>(m));
    for (double w : Weights(heads_[i], balancing)) weight.push_back(static_cast<float>(w));
  }
  return Artifact::CreateBalance(layers_, kv_heads_, width_, std::move(mean), std::move(weight));
}

}  // namespace firn
