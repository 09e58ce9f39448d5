// What the configuration is checked against: memory, NUMA nodes, disks, files, addresses, groups.
//
// A seam, so that tests can state a machine. Threads: any.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/config/check/place.h"

namespace firn {

struct DiskFacts {
  uint64_t total_bytes = 0;
  uint64_t available_bytes = 0;
  uint64_t used_here_bytes = 0;  // Already taken by files below the path: they count as available to it.
  bool is_root_disk = false;
  bool holds_data = false;  // A cold tier's log is below the path.
};

struct Machine {
  uint64_t ram_bytes = 0;  // Physical, or the control group's limit where that is lower.
  std::vector<int> numa_nodes;
  // Of the file system that holds `path`, or the nearest parent that exists.
  std::function<absl::StatusOr<DiskFacts>(const std::string& path)> disk;
  std::function<bool(const std::string& group)> group_exists;
  std::function<PlaceFacts(const std::string& path)> place;
  // What opening a CXL tier of so many bytes there would say.
  std::function<absl::Status(const std::string& path, uint64_t bytes)> cxl_place;
  // Whether a child for this GPU could be started: its program and, for CUDA, its device.
  std::function<absl::Status(uint32_t device, bool is_cpu)> gpu;
  std::function<absl::Status(const std::string& host)> can_listen_on;
  std::function<absl::StatusOr<std::string>(const std::string& path)> read_file;
};
Machine ThisMachine();

// firnd-gpu, beside the program that runs; $FIRN_GPU_PROGRAM where that is set.
std::string GpuProgram();

}  // namespace firn
