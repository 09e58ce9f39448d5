// What the tiers must agree on among themselves, and with the machine's memory.
#include <fmt/ranges.h>

#include <set>

#include "base/units.h"
#include "daemon/config/check/checks.h"
#include "tiers/cold/cold_options.h"
#include "tiers/cold/index/rocksdb_index.h"

namespace firn {
namespace {

constexpr uint64_t kDaemonItselfBytes = 256 * kMiB;

std::string KeyOf(size_t tier, const char* key) { return fmt::format("tier[{}].{}", tier, key); }

// What the daemon keeps in memory for a tier on nvme: staging and read buffers, and the index.
uint64_t NvmeMemoryBytes(const TierSettings& tier) {
  return 2 * PoolBytesFor(tier.capacity_bytes) + RocksDbOptions().memory_bytes;
}

}  // namespace

void CheckChain(const Config& config, FindingSink* sink) {
  const auto& tiers = config.tiers;
  if (tiers.empty() || tiers.size() > 8) {
    sink->Error("tier", "", fmt::format("{} tiers; allowed: 1 to 8", tiers.size()));
  }
  std::set<std::string> names;
  for (size_t i = 0; i < tiers.size(); ++i) {
    const TierSettings& tier = tiers[i];
    if (!tier.name.empty() && !names.insert(tier.name).second) {
      sink->Error(KeyOf(i, "name"), InQuotes(tier.name),
                  "another tier has this name; allowed: a name that no other tier has");
    }
    if (i == 0) continue;
    const TierSettings& hotter = tiers[i - 1];
    if (!hotter.precision.AtLeast(tier.precision)) {
      sink->Error(KeyOf(i, "precision"), PrintPrecision(tier.precision, tier.use_fp8),
                  fmt::format("finer than the hotter tier {}; allowed: at most {}", InQuotes(hotter.name),
                              PrintPrecision(hotter.precision, hotter.use_fp8)));
    }
    if (tier.medium == Medium::kGpu && hotter.medium != Medium::kGpu) {
      sink->Error(KeyOf(i, "medium"), InQuotes(MediumOf(tier)),
                  fmt::format("behind {} on {}; allowed: tiers on GPUs first", InQuotes(hotter.name),
                              MediumName(hotter.medium)));
    }
    for (size_t j = 0; tier.medium == Medium::kGpu && j < i; ++j) {
      if (tiers[j].medium != Medium::kGpu || tiers[j].gpu_device != tier.gpu_device) continue;
      sink->Error(KeyOf(i, "medium"), InQuotes(MediumOf(tier)),
                  fmt::format("{} is on it already; allowed: one tier a GPU", InQuotes(tiers[j].name)));
    }
    if (hotter.medium == Medium::kNvme) {
      sink->Error(
          KeyOf(i, "medium"), InQuotes(MediumName(tier.medium)),
          fmt::format("behind {} on nvme, which makes room by giving up planes and blocks and hands nothing on; "
                      "allowed: one tier on nvme, the last",
                      InQuotes(hotter.name)));
    }
  }
  if (!tiers.empty() && tiers.back().medium == Medium::kGpu) {
    sink->Error(KeyOf(tiers.size() - 1, "medium"), InQuotes(MediumOf(tiers.back())),
                "blocks must have somewhere to go when a GPU fails; allowed: with a tier on \"dram\" behind it");
  }
  if (!tiers.empty() && tiers[0].medium == Medium::kNvme) {
    sink->Error(KeyOf(0, "medium"), "\"nvme\"",
                "the hottest tier must be memory; allowed: \"gpu:N\", \"dram\", \"cxl\"");
  }
}

void CheckMemory(const Config& config, const Machine& machine, FindingSink* sink) {
  uint64_t cold = 0, total = 0;
  for (const TierSettings& tier : config.tiers) {
    if (tier.medium == Medium::kNvme) cold += NvmeMemoryBytes(tier);
    // Staging is memory like any tier's.
    if (tier.medium == Medium::kGpu) total += tier.staging_bytes;
  }
  for (size_t i = 0; i < config.tiers.size(); ++i) {
    const TierSettings& tier = config.tiers[i];
    bool in_ram = tier.medium == Medium::kDram || (tier.medium == Medium::kCxl && tier.numa_node.has_value());
    if (!in_ram) continue;
    total += tier.capacity_bytes;
    if (total + cold > machine.ram_bytes) {
      std::string buffers = cold > 0 ? fmt::format(" and {} for the buffers of tiers on nvme", FormatBytes(cold)) : "";
      return sink->Error(KeyOf(i, "capacity"), InQuotes(FormatBytes(tier.capacity_bytes)),
                         fmt::format("with the tiers before it {}{}, more than this machine's memory; allowed: {} in "
                                     "all",
                                     FormatBytes(total), buffers, FormatBytes(machine.ram_bytes)));
    }
  }
  uint64_t all = total + cold + config.limits.transport_budget_bytes + kDaemonItselfBytes;
  if (all > machine.ram_bytes) {
    sink->Warn("limits.transport_budget", InQuotes(FormatBytes(config.limits.transport_budget_bytes)),
               fmt::format("with {} of tiers in memory, {} for the buffers of tiers on nvme and {} for the daemon "
                           "itself it may take {} of {} of memory",
                           FormatBytes(total), FormatBytes(cold), FormatBytes(kDaemonItselfBytes), FormatBytes(all),
                           FormatBytes(machine.ram_bytes)));
  }
}

}  // namespace firn
