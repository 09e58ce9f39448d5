// The state file of a calibration that may be stopped: the layers that are done, and of what
// (docs/formats/calibration_state.md).
//
// Written whole after each layer, beside its path and renamed, so that it is never half there. What was read back is
// used only for the same captures and settings. Threads: pure functions, but for the files.
// Errors: InvalidArgument for a damaged file, and for one of other captures or settings, naming which.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "client/cli/calibrate/layer_calibration.h"

namespace firn::cli {

struct CalibrationState {
  std::string settings;          // CalibrationSettings::Describe.
  std::vector<Digest> captures;  // Capture::ContentDigest, in their order.
  std::map<uint32_t, LayerResult> layers;
};

absl::StatusOr<std::vector<uint8_t>> SerializeState(const CalibrationState& state);
absl::StatusOr<CalibrationState> ParseState(const std::string& path, ByteSpan bytes);

// InvalidArgument unless `state` is of what is to be calibrated now.
absl::Status CheckState(const std::string& path, const CalibrationState& state, const CalibrationState& now);

// An empty state where there is no file.
absl::StatusOr<CalibrationState> ReadState(const std::string& path);
absl::Status WriteState(const std::string& path, const CalibrationState& state);

}  // namespace firn::cli
