// demote, promote, degrade, prefetch: blocks between tiers.

#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/status.h"
#include "client/cli/commands/commands.h"
#include "client/cli/support/output.h"
#include "client/cli/support/selection.h"

namespace firn::cli {
namespace {

constexpr size_t kKeysAtOnce = 256;  // Progress, and no call longer than its deadline.

struct MoveCommand {
  std::string name;
  BlockOptions blocks;
  std::string tier, to;

  absl::StatusOr<std::vector<firnkv::MoveAnswer>> Call(firnkv::Client* client, const firnkv::Namespace& ns,
                                                       std::span<const firnkv::BlockKey> keys,
                                                       firnkv::PrecisionPair target) const {
    if (name == "demote") return client->Demote(ns, keys, tier);
    if (name == "promote") return client->Promote(ns, keys, tier);
    if (name == "degrade") return client->Degrade(ns, keys, tier, target);
    FIRN_ASSIGN_OR_RETURN(std::vector<absl::Status> statuses, client->Prefetch(ns, keys, target));
    std::vector<firnkv::MoveAnswer> answers;
    for (auto& status : statuses) answers.push_back({.status = std::move(status)});
    return answers;
  }

  absl::StatusOr<int> Run(Context* context) const {
    firnkv::PrecisionPair target;
    if (!to.empty() && name == "demote") {
      return InvalidArgument(
          "demote takes no --to: a block becomes what the tier holds (`precision` of its configuration, or "
          "a plan's --tier-target when it is put); `degrade` lowers it further");
    }
    if (!to.empty() && !ParsePair(to, &target)) {
      return InvalidArgument("{} {}: allowed: int8, int4, int2, or K and V apart, as in int8/int4 and exact/int4",
                             name == "degrade" ? "--to" : "--least", to);
    }
    FIRN_ASSIGN_OR_RETURN(firnkv::Client * client, context->Connect());
    FIRN_ASSIGN_OR_RETURN(Selection selection, blocks.Select(client));
    Progress bar(name, selection.keys.size(), !context->quiet && !context->json);
    std::map<std::string, uint64_t> by_class;
    Json rows = Json::array();
    uint64_t failed = 0;
    std::span<const firnkv::BlockKey> keys = selection.keys;
    while (!keys.empty()) {
      auto batch = keys.first(std::min(keys.size(), kKeysAtOnce));
      keys = keys.subspan(batch.size());
      FIRN_ASSIGN_OR_RETURN(auto answers, Call(client, selection.ns, batch, target));
      for (size_t i = 0; i < answers.size(); ++i) {
        std::string key = KeyText(batch[i]);
        if (answers[i].status.ok()) {
          ++by_class[PairText(answers[i].now)];
          rows.push_back({{"key", key}, {"precision", PairText(answers[i].now)}});
        } else {
          if (failed++ == 0) std::fprintf(stderr, "firn: %s: %s\n", key.c_str(), Message(answers[i].status).c_str());
          rows.push_back({{"key", key}, {"error", Message(answers[i].status)}});
        }
      }
      bar.Add(batch.size(), 0);
    }
    if (context->json) {
      context->Print({{"done", selection.keys.size() - failed}, {"failed", failed}, {"blocks", rows}});
    } else if (!context->quiet) {
      std::printf("%zu blocks done, %llu failed in %.3f s", selection.keys.size() - failed,
                  static_cast<unsigned long long>(failed), bar.seconds());
      if (name != "prefetch") {
        for (const auto& [precision, count] : by_class) {
          std::printf("; %llu now %s", static_cast<unsigned long long>(count), precision.c_str());
        }
      }
      std::printf("\n");
    }
    return failed == 0 ? kExitOk : kExitSome;
  }
};

}  // namespace

void AddMoves(CLI::App* app, Context* context, int* code) {
  for (auto [name, help] : {std::pair("demote", "Moves blocks down to a tier now, re-quantized to what it holds"),
                            {"promote", "Moves blocks up to a tier now"},
                            {"degrade", "Lowers the precision of blocks in their tier"},
                            {"prefetch", "Brings blocks into the first tier, as precise as they still are"}}) {
    auto command = std::make_shared<MoveCommand>();
    command->name = name;
    CLI::App* sub = app->add_subcommand(name, help);
    command->blocks.AddTo(sub);
    if (command->name != "prefetch") {
      sub->add_option("--tier", command->tier, "The tier, by its name in `firn tiers`")->required()->type_name("NAME");
    }
    if (command->name == "degrade") {
      sub->add_option("--to", command->to,
                      "What to lower it to: int8, int4 or int2, or int8/int4 for K and V apart; exact leaves one of "
                      "them as it is")
          ->required()
          ->type_name("PRECISION");
    }
    if (command->name == "demote") sub->add_option("--to", command->to)->group("");  // To say why there is none.
    if (command->name == "prefetch") {
      sub->add_option("--least", command->to,
                      "Only blocks that are at least this precise: int4, or int8/int4 for K and V apart (default: all)")
          ->type_name("PRECISION");
    }
    sub->callback([=] {
      auto result = command->Run(context);
      *code = result.ok() ? *result : context->Report(result.status());
    });
  }
}

}  // namespace firn::cli
