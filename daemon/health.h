// Whether tiers work: a failure anywhere shows in /healthz and in a metric until it has been quiet for a while.
//
// Threads: any. Fed once a second with the store's counters; a tier is unhealthy for kFailureMemoryMs after a commit or
// a read of it failed, and while its medium says so itself.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tiers/store/store_stats.h"

namespace firn {

class HealthMonitor {
 public:
  static constexpr int64_t kFailureMemoryMs = 30'000;

  struct Trouble {
    std::string tier;
    std::string what;
  };

  void Observe(const StoreStats& stats, int64_t now_ns);
  // What the medium of a tier says of itself; empty: all well.
  void SetMediumTrouble(const std::string& tier, const std::string& what);
  std::vector<Trouble> Troubles(int64_t now_ns) const;

 private:
  struct Seen {
    uint64_t commit_failures = 0, read_failures = 0;
    int64_t failed_at_ns = 0;  // 0: never.
    std::string what;
  };
  mutable std::mutex mu_;
  std::map<std::string, Seen> seen_;                   // Guarded by mu_.
  std::map<std::string, std::string> medium_trouble_;  // Guarded by mu_.
};

}  // namespace firn
