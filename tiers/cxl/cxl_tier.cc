#include "tiers/cxl/cxl_tier.h"

#include "base/status.h"
#include "tiers/cxl/mapped_region.h"
#include "tiers/warm/memory/memfd_region.h"

namespace firn {
namespace {

absl::StatusOr<std::unique_ptr<MemoryRegion>> OpenRegion(const CxlTierOptions& options) {
  int media = options.numa_node.has_value() + !options.dax_device.empty() + !options.file.empty();
  if (media != 1) {
    return InvalidArgument("tier {}: {} of numa_node, dax_device and file are set; exactly one is needed", options.name,
                           media);
  }
  if (!options.dax_device.empty()) return OpenDaxRegion(options.dax_device, options.capacity_bytes);
  if (!options.file.empty()) return OpenFileRegion(options.file, options.capacity_bytes);
  return OpenMemfdRegion({.label = "firn-" + options.name,
                          .bytes = options.capacity_bytes,
                          .huge_pages = HugePages::kTransparent,
                          .numa_node = options.numa_node,
                          .far = true});
}

}  // namespace

absl::StatusOr<std::unique_ptr<ArenaTier>> OpenCxlTier(const CxlTierOptions& options) {
  FIRN_ASSIGN_OR_RETURN(std::unique_ptr<MemoryRegion> region, OpenRegion(options));
  return std::make_unique<ArenaTier>(options.name, std::move(region), options.ecc);
}

}  // namespace firn
