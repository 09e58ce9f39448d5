#include "client/cli/calibrate/calibration.h"

#include "base/status.h"
#include "client/cli/calibrate/settings_text.h"

namespace firn::cli {
namespace {

std::vector<uint32_t> LayersOf(const Capture& capture) {
  std::vector<uint32_t> layers;
  for (const auto& [layer, tensors] : capture.layers()) layers.push_back(layer);
  return layers;
}

absl::StatusOr<std::shared_ptr<const Artifact>> Joined(const std::vector<LayerResult>& results,
                                                       ArtifactSections LayerResult::*part) {
  ArtifactSections all;
  for (const LayerResult& result : results) AppendLayer(result.*part, &all);
  bool any = !all.mean.empty() || !all.centre.empty() || !all.scales.empty() || !all.codebooks.empty();
  if (!any) return std::shared_ptr<const Artifact>();
  return Artifact::Create(std::move(all));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Artifact>> CalibrationResult::Keys() const {
  return Joined(results, &LayerResult::keys);
}

absl::StatusOr<std::shared_ptr<const Artifact>> CalibrationResult::Values() const {
  return Joined(results, &LayerResult::values);
}

absl::Status CheckCaptures(const std::vector<Capture>& captures) {
  for (const Capture& capture : captures) {
    if (LayersOf(capture) == LayersOf(captures[0]) && capture.shape() == captures[0].shape()) continue;
    return InvalidArgument("{} has other layers, heads or channels than {}", capture.path(), captures[0].path());
  }
  return absl::OkStatus();
}

absl::StatusOr<CalibrationResult> Calibrate(const std::vector<Capture>& captures, const CalibrationRun& run) {
  FIRN_RETURN_IF_ERROR(CheckCaptures(captures));
  CalibrationState state{.settings = run.settings.Describe(), .captures = {}, .layers = {}};
  if (!run.state_path.empty()) {
    for (const Capture& capture : captures) state.captures.push_back(capture.ContentDigest());
    FIRN_ASSIGN_OR_RETURN(CalibrationState before, ReadState(run.state_path));
    if (!before.layers.empty()) {
      // What a finished state has beyond what is asked for does no harm; a layer without it would not fit the others.
      bool finished = before.layers.size() == captures[0].layers().size();
      if (finished && SettingsCover(before.settings, state.settings)) before.settings = state.settings;
      FIRN_RETURN_IF_ERROR(CheckState(run.state_path, before, state));
      state.layers = std::move(before.layers);
    }
  }
  CalibrationResult result;
  result.layers = LayersOf(captures[0]);
  result.layers_resumed = state.layers.size();
  for (uint32_t layer : result.layers) {
    if (!state.layers.contains(layer)) {
      FIRN_ASSIGN_OR_RETURN(state.layers[layer], CalibrateLayer(captures, layer, run.settings));
      if (!run.state_path.empty()) FIRN_RETURN_IF_ERROR(WriteState(run.state_path, state));
    }
    result.results.push_back(state.layers[layer]);
    if (!run.settings.values.any()) result.results.back().values = {};
    if (run.progress && !run.progress(result.results.size(), result.layers.size())) {
      return absl::CancelledError(fmt::format("stopped after layer {}", layer));
    }
  }
  return result;
}

}  // namespace firn::cli
