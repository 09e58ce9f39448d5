// What the configuration is checked against: memory, NUMA nodes, disks, groups.
//
// A seam, so that tests can state a machine. Threads: any.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/config/config.h"

namespace firn {

struct DiskFacts {
  uint64_t total_bytes = 0;
  uint64_t available_bytes = 0;
  uint64_t used_here_bytes = 0;  // Already taken by files below the path: they count as available to it.
  bool is_root_disk = false;
};

struct Machine {
  uint64_t ram_bytes = 0;  // Physical, or the control group's limit where that is lower.
  std::vector<int> numa_nodes;
  // Of the file system that holds `path`, or the nearest parent that exists.
  std::function<absl::StatusOr<DiskFacts>(const std::string& path)> disk;
  std::function<bool(const std::string& group)> group_exists;
};
Machine ThisMachine();

struct ConfigVerdict {
  std::vector<std::string> errors;    // The daemon does not start.
  std::vector<std::string> warnings;  // It starts and says so.
};
ConfigVerdict CheckConfig(const Config& config, const Machine& machine);

}  // namespace firn
