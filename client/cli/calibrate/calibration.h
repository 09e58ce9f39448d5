// A whole calibration: every layer of the captures, resumable between layers.
//
// Threads: one, with `settings.threads` inside. The same captures and settings give the same results, whether in one go
// or with stops, and whatever the threads.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "client/cli/calibrate/layer_calibration.h"
#include "client/cli/calibrate/state.h"

namespace firn::cli {

struct CalibrationRun {
  CalibrationSettings settings;
  std::string state_path = {};  // Empty: nothing is kept.
  // Told after each layer that was done now or found in the state: layers done and layers in all. False stops the run,
  // which is then Cancelled.
  std::function<bool(size_t done, size_t all)> progress = {};
};

struct CalibrationResult {
  std::vector<uint32_t> layers;      // Their numbers in the captures, ascending.
  std::vector<LayerResult> results;  // Of each.
  uint64_t layers_resumed = 0;

  // All layers' sections; null where none were wanted.
  absl::StatusOr<std::shared_ptr<const Artifact>> Keys() const;
  absl::StatusOr<std::shared_ptr<const Artifact>> Values() const;
};

// InvalidArgument where the captures do not have the same layers, heads and channels.
absl::Status CheckCaptures(const std::vector<Capture>& captures);

absl::StatusOr<CalibrationResult> Calibrate(const std::vector<Capture>& captures, const CalibrationRun& run);

}  // namespace firn::cli
