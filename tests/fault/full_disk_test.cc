// A file system that fills up under the cold tier's log and index, from outside, and has room again later: puts that
// need the disk are refused meanwhile, everything that is there is served, and nobody has to restart anything.
#include <chrono>
#include <cstdio>

#include "base/status.h"
#include "tests/fault/daemon_on_disk.h"

namespace firn {
namespace {

constexpr int64_t kSeenMsMax = 10'000;
constexpr int64_t kBackMsMax = 30'000;
// The gauge remembers a failure for 30 s.
constexpr int64_t kHealthyMsMax = 60'000;

class FullDisk : public DaemonOnDisk {
 protected:
  FullDisk() : DaemonOnDisk(LoopFileSystem::Disk::kSound) {}
  void Run(uint64_t blocks_before);
};

void FullDisk::Run(uint64_t blocks_before) {
  ASSERT_NO_FATAL_FAILURE(PutBefore(blocks_before));
  ASSERT_TRUE(disk_.Fill());
  RangeResult refused;
  for (uint64_t number = 2000; number < 3000 && refused.failed == 0; ++number) refused = Put(number, 1, durable_);
  ASSERT_EQ(refused.failed, 1u) << refused;
  absl::Status exhausted = PutOneDurably(4000);
  EXPECT_TRUE(absl::IsResourceExhausted(exhausted)) << exhausted;
  EXPECT_TRUE(Eventually([&] { return Healthy() == 0; }, kSeenMsMax));
  EXPECT_THAT(Http("/healthz"), testing::HasSubstr("degraded"));
  RangeResult got = Get(0, blocks_before);
  EXPECT_EQ(got.good, blocks_before) << "on disk: " << got;
  got = Get(kHot, kHotCount);
  EXPECT_EQ(got.good, kHotCount) << "in memory: " << got;

  disk_.Free();
  auto freed = std::chrono::steady_clock::now();
  auto since = [&] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - freed).count();
  };
  uint64_t next = 5000;
  EXPECT_TRUE(Eventually([&] { return Put(next++, 1, durable_).good == 1; }, kBackMsMax));
  int64_t back_ms = since();
  if (blocks_before > 0) {
    EXPECT_TRUE(Eventually([&] { return Healthy() == 1; }, kHealthyMsMax));
  }
  std::printf("writes worked %lld ms after there was room, all was well after %lld ms\n",
              static_cast<long long>(back_ms), static_cast<long long>(since()));
  RangeResult put = Put(6000, 20, durable_);
  EXPECT_EQ(put.good, 20u) << put;
  daemon_->KillNow();
  ASSERT_NO_FATAL_FAILURE(StartDaemon());
  got = Get(0, blocks_before);
  EXPECT_EQ(got.good, blocks_before) << got;
  got = Get(6000, 20);
  EXPECT_EQ(got.good, 20u) << got;
}

TEST_F(FullDisk, C25_comes_back_by_itself) { Run(40); }

// The index has nothing to write when the disk fills up: whoever waits for its next flush waits for ever.
TEST_F(FullDisk, C25_comes_back_by_itself_with_nothing_in_the_index) { Run(0); }

}  // namespace
}  // namespace firn
