#include "client/cli/support/plan_options.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/status.h"
#include "client/cli/support/numbers.h"
#include "client/cli/support/output.h"
#include "firnkv/presets.h"

namespace firn::cli {

namespace {

absl::StatusOr<std::optional<firnkv::Digest>> ParseArtifact(const char* option, const std::string& text) {
  if (text.empty()) return std::optional<firnkv::Digest>();
  auto digest = firnkv::Digest::FromHex(text);
  if (!digest.has_value()) return InvalidArgument("{} {} is not 64 hexadecimal digits", option, text);
  return digest;
}

}  // namespace

void PlanOptions::AddTo(CLI::App* app) {
  auto* group = app->add_option_group("Precision plan",
                                      "How the namespace's blocks are re-quantized; replaces the plan in force");
  std::string presets;
  for (const firnkv::PresetInfo& known : firnkv::Presets()) {
    presets += fmt::format("{}{}", presets.empty() ? "" : ", ", known.name);
  }
  group->add_option("--preset", preset, "A plan by name, which the other options change: " + presets);
  group->add_option("--key-method", key_method, "per-channel, balanced (needs --artifact) or rotated")
      ->check(CLI::IsMember({"per-channel", "balanced", "rotated"}));
  group->add_option("--artifact", artifact, "The artifact of keys, 64 hexadecimal digits (see `firn calibrate`)");
  group->add_option("--value-artifact", value_artifact, "The artifact of values, for presets that need one");
  group->add_option("--floor", floor, "Never coarser than this: int4, or int8/int4 for K and V apart");
  group->add_option("--max-error", max_error, "A demotion above this relative error stops at a finer precision");
  group->add_option("--keep-first", keep_first, "Leading tokens of a sequence kept exact")
      ->check(WholeNumber<uint32_t>());
  group->add_option("--key-group", key_group, "Values that share a scale, keys")->check(WholeNumber<uint32_t>());
  group->add_option("--value-group", value_group, "Values that share a scale, values")->check(WholeNumber<uint32_t>());
  group->add_option("--tier-target", tier_targets, "TIER=PRECISION, overriding the tier's own; repeatable");
}

absl::Status CheckTierTargets(const firnkv::PrecisionPlan& plan, const std::vector<firnkv::TierInfo>& tiers) {
  std::vector<std::string> names;
  for (const firnkv::TierInfo& tier : tiers) names.push_back(tier.name);
  for (const auto& [name, target] : plan.tier_target) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    return InvalidArgument("--tier-target {}={}: the daemon has no such tier; allowed: {}", name, PairText(target),
                           fmt::join(names, ", "));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<firnkv::PrecisionPlan>> PlanOptions::Plan() const {
  bool any = !preset.empty() || !value_artifact.empty() || !key_method.empty() || !artifact.empty() || !floor.empty() ||
             max_error != 0 || keep_first.has_value() || key_group.has_value() || value_group.has_value() ||
             !tier_targets.empty();
  if (!any) return std::optional<firnkv::PrecisionPlan>();
  firnkv::PresetArtifacts artifacts;
  FIRN_ASSIGN_OR_RETURN(artifacts.keys, ParseArtifact("--artifact", artifact));
  FIRN_ASSIGN_OR_RETURN(artifacts.values, ParseArtifact("--value-artifact", value_artifact));
  firnkv::PrecisionPlan plan;
  if (!preset.empty()) {
    FIRN_ASSIGN_OR_RETURN(plan, firnkv::Preset(preset, artifacts));
  } else if (artifacts.values.has_value()) {
    return InvalidArgument("--value-artifact {}: only a --preset uses one", value_artifact);
  } else {
    if (key_method == "balanced" || (key_method.empty() && artifacts.keys.has_value()))
      plan.key_method = firnkv::KeyMethod::kBalancedRotated;
    plan.balance_artifact = artifacts.keys;
  }
  if (key_method == "rotated") plan.key_method = firnkv::KeyMethod::kRotated;
  if (!floor.empty() && !ParsePair(floor, &plan.floor)) return InvalidArgument("--floor {} is not a precision", floor);
  plan.max_relative_error = max_error;
  if (keep_first.has_value()) plan.keep_first_tokens = *keep_first;
  if (key_group.has_value()) plan.key_group = *key_group;
  if (value_group.has_value()) plan.value_group = *value_group;
  for (const std::string& target : tier_targets) {
    size_t equals = target.find('=');
    firnkv::PrecisionPair pair;
    if (equals == std::string::npos || !ParsePair(target.substr(equals + 1), &pair)) {
      return InvalidArgument("--tier-target {} is not TIER=PRECISION", target);
    }
    plan.tier_target[target.substr(0, equals)] = pair;
  }
  return std::optional(plan);
}

}  // namespace firn::cli
