#include "client/cli/support/plan_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "base/read_file.h"
#include "base/status.h"
#include "base/units.h"
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

std::string PresetNames() {
  std::string names;
  for (const firnkv::PresetInfo& known : firnkv::Presets()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
  }
  return names;
}

}  // namespace

void PresetOptions::AddInputsTo(CLI::App* app) {
  app->add_option("--artifact", artifact, "The artifact of keys, 64 hexadecimal digits (see `firn calibrate`)");
  app->add_option("--value-artifact", value_artifact, "The artifact of values, for presets that need one");
  app->add_option("--ranking", ranking, "Which layers matter most, for kvmix: CSV (docs/plan.md)");
  app->add_option("--ranking-share", ranking_share, "Share of the layers that get more bits (default: 0.2)");
}

absl::StatusOr<firnkv::PlanFile> PresetOptions::Make() const {
  firnkv::PresetArtifacts artifacts;
  FIRN_ASSIGN_OR_RETURN(artifacts.keys, ParseArtifact("--artifact", artifact));
  FIRN_ASSIGN_OR_RETURN(artifacts.values, ParseArtifact("--value-artifact", value_artifact));
  std::vector<firnkv::LayerClasses> layers;
  if (!ranking.empty()) {
    FIRN_ASSIGN_OR_RETURN(std::string csv, ReadSmallFile(ranking, kMiB));
    FIRN_ASSIGN_OR_RETURN(layers, firnkv::ParseRanking(csv, {.source = ranking, .share = ranking_share}));
  }
  if (!preset.empty()) return firnkv::PresetPlan(preset, artifacts, layers);
  if (!ranking.empty()) return InvalidArgument("--ranking {}: only --preset kvmix uses one", ranking);
  if (artifacts.values.has_value()) {
    return InvalidArgument("--value-artifact {}: only a --preset uses one", value_artifact);
  }
  firnkv::PlanFile file;
  file.plan.balance_artifact = artifacts.keys;
  return file;
}

void PlanOptions::AddTo(CLI::App* app) {
  auto* group = app->add_option_group("Precision plan",
                                      "How the namespace's blocks are re-quantized; replaces the plan in force");
  group->add_option("--plan", plan, "A plan file (docs/plan.md), instead of all other options of this group");
  group->add_option("--preset", base.preset, "A plan by name, which the other options change: " + PresetNames());
  base.AddInputsTo(group);
  group->add_option("--key-method", key_method, "per-channel, balanced (needs --artifact) or rotated")
      ->check(CLI::IsMember({"per-channel", "balanced", "rotated"}));
  group->add_option("--floor", floor, "Never coarser than this: int4, or int8/int4 for K and V apart");
  group->add_option("--max-error", max_error, "A demotion above this relative error stops at a finer precision");
  group->add_option("--keep-first", keep_first, "Leading tokens of a sequence kept exact")
      ->check(WholeNumber<uint32_t>());
  group->add_option("--key-group", key_group, "Values that share a scale, keys")->check(WholeNumber<uint32_t>());
  group->add_option("--value-group", value_group, "Values that share a scale, values")->check(WholeNumber<uint32_t>());
  group->add_option("--tier-target", tier_targets, "TIER=PRECISION, overriding the tier's own; repeatable");
}

absl::StatusOr<std::optional<firnkv::PlanFile>> PlanOptions::Plan() const {
  bool any = !base.preset.empty() || !base.artifact.empty() || !base.value_artifact.empty() || !base.ranking.empty() ||
             !key_method.empty() || !floor.empty() || max_error != 0 || keep_first.has_value() ||
             key_group.has_value() || value_group.has_value() || !tier_targets.empty();
  if (!plan.empty()) {
    if (any) return InvalidArgument("--plan {} says everything; allowed: no other option of the precision plan", plan);
    return firnkv::LoadPlanFile(plan);
  }
  if (!any) return std::optional<firnkv::PlanFile>();
  FIRN_ASSIGN_OR_RETURN(firnkv::PlanFile file, base.Make());
  firnkv::PrecisionPlan& out = file.plan;
  if (base.preset.empty() && (key_method == "balanced" || (key_method.empty() && out.balance_artifact.has_value()))) {
    out.key_method = firnkv::KeyMethod::kBalancedRotated;
  }
  if (key_method == "rotated") out.key_method = firnkv::KeyMethod::kRotated;
  if (!floor.empty() && !ParsePair(floor, &out.floor)) return InvalidArgument("--floor {} is not a precision", floor);
  out.max_relative_error = max_error;
  if (keep_first.has_value()) out.keep_first_tokens = *keep_first;
  if (key_group.has_value()) out.key_group = *key_group;
  if (value_group.has_value()) out.value_group = *value_group;
  for (const std::string& target : tier_targets) {
    size_t equals = target.find('=');
    firnkv::PrecisionPair pair;
    if (equals == std::string::npos || !ParsePair(target.substr(equals + 1), &pair)) {
      return InvalidArgument("--tier-target {} is not TIER=PRECISION", target);
    }
    out.tier_target[target.substr(0, equals)] = pair;
  }
  return std::optional(std::move(file));
}

absl::StatusOr<firnkv::PrecisionPlan> ResolvePlan(firnkv::Client* client, const firnkv::PlanFile& file,
                                                  const firnkv::NamespaceFacts& facts) {
  FIRN_ASSIGN_OR_RETURN(firnkv::Capabilities capabilities, client->GetCapabilities());
  FIRN_RETURN_IF_ERROR(firnkv::CheckPlanTiers(file, capabilities.tiers));
  FIRN_ASSIGN_OR_RETURN(firnkv::PrecisionPlan plan, firnkv::PlanFor(file, facts, capabilities.tiers));
  for (const firnkv::ArtifactFile& artifact : file.artifacts) {
    FIRN_ASSIGN_OR_RETURN(firnkv::Digest name, client->PutArtifact(artifact.serialized));
    if (name == artifact.digest) continue;
    return InternalError("the daemon named {} {}; {} expected", artifact.path, name.Hex(), artifact.digest.Hex());
  }
  return plan;
}

}  // namespace firn::cli
