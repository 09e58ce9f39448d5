#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/status.h"
#include "base/units.h"
#include "client/cli/commands/commands.h"
#include "client/cli/support/importance.h"
#include "client/cli/support/output.h"
#include "client/cli/support/plan_options.h"
#include "client/cli/support/transfer.h"

namespace firn::cli {
namespace {

struct PutCommand {
  FileOptions file;
  PlanOptions plan;
  std::string ttl, importance;
  bool durable = false, announce = false;

  absl::StatusOr<int> Run(Context* context) const {
    FIRN_ASSIGN_OR_RETURN(std::shared_ptr<const KvFile> kv, file.Open());
    FIRN_ASSIGN_OR_RETURN(auto plan_file, plan.Plan());
    std::vector<float> token_importance;
    if (!importance.empty()) {
      FIRN_ASSIGN_OR_RETURN(token_importance, ReadImportance(importance, kv->tokens(), file.block_tokens));
    }
    firnkv::PutOptions options;
    if (!ttl.empty()) {
      auto ttl_ms = ParseDurationMs(ttl);
      if (!ttl_ms.ok()) return InvalidArgument("--ttl {}: {}", ttl, Message(ttl_ms.status()));
      options.ttl_ms = static_cast<uint64_t>(*ttl_ms);
    }
    options.ack = durable ? firnkv::AckLevel::kDurable : firnkv::AckLevel::kMemory;
    options.announce = announce;
    FIRN_ASSIGN_OR_RETURN(firnkv::Client * client, context->Connect());
    const firnkv::NamespaceFacts facts = file.FactsOf(*kv);
    std::optional<firnkv::PrecisionPlan> precision_plan;
    if (plan_file.has_value()) {
      FIRN_ASSIGN_OR_RETURN(precision_plan, ResolvePlan(client, *plan_file, plan.Name(), facts));
    }
    FIRN_ASSIGN_OR_RETURN(firnkv::Namespace ns, client->RegisterNamespace(facts, precision_plan));
    std::vector<FileBlock> blocks = file.Blocks(*kv, ns);
    for (FileBlock& block : blocks) {
      if (token_importance.empty()) break;
      auto first = token_importance.begin() + block.first;
      block.importance.assign(first, first + block.count);
    }
    if (!token_importance.empty() && ns.plan.important_fraction == 0 && !context->quiet) {
      std::fprintf(stderr,
                   "firn: --importance %s changes nothing while important_fraction of the namespace's plan is 0 "
                   "(preset mikv has 0.2)\n",
                   importance.c_str());
    }
    bool progress = !context->quiet && !context->json;
    FIRN_ASSIGN_OR_RETURN(PutSummary summary, PutFile(client, ns, *kv, blocks, options, progress));
    if (!token_importance.empty() && summary.existing > 0 && !context->quiet) {
      std::fprintf(stderr,
                   "firn: --importance %s was not taken for %llu blocks that were there already: they keep what they "
                   "were first put with\n",
                   importance.c_str(), static_cast<unsigned long long>(summary.existing));
    }
    Show(*context, ns, *kv, summary);
    return summary.failed == 0 ? kExitOk : kExitSome;
  }

  void Show(const Context& context, const firnkv::Namespace& ns, const KvFile& kv, const PutSummary& summary) const {
    if (context.json) {
      context.Print({{"namespace", ns.fingerprint.Hex()},
                     {"model", ns.facts.model_id},
                     {"keys_by", kv.token_ids().empty() ? "content" : "tokens"},
                     {"tokens", kv.tokens()},
                     {"blocks", summary.blocks},
                     {"stored", summary.stored},
                     {"existing", summary.existing},
                     {"failed", summary.failed},
                     {"bytes", summary.bytes},
                     {"seconds", summary.seconds},
                     {"failures", summary.failures}});
    } else if (!context.quiet) {
      std::printf("%u tokens in %llu blocks (keys by %s): %llu stored, %llu there already, %llu failed\n", kv.tokens(),
                  static_cast<unsigned long long>(summary.blocks), kv.token_ids().empty() ? "content" : "token ids",
                  static_cast<unsigned long long>(summary.stored), static_cast<unsigned long long>(summary.existing),
                  static_cast<unsigned long long>(summary.failed));
      std::printf("%s in %.3f s, %s; namespace %s\n", FormatBytes(summary.bytes).c_str(), summary.seconds,
                  RateText(summary.bytes, summary.seconds).c_str(), ShortHex(ns.fingerprint).c_str());
    }
    for (const std::string& failure : summary.failures) std::fprintf(stderr, "firn: %s\n", failure.c_str());
  }
};

}  // namespace

void AddPut(CLI::App* app, Context* context, int* code) {
  auto command = std::make_shared<PutCommand>();
  CLI::App* put = app->add_subcommand("put", "Stores the K and V of a file, block by block");
  command->file.AddTo(put, /*required=*/true);
  command->plan.AddTo(put);
  put->add_option("--importance", command->importance,
                  "How much each token matters: .npy of float32, a value a token or (blocks, block tokens); plans with "
                  "important_fraction (mikv) keep the most important exact (default: none)")
      ->type_name("FILE");
  put->add_option("--ttl", command->ttl, "Time to live, with a unit: 30m, 12h (default: no end)")
      ->type_name("DURATION");
  put->add_flag("--durable", command->durable,
                "Wait until each block survives a crash (default: until it can be read)");
  put->add_flag("--announce", command->announce,
                "Ask about each block before its payload is sent: saves sending what is there already");
  put->callback([=] {
    auto result = command->Run(context);
    *code = result.ok() ? *result : context->Report(result.status());
  });
}

}  // namespace firn::cli
