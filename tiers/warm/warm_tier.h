// The DRAM tier: an arena over a memfd. Opening takes address space only; Populate takes the memory.
//
// Errors: InvalidArgument for a capacity below 64 KiB, NotFound for a NUMA node without memory, errno kept otherwise.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tiers/warm/arena_tier.h"
#include "tiers/warm/memory/memfd_region.h"

namespace firn {

struct WarmTierOptions {
  std::string name = "dram";
  uint64_t capacity_bytes = 0;  // Rounded down to whole pages of the kind used.
  HugePages huge_pages = HugePages::kTransparent;
  std::optional<int> numa_node;
  EccPolicy ecc = {};
};

absl::StatusOr<std::unique_ptr<ArenaTier>> OpenWarmTier(const WarmTierOptions& options);

// Populates the whole tier in steps, asking `go_on(populated, total)` before each, with which its owner shows progress
// and stops. Cancelled when told to stop; the step's error when memory runs out, with the pool usable as far as it got.
absl::Status PopulateInSteps(ArenaTier* tier, uint64_t step_bytes,
                             const std::function<bool(uint64_t, uint64_t)>& go_on);

}  // namespace firn
