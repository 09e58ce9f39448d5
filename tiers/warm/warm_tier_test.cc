#include "tiers/warm/warm_tier.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "base/units.h"
#include "tiers/warm/fake_region.h"
#include "tiers/warm/memory/memory_limits.h"

namespace firn {
namespace {

TEST(WarmTier, C53_opening_takes_no_memory_and_growing_can_be_stopped) {
  auto tier = OpenWarmTier({.capacity_bytes = 64 * kGiB, .numa_node = {}});
  ASSERT_TRUE(tier.ok()) << tier.status();
  EXPECT_EQ((*tier)->Usage().capacity_bytes, 0u);
  EXPECT_EQ((*tier)->bytes_max(), 64 * kGiB);
  int steps = 0;
  absl::Status stopped = PopulateInSteps(tier->get(), 4 * kMiB, [&](uint64_t populated, uint64_t total) {
    EXPECT_EQ(populated, static_cast<uint64_t>(steps) * 4 * kMiB);
    EXPECT_EQ(total, 64 * kGiB);
    return ++steps <= 3;
  });
  EXPECT_TRUE(absl::IsCancelled(stopped)) << stopped;
  EXPECT_EQ((*tier)->Usage().capacity_bytes, 12 * kMiB);
}

TEST(WarmTier, C53_memory_that_ends_leaves_a_smaller_pool_and_a_reason) {
  auto region = std::make_unique<FakeRegion>(8 * kMiB);
  region->FailFrom(5 * kMiB);
  ArenaTier tier("dram", std::move(region));
  absl::Status status = PopulateInSteps(&tier, kMiB, [](uint64_t, uint64_t) { return true; });
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(tier.Usage().capacity_bytes, 5 * kMiB);
}

TEST(WarmTier, RefusesMoreMemoryThanThereIs) {
  auto tier = OpenWarmTier({.capacity_bytes = uint64_t{1} << 42, .numa_node = {}});
  if (!tier.ok()) GTEST_SKIP() << "no 4 TiB of address space here: " << tier.status();
  absl::Status status = (*tier)->Populate(uint64_t{1} << 42);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_NE(Message(status).find(std::to_string(uint64_t{1} << 42)), std::string::npos) << status;
  EXPECT_EQ((*tier)->Usage().capacity_bytes, 0u);
}

TEST(WarmTier, AnotherMappingOfTheDescriptorSeesTheSameBytesAndCannotShrinkThem) {
  auto tier = OpenWarmTier({.capacity_bytes = 4 * kMiB, .numa_node = {}});
  ASSERT_TRUE(tier.ok()) << tier.status();
  ASSERT_TRUE((*tier)->Populate(4 * kMiB).ok());
  const MemoryRegion& region = (*tier)->region();
  ASSERT_GE(region.fd(), 0);
  void* other = mmap(nullptr, region.bytes(), PROT_READ, MAP_SHARED, region.fd(), 0);
  ASSERT_NE(other, MAP_FAILED);
  region.base()[kMiB] = 77;
  EXPECT_EQ(static_cast<uint8_t*>(other)[kMiB], 77);
  munmap(other, region.bytes());
  EXPECT_NE(ftruncate(region.fd(), 0), 0);
  EXPECT_NE(region.Describe().find("memfd"), std::string::npos);
}

TEST(WarmTier, SaysWhatIsWrong) {
  auto small = OpenWarmTier({.capacity_bytes = 100, .numa_node = {}});
  EXPECT_TRUE(absl::IsInvalidArgument(small.status())) << small.status();
  EXPECT_NE(Message(small.status()).find("100"), std::string::npos);
  EXPECT_FALSE(OpenWarmTier({.capacity_bytes = kMiB, .numa_node = 987}).ok());
}

// A tree like /proc and /sys/fs/cgroup.
class MemoryLimits : public testing::Test {
 protected:
  MemoryLimits() {
    char path[] = "/tmp/firn-limits-XXXXXX";
    FIRN_CHECK(mkdtemp(path) != nullptr);
    root_ = path;
    Write("/proc/meminfo", "MemTotal: 100 kB\nMemFree: 5 kB\nMemAvailable: 4194304 kB\n");
    Write("/proc/self/cgroup", "0::/outer/inner\n");
  }
  ~MemoryLimits() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  uint64_t Available() const { return AvailableMemoryBytes(root_ + "/proc", root_ + "/cgroup"); }
  std::string root_;
};

TEST_F(MemoryLimits, TheLeastOfTheMachineAndEveryGroup) {
  EXPECT_EQ(Available(), 4 * kGiB);
  Write("/cgroup/outer/inner/memory.max", "max\n");
  Write("/cgroup/outer/inner/memory.current", "1000\n");
  EXPECT_EQ(Available(), 4 * kGiB);
  Write("/cgroup/outer/memory.max", "3000\n");
  Write("/cgroup/outer/memory.current", "1000\n");
  EXPECT_EQ(Available(), 2000u);
  Write("/cgroup/memory.max", "1000\n");
  Write("/cgroup/memory.current", "1500\n");
  EXPECT_EQ(Available(), 0u);
}

TEST_F(MemoryLimits, AReserveStaysFree) {
  EXPECT_TRUE(CheckMemoryAvailable(kGiB, kGiB + kMemoryReserveBytes).ok());
  absl::Status status = CheckMemoryAvailable(kGiB + 1, kGiB + kMemoryReserveBytes);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_NE(Message(status).find(std::to_string(kGiB + 1)), std::string::npos) << status;
  EXPECT_FALSE(CheckMemoryAvailable(1, 0).ok());
}

}  // namespace
}  // namespace firn
