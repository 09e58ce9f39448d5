// Directories and devices that the configuration names.
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "base/status.h"
#include "base/units.h"
#include "daemon/config/check/checks.h"

namespace firn {
namespace {

// A full root disk takes the whole machine down, so a tenth of it stays free.
uint64_t ReserveOf(const DiskFacts& disk) { return disk.is_root_disk ? disk.total_bytes / 10 : 0; }

void CheckRoom(const TierSettings& tier, const std::string& prefix, const Machine& machine, FindingSink* sink) {
  const std::string capacity_key = prefix + "capacity", capacity = InQuotes(FormatBytes(tier.capacity_bytes));
  auto disk = machine.disk(tier.path);
  if (!disk.ok()) {
    return sink->Error(prefix + "path", InQuotes(tier.path),
                       Message(disk.status()) + "; allowed: a path on a disk with room for the capacity");
  }
  uint64_t reserve = ReserveOf(*disk), room = disk->available_bytes + disk->used_here_bytes;
  room = room > reserve ? room - reserve : 0;
  const char* kept = disk->is_root_disk ? ", a tenth of the root disk kept free" : "";
  if (tier.capacity_bytes > room) {
    std::string what = fmt::format("more than {} has room for{}; allowed: {}", tier.path, kept, FormatBytes(room));
    // What was stored when there was room is served all the same, and the room may come back.
    if (disk->holds_data && tier.capacity_bytes <= disk->total_bytes - reserve) {
      return sink->Warn(capacity_key, capacity,
                        what + "; the tier starts with what it has, and takes more when there is room");
    }
    return sink->Error(capacity_key, capacity, what);
  }
  if (disk->is_root_disk) {
    sink->Warn(prefix + "path", InQuotes(tier.path), "is on the root disk; give it a disk of its own");
  }
}

void CheckNvmePlace(const TierSettings& tier, const std::string& prefix, const Machine& machine, FindingSink* sink) {
  for (const char* below : {"", "/log", "/index"}) {
    std::string trouble = DirectoryTrouble(tier.path + below, machine);
    if (trouble.empty()) continue;
    return sink->Error(prefix + "path", InQuotes(tier.path), trouble + "; allowed: a directory to write in");
  }
  CheckRoom(tier, prefix, machine, sink);
}

void CheckCxlPlace(const TierSettings& tier, const std::string& prefix, const Machine& machine, FindingSink* sink) {
  absl::Status usable = machine.cxl_place(tier.path, tier.capacity_bytes);
  if (!usable.ok()) {
    return sink->Error(prefix + "path", InQuotes(tier.path),
                       Message(usable) + "; allowed: a DAX device of at least the capacity, a file of FirnKV's, an " +
                           "empty file, or a name for a new one");
  }
  if (!IsDevicePath(tier.path)) CheckRoom(tier, prefix, machine, sink);
}

}  // namespace

std::string DirectoryTrouble(const std::string& path, const Machine& machine) {
  PlaceFacts place = machine.place(path);
  if (place.kind != PlaceKind::kMissing && place.kind != PlaceKind::kDirectory) return path + " is not a directory";
  return place.obstacle;
}

void CheckDirectories(const Config& config, const Machine& machine, FindingSink* sink) {
  auto check = [&](const char* key, const std::string& path) {
    std::string trouble = DirectoryTrouble(path, machine);
    if (!trouble.empty()) sink->Error(key, InQuotes(path), trouble + "; allowed: a directory to write in");
  };
  check("state_dir", config.state_dir);
  // The default listener lies in it; nothing else does.
  bool used = std::any_of(config.listeners.begin(), config.listeners.end(), [&](const ListenerSettings& listener) {
    return std::filesystem::path(listener.uds).parent_path() == std::filesystem::path(config.runtime_dir);
  });
  if (used || sink->InFile("runtime_dir")) check("runtime_dir", config.runtime_dir);
}

void CheckTierPlaces(const Config& config, const Machine& machine, FindingSink* sink) {
  const auto& nodes = machine.numa_nodes;
  for (size_t i = 0; i < config.tiers.size(); ++i) {
    const TierSettings& tier = config.tiers[i];
    const std::string prefix = fmt::format("tier[{}].", i);
    if (tier.numa_node.has_value() && std::find(nodes.begin(), nodes.end(), *tier.numa_node) == nodes.end()) {
      sink->Error(prefix + "numa_node", std::to_string(*tier.numa_node),
                  fmt::format("no such node; allowed: {}", fmt::join(nodes, ", ")));
    }
    if (tier.medium == Medium::kGpu) {
      absl::Status status = machine.gpu(tier.gpu_device, tier.gpu_is_cpu);
      if (!status.ok())
        sink->Error(prefix + "medium", InQuotes(MediumOf(tier)),
                    Message(status) + "; allowed: a GPU of this machine, or backend = \"cpu\" for trials");
    }
    if (tier.path.empty()) continue;
    if (tier.medium == Medium::kNvme) CheckNvmePlace(tier, prefix, machine, sink);
    if (tier.medium == Medium::kCxl) CheckCxlPlace(tier, prefix, machine, sink);
  }
  // Two names of one place are one place.
  for (size_t i = 0; i < config.tiers.size(); ++i) {
    if (config.tiers[i].path.empty()) continue;
    const std::string real = machine.place(config.tiers[i].path).real;
    for (size_t before = 0; before < i; ++before) {
      const std::string& other = config.tiers[before].path;
      if (other.empty() || machine.place(other).real != real) continue;
      sink->Error(fmt::format("tier[{}].path", i), InQuotes(config.tiers[i].path),
                  fmt::format("tier[{}] has this path; allowed: a path of its own", before));
    }
  }
}

}  // namespace firn
