#include "codecs/scale_calibrator.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/status.h"

namespace firn {

ScaleCalibrator::ScaleCalibrator(uint32_t layers, uint32_t heads, uint32_t width, float largest_code)
    : layers_(layers),
      heads_(heads),
      width_(width),
      largest_code_(largest_code),
      largest_(size_t{layers} * heads, -1.0f) {}

absl::StatusOr<ScaleCalibrator> ScaleCalibrator::Create(uint32_t layers, uint32_t heads, uint32_t width,
                                                        float largest_code) {
  FIRN_RETURN_IF_ERROR(CheckArtifactShape(layers, heads, width));
  if (!(largest_code > 0) || !std::isfinite(largest_code)) {
    return InvalidArgument("calibration: the largest code is {}, positive and finite allowed", largest_code);
  }
  return ScaleCalibrator(layers, heads, width, largest_code);
}

absl::Status ScaleCalibrator::Add(uint32_t layer, uint32_t tokens, std::span<const float> values) {
  if (layer >= layers_) return InvalidArgument("calibration: layer {} of {}", layer, layers_);
  size_t row = size_t{heads_} * width_;
  if (values.size() != tokens * row) {
    return InvalidArgument("calibration: {} values, {} expected", values.size(), tokens * row);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) return InvalidArgument("calibration: value {} is {}", i, values[i]);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    float& largest = largest_[size_t{layer} * heads_ + i % row / width_];
    largest = std::max(largest, std::fabs(values[i]));
  }
  return absl::OkStatus();
}

absl::StatusOr<ArtifactSections> ScaleCalibrator::Finish() const {
  ArtifactSections sections;
  sections.layers = layers_, sections.heads = heads_, sections.width = width_;
  for (size_t i = 0; i < largest_.size(); ++i) {
    if (largest_[i] < 0) return FailedPrecondition("calibration: layer {} has seen no token", i / heads_);
    float scale = std::max(largest_[i] / largest_code_, std::numeric_limits<float>::min());
    sections.scales.push_back(largest_[i] == 0 ? 1.0f : scale);
  }
  return sections;
}

}  // namespace firn
