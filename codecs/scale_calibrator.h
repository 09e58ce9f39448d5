// Measures one scale a (layer, head), for FP8 and for symmetric integers whose scales are the artifact's.
//
// Streaming: tokens may come in any number of calls. Not thread-safe. A scale is the largest magnitude that was seen
// divided by the largest value of a code; larger values of later tokens saturate.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "codecs/artifact.h"

namespace firn {

class ScaleCalibrator {
 public:
  // `largest_code`: 448 for E4M3, 57,344 for E5M2, 127 for INT8. InvalidArgument for shapes beyond the artifact's
  // limits and for a code that is not positive and finite.
  static absl::StatusOr<ScaleCalibrator> Create(uint32_t layers, uint32_t heads, uint32_t width, float largest_code);

  // Adds tokens of one layer, [token][head][channel]. InvalidArgument for wrong sizes or values that are not finite.
  absl::Status Add(uint32_t layer, uint32_t tokens, std::span<const float> values);

  // Scales alone; 1 for a head all of whose values were zero. FailedPrecondition where a layer has had no token.
  absl::StatusOr<ArtifactSections> Finish() const;

 private:
  ScaleCalibrator(uint32_t layers, uint32_t heads, uint32_t width, float largest_code);

  uint32_t layers_, heads_, width_;
  float largest_code_;
  std::vector<float> largest_;  // [layer][head]; below 0 where nothing was seen.
};

}  // namespace firn
