// plan show, check, set, presets, preset: precision plans as files (docs/plan.md).

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>

#include "base/bytes.h"
#include "base/read_file.h"
#include "base/status.h"
#include "base/units.h"
#include "client/cli/commands/commands.h"
#include "client/cli/support/numbers.h"
#include "client/cli/support/output.h"
#include "client/cli/support/plan_options.h"
#include "client/cli/support/selection.h"
#include "codecs/block_codec.h"

namespace firn::cli {
namespace {

constexpr uint64_t kPlanBytesMax = kMiB;  // As firnkv/plan_file.h has it.

void PrintNamespacePlan(const Context& context, const firnkv::Namespace& ns) {
  std::string toml = firnkv::PrintPlan(ns.plan);
  if (context.json) {
    context.Print({{"namespace", ns.fingerprint.Hex()}, {"model", ns.facts.model_id}, {"plan", toml}});
    return;
  }
  if (!context.quiet) {
    std::printf("# namespace %s: layers %u to %u, %u KV heads\n", ShortHex(ns.fingerprint).c_str(),
                ns.facts.layer_first, ns.facts.layer_last - 1, ns.facts.kv_heads);
  }
  std::fputs(toml.c_str(), stdout);
}

absl::StatusOr<int> ShowPlan(Context* context, const NamespaceOptions& which) {
  FIRN_ASSIGN_OR_RETURN(firnkv::Client * client, context->Connect());
  FIRN_ASSIGN_OR_RETURN(firnkv::Namespace ns, which.Find(client));
  PrintNamespacePlan(*context, ns);
  return kExitOk;
}

// The artifacts that a plan names by their files, and what its codings read of them: looked for as the daemon will.
class NamedArtifacts {
 public:
  // `facts` may be null. InvalidArgument, with the file, where one cannot be read, is another model's, or lacks what is
  // read of it.
  static absl::Status Check(const firnkv::PlanFile& plan, const firnkv::NamespaceFacts* facts);

 private:
  struct Named {
    std::string path;
    std::shared_ptr<const Artifact> artifact;
  };

  absl::Status Parse(const firnkv::PlanFile& plan, const firnkv::NamespaceFacts* facts);
  // Nothing is known of artifacts that the plan names by their digest.
  absl::Status CheckCoding(PartCoding coding, const std::optional<firnkv::Digest>& digest,
                           const std::string& use) const;
  absl::Status CheckRule(const firnkv::TierRule& rule) const;

  std::map<std::string, Named> by_digest_;
};

absl::Status NamedArtifacts::Parse(const firnkv::PlanFile& plan, const firnkv::NamespaceFacts* facts) {
  const Named* first = nullptr;
  for (const firnkv::ArtifactFile& file : plan.artifacts) {
    auto artifact = Artifact::Parse(AsBytes(file.serialized));
    if (!artifact.ok()) {
      return InvalidArgument("{} cannot be read as an artifact: {}", file.path, Message(artifact.status()));
    }
    const Named& named = by_digest_[file.digest.Hex()] = {file.path, *std::move(artifact)};
    if (first == nullptr) first = &named;
    uint32_t layers = named.artifact->layers(), heads = named.artifact->heads();
    if (layers != first->artifact->layers()) {
      return InvalidArgument("{} is for {} layers and {} for {}: they are of different models", named.path, layers,
                             first->path, first->artifact->layers());
    }
    if (facts == nullptr || (layers == facts->layers() && heads % facts->kv_heads == 0)) continue;
    return InvalidArgument("{} is for {} layers and {} KV heads; {} layers and {} KV heads a shard are expected",
                           named.path, layers, heads, facts->layers(), facts->kv_heads);
  }
  return absl::OkStatus();
}

absl::Status NamedArtifacts::CheckCoding(PartCoding coding, const std::optional<firnkv::Digest>& digest,
                                         const std::string& use) const {
  auto found = digest.has_value() ? by_digest_.find(digest->Hex()) : by_digest_.end();
  if (found == by_digest_.end()) return absl::OkStatus();
  const Artifact& artifact = *found->second.artifact;
  coding.artifact = artifact.digest();
  PartShape shape{artifact.layers(), artifact.heads(), 1, artifact.width()};
  absl::Status has = CheckArtifactFor(coding, shape, 0, found->second.artifact);
  return has.ok() ? has : InvalidArgument("{}, of {}: {}", found->second.path, use, Message(has));
}

absl::Status NamedArtifacts::CheckRule(const firnkv::TierRule& rule) const {
  PartCoding coding;
  coding.codec = static_cast<CodecId>(rule.coding.codec);
  for (auto [set, flag] : {std::pair(rule.coding.calibrated, PartCoding::kCalibrated),
                           {rule.coding.pre_rope, PartCoding::kPreRope},
                           {rule.coding.centred, PartCoding::kCentred},
                           {rule.coding.balanced, PartCoding::kBalanced}}) {
    if (set) coding.flags |= flag;
  }
  std::vector<firnkv::Precision> precisions = rule.heads;
  if (precisions.empty()) precisions = {static_cast<firnkv::Precision>(rule.coding.bits)};
  std::sort(precisions.begin(), precisions.end());
  precisions.erase(std::unique(precisions.begin(), precisions.end()), precisions.end());
  const char* use = rule.part == firnkv::Part::kK ? "a rule for K" : "a rule for V";
  for (firnkv::Precision precision : precisions) {
    coding.bits = static_cast<uint8_t>(precision);
    FIRN_RETURN_IF_ERROR(CheckCoding(coding, rule.coding.artifact, use));
  }
  return absl::OkStatus();
}

absl::Status NamedArtifacts::Check(const firnkv::PlanFile& plan, const firnkv::NamespaceFacts* facts) {
  NamedArtifacts artifacts;
  FIRN_RETURN_IF_ERROR(artifacts.Parse(plan, facts));
  PartCoding balanced;
  balanced.codec = CodecId::kNestedToken;
  balanced.flags = PartCoding::kCentred | PartCoding::kBalanced;
  FIRN_RETURN_IF_ERROR(artifacts.CheckCoding(balanced, plan.plan.balance_artifact, "balanced keys"));
  for (const firnkv::TierRule& rule : plan.plan.rules) FIRN_RETURN_IF_ERROR(artifacts.CheckRule(rule));
  return absl::OkStatus();
}

// Whether a plan is right is an answer, not an error: 1 says no. What keeps it from being judged, an unreadable file or
// a daemon that is not there, has the exit code that it has everywhere.
struct CheckCommand {
  std::string file;
  NamespaceOptions which;
  bool daemon = false, print = false;
  uint32_t layers = 0, kv_heads = 0;

