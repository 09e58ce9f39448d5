#include "base/check.h"
#include "tiers/conformance/tier_conformance.h"
#include "tiers/warm/arena_tier.h"
#include "tiers/warm/memory/memfd_region.h"

namespace firn {
namespace {

class ArenaHarness final : public TierHarness {
 public:
  explicit ArenaHarness(uint64_t capacity_bytes, HugePages huge_pages) {
    auto region =
        OpenMemfdRegion({.label = "test", .bytes = capacity_bytes, .huge_pages = huge_pages, .numa_node = {}});
    FIRN_CHECK(region.ok());
    tier_ = std::make_unique<ArenaTier>("dram", *std::move(region));
    FIRN_CHECK(tier_->Populate(capacity_bytes).ok());
  }
  Tier& tier() override { return *tier_; }
  absl::Status Audit() override { return tier_->AuditForTest(); }

 private:
  std::unique_ptr<ArenaTier> tier_;
};

TierKind Kind(const char* name, HugePages huge_pages) {
  return {name, [huge_pages](uint64_t capacity) { return std::make_unique<ArenaHarness>(capacity, huge_pages); }};
}

INSTANTIATE_TEST_SUITE_P(Arena, TierConformance,
                         testing::Values(Kind("SmallPages", HugePages::kOff),
                                         Kind("TransparentHugePages", HugePages::kTransparent),
                                         Kind("ReservedHugePages", HugePages::kReserved)),
                         TierKindName);

}  // namespace
}  // namespace firn
