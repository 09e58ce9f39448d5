// A disk that fails under ext4: EIO first, then, as ext4 gives up its journal, EROFS. The daemon lives on and serves
// what it has in memory; puts that need the disk say so; what the disk would not give is not taken for lost, and is
// there when it works again.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/status.h"
#include "tests/fault/daemon_on_disk.h"

namespace firn {
namespace {

constexpr int64_t kSeenMsMax = 10'000;
constexpr int64_t kReadOnlyMsMax = 60'000;

// What creating a file says; 0 where it can be done.
int CreateErrno(const std::filesystem::path& path) {
  int fd = ::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0) return errno;
  int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  return error;
}

class FailingDisk : public DaemonOnDisk {
 protected:
  FailingDisk() : DaemonOnDisk(LoopFileSystem::Disk::kFailing) {}
};

TEST_F(FailingDisk, IoErrorsThenReadOnly) {
  constexpr uint64_t kOnDisk = 40;
  ASSERT_NO_FATAL_FAILURE(PutBefore(kOnDisk));
  disk_.FailDisk();
  for (uint64_t round = 0; round < 5; ++round) {
    RangeResult got = Get(0, kOnDisk);
    EXPECT_EQ(got.missed, kOnDisk) << "a miss is always safe: " << got;
    EXPECT_THAT(got.first_failure, testing::HasSubstr("miss (read_failed)"));
    got = Get(kHot, kHotCount);
    EXPECT_EQ(got.good, kHotCount) << "in memory: " << got;
    absl::Status refused = PutOneDurably(2000 + round);
    EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  }
  EXPECT_TRUE(Eventually([&] { return Healthy() == 0; }, kSeenMsMax));
  EXPECT_THAT(Http("/healthz"), testing::HasSubstr("degraded"));

  // ext4 finds that its journal cannot be written.
  const std::filesystem::path probe = disk_.path() / "probe";
  ASSERT_TRUE(Eventually([&] { return CreateErrno(probe) == EROFS; }, kReadOnlyMsMax));
  disk_.MendDisk();
  ASSERT_EQ(CreateErrno(probe), EROFS) << "until it is mounted anew";
  absl::Status refused = PutOneDurably(3000);
  EXPECT_TRUE(absl::IsUnavailable(refused) || absl::IsResourceExhausted(refused)) << refused;
  // It can be read again, and nothing was given up meanwhile.
  RangeResult got = Get(0, kOnDisk);
  EXPECT_EQ(got.good, kOnDisk) << "on a file system that can only be read: " << got;
  got = Get(kHot, kHotCount);
  EXPECT_EQ(got.good, kHotCount) << "in memory: " << got;

  daemon_->KillNow();
  ASSERT_TRUE(disk_.Remount()) << disk_.Said();
  ASSERT_NO_FATAL_FAILURE(StartDaemon());
  got = Get(0, kOnDisk);
  EXPECT_EQ(got.good, kOnDisk) << "on a disk that works again: " << got;
  RangeResult put = Put(4000, 20, durable_);
  EXPECT_EQ(put.good, 20u) << put;
  auto verified = client_->Verify();
  ASSERT_TRUE(verified.ok()) << verified.status();
  EXPECT_TRUE(verified->consistent) << testing::PrintToString(verified->findings);
}

}  // namespace
}  // namespace firn
