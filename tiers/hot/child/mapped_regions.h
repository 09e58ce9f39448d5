// The parent's memory as the child has mapped it.
//
// Threads: one. Ownership: mappings stay until the process ends, since a device may still use them.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "tiers/hot/protocol/messages.h"
#include "tiers/hot/protocol/unique_fd.h"

namespace firn::gpu {

class MappedRegions {
 public:
  // InvalidArgument for ids that are taken or unknown and for more usable bytes than there are; errno kept otherwise.
  absl::Status Map(const MapRegion& message, const UniqueFd& fd);
  absl::Status SetUsable(const RegionUsable& message);
  uint8_t* base(uint32_t region) const { return bases_[region]; }
  // By region: what jobs may name.
  const SpaceBytes& usable() const { return usable_; }

 private:
  std::array<uint8_t*, kRegionsMax> bases_{};
  SpaceBytes bytes_{}, usable_{};
};

}  // namespace firn::gpu
