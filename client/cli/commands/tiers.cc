// tiers, stats, capabilities, wait, capacity: the daemon itself.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/status.h"
#include "base/units.h"
#include "client/cli/commands/commands.h"
#include "client/cli/support/output.h"

namespace firn::cli {
namespace {

std::string ClassesText(const std::map<std::string, uint64_t>& classes) {
  std::string text;
  for (const auto& [name, count] : classes) {
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, name);
  }
  return text.empty() ? "-" : text;
}

// Of copies that a Get may be answered from: without the medium's own, drafts, and what was removed and is still read.
uint64_t LiveBytes(const firnkv::TierStats& tier) {
  uint64_t bytes = tier.used_bytes;
  for (const char* other : {"overhead_bytes", "draft_bytes", "held_bytes"}) {
    auto counter = tier.counters.find(other);
    if (counter != tier.counters.end()) bytes -= std::min(bytes, counter->second);
  }
  return bytes;
}

// "graded secded" for header, metadata and base alone.
std::string EccText(const std::string& ecc) {
  for (const char* code : {"secded", "rs"}) {
    if (ecc == fmt::format("meta={0},base={0},p4=none,p8=none", code)) return fmt::format("graded {}", code);
  }
  return ecc.empty() ? "-" : ecc;
}

absl::StatusOr<int> Tiers(Context* context) {
  FIRN_ASSIGN_OR_RETURN(firnkv::Client * client, context->Connect());
  FIRN_ASSIGN_OR_RETURN(firnkv::Capabilities capabilities, client->GetCapabilities());
  FIRN_ASSIGN_OR_RETURN(firnkv::Stats stats, client->GetStats());
  Json rows = Json::array();
  Table table({"tier", "medium", "enters at", "down to", "copies", "live bytes", "on medium", "capacity", "% full",
               "ecc", "copies by precision"});
  for (size_t i = 0; i < stats.tiers.size(); ++i) {
    const firnkv::TierStats& tier = stats.tiers[i];
    firnkv::TierInfo info = i < capabilities.tiers.size() ? capabilities.tiers[i] : firnkv::TierInfo{};
    rows.push_back({{"name", tier.name},
                    {"medium", info.medium},
                    {"persistent", info.persistent},
                    {"precision", PairText(info.precision)},
                    {"least", PairText(info.least)},
                    {"ecc", info.ecc},
                    {"copies", tier.copies},
                    {"live_bytes", LiveBytes(tier)},
                    {"on_medium_bytes", tier.used_bytes},
                    {"capacity_bytes", tier.capacity_bytes},
                    {"counters", tier.counters},
                    {"blocks_by_class", tier.blocks_by_class}});
    double share = tier.capacity_bytes == 0
                       ? 0
                       : 100.0 * static_cast<double>(tier.used_bytes) / static_cast<double>(tier.capacity_bytes);
    table.Row({tier.name, info.medium, PairText(info.precision),
               info.least == firnkv::PrecisionPair{} ? "-" : PairText(info.least), std::to_string(tier.copies),
               FormatBytes(LiveBytes(tier)), FormatBytes(tier.used_bytes), FormatBytes(tier.capacity_bytes),
               fmt::format("{:.1f}", share), EccText(info.ecc), ClassesText(tier.blocks_by_class)});
  }
  context->json ? context->Print({{"tiers", rows}}) : table.Print();
  return kExitOk;
}

absl::StatusOr<int> Stats(Context* context) {
  FIRN_ASSIGN_OR_RETURN(firnkv::Client * client, context->Connect());
  FIRN_ASSIGN_OR_RETURN(firnkv::Stats stats, client->GetStats());
  if (context->json) {
    Json tiers = Json::object();
    for (const auto& tier : stats.tiers) tiers[tier.name] = tier.counters;
    context->Print(
        {{"tiers", tiers}, {"gauges", stats.gauges}, {"counters", stats.counters}, {"misses", stats.misses}});
    return kExitOk;
  }
  Table table({"what", "value"});
  for (const auto& [name, value] : stats.gauges) table.Row({name, std::to_string(value)});
  for (const auto& [name, value] : stats.counters) table.Row({name, std::to_string(value)});
  for (const auto& [reason, value] : stats.misses) table.Row({"miss: " + reason, std::to_string(value)});
  for (const auto& tier : stats.tiers) {
    for (const auto& [name, value] : tier.counters) table.Row({tier.name + ": " + name, std::to_string(value)});
  }
  table.Print();
  return kExitOk;
}

absl::StatusOr<int> ShowCapabilities(Context* context) {
  FIRN_ASSIGN_OR_RETURN(firnkv::Client * client, context->Connect());
  FIRN_ASSIGN_OR_RETURN(firnkv::Capabilities capabilities, client->GetCapabilities());
  const firnkv::Limits& limits = capabilities.limits;
  std::vector<std::string> dtypes;
  for (auto dtype : capabilities.dtypes) dtypes.emplace_back(firnkv::DTypeName(dtype));
  Json numbers = {{"block_bytes_max", limits.block_bytes_max},
                  {"chunk_bytes_max", limits.chunk_bytes_max},
                  {"message_bytes_max", limits.message_bytes_max},
                  {"keys_max", limits.keys_max},
                  {"opaque_key_bytes_max", limits.opaque_key_bytes_max},
                  {"streams_max", limits.streams_max},
                  {"put_idle_ms_max", limits.put_idle_ms_max},
                  {"read_stall_ms_max", limits.read_stall_ms_max},
                  {"held_bytes_max", limits.held_bytes_max}};
  if (context->json) {
    context->Print({{"version", capabilities.version},
                    {"api_revision", capabilities.api_revision},
                    {"limits", numbers},
                    {"dtypes", dtypes},
                    {"byte_paths", capabilities.byte_paths},
                    {"admin", capabilities.admin}});
    return kExitOk;
  }
  std::printf("firnd %s, API revision %u, administration %s\n", capabilities.version.c_str(), capabilities.api_revision,
              capabilities.admin ? "offered here" : "not offered here");
  auto joined = [](const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, ", ")); };
  std::printf("values: %s\nbyte paths: %s\n", joined(dtypes).c_str(), joined(capabilities.byte_paths).c_str());
  Table table({"limit", "value"});
  for (const auto& [name, value] : numbers.items()) table.Row({name, std::to_string(value.get<uint64_t>())});
  table.Print();
  return kExitOk;
}

