// Chooses a precision for each of many units so that the sum of their errors is small within a budget of bytes.
//
// A unit is whatever has a precision of its own: K or V of one head. Its rungs are the precisions that it may have,
// with what each costs and what error it leaves; errors add up over units. Two ways: dynamic programming over the total
// cost, and the greedy descent along each unit's convex hull, which is optimal for the budgets that it uses up and else
// off by less than one step's gain.
// Threads: pure functions. The same units give the same choice: ties go to the cheaper rung, then to the earlier unit.
// Errors: InvalidArgument for units without rungs, for errors that are negative or not finite, and for a budget below
// the cheapest choice, naming both. Limits: kUnitsMax, kRungsMax, kStatesMax.
// Source of the hull method: Shoham and Gersho, "Efficient bit allocation for an arbitrary set of quantizers", 1988.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace firn {

struct Rung {
  uint64_t bytes = 0;
  double error = 0;
  bool operator==(const Rung&) const = default;
};

struct AllocationUnit {
  std::vector<Rung> rungs;  // Any order; the index of one is its name.
};

struct Allocation {
  std::vector<uint32_t> rung;  // By unit.
  uint64_t bytes = 0;
  double error = 0;
};

inline constexpr size_t kUnitsMax = size_t{2} * 1024 * 4096;  // K and V of every head of the largest block.
inline constexpr size_t kRungsMax = 16;                       // Of one unit.
// Choices that the exact method keeps, over all units: 8 bytes each.
inline constexpr uint64_t kStatesMax = uint64_t{1} << 23;

absl::StatusOr<Allocation> AllocateGreedily(std::span<const AllocationUnit> units, uint64_t budget_bytes);

// The optimum. ResourceExhausted where it would need more than kStatesMax states.
absl::StatusOr<Allocation> AllocateExactly(std::span<const AllocationUnit> units, uint64_t budget_bytes);

// The exact choice where it fits into kStatesMax, the greedy one otherwise. `exact` may be null.
absl::StatusOr<Allocation> Allocate(std::span<const AllocationUnit> units, uint64_t budget_bytes, bool* exact);

}  // namespace firn
