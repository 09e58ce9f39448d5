#include "daemon/health.h"

#include <fmt/format.h>

#include <utility>

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
  for (const auto& [tier, what] : hanging_) out.push_back({tier, what});
  for (const auto& [tier, what] : medium_trouble_) out.push_back({tier, what});
  for (const auto& [tier, seen] : seen_) {
    bool recent = seen.failed_at_ns != 0 && now_ns - seen.failed_at_ns < kFailureMemoryMs * 1'000'000;
    if (recent && medium_trouble_.find(tier) == medium_trouble_.end()) out.push_back({tier, seen.what});
  }
  return out;
}

bool HealthMonitor::SetOldestIo(const std::string& tier, const std::optional<Outstanding::Oldest>& oldest) {
  constexpr int64_t kMs = 1'000'000;
  std::lock_guard lock(mu_);
  if (!oldest.has_value() || oldest->age_ns <= disk_stall_ms_ * kMs) return hanging_.erase(tier) > 0;
  std::string what =
      fmt::format("its medium hangs: a {} has had no answer for {:.1f} s; limits.disk_stall is {:.1f} s", oldest->what,
                  static_cast<double>(oldest->age_ns) / (1000 * kMs), static_cast<double>(disk_stall_ms_) / 1000);
  return hanging_.insert_or_assign(tier, std::move(what)).second;
}

std::string HealthMonitor::Text(int64_t now_ns) const {
  auto troubles = Troubles(now_ns);
  if (troubles.empty()) return "ok\n";
  std::string text = "degraded\n";
  for (const Trouble& trouble : troubles) text += fmt::format("tier {}: {}\n", trouble.tier, trouble.what);
  return text;
}

}  // namespace firn
