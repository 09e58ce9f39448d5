// Allocations of bits as a precision plan. Threads: pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/cli/calibrate/head_errors.h"
#include "firnkv/types.h"

namespace firn::cli {

struct TierBits {
  std::string tier;  // Empty: every tier that does not keep values exactly.
  BitAllocation allocation;
};

// `keys` is the artifact of keys, which balanced keys need.
firnkv::PrecisionPlan PlanOf(const CalibrationSettings& settings, const std::vector<TierBits>& tiers,
                             const std::optional<firnkv::Digest>& keys);

}  // namespace firn::cli
