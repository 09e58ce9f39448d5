// The precision plan of a namespace, from the command line. Threads: one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "firnkv/types.h"

namespace CLI {
class App;
}

namespace firn::cli {

struct PlanOptions {
  std::string preset, key_method, artifact, value_artifact, floor;
  float max_error = 0;
  std::optional<uint32_t> keep_first, key_group, value_group;
  std::vector<std::string> tier_targets;  // TIER=PRECISION

  void AddTo(CLI::App* app);
  // Nothing where no option was given: the daemon's default, or the plan in force.
  absl::StatusOr<std::optional<firnkv::PrecisionPlan>> Plan() const;
};

// InvalidArgument, with the names there are, for a target of a tier that the daemon does not have: the plan would be
// taken, and the target never used.
absl::Status CheckTierTargets(const firnkv::PrecisionPlan& plan, const std::vector<firnkv::TierInfo>& tiers);

}  // namespace firn::cli
