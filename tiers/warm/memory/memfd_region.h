// A region of DRAM in a memfd: can be handed to other processes, and registered with a GPU.
//
// The file is sealed against growing and shrinking, so that no holder of the descriptor can make another process fault.
// Errors: InvalidArgument for impossible options, ResourceExhausted where memory is short, errno kept otherwise.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tiers/warm/memory/memory_region.h"

namespace firn {

enum class HugePages : uint8_t {
  kOff = 0,
  kTransparent = 1,  // Asked for; the kernel decides.
  kReserved = 2,     // From the machine's reserved 2 MiB pages; transparent ones where none is free, as Describe says.
};

struct MemfdOptions {
  std::string label = "firn";  // Shown in /proc/self/maps.
  uint64_t bytes = 0;          // Address space; memory is taken by Populate.
  HugePages huge_pages = HugePages::kTransparent;
  std::optional<int> numa_node;
  bool far = false;  // The node's memory is far from every processor: see MemoryRegion::far.
};

absl::StatusOr<std::unique_ptr<MemoryRegion>> OpenMemfdRegion(const MemfdOptions& options);

}  // namespace firn
