// delete, clear, flush, verify.

#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/status.h"
#include "client/cli/commands/commands.h"
#include "client/cli/support/output.h"
#include "client/cli/support/selection.h"

namespace firn::cli {
namespace {

absl::StatusOr<int> Delete(Context* context, const BlockOptions& options) {
  FIRN_ASSIGN_OR_RETURN(firnkv::Client * client, context->Connect());
  FIRN_ASSIGN_OR_RETURN(Selection selection, options.Select(client));
  FIRN_ASSIGN_OR_RETURN(std::vector<absl::Status> statuses, client->Delete(selection.ns, selection.keys));
  uint64_t deleted = 0, missed = 0;
  Json errors = Json::array();
  for (size_t i = 0; i < statuses.size(); ++i) {
    if (statuses[i].ok() || absl::IsNotFound(statuses[i])) {
      ++(statuses[i].ok() ? deleted : missed);
      continue;
    }
    errors.push_back({{"key", KeyText(selection.keys[i])}, {"error", Message(statuses[i])}});
    std::fprintf(stderr, "firn: %s: %s\n", KeyText(selection.keys[i]).c_str(), Message(statuses[i]).c_str());
  }
  if (context->json) {
    context->Print({{"deleted", deleted}, {"missed", missed}, {"errors", errors}});
  } else {
    std::printf("%llu blocks deleted, %llu were not there\n", static_cast<unsigned long long>(deleted),
                static_cast<unsigned long long>(missed));
  }
  return missed == 0 && errors.empty() ? kExitOk : kExitSome;
}

struct ClearCommand {
  std::string fingerprint, model, tier;
  bool everything = false, forget = false, yes = false;

  absl::StatusOr<int> Run(Context* context) const {
    bool named = !fingerprint.empty() || !model.empty() || !tier.empty();
    if (named == everything) return InvalidArgument("say what to clear: --ns or --model, --tier, or --everything");
    if (forget && ((fingerprint.empty() && model.empty()) || !tier.empty())) {
      return InvalidArgument("--forget removes one namespace whole: name it with --ns or --model, without --tier");
    }
    if (!yes) return InvalidArgument("clearing cannot be undone; add --yes");
    FIRN_ASSIGN_OR_RETURN(firnkv::Client * client, context->Connect());
    firnkv::Client::ClearScope scope{.ns = {}, .tier = tier};
    if (!fingerprint.empty() || !model.empty()) {
      NamespaceOptions options;
      options.fingerprint = fingerprint;
      options.model = model;
      FIRN_ASSIGN_OR_RETURN(firnkv::Namespace ns, options.Find(client));
      scope.ns = ns.fingerprint;
      if (forget) return Removed(context, client->RemoveNamespace(ns));
    }
    return Removed(context, client->Clear(scope));
  }

  static absl::StatusOr<int> Removed(Context* context, const absl::StatusOr<uint64_t>& answer) {
    FIRN_ASSIGN_OR_RETURN(uint64_t removed, answer);
    context->json ? context->Print({{"copies_removed", removed}})
                  : static_cast<void>(std::printf("%llu copies removed\n", static_cast<unsigned long long>(removed)));
    return kExitOk;
  }
};

absl::StatusOr<int> Flush(Context* context, const NamespaceOptions& options) {
  FIRN_ASSIGN_OR_RETURN(firnkv::Client * client, context->Connect());
  FIRN_ASSIGN_OR_RETURN(firnkv::Namespace ns, options.Find(client));
  FIRN_RETURN_IF_ERROR(client->Flush(ns));
  if (context->json) context->Print({{"flushed", ns.fingerprint.Hex()}});
  return kExitOk;
}

absl::StatusOr<int> Verify(Context* context) {
  FIRN_ASSIGN_OR_RETURN(firnkv::Client * client, context->Connect());
  FIRN_ASSIGN_OR_RETURN(firnkv::VerifyReport report, client->Verify());
  if (context->json) {
    context->Print({{"consistent", report.consistent}, {"findings", report.findings}});
  } else {
    for (const std::string& finding : report.findings) std::printf("%s\n", finding.c_str());
    std::printf(report.consistent ? "every counter equals its recount\n" : "counters and recount differ\n");
  }
  return report.consistent ? kExitOk : kExitInconsistent;
}

}  // namespace

void AddRemoval(CLI::App* app, Context* context, int* code) {
  auto finish = [=](absl::StatusOr<int> result) { *code = result.ok() ? *result : context->Report(result.status()); };
  auto blocks = std::make_shared<BlockOptions>();
  CLI::App* erase = app->add_subcommand("delete", "Removes blocks, in all shards and tiers");
  blocks->AddTo(erase);
  erase->callback([=] { finish(Delete(context, *blocks)); });

  auto clear = std::make_shared<ClearCommand>();
  CLI::App* clearing = app->add_subcommand("clear", "Removes all blocks of a namespace, of a tier, or all there are");
  clearing
      ->add_option("--ns", clear->fingerprint,
                   "This namespace, by its fingerprint or the beginning of it (default: every namespace)")
      ->type_name("HEX");
  clearing->add_option("--model", clear->model, "This namespace, by its model id (default: every namespace)")
      ->type_name("ID");
  clearing->add_option("--tier", clear->tier, "Only the copies in this tier (default: every tier)")->type_name("NAME");
  clearing->add_flag("--everything", clear->everything, "Every namespace, of every tenant, in every tier");
  clearing->add_flag("--forget", clear->forget, "The namespace itself too, not only its blocks; with --ns or --model");
  clearing->add_flag("--yes", clear->yes, "Needed, since clearing cannot be undone");
  clearing->footer("Say what: --ns or --model, --tier, both, or --everything; and --yes.");
  clearing->callback([=] { finish(clear->Run(context)); });

  auto ns = std::make_shared<NamespaceOptions>();
  CLI::App* flush = app->add_subcommand("flush", "Returns when everything stored so far is durable");
  ns->AddTo(flush);
  flush->callback([=] { finish(Flush(context, *ns)); });

  app->add_subcommand("verify", "Recounts everything that has a counter and compares")->callback([=] {
    finish(Verify(context));
  });
}

}  // namespace firn::cli
