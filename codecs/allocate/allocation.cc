#include "codecs/allocate/allocation.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>

#include "base/check.h"
#include "base/status.h"

namespace firn {
namespace {

absl::Status CheckUnits(std::span<const AllocationUnit> units, uint64_t budget_bytes) {
  if (units.empty() || units.size() > kUnitsMax)
    return InvalidArgument("{} units to allocate, 1 to {}", units.size(), kUnitsMax);
  uint64_t least = 0;
  for (size_t i = 0; i < units.size(); ++i) {
    const std::vector<Rung>& rungs = units[i].rungs;
    if (rungs.empty() || rungs.size() > kRungsMax) {
      return InvalidArgument("unit {} has {} precisions, 1 to {}", i, rungs.size(), kRungsMax);
    }
    uint64_t cheapest = rungs[0].bytes;
    for (const Rung& rung : rungs) {
      if (!(rung.error >= 0) || !std::isfinite(rung.error)) {
        return InvalidArgument("unit {} has an error of {}; finite and at least 0 expected", i, rung.error);
      }
      if (rung.bytes > UINT64_MAX / kUnitsMax) return InvalidArgument("unit {} of {} bytes", i, rung.bytes);
      cheapest = std::min(cheapest, rung.bytes);
    }
    least += cheapest;
  }
  if (least > budget_bytes) {
    return InvalidArgument("a budget of {} bytes; the coarsest precision of everything needs {}", budget_bytes, least);
  }
  return absl::OkStatus();
}

Allocation Summed(std::span<const AllocationUnit> units, std::vector<uint32_t> chosen) {
  Allocation out{.rung = std::move(chosen)};
  for (size_t i = 0; i < units.size(); ++i) {
    out.bytes += units[i].rungs[out.rung[i]].bytes;
    out.error += units[i].rungs[out.rung[i]].error;
  }
  return out;
}

// Rungs that no other makes useless: ascending in bytes, strictly descending in error.
std::vector<uint32_t> Useful(const AllocationUnit& unit) {
  std::vector<uint32_t> order(unit.rungs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const Rung &x = unit.rungs[a], &y = unit.rungs[b];
    return x.bytes != y.bytes ? x.bytes < y.bytes : x.error < y.error;
  });
  std::vector<uint32_t> kept;
  for (uint32_t i : order) {
    if (kept.empty() || unit.rungs[i].error < unit.rungs[kept.back()].error) kept.push_back(i);
  }
  return kept;
}

double Slope(const Rung& from, const Rung& to) {
  return (from.error - to.error) / static_cast<double>(to.bytes - from.bytes);
}

// The lower convex hull of the useful rungs: slopes fall.
std::vector<uint32_t> Hull(const AllocationUnit& unit) {
  std::vector<uint32_t> hull;
  for (uint32_t i : Useful(unit)) {
    auto above = [&] {
      const Rung &a = unit.rungs[hull[hull.size() - 2]], &b = unit.rungs[hull.back()];
      return Slope(b, unit.rungs[i]) >= Slope(a, b);
    };
    while (hull.size() >= 2 && above()) hull.pop_back();
    hull.push_back(i);
  }
  return hull;
}

// What is left after the hulls' steps goes to single rungs, hull or not, the largest gain a byte first.
void SpendRest(std::span<const AllocationUnit> units, uint64_t left, std::vector<uint32_t>* chosen) {
  for (;;) {
    double best = 0;
    size_t unit = 0;
    uint32_t rung = 0;
    for (size_t i = 0; i < units.size(); ++i) {
      const Rung& now = units[i].rungs[(*chosen)[i]];
      for (uint32_t r = 0; r < units[i].rungs.size(); ++r) {
        const Rung& to = units[i].rungs[r];
        if (to.bytes <= now.bytes || to.bytes - now.bytes > left || !(Slope(now, to) > best)) continue;
        best = Slope(now, to), unit = i, rung = r;
      }
    }
    if (best == 0) return;
    left -= units[unit].rungs[rung].bytes - units[unit].rungs[(*chosen)[unit]].bytes;
    (*chosen)[unit] = rung;
  }
}

// One unit's part of the dynamic programme: totals that no other makes useless, and how they came about.
struct Totals {
  std::vector<uint64_t> bytes;
  std::vector<double> error;
};
struct Came {
  uint32_t from = 0;
  uint32_t rung = 0;
};

// Merges `before` with a unit's rungs into ascending bytes and descending error.
void Extend(const AllocationUnit& unit, const Totals& before, uint64_t budget_bytes, Totals* after,
            std::vector<Came>* came) {
  std::vector<uint32_t> rungs = Useful(unit);
  std::vector<size_t> next(rungs.size());
  for (;;) {
    // The cheapest of the heads; of equal ones the one with the least error, then the cheapest rung.
    size_t best = rungs.size();
    uint64_t bytes = 0;
    double error = 0;
    for (size_t r = 0; r < rungs.size(); ++r) {
      if (next[r] == before.bytes.size()) continue;
      const Rung& rung = unit.rungs[rungs[r]];
      uint64_t b = before.bytes[next[r]] + rung.bytes;
      double e = before.error[next[r]] + rung.error;
      if (best < rungs.size() && (b > bytes || (b == bytes && e >= error))) continue;
      best = r, bytes = b, error = e;
    }
    if (best == rungs.size() || bytes > budget_bytes) return;
    if (after->bytes.empty() || error < after->error.back()) {
      after->bytes.push_back(bytes);
      after->error.push_back(error);
      came->push_back({static_cast<uint32_t>(next[best]), rungs[best]});
    }
    ++next[best];
  }
}

}  // namespace

