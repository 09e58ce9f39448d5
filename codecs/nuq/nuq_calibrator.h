// Measures what codebook codes need of a model: the centre and reach of key channels, and codebooks of every layer.
//
// Streaming: tokens may come in any number of calls, and the same tokens give the same artifact. Of each layer at most
// NuqOptions::tokens_max evenly spaced tokens are kept, as FP32: memory is layers * tokens_max * heads * width * 4
// bytes, twice that with weights. Not thread-safe. Source: KVQuant, arXiv 2401.18079.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "codecs/artifact.h"
#include "codecs/types.h"

namespace firn {

namespace nuq {

// One value to be coded, and what its squared error counts.
struct Sample {
  double value, weight;
};

// 2^bits ascending levels that make the weighted squared error of `samples`, ascending by value, small: k-means from
// several starts, the best of them. Never worse than a uniform grid over [-1, 1], with its ends or with cell middles.
std::vector<float> FitLevels(std::span<const Sample> samples, uint32_t bits);
// The weighted squared error of samples coded by the nearest level.
double LevelCost(std::span<const Sample> samples, std::span<const float> levels);
// A uniform grid over [-1, 1].
std::vector<float> UniformLevels(uint32_t bits, bool with_ends);

}  // namespace nuq

struct NuqOptions {
  uint32_t layers = 0, heads = 0, width = 0;
  // Keys have ranges of channels, before the rotary embedding; values only codebooks, for ranges of tokens.
  Part part = Part::kK;
  uint32_t outliers = 10;  // In thousandths, as the coding will have them.
  std::vector<uint32_t> bits = {2, 3, 4};
  // Moves what codes stand for so that decoded values have the mean and the deviation that the values have.
  bool q_norm = false;
  uint32_t tokens_max = 2048;  // Even.
};

class NuqCalibrator {
 public:
  // InvalidArgument for shapes beyond the artifact's limits and for options that mean nothing.
  static absl::StatusOr<NuqCalibrator> Create(NuqOptions options);

  // Adds tokens of one layer, [token][head][channel]: keys before the rotary embedding, or values. `weights` is of the
  // same size, squared gradients of a loss by each value, or empty: then all count alike. A layer has weights for all
  // of its tokens or for none. InvalidArgument for wrong sizes, values that are not finite, or negative weights.
  absl::Status Add(uint32_t layer, uint32_t tokens, std::span<const float> values, std::span<const float> weights);

  // What goes into the artifact of this part: centres and reaches (keys), codebooks. FailedPrecondition where a layer
  // has had fewer than two tokens.
  absl::StatusOr<ArtifactSections> Finish() const;

 private:
  struct Layer {
    uint64_t seen = 0, stride = 1;
    uint32_t kept = 0;
    std::vector<float> values, weights;  // [kept token][head][channel]
  };
  explicit NuqCalibrator(NuqOptions options);
  size_t row() const { return size_t{options_.heads} * options_.width; }
  void Thin(Layer* layer) const;
  std::vector<nuq::Sample> KeySamples(const Layer& layer, ArtifactSections* sections) const;
  std::vector<nuq::Sample> ValueSamples(const Layer& layer) const;

  NuqOptions options_;
  std::vector<Layer> layers_;
};

}  // namespace firn