  // What a plan is checked for, beyond itself.
  struct Place {
    std::vector<firnkv::TierInfo> tiers;
    std::optional<firnkv::NamespaceFacts> facts;
  };

  bool of_namespace() const { return !which.fingerprint.empty() || !which.model.empty(); }

  absl::StatusOr<int> Run(Context* context) const {
    if (of_namespace() && layers != 0) return InvalidArgument("--layers {}: a namespace has layers of its own", layers);
    if ((layers == 0) != (kv_heads == 0)) {
      return InvalidArgument("--layers {} and --kv-heads {}: allowed: both, or none", layers, kv_heads);
    }
    FIRN_ASSIGN_OR_RETURN(std::string toml, ReadSmallFile(file, kPlanBytesMax));
    auto plan =
        firnkv::ParsePlanFile(toml, {.source = file, .folder = std::filesystem::path(file).parent_path().string()});
    if (!plan.ok()) return Wrong(*context, plan.status());
    FIRN_ASSIGN_OR_RETURN(Place place, PlaceOf(context));
    absl::Status artifacts = NamedArtifacts::Check(*plan, place.facts.has_value() ? &*place.facts : nullptr);
    if (!artifacts.ok()) return Wrong(*context, artifacts);
    if (!place.tiers.empty()) {
      absl::Status known = firnkv::CheckPlanTiers(*plan, place.tiers);
      if (!known.ok()) return Wrong(*context, known);
    }
    if (place.facts.has_value()) {
      auto compiled = firnkv::PlanFor(*plan, *place.facts, place.tiers);
      if (absl::IsFailedPrecondition(compiled.status())) {
        return InvalidArgument("{}: {}; give --daemon, too", file, Message(compiled.status()));
      }
      if (!compiled.ok()) return Wrong(*context, compiled.status());
      plan->plan = *std::move(compiled);
      plan->layers.clear();
      plan->boundary.reset();
    }
    Show(*context, *plan, place.facts.has_value(), !place.tiers.empty());
    return kExitOk;
  }

  absl::StatusOr<Place> PlaceOf(Context* context) const {
    Place place;
    if (layers != 0) place.facts = {.layer_last = layers, .kv_heads = kv_heads, .k_width = 1, .v_width = 1};
    if (!daemon && !of_namespace()) return place;
    FIRN_ASSIGN_OR_RETURN(firnkv::Client * client, context->Connect());
    FIRN_ASSIGN_OR_RETURN(firnkv::Capabilities capabilities, client->GetCapabilities());
    place.tiers = std::move(capabilities.tiers);
    if (!of_namespace()) return place;
    FIRN_ASSIGN_OR_RETURN(firnkv::Namespace ns, which.Find(client));
    place.facts = ns.facts;
    return place;
  }

  int Wrong(const Context& context, const absl::Status& why) const {
    std::string message = Message(why);
    if (!message.starts_with(file)) message = file + ": " + message;
    std::fprintf(stderr, "firn: %s\n", message.c_str());
    if (context.json) {
      context.Print({{"file", file},
                     {"right", false},
                     {"error", {{"code", absl::StatusCodeToString(why.code())}, {"message", message}}}});
    }
    return kExitSome;
  }