absl::StatusOr<Allocation> AllocateGreedily(std::span<const AllocationUnit> units, uint64_t budget_bytes) {
  FIRN_RETURN_IF_ERROR(CheckUnits(units, budget_bytes));
  struct Step {
    double slope;
    size_t unit, at;  // From hull[at] to hull[at + 1].
  };
  std::vector<Step> steps;
  std::vector<std::vector<uint32_t>> hulls;
  std::vector<uint32_t> chosen;
  uint64_t used = 0;
  for (size_t i = 0; i < units.size(); ++i) {
    hulls.push_back(Hull(units[i]));
    const std::vector<uint32_t>& hull = hulls.back();
    chosen.push_back(hull[0]);
    used += units[i].rungs[hull[0]].bytes;
    for (size_t at = 0; at + 1 < hull.size(); ++at) {
      steps.push_back({Slope(units[i].rungs[hull[at]], units[i].rungs[hull[at + 1]]), i, at});
    }
  }
  // Slopes fall along a hull, so a unit's steps stay in their order.
  std::stable_sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.slope > b.slope; });
  for (const Step& step : steps) {
    const std::vector<uint32_t>& hull = hulls[step.unit];
    if (chosen[step.unit] != hull[step.at]) continue;  // An earlier step of this unit did not fit.
    uint64_t more = units[step.unit].rungs[hull[step.at + 1]].bytes - units[step.unit].rungs[hull[step.at]].bytes;
    if (used + more > budget_bytes) continue;
    used += more;
    chosen[step.unit] = hull[step.at + 1];
  }
  SpendRest(units, budget_bytes - used, &chosen);
  return Summed(units, std::move(chosen));
}

absl::StatusOr<Allocation> AllocateExactly(std::span<const AllocationUnit> units, uint64_t budget_bytes) {
  FIRN_RETURN_IF_ERROR(CheckUnits(units, budget_bytes));
  // What the units that are still to come cost at least is not there to be spent.
  std::vector<uint64_t> least_after(units.size());
  for (size_t i = units.size() - 1; i > 0; --i) {
    auto cheaper = [](const Rung& a, const Rung& b) { return a.bytes < b.bytes; };
    const auto& rungs = units[i].rungs;
    least_after[i - 1] = least_after[i] + std::min_element(rungs.begin(), rungs.end(), cheaper)->bytes;
  }
  Totals totals{{0}, {0}};
  std::vector<std::vector<Came>> came(units.size());
  uint64_t states = 0;
  for (size_t i = 0; i < units.size(); ++i) {
    if (states + totals.bytes.size() * units[i].rungs.size() > kStatesMax) {
      return absl::ResourceExhaustedError(
          fmt::format("an exact allocation of {} units needs more than {} states", units.size(), kStatesMax));
    }
    Totals after;
    Extend(units[i], totals, budget_bytes - least_after[i], &after, &came[i]);
    FIRN_CHECK(!after.bytes.empty());  // The cheapest choice fits.
    states += came[i].size();
    totals = std::move(after);
  }
  std::vector<uint32_t> chosen(units.size());
  size_t at = totals.bytes.size() - 1;  // The last has the least error.
  for (size_t i = units.size(); i-- > 0;) {
    chosen[i] = came[i][at].rung;
    at = came[i][at].from;
  }
  return Summed(units, std::move(chosen));
}

absl::StatusOr<Allocation> Allocate(std::span<const AllocationUnit> units, uint64_t budget_bytes, bool* exact) {
  auto best = AllocateExactly(units, budget_bytes);
  bool found = !absl::IsResourceExhausted(best.status());
  if (exact != nullptr) *exact = found;
  return found ? best : AllocateGreedily(units, budget_bytes);
}

}  // namespace firn
