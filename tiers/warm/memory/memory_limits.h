// How much memory this process may still take: asked before a pool grows, since the kernel's answer to too much is to
// kill.
//
// Threads: any. Reads /proc and the control group's files; a file that is not there sets no limit.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace firn {

// The least of what the machine has available and what the control groups above this process leave of their limits.
// `proc_root` and `cgroup_root` are "/proc" and "/sys/fs/cgroup" outside of tests.
uint64_t AvailableMemoryBytes(const std::string& proc_root = "/proc",
                              const std::string& cgroup_root = "/sys/fs/cgroup");

// ResourceExhausted, naming both numbers, unless `bytes` and a reserve for everything else are available.
absl::Status CheckMemoryAvailable(uint64_t bytes, uint64_t available_bytes);

// Left for the rest of the machine when a pool grows.
inline constexpr uint64_t kMemoryReserveBytes = uint64_t{256} << 20;

}  // namespace firn
