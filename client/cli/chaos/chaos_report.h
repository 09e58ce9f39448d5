// What a run of `firn chaos` found, for people and for scripts. Threads: values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "client/cli/chaos/chaos_options.h"
#include "client/cli/chaos/load.h"
#include "client/cli/support/context.h"

namespace firn::cli {

// Counters of a daemon that begin at 0 with each of its starts, summed over all of them.
class StatsSum {
 public:
  void Take(const firnkv::Stats& stats);  // Of the daemon that runs.
  void Ended();                           // It runs no more: what was taken last stays.
  std::map<std::string, uint64_t> Counters() const;
  std::map<std::string, uint64_t> Misses() const;

 private:
  std::map<std::string, uint64_t> counters_, misses_;            // Of those that ended.
  std::map<std::string, uint64_t> last_counters_, last_misses_;  // Of the one that runs.
};

struct ChaosReport {
  uint64_t seed = 0;
  double seconds = 0;
  std::map<std::string, uint64_t> operations;
  std::map<std::string, uint64_t> faults;
  std::map<std::string, std::string> skipped;  // Kinds of faults that were not to be had, and why.
  std::vector<std::string> events;             // Each fault, in order.
  std::map<std::string, uint64_t> misses;      // By reason.
  std::map<std::string, uint64_t> counters;    // Of the tiers below the GPUs, together.
  uint64_t wrong = 0, lost = 0, came_back = 0, failed = 0, lost_to_damage = 0;
  uint64_t starts = 0;
  int64_t ready_ms_max = 0;
  firnkv::ScrubReport scrub;
  bool consistent = false;
  uint64_t finding_count = 0;
  std::vector<std::string> findings;

  bool good() const { return finding_count == 0 && consistent; }
};

void TakeTally(const Tally& tally, ChaosReport* report);
Json ToJson(const ChaosReport& report);
void PrintReport(const ChaosReport& report);

}  // namespace firn::cli
