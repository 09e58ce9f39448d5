// The CXL tier: an arena over far memory, reached by load and store. Not persistent: a restart begins empty.
//
// The memory is a NUMA node (a CXL expander as the kernel shows it), a DAX device, or a file for tests. Copies into it
// bypass the caches. Opening takes address space only; Populate takes the memory, and checks that a node's pages lie on
// that node. Errors: InvalidArgument unless exactly one medium is named; NotFound for a node or device that is not
// there.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tiers/warm/arena_tier.h"

namespace firn {

struct CxlTierOptions {
  std::string name = "cxl";
  uint64_t capacity_bytes = 0;  // 0: the whole DAX device; the other media need a number.
  // One of these.
  std::optional<int> numa_node;
  std::string dax_device;  // "/dev/dax0.0"
  std::string file;

  EccPolicy ecc = {};
};

absl::StatusOr<std::unique_ptr<ArenaTier>> OpenCxlTier(const CxlTierOptions& options);

}  // namespace firn
