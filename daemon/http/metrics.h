// What Prometheus scrapes. Every series is there from the first scrape, at 0; labels are tiers, classes, reasons and
// methods, of which there is a fixed number. Every value is read from where it is counted, in one snapshot of the store
// a scrape.
//
// Threads: any. docs/operations.md lists the series.
#pragma once

#include <memory>
#include <string>

#include "daemon/config/config.h"
#include "daemon/core/service_core.h"
#include "tiers/hot/gpu_link.h"
#include "tiers/store/store_stats.h"

namespace firn {

struct MetricsInput {
  const StoreStats* stats = nullptr;
  ServiceCore* core = nullptr;
  const Config* config = nullptr;
  std::vector<std::string> unhealthy;                        // Names of tiers that fail now.
  std::vector<std::string> io_backends;                      // By tier; empty where there is none.
  std::vector<std::pair<std::string, GpuLink::Stats>> gpus;  // By the name of their tier.
  int64_t started_unix_s = 0;
};

// The text exposition format.
std::string MetricsText(const MetricsInput& input);

// Statistics of a store that is not there yet: all tiers, all zero.
StoreStats ZeroStats(const Config& config);

}  // namespace firn