  void Show(const Context& context, const firnkv::PlanFile& plan, bool for_layers, bool for_tiers) const {
    std::string toml = firnkv::PrintPlanFile(plan);
    if (context.json) {
      context.Print({{"file", file},
                     {"right", true},
                     {"rules", plan.plan.rules.size()},
                     {"artifact_files", plan.artifacts.size()},
                     {"checked_layers", for_layers},
                     {"checked_tiers", for_tiers},
                     {"plan", toml}});
    } else if (print) {
      std::fputs(toml.c_str(), stdout);
    } else if (!context.quiet) {
      std::printf(
          "%s is right: %zu rules; %s%s\n", file.c_str(), plan.plan.rules.size(),
          for_layers ? "its layers were checked, " : "layers not checked (--layers and --kv-heads, or --model), ",
          for_tiers ? "its tiers, too" : "tiers not (--daemon)");
    }
  }
};

absl::StatusOr<int> SetPlan(Context* context, const NamespaceOptions& which, const PlanOptions& options) {
  FIRN_ASSIGN_OR_RETURN(auto plan, options.Plan());
  if (!plan.has_value()) return InvalidArgument("say which plan: a FILE, --preset, or other options of a plan");
  FIRN_ASSIGN_OR_RETURN(firnkv::Client * client, context->Connect());
  FIRN_ASSIGN_OR_RETURN(firnkv::Namespace ns, which.Find(client));
  FIRN_ASSIGN_OR_RETURN(firnkv::PrecisionPlan resolved, ResolvePlan(client, *plan, options.Name(), ns.facts));
  FIRN_ASSIGN_OR_RETURN(ns, client->RegisterNamespace(ns.facts, resolved));
  PrintNamespacePlan(*context, ns);
  return kExitOk;
}

int ListPresets(const Context& context) {
  Json rows = Json::array();
  Table table({"preset", "what it reproduces"});
  for (const firnkv::PresetInfo& preset : firnkv::Presets()) {
    rows.push_back({{"name", preset.name}, {"summary", preset.summary}});
    table.Row({std::string(preset.name), std::string(preset.summary)});
  }
  context.json ? context.Print({{"presets", rows}}) : table.Print();
  return kExitOk;
}

absl::StatusOr<int> WritePreset(const Context& context, const PresetOptions& options) {
  FIRN_ASSIGN_OR_RETURN(firnkv::PlanFile file, options.Make());
  std::string toml = firnkv::PrintPlanFile(file);
  if (context.json) {
    context.Print({{"preset", options.preset}, {"plan", toml}});
  } else {
    std::fputs(toml.c_str(), stdout);
  }
  return kExitOk;
}

}  // namespace

void AddPlan(CLI::App* app, Context* context, int* code) {
  auto finish = [=](absl::StatusOr<int> result) { *code = result.ok() ? *result : context->Report(result.status()); };
  CLI::App* plan = app->add_subcommand("plan", "Precision plans: show, check, set, presets, preset");
  plan->require_subcommand(1);

  auto shown = std::make_shared<NamespaceOptions>();
  CLI::App* show = plan->add_subcommand("show", "The plan in force of a namespace, as a plan file");
  shown->AddTo(show);
  show->callback([=] { finish(ShowPlan(context, *shown)); });

  auto checked = std::make_shared<CheckCommand>();
  CLI::App* check = plan->add_subcommand("check", "Whether a plan file is right; exit code 0: it is, 1: it is not");
  check->add_option("file", checked->file, "A plan file (docs/plan.md)")->required()->type_name("FILE");
  check
      ->add_option("--ns", checked->which.fingerprint,
                   "Also for this namespace of the daemon, by its fingerprint or the beginning of it (default: none)")
      ->type_name("HEX");
  check->add_option("--model", checked->which.model, "Also for the daemon's namespace of this model id (default: none)")
      ->type_name("ID");
  check->add_flag("--daemon", checked->daemon, "Also whether the daemon has the tiers that it names");
  check
      ->add_option("--layers", checked->layers,
                   "Also for a model of so many layers, with --kv-heads (default: layers are not checked)")
      ->check(WholeNumber<uint32_t>())
      ->type_name("LAYERS");
  check->add_option("--kv-heads", checked->kv_heads, "KV heads of a shard of that model (default: not checked)")
      ->check(WholeNumber<uint32_t>())
      ->type_name("HEADS");
  check->add_flag("--print", checked->print,
                  "Print the plan as TOML, with layers as the precisions of heads where they are known");
  check->footer("Needs a daemon only for --ns, --model and --daemon.");
  check->callback([=] { finish(checked->Run(context)); });

  auto changed = std::make_shared<NamespaceOptions>();
  auto options = std::make_shared<PlanOptions>();
  CLI::App* set = plan->add_subcommand("set", "Changes the plan of a namespace, for what is demoted from now on");
  set->add_option("file", options->plan, "A plan file, as --plan")->type_name("FILE");
  changed->AddTo(set);
  options->AddTo(set);
  set->callback([=] { finish(SetPlan(context, *changed, *options)); });

  plan->add_subcommand("presets", "Lists the presets")->callback([=] { *code = ListPresets(*context); });

  auto preset = std::make_shared<PresetOptions>();
  CLI::App* one = plan->add_subcommand("preset", "Prints a preset as a plan file");
  one->add_option("name", preset->preset, "One of `firn plan presets`")->required()->type_name("NAME");
  preset->AddInputsTo(one);
  one->callback([=] { finish(WritePreset(*context, *preset)); });
}

}  // namespace firn::cli
