#include "base/check.h"
#include "tiers/conformance/tier_conformance.h"
#include "tiers/warm/arena_tier.h"
#include "tiers/warm/memory/memfd_region.h"

namespace firn {
namespace {

class ArenaHarness final : public TierHarness {
 public:
  ArenaHarness(uint64_t capacity_bytes, HugePages huge_pages, EccPolicy ecc) {
    auto region =
        OpenMemfdRegion({.label = "test", .bytes = capacity_bytes, .huge_pages = huge_pages, .numa_node = {}});
    FIRN_CHECK(region.ok());
    tier_ = std::make_unique<ArenaTier>("dram", *std::move(region), ecc);
    FIRN_CHECK(tier_->Populate(capacity_bytes).ok());
  }
  Tier& tier() override { return *tier_; }
  absl::Status Audit() override { return tier_->AuditForTest(); }

 private:
  std::unique_ptr<ArenaTier> tier_;
};

TierKind Kind(const char* name, HugePages huge_pages, EccPolicy ecc = {}) {
  return {name, [=](uint64_t capacity) { return std::make_unique<ArenaHarness>(capacity, huge_pages, ecc); }};
}

INSTANTIATE_TEST_SUITE_P(Arena, TierConformance,
                         testing::Values(Kind("SmallPages", HugePages::kOff),
                                         Kind("TransparentHugePages", HugePages::kTransparent),
                                         Kind("ReservedHugePages", HugePages::kReserved),
                                         Kind("Secded", HugePages::kOff, EccPolicy::Uniform(EccCode::kSecded)),
                                         Kind("Graded", HugePages::kOff, EccPolicy::Graded(EccCode::kReedSolomon))),
                         TierKindName);

}  // namespace
}  // namespace firn
