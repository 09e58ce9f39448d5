// The store over the tiers that it has in the daemon: DRAM arenas and a segment log, on a device in memory.
#include <gtest/gtest.h>

#include "base/units.h"
#include "tiers/cold/device/memory_device.h"
#include "tiers/store/real_tiers_test_util.h"
#include "tiers/store/store_hammer_test_util.h"

namespace firn {
namespace {

class RealTiers {
 public:
  RealTiers() : pool(std::make_unique<ThreadPoolExecutor>(2)) {
    HarnessOptions options;
    options.hot_bytes = kMiB;
    options.warm_bytes = kMiB;
    options.cold_bytes = 12 * kMiB;
    options.executor = pool.get();
    options.make_tier = [this](const std::string& name, uint64_t bytes, bool persistent) -> std::unique_ptr<Tier> {
      if (!persistent) return MakeWarmTier(name, bytes);
      auto tier = MakeColdTier(name, bytes, pool.get(), std::make_unique<MemoryDevice>(bytes * 4));
      cold = tier.get();
      return tier;
    };
    harness = std::make_unique<StoreHarness>(options);
    cold->SetEvents(harness->store.get());
  }
  ~RealTiers() {
    std::atomic<bool> closed{false};
    cold->Close([&closed](absl::Status) { closed = true; });
    while (!closed) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    pool.reset();  // Nothing runs any more when the store and its tiers go.
    cold->SetEvents(nullptr);
  }

  std::unique_ptr<ThreadPoolExecutor> pool;
  ColdTier* cold = nullptr;  // Owned by the store.
  std::unique_ptr<StoreHarness> harness;
};

TEST(StoreTiers, NothingIsHeldAfterManyThreads) {
  RealTiers rig;
  HammerFromManyThreads(*rig.harness, {.operations_a_thread = 3000, .keys = 300, .tick = [&rig] { rig.cold->Tick(); }});
  StoreStats stats = rig.harness->store->Stats();
  EXPECT_GT(stats.tiers[1].degrades, 0u);
  EXPECT_GT(stats.tiers[2].demotions_in, 0u);
  EXPECT_GT(stats.tiers[2].hits, 0u);
}

}  // namespace
}  // namespace firn