absl::StatusOr<int> Wait(Context* context) {
  FIRN_ASSIGN_OR_RETURN(firnkv::Client * client, context->Connect());
  FIRN_ASSIGN_OR_RETURN(int64_t deadline_ms, context->DeadlineMs());
  constexpr int64_t kPatienceMs = 30'000;
  FIRN_RETURN_IF_ERROR(client->WaitUntilReady(deadline_ms > 0 ? deadline_ms : kPatienceMs));
  if (context->json) context->Print({{"ready", true}});
  return kExitOk;
}

absl::StatusOr<int> SetCapacity(Context* context, const std::string& tier, const std::string& capacity) {
  auto bytes = ParseBytes(capacity);
  if (!bytes.ok()) return InvalidArgument("--to {}: {}", capacity, Message(bytes.status()));
  FIRN_ASSIGN_OR_RETURN(firnkv::Client * client, context->Connect());
  FIRN_ASSIGN_OR_RETURN(uint64_t in_force, client->SetCapacity(tier, *bytes));
  if (context->json) {
    context->Print({{"tier", tier}, {"capacity_bytes", in_force}});
  } else {
    std::printf("tier %s: capacity %s until the daemon restarts\n", tier.c_str(), FormatBytes(in_force).c_str());
  }
  return kExitOk;
}

}  // namespace

void AddTiers(CLI::App* app, Context* context, int* code) {
  auto add = [=](const char* name, const char* help, absl::StatusOr<int> (*run)(Context*)) {
    app->add_subcommand(name, help)->callback([=] {
      auto result = run(context);
      *code = result.ok() ? *result : context->Report(result.status());
    });
  };
  add("tiers", "What each tier holds: copies, their live bytes, and what they take on the medium", Tiers);
  add("stats", "Every counter and gauge (docs/operations.md says what each is)", Stats);
  add("capabilities", "The daemon's version, limits and formats", ShowCapabilities);
  auto tier = std::make_shared<std::string>(), capacity = std::make_shared<std::string>();
  CLI::App* command = app->add_subcommand("capacity", "Changes how much a tier may use, until the daemon restarts");
  command->add_option("--tier", *tier, "The tier, by its name in `firn tiers`")->required()->type_name("NAME");
  command->add_option("--to", *capacity, "The new capacity in bytes, with a unit: 512MiB, 64GiB")
      ->required()
      ->type_name("SIZE");
  command->callback([=] {
    auto result = SetCapacity(context, *tier, *capacity);
    *code = result.ok() ? *result : context->Report(result.status());
  });
  add("wait", "Returns when the daemon is ready, at the latest after --timeout (default: 30s)", Wait);
}

}  // namespace firn::cli
