#include "firnkv/watch.h"

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>

#include "base/status.h"
#include "client/cli/commands/commands.h"
#include "client/cli/support/numbers.h"
#include "client/cli/support/output.h"
#include "client/cli/support/selection.h"

namespace firn::cli {
namespace {

volatile std::sig_atomic_t interrupted = 0;

struct WatchCommand {
  NamespaceOptions ns;
  std::optional<uint64_t> after;
  uint64_t count = 0;

  void Show(const Context& context, const firnkv::Capabilities& capabilities, const firnkv::BlockEvent& event) const {
    std::string tier =
        event.tier < capabilities.tiers.size() ? capabilities.tiers[event.tier].name : std::to_string(event.tier);
    // A block is removed from all its tiers.
    if (event.kind == firnkv::EventKind::kRemoved) tier = "-";
    if (context.json) {  // A document a line, so that a script can follow along.
      Json line = {{"sequence", event.sequence},
                   {"event", firnkv::EventKindName(event.kind)},
                   {"namespace", event.ns.Hex()},
                   {"key", event.key.Hex()},
                   {"shard", event.shard},
                   {"tier", tier},
                   {"precision", PairText(event.now)}};
      std::printf("%s\n", line.dump().c_str());
    } else {
      std::printf("%8llu  %-9s %s  %s %s\n", static_cast<unsigned long long>(event.sequence),
                  std::string(firnkv::EventKindName(event.kind)).c_str(), ShortHex(event.key).c_str(), tier.c_str(),
                  PairText(event.now).c_str());
    }
  }

  absl::StatusOr<int> Run(Context* context) const {
    FIRN_ASSIGN_OR_RETURN(firnkv::Client * client, context->Connect());
    FIRN_ASSIGN_OR_RETURN(firnkv::Capabilities capabilities, client->GetCapabilities());
    std::optional<firnkv::Digest> only;
    if (!ns.fingerprint.empty() || !ns.model.empty()) {
      FIRN_ASSIGN_OR_RETURN(firnkv::Namespace found, ns.Find(client));
      only = found.fingerprint;
    }
    FIRN_ASSIGN_OR_RETURN(auto watch, client->Watch(only, after));
    std::signal(SIGINT, [](int) { interrupted = 1; });
    constexpr int64_t kPatienceMs = 500;  // How soon Ctrl-C is seen.
    uint64_t seen = 0;
    int64_t away = 0;
    while (interrupted == 0 && (count == 0 || seen < count)) {
      auto batch = watch->Next(kPatienceMs);
      if (!batch.ok()) {
        bool absent = absl::IsUnavailable(batch.status());
        if (!absent && !absl::IsDeadlineExceeded(batch.status())) return batch.status();
        if (absent && away++ == 0) std::fprintf(stderr, "firn: %s; waiting\n", Message(batch.status()).c_str());
        continue;
      }
      away = 0;
      if (batch->gap)
        std::fprintf(stderr, "firn: events before %llu are lost\n", static_cast<unsigned long long>(batch->sequence));
      for (const auto& event : batch->events) {
        if (count != 0 && seen == count) break;
        Show(*context, capabilities, event);
        ++seen;
      }
      std::fflush(stdout);
    }
    return kExitOk;
  }
};

}  // namespace

void AddWatch(CLI::App* app, Context* context, int* code) {
  auto command = std::make_shared<WatchCommand>();
  CLI::App* watch =
      app->add_subcommand("watch", "Prints what happens to blocks, until interrupted; with --json a document a line");
  command->ns.AddTo(watch);
  watch->add_option("--after", command->after, "Resume after this sequence number (default: from now on)")
      ->check(WholeNumber<uint64_t>())
      ->type_name("SEQUENCE");
  watch->add_option("--count", command->count, "Stop after so many events; 0: never (default: 0)")
      ->check(WholeNumber<uint64_t>())
      ->type_name("EVENTS");
  watch->footer("Without --ns and --model: the events of all namespaces.");
  watch->callback([=] {
    auto result = command->Run(context);
    *code = result.ok() ? *result : context->Report(result.status());
  });
}

}  // namespace firn::cli
