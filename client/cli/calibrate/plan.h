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

// The first of these ladders that fits all budgets, where `settings` say the trellis and no head has fewer than 8 bits
// in any tier; otherwise nothing.
std::optional<LadderAt8Bits> FinerLadder(const CalibrationSettings& settings, const std::vector<TierBits>& tiers,
                                         const std::vector<LadderAt8Bits>& ladders);

// What counts as exact when errors are measured is kept so by the plan: the first tokens and the recent window.
// `keys` is the artifact of keys, which balanced keys need; `ladder` what to take in place of that of `settings`.
firnkv::PrecisionPlan PlanOf(const CalibrationSettings& settings, const std::vector<TierBits>& tiers,
                             const std::optional<firnkv::Digest>& keys,
                             const std::optional<LadderAt8Bits>& ladder = std::nullopt);

}  // namespace firn::cli
