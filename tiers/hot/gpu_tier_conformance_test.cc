#include "tiers/conformance/tier_conformance.h"
#include "tiers/hot/gpu_test_util.h"

namespace firn {
namespace {

class GpuHarness final : public TierHarness {
 public:
  explicit GpuHarness(uint64_t capacity_bytes) {
    auto tier = GpuTier::Open(TestGpuOptions(&executor_, capacity_bytes, StartThread()));
    FIRN_CHECK(tier.ok());
    tier_ = *std::move(tier);
    FIRN_CHECK(tier_->WaitUntilUp(30'000));
  }
  Tier& tier() override { return *tier_; }
  absl::Status Audit() override { return tier_->AuditForTest(); }

 private:
  ThreadPoolExecutor executor_{2};
  std::unique_ptr<GpuTier> tier_;
};

INSTANTIATE_TEST_SUITE_P(Gpu, TierConformance,
                         testing::Values(TierKind{.name = "OnTheProcessor",
                                                  .make = [](uint64_t c) { return std::make_unique<GpuHarness>(c); },
                                                  .reclaims_by_itself = false,
                                                  .reads_are_copies = true}),
                         TierKindName);

}  // namespace
}  // namespace firn
