// From configuration to tiers: what is opened, what it held before, and the memory it still has to take.
//
// Threads: one, which may wait for minutes: opening a cold tier recovers it. Ownership: the tiers go to the store; the
// pointers beside them stay valid as long as the store.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/executor.h"
#include "daemon/config/config.h"
#include "tiers/cold/cold_tier.h"
#include "tiers/hot/gpu_tier.h"
#include "tiers/store/store.h"
#include "tiers/warm/arena_tier.h"

namespace firn {

// Keeps a directory from being opened by a second daemon; ends with the process however it ends.
class TierDirectoryLock {
 public:
  // AlreadyExists where another process holds it.
  static absl::StatusOr<std::unique_ptr<TierDirectoryLock>> Acquire(const std::string& directory);
  ~TierDirectoryLock();
  TierDirectoryLock(const TierDirectoryLock&) = delete;
  TierDirectoryLock& operator=(const TierDirectoryLock&) = delete;

 private:
  explicit TierDirectoryLock(int fd) : fd_(fd) {}
  const int fd_;
};

struct OpenedTier {
  std::unique_ptr<TierDirectoryLock> lock;  // Of a cold tier's directory; outlives the tier.
  TierConfig config;
  ArenaTier* arena = nullptr;  // One of these three.
  ColdTier* cold = nullptr;
  GpuTier* gpu = nullptr;
  std::vector<RecoveredFact> facts;
  std::vector<RecoveredCopy> copies;
  ColdRecoveryReport report;
};

// `arenas`, of tiers on memory that are open, are what a GPU's copies go to and come from.
absl::StatusOr<OpenedTier> OpenTier(const TierSettings& settings, const std::vector<const ArenaTier*>& arenas,
                                    Executor* executor, const Clock* clock);

}  // namespace firn
