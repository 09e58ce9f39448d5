// Every number the store counts, by name: the one list behind Stats, the metrics and docs/operations.md.
//
// Threads: constant tables.
#pragma once

#include <cstdint>
#include <span>

#include "tiers/store/store_stats.h"

namespace firn {

enum class StatKind : uint8_t { kGauge, kCounter };

struct StoreStatRow {
  const char* name;  // In Stats as it is; as a metric "firn_<name>", with "_total" for counters.
  StatKind kind;
  const char* help;
  uint64_t StoreStats::*value;
};
std::span<const StoreStatRow> StoreStatTable();

struct TierStatRow {
  const char* name;  // As a metric "firn_tier_<name>" with the label tier.
  StatKind kind;
  const char* help;
  uint64_t (*value)(const TierStats& tier);
};
std::span<const TierStatRow> TierStatTable();

// Classes that blocks_by_class is reported for.
inline constexpr PrecisionClass kReportedClasses[] = {
    PrecisionClass::k2Bit, PrecisionClass::k3Bit, PrecisionClass::k4Bit, PrecisionClass::k8Bit, PrecisionClass::kExact};

}  // namespace firn
