// The precision plan of a namespace, from the command line or from a file. Threads: one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "firnkv/client.h"
#include "firnkv/plan_file.h"

namespace CLI {
class App;
}

namespace firn::cli {

// A preset and what it is made with.
struct PresetOptions {
  std::string preset, artifact, value_artifact, ranking;
  double ranking_share = 0.2;

  void AddInputsTo(CLI::App* app);
  absl::StatusOr<firnkv::PlanFile> Make() const;
};

struct PlanOptions {
  std::string plan;  // A plan file, which says everything.
  PresetOptions base;
  std::string key_method, floor;
  float max_error = 0;
  std::optional<uint32_t> keep_first, key_group, value_group;
  std::vector<std::string> tier_targets;  // TIER=PRECISION

  void AddTo(CLI::App* app);
  // Nothing where no option was given: the daemon's default, or the plan in force.
  absl::StatusOr<std::optional<firnkv::PlanFile>> Plan() const;
  std::string Name() const;  // The file's path, or "preset kivi-2".
};

// The plan of a namespace, for RegisterNamespace, called `name` in messages: with its tiers checked, since a target of
// a tier that the daemon does not have would never be used, and the artifacts that it names by file handed over.
absl::StatusOr<firnkv::PrecisionPlan> ResolvePlan(firnkv::Client* client, const firnkv::PlanFile& file,
                                                  const std::string& name, const firnkv::NamespaceFacts& facts);

}  // namespace firn::cli
