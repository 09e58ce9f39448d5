#include "daemon/health.h"

#include <fmt/format.h>

namespace firn {

void HealthMonitor::Observe(const StoreStats& stats, int64_t now_ns) {
  std::lock_guard lock(mu_);
  for (const TierStats& tier : stats.tiers) {
    Seen& seen = seen_[tier.name];
    uint64_t commits = tier.counters.commit_failures - seen.commit_failures;
    uint64_t reads = tier.counters.read_failures - seen.read_failures;
    if (commits + reads > 0) {
      seen.failed_at_ns = now_ns;
      seen.what = fmt::format("{} writes and {} reads failed of late", commits, reads);
    }
    seen.commit_failures = tier.counters.commit_failures;
    seen.read_failures = tier.counters.read_failures;
  }
}

void HealthMonitor::SetMediumTrouble(const std::string& tier, const std::string& what) {
  std::lock_guard lock(mu_);
  if (what.empty()) {
    medium_trouble_.erase(tier);
  } else {
    medium_trouble_[tier] = what;
  }
}

std::vector<HealthMonitor::Trouble> HealthMonitor::Troubles(int64_t now_ns) const {
  std::lock_guard lock(mu_);
  std::vector<Trouble> out;
  for (const auto& [tier, what] : medium_trouble_) out.push_back({tier, what});
  for (const auto& [tier, seen] : seen_) {
    bool recent = seen.failed_at_ns != 0 && now_ns - seen.failed_at_ns < kFailureMemoryMs * 1'000'000;
    if (recent && medium_trouble_.find(tier) == medium_trouble_.end()) out.push_back({tier, seen.what});
  }
  return out;
}

}  // namespace firn
