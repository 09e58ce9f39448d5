#include "base/check.h"
#include "base/executor.h"
#include "daemon/gpu/gpu_child_test_util.h"
#include "tiers/conformance/tier_conformance.h"

namespace firn {
namespace {

class ChildHarness final : public TierHarness {
 public:
  ChildHarness(const ChildKind& kind, uint64_t capacity_bytes) {
    GpuTierOptions options;
    options.capacity_bytes = capacity_bytes;
    options.staging_bytes = uint64_t{160} << 20;
    options.start = StartChild(kind);
    options.executor = &executor_;
    auto tier = GpuTier::Open(std::move(options));
    FIRN_CHECK(tier.ok());
    tier_ = *std::move(tier);
    FIRN_CHECK(tier_->WaitUntilUp(60'000));
  }
  Tier& tier() override { return *tier_; }
  absl::Status Audit() override { return tier_->AuditForTest(); }

 private:
  ThreadPoolExecutor executor_{2};
  std::unique_ptr<GpuTier> tier_;
};

TierKind KindOf(const ChildKind& kind) {
  return {.name = kind.name,
          .make = [kind](uint64_t capacity) { return std::make_unique<ChildHarness>(kind, capacity); },
          .reclaims_by_itself = false,
          .reads_are_copies = true};
}

std::vector<TierKind> Kinds() {
  std::vector<TierKind> kinds{KindOf({"Processor", false})};
  // Without a GPU, gpu_child_test says that its own tests did not run.
  if (WhyNot({"Cuda", true}).empty()) kinds.push_back(KindOf({"Cuda", true}));
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Child, TierConformance, testing::ValuesIn(Kinds()), TierKindName);

}  // namespace
}  // namespace firn
