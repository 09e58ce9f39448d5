#include "tiers/warm/warm_tier.h"

#include "base/check.h"
#include "base/status.h"

namespace firn {

absl::StatusOr<std::unique_ptr<ArenaTier>> OpenWarmTier(const WarmTierOptions& options) {
  FIRN_ASSIGN_OR_RETURN(std::unique_ptr<MemoryRegion> region, OpenMemfdRegion({.label = "firn-" + options.name,
                                                                               .bytes = options.capacity_bytes,
                                                                               .huge_pages = options.huge_pages,
                                                                               .numa_node = options.numa_node}));
  return std::make_unique<ArenaTier>(options.name, std::move(region), options.ecc);
}

absl::Status PopulateInSteps(ArenaTier* tier, uint64_t step_bytes,
                             const std::function<bool(uint64_t, uint64_t)>& go_on) {
  FIRN_CHECK(step_bytes > 0);
  while (tier->populated_bytes() < tier->bytes_max()) {
    if (!go_on(tier->populated_bytes(), tier->bytes_max())) {
      return absl::CancelledError(fmt::format("{}: stopped with {} of {} bytes populated", tier->name(),
                                              tier->populated_bytes(), tier->bytes_max()));
    }
    FIRN_RETURN_IF_ERROR(tier->Populate(step_bytes));
  }
  return absl::OkStatus();
}

}  // namespace firn
