#include "client/cli/support/plan_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>

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
  app->add_option("--artifact", artifact,
                  "The artifact of keys by its name, 64 hexadecimal digits, as `firn calibrate --register` prints it "
                  "(default: none)")
      ->type_name("HEX");
  app->add_option("--value-artifact", value_artifact,
                  "The artifact of values, likewise, for presets that need one (default: none)")
      ->type_name("HEX");
  app->add_option("--ranking", ranking,
                  "How much each layer matters, for kvmix: CSV with every layer of the model (docs/plan.md; default: "
                  "none)")
      ->type_name("FILE");
  app->add_option(
         "--ranking-share", ranking_share,
         fmt::format("Share of the layers that get more bits, above 0, at most 1 (default: {})", ranking_share))
      ->check([](const std::string& text) {
        double share = 0;
        auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), share);
        bool right = error == std::errc() && end == text.data() + text.size() && share > 0 && share <= 1;
        return right ? std::string() : fmt::format("{}; allowed: above 0, at most 1", text);
      })
      ->type_name("SHARE");
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
  if (!preset.empty()) {
    auto made = firnkv::PresetPlan(preset, artifacts, layers);
    if (made.ok()) return made;
    if (preset == "kvmix" && ranking.empty()) {
      return InvalidArgument("{}: --ranking FILE, which `firn calibrate --ranking-out` writes", Message(made.status()));
    }
    if (preset.starts_with("kvquant-") && (artifact.empty() || value_artifact.empty())) {
      return InvalidArgument("{}: --artifact HEX and --value-artifact HEX, which `firn calibrate --register` prints",
                             Message(made.status()));
    }
    return made.status();
  }
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
                                      "How the namespace's blocks are re-quantized; replaces the plan in force. None "
                                      "of these: the plan in force, or the default");
  group
      ->add_option("--plan", plan,
                   "A plan file (docs/plan.md), instead of all other options of this group (default: "
                   "none)")
      ->type_name("FILE");
  group
      ->add_option("--preset", base.preset,
                   "A plan by name, which the other options change (default: none): " + PresetNames())
      ->type_name("NAME");
  base.AddInputsTo(group);
  group
      ->add_option("--key-method", key_method,
                   "How the ladder codes keys; balanced needs --artifact (default: per-channel, with --artifact "
                   "balanced)")
      ->check(CLI::IsMember({"per-channel", "balanced", "rotated"}))
      ->type_name("METHOD");
  group
      ->add_option("--floor", floor,
                   "Never coarser than this: int8, int4 or int2, or int8/int4 for K and V apart (default: no floor)")
      ->type_name("PRECISION");
  group
      ->add_option("--max-error", max_error,
                   "A demotion whose relative error would pass this, 0.1 for 10 %, stops finer (default: 0, no limit)")
      ->check(CLI::NonNegativeNumber)
      ->type_name("ERROR");
  group->add_option("--keep-first", keep_first, "Leading tokens of a sequence kept exact, 0 to 65536 (default: 4)")
      ->check(WholeNumber<uint32_t>(0, 65536))
      ->type_name("TOKENS");
  group
      ->add_option("--key-group", key_group,
                   "Keys that share a scale on the ladder, 0 to 4096; 0: the method's own (default: 0)")
      ->check(WholeNumber<uint32_t>(0, 4096))
      ->type_name("VALUES");
  group
      ->add_option("--value-group", value_group,
                   "Values that share a scale on the ladder, 0 to 4096; 0: the method's own (default: 0)")
      ->check(WholeNumber<uint32_t>(0, 4096))
      ->type_name("VALUES");
  group
      ->add_option("--tier-target", tier_targets,
                   "Precision in one tier, as in cold=int2 or cold=int4/int2; repeatable (default: the tier's own)")
      ->allow_extra_args(false)
      ->type_name("TIER=PRECISION");
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
  if (!floor.empty() && !ParsePair(floor, &out.floor)) return NotAPrecision("--floor", floor);
  out.max_relative_error = max_error;
  if (keep_first.has_value()) out.keep_first_tokens = *keep_first;
  if (key_group.has_value()) out.key_group = *key_group;
  if (value_group.has_value()) out.value_group = *value_group;
  for (const std::string& target : tier_targets) {
    size_t equals = target.find('=');
    firnkv::PrecisionPair pair;
    if (equals == std::string::npos || !ParsePair(target.substr(equals + 1), &pair)) {
      return InvalidArgument("--tier-target {} is not TIER=PRECISION; precisions: {}", target, kPairsAllowed);
    }
    out.tier_target[target.substr(0, equals)] = pair;
  }
  return std::optional(std::move(file));
}

std::string PlanOptions::Name() const {
  if (!plan.empty()) return plan;
  return base.preset.empty() ? "the plan" : "preset " + base.preset;
}

absl::StatusOr<firnkv::PrecisionPlan> ResolvePlan(firnkv::Client* client, const firnkv::PlanFile& file,
                                                  const std::string& name, const firnkv::NamespaceFacts& facts) {
  FIRN_ASSIGN_OR_RETURN(firnkv::Capabilities capabilities, client->GetCapabilities());
  auto named = [&](const absl::Status& wrong) {
    return absl::Status(wrong.code(), fmt::format("{}: {}", name, Message(wrong)));
  };
  absl::Status tiers = firnkv::CheckPlanTiers(file, capabilities.tiers);
  if (!tiers.ok()) return named(tiers);
  auto plan = firnkv::PlanFor(file, facts, capabilities.tiers);
  if (!plan.ok()) return named(plan.status());
  for (const firnkv::ArtifactFile& artifact : file.artifacts) {
    FIRN_ASSIGN_OR_RETURN(firnkv::Digest digest, client->PutArtifact(artifact.serialized));
    if (digest == artifact.digest) continue;
    return InternalError("the daemon named {} {}; {} expected", artifact.path, digest.Hex(), artifact.digest.Hex());
  }
  return *std::move(plan);
}

}  // namespace firn::cli
