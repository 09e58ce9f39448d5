#include "tiers/cold/cold_test_util.h"
#include "tiers/cold/device/posix_device.h"
#include "tiers/cold/device/uring_device.h"
#include "tiers/conformance/tier_conformance.h"

#include <filesystem>

namespace firn {
namespace {

// Small segments; more room than asked for, since a log needs some of its own.
class ColdHarness final : public TierHarness {
 public:
  ColdHarness(uint64_t capacity_bytes, bool real, EccPolicy ecc) : rig_(2 * capacity_bytes + 32 * kMiB), pool_(2) {
    rig_.options.ecc = ecc;
    if (!real) {
      FIRN_CHECK(rig_.Open().ok());
      return;
    }
    std::string pattern = (std::filesystem::temp_directory_path() / "firn-cold-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    DirectoryOptions directory;
    directory.directory = directory_ + "/segments";
    std::unique_ptr<BlockDevice> device;
    auto uring = UringDevice::Open(directory);
    if (uring.ok()) {
      device = *std::move(uring);
    } else {
      device = *PosixDevice::Open(directory);
    }
    rig_.options.executor = &pool_;
    rig_.options.clock = Clock::Real();
    auto opened = ColdTier::Open(rig_.options, std::move(device), std::make_unique<MemoryIndex>(), {}, nullptr);
    FIRN_CHECK(opened.ok());
    cold_ = *std::move(opened);
  }
  ~ColdHarness() override {
    cold_.reset();
    if (!directory_.empty()) std::filesystem::remove_all(directory_);
  }
  Tier& tier() override { return cold_ != nullptr ? *cold_ : *rig_.cold; }
  void Step() override {
    if (cold_ == nullptr) rig_.Run();
  }

 private:
  ColdRig rig_;
  ThreadPoolExecutor pool_;
  std::string directory_;
  std::unique_ptr<ColdTier> cold_;
};

TierKind Kind(const char* name, bool real, EccPolicy ecc = {}) {
  return {name, [=](uint64_t capacity) { return std::make_unique<ColdHarness>(capacity, real, ecc); }, true};
}

INSTANTIATE_TEST_SUITE_P(Cold, TierConformance,
                         testing::Values(Kind("Memory", false), Kind("Directory", true),
                                         Kind("Secded", false, EccPolicy::Uniform(EccCode::kSecded)),
                                         Kind("Graded", false, EccPolicy::Graded(EccCode::kReedSolomon))),
                         TierKindName);

}  // namespace
}  // namespace firn
