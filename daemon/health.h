// Whether tiers work: a failure anywhere shows in /healthz and in a metric until it has been quiet for a while.
//
// Threads: any. Fed once a second with the store's counters; a tier is unhealthy for kFailureMemoryMs after a commit or
// a read of it failed, while its medium says so itself, and while its medium has owed an answer for longer than
// `disk_stall_ms`.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tiers/cold/device/outstanding.h"
#include "tiers/store/store_stats.h"

namespace firn {

class HealthMonitor {
 public:
  static constexpr int64_t kFailureMemoryMs = 30'000;

  struct Trouble {
    std::string tier;
    std::string what;
  };

  explicit HealthMonitor(int64_t disk_stall_ms) : disk_stall_ms_(disk_stall_ms) {}

  void Observe(const StoreStats& stats, int64_t now_ns);
  // What the medium of a tier says of itself; empty: all well.
  void SetMediumTrouble(const std::string& tier, const std::string& what);
  // What the medium has been asked first of all that it has not answered; nothing: it has answered everything. Look
  // just before Troubles: it may hang a moment later. True when the tier began or ceased to hang.
  bool SetOldestIo(const std::string& tier, const std::optional<Outstanding::Oldest>& oldest);
  std::vector<Trouble> Troubles(int64_t now_ns) const;
  // The answer of /healthz.
  std::string Text(int64_t now_ns) const;

 private:
  struct Seen {
    uint64_t commit_failures = 0, read_failures = 0;
    int64_t failed_at_ns = 0;  // 0: never.
    std::string what;
  };
  const int64_t disk_stall_ms_;
  mutable std::mutex mu_;
  std::map<std::string, Seen> seen_;                   // Guarded by mu_.
  std::map<std::string, std::string> medium_trouble_;  // Guarded by mu_.
  std::map<std::string, std::string> hanging_;         // Guarded by mu_. What hangs and for how long.
};

}  // namespace firn
