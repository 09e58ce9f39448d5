// What takes long at start: opening tiers, recovering them, taking their memory.
//
// Threads: Run on a thread of its own; everything else from any thread. Ownership: the store that comes out owns the
// tiers, and must go before this does. Errors: AlreadyExists where another instance uses a tier's directory.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/config/config.h"
#include "daemon/tier_factory.h"

namespace firn {

class Startup {
 public:
  struct Options {
    const Config* config = nullptr;
    Executor* executor = nullptr;
    Executor* demotion_executor = nullptr;  // Null: `executor`.
    const Clock* clock = nullptr;
    std::function<void(const std::string&)> progress;
  };
  explicit Startup(Options options) : options_(std::move(options)) {}

  // Opens everything and takes enough memory to serve from. Cancelled when Stop was called meanwhile.
  absl::StatusOr<std::unique_ptr<Store>> Run();
  // Takes the rest of the memory, while the store serves. The store must not go before it returns.
  absl::Status PopulateRest();
  // Makes both return soon.
  void Stop() { stop_ = true; }

  const std::vector<ColdTier*>& cold_tiers() const { return cold_; }
  const std::vector<GpuTier*>& gpu_tiers() const { return gpu_; }

 private:
  absl::Status OpenTiers();
  absl::Status OpenTierAt(size_t index);
  // Waits a little for the children of GPUs; the store serves without them where they take longer.
  void AwaitGpus() const;
  absl::Status PopulateUpTo(uint64_t bytes_each);
  absl::Status Check() const;

  const Options options_;
  std::atomic<bool> stop_{false};
  std::vector<std::unique_ptr<TierDirectoryLock>> locks_;  // Of the cold tiers' directories.
  std::vector<OpenedTier> opened_;
  std::vector<std::pair<ArenaTier*, const TierSettings*>> arenas_;
  std::vector<ColdTier*> cold_;
  std::vector<GpuTier*> gpu_;  // In the order of the chain, of which they are the first.
};

}  // namespace firn
