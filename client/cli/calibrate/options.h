// The options of `firn calibrate` that say what is measured and how. Threads: one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/cli/calibrate/layer_calibration.h"

namespace CLI {
class App;
}

namespace firn::cli {

class SettingsOptions {
 public:
  void AddTo(CLI::App* app);
  // For captures like these. `values` and `survey` say that an artifact of values and errors of heads are wanted.
  absl::StatusOr<CalibrationSettings> Settings(const std::vector<Capture>& captures, bool values, bool survey) const;

 private:
  absl::StatusOr<Rope> RopeOf(uint64_t width) const;
  absl::Status ChooseSections(const std::vector<Capture>& captures, bool values, CalibrationSettings* settings) const;

  std::vector<std::string> key_sections_, value_sections_;
  CalibrationSettings settings_;
  std::string balance_ = "attention", fp8_ = "e4m3", code_ = "trellis", key_method_ = "balanced";
  std::vector<uint32_t> classes_;
  double rope_base_ = 0, rope_factor_ = 1;
  uint32_t rope_dim_ = 0;
  bool rope_interleaved_ = false;
  std::string rope_frequencies_;
};

}  // namespace firn::cli
