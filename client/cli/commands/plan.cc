// plan show, check, set, presets, preset: precision plans as files (docs/plan.md).

#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/status.h"
#include "client/cli/commands/commands.h"
#include "client/cli/support/numbers.h"
#include "client/cli/support/output.h"
#include "client/cli/support/plan_options.h"
#include "client/cli/support/selection.h"

namespace firn::cli {
namespace {

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

struct CheckCommand {
  std::string file;
  NamespaceOptions which;
  bool daemon = false, print = false;
  uint32_t layers = 0, kv_heads = 0;

  absl::StatusOr<int> Run(Context* context) const {
    FIRN_ASSIGN_OR_RETURN(firnkv::PlanFile plan, firnkv::LoadPlanFile(file));
    const bool of_namespace = !which.fingerprint.empty() || !which.model.empty();
    if (of_namespace && layers != 0) return InvalidArgument("--layers {}: a namespace has layers of its own", layers);
    if ((layers == 0) != (kv_heads == 0)) {
      return InvalidArgument("--layers {} and --kv-heads {}: allowed: both, or none", layers, kv_heads);
    }
    std::vector<firnkv::TierInfo> tiers;
    std::optional<firnkv::NamespaceFacts> facts;
    if (layers != 0) {
      facts = {.layer_last = layers, .kv_heads = kv_heads, .k_width = 1, .v_width = 1};
    }
    if (daemon || of_namespace) {
      FIRN_ASSIGN_OR_RETURN(firnkv::Client * client, context->Connect());
      FIRN_ASSIGN_OR_RETURN(firnkv::Capabilities capabilities, client->GetCapabilities());
      tiers = std::move(capabilities.tiers);
      FIRN_RETURN_IF_ERROR(firnkv::CheckPlanTiers(plan, tiers));
      if (of_namespace) {
        FIRN_ASSIGN_OR_RETURN(firnkv::Namespace ns, which.Find(client));
        facts = ns.facts;
      }
    }
    if (facts.has_value()) {
      FIRN_ASSIGN_OR_RETURN(plan.plan, firnkv::PlanFor(plan, *facts, tiers));
      plan.layers.clear();
      plan.boundary.reset();
    }
    Show(*context, plan, facts.has_value(), !tiers.empty());
    return kExitOk;
  }

  void Show(const Context& context, const firnkv::PlanFile& plan, bool for_layers, bool for_tiers) const {
    std::string toml = firnkv::PrintPlanFile(plan);
    if (context.json) {
      context.Print({{"file", file},
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
  FIRN_ASSIGN_OR_RETURN(firnkv::PrecisionPlan resolved, ResolvePlan(client, *plan, ns.facts));
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
  CLI::App* check = plan->add_subcommand("check", "Whether a plan file is right; needs no daemon");
  check->add_option("file", checked->file, "A plan file (docs/plan.md)")->required();
  checked->which.AddTo(check);
  check->add_flag("--daemon", checked->daemon, "Also whether the daemon has the tiers that it names");
  check->add_option("--layers", checked->layers, "Also for a model of so many layers")->check(WholeNumber<uint32_t>());
  check->add_option("--kv-heads", checked->kv_heads, "... and so many KV heads a shard")
      ->check(WholeNumber<uint32_t>());
  check->add_flag("--print", checked->print,
                  "Print the plan, with layers as the classes of heads where they are known");
  check->callback([=] { finish(checked->Run(context)); });

  auto changed = std::make_shared<NamespaceOptions>();
  auto options = std::make_shared<PlanOptions>();
  CLI::App* set = plan->add_subcommand("set", "Changes the plan of a namespace, for what is demoted from now on");
  set->add_option("file", options->plan, "A plan file, as --plan");
  changed->AddTo(set);
  options->AddTo(set);
  set->callback([=] { finish(SetPlan(context, *changed, *options)); });

  plan->add_subcommand("presets", "Lists the presets")->callback([=] { *code = ListPresets(*context); });

  auto preset = std::make_shared<PresetOptions>();
  CLI::App* one = plan->add_subcommand("preset", "Prints a preset as a plan file");
  one->add_option("name", preset->preset, "One of `firn plan presets`")->required();
  preset->AddInputsTo(one);
  one->callback([=] { finish(WritePreset(*context, *preset)); });
}

}  // namespace firn::cli
