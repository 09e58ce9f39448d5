// scrub: has everything that is stored read and verified now.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <future>
#include <memory>

#include "base/status.h"
#include "base/units.h"
#include "client/cli/commands/commands.h"
#include "client/cli/support/output.h"

namespace firn::cli {
namespace {

// How far the pass is, where somebody looks on.
void ShowProgress(firnkv::Client* client) {
  auto stats = client->GetStats();
  if (!stats.ok()) return;
  auto permille = stats->gauges.find("scrub_permille");
  if (permille == stats->gauges.end()) return;
  std::fprintf(stderr, "\rscrubbing: %5.1f %%", static_cast<double>(permille->second) / 10);
}

absl::StatusOr<int> Scrub(Context* context, const std::string& rate) {
  uint64_t bytes_per_second = 0;
  if (!rate.empty()) {
    auto bytes = ParseBytes(rate);
    if (!bytes.ok()) return InvalidArgument("--rate {}: {}", rate, Message(bytes.status()));
    if (*bytes == 0) return InvalidArgument("--rate {}: nothing would be read; at least 1B", rate);
    bytes_per_second = *bytes;
  }
  FIRN_ASSIGN_OR_RETURN(firnkv::Client * client, context->Connect());
  FIRN_ASSIGN_OR_RETURN(int64_t deadline_ms, context->DeadlineMs());
  auto pass = std::async(std::launch::async, [client, bytes_per_second, deadline_ms] {
    return client->Scrub(bytes_per_second, {.deadline_ms = deadline_ms});
  });
  const bool shown = !context->json && !context->quiet && ::isatty(STDERR_FILENO) != 0;
  while (pass.wait_for(std::chrono::milliseconds(300)) != std::future_status::ready) {
    if (shown) ShowProgress(client);
  }
  if (shown) std::fprintf(stderr, "\r\033[K");
  FIRN_ASSIGN_OR_RETURN(firnkv::ScrubReport report, pass.get());
  const bool damaged = report.mended + report.degraded + report.withdrawn > 0;
  if (context->json) {
    context->Print({{"copies", report.copies},
                    {"bytes", report.bytes},
                    {"mended", report.mended},
                    {"degraded", report.degraded},
                    {"withdrawn", report.withdrawn},
                    {"unread", report.unread},
                    {"milliseconds", report.milliseconds}});
  } else {
    fmt::print("{} copies, {}, verified in {:.1f} s\n", report.copies, FormatBytes(report.bytes),
               static_cast<double>(report.milliseconds) / 1000);
    if (damaged) {
      fmt::print("damaged: {} written anew whole, {} lost planes, {} let go\n", report.mended, report.degraded,
                 report.withdrawn);
    } else {
      fmt::print("nothing was damaged\n");
    }
    if (report.unread > 0) fmt::print("{} could not be read or written now and stay as they are\n", report.unread);
  }
  // What was lost or could not be looked at is another answer than hoped for; what was mended is not.
  return report.degraded + report.withdrawn + report.unread > 0 ? kExitSome : kExitOk;
}

}  // namespace

void AddScrub(CLI::App* app, Context* context, int* code) {
  auto rate = std::make_shared<std::string>();
  CLI::App* command = app->add_subcommand("scrub", "Reads and verifies everything stored below the GPUs, and heals it");
  command
      ->add_option("--rate", *rate,
                   "Bytes a second, with a unit: 100MiB (default: as fast as it goes beside other work)")
      ->type_name("SIZE");
  command->callback([=] {
    auto result = Scrub(context, *rate);
    *code = result.ok() ? *result : context->Report(result.status());
  });
}

}  // namespace firn::cli
