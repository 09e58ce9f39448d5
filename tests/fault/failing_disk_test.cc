// A disk that fails under ext4: EIO first, then, as ext4 gives up its journal, EROFS. The daemon lives on and serves
// what it has in memory; puts that need the disk say so; what the disk would not give is not taken for lost, and is
// there when it works again.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/status.h"
#include "base/units.h"
#include "tests/support/daemon_process.h"
#include "tests/support/free_port.h"
#include "tests/support/known_ranges.h"
#include "tests/support/loop_file_system.h"
#include "tests/support/observe.h"

namespace firn {
namespace {

constexpr int64_t kSeenMsMax = 10'000;
constexpr int64_t kReadOnlyMsMax = 60'000;

KnownModel WideModel() { return {.name = "wide", .layers = 4, .heads = 8, .width = 128, .tokens = 64}; }

// What creating a file says; 0 where it can be done.
int CreateErrno(const std::filesystem::path& path) {
  int fd = ::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0) return errno;
  int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  return error;
}

void RunFailing() {
  LoopFileSystem disk(192 * kMiB, LoopFileSystem::Disk::kFailing);
  if (!disk.WhyNot().empty()) GTEST_SKIP() << disk.WhyNot();
  uint16_t port = FreePort();
  DaemonOptions options;
  options.hot_capacity = options.warm_capacity = "16MiB";
  options.cold_capacity = "128MiB";
  options.cold_path = (disk.path() / "cold").string();
  options.admin_http = "127.0.0.1:" + std::to_string(port);
  options.extra_toml = "[store]\npromote_on_get = false\n";
  DaemonProcess daemon(options);
  struct LogOfFailure {
    const DaemonProcess& of;
    ~LogOfFailure() {
      if (testing::Test::HasFailure()) std::printf("the daemon's log:\n%s\n", of.Log().c_str());
    }
  } log{daemon};
  absl::Status started = daemon.Start();
  ASSERT_TRUE(started.ok()) << started;
  auto client = daemon.Connect();
  auto registered = client->RegisterNamespace(WideModel().Facts());
  ASSERT_TRUE(registered.ok()) << registered.status();
  const firnkv::Namespace& ns = *registered;
  auto healthy = [&] { return MetricValue(HttpGet(port, "/metrics"), "firn_tier_healthy{tier=\"cold\"}"); };
  const firnkv::PutOptions durable{.ack = firnkv::AckLevel::kDurable};

  // On disk alone, and in memory.
  constexpr uint64_t kOnDisk = 40, kHot = 1000, kHotCount = 4;
  RangeResult put = PutRange(*client, ns, WideModel(), 0, kOnDisk, durable);
  ASSERT_EQ(put.good, kOnDisk) << put;
  for (const char* tier : {"hot", "warm"}) ASSERT_TRUE(client->Clear({.tier = tier}).ok());
  put = PutRange(*client, ns, WideModel(), kHot, kHotCount);
  ASSERT_EQ(put.good, kHotCount) << put;
  EXPECT_EQ(healthy(), 1);

  disk.FailDisk();
  for (int round = 0; round < 5; ++round) {
    RangeResult got = GetRange(*client, ns, WideModel(), 0, kOnDisk);
    EXPECT_EQ(got.wrong, 0u) << got;
    EXPECT_EQ(got.missed, kOnDisk) << "a miss is always safe: " << got;
    EXPECT_THAT(got.first_failure, testing::HasSubstr("miss (read_failed)"));
    got = GetRange(*client, ns, WideModel(), kHot, kHotCount);
    EXPECT_EQ(got.good, kHotCount) << "in memory: " << got;
    auto refused = PutKnown(*client, ns, WideModel(), 2000 + static_cast<uint64_t>(round), durable);
    EXPECT_EQ(refused.status.code(), absl::StatusCode::kUnavailable) << refused.status;
  }
  EXPECT_TRUE(Eventually([&] { return healthy() == 0; }, kSeenMsMax));
  EXPECT_THAT(HttpGet(port, "/healthz"), testing::HasSubstr("degraded"));

  // ext4 finds that its journal cannot be written.
  const std::filesystem::path probe = disk.path() / "probe";
  ASSERT_TRUE(Eventually([&] { return CreateErrno(probe) == EROFS; }, kReadOnlyMsMax));
  disk.MendDisk();
  ASSERT_EQ(CreateErrno(probe), EROFS) << "until it is mounted anew";
  auto refused = PutKnown(*client, ns, WideModel(), 3000, durable);
  EXPECT_TRUE(absl::IsUnavailable(refused.status) || absl::IsResourceExhausted(refused.status)) << refused.status;
  // It can be read again, and nothing was given up meanwhile.
  RangeResult got = GetRange(*client, ns, WideModel(), 0, kOnDisk);
  EXPECT_EQ(got.good, kOnDisk) << "on a file system that can only be read: " << got;
  got = GetRange(*client, ns, WideModel(), kHot, kHotCount);
  EXPECT_EQ(got.good, kHotCount) << "in memory: " << got;

  daemon.KillNow();
  ASSERT_TRUE(disk.Remount()) << disk.Said();
  started = daemon.Start();
  ASSERT_TRUE(started.ok()) << started;
  client = daemon.Connect();
  got = GetRange(*client, ns, WideModel(), 0, kOnDisk);
  EXPECT_EQ(got.good, kOnDisk) << "on a disk that works again: " << got;
  put = PutRange(*client, ns, WideModel(), 4000, 20, durable);
  EXPECT_EQ(put.good, 20u) << put;
  auto verified = client->Verify();
  ASSERT_TRUE(verified.ok()) << verified.status();
  EXPECT_TRUE(verified->consistent) << testing::PrintToString(verified->findings);
}

TEST(FailingDisk, IoErrorsThenReadOnly) { RunFailing(); }

}  // namespace
}  // namespace firn
