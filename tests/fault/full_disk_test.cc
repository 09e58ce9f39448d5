// A file system that fills up under the cold tier's log and index, from outside, and has room again later: puts that
// need the disk are refused meanwhile, everything that is there is served, and nobody has to restart anything.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "tests/support/daemon_process.h"
#include "tests/support/free_port.h"
#include "tests/support/known_ranges.h"
#include "tests/support/observe.h"

namespace firn {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSeenMsMax = 10'000;
constexpr int64_t kBackMsMax = 30'000;
// The gauge remembers a failure for 30 s.
constexpr int64_t kHealthyMsMax = 60'000;

// A small ext4 in a file.
class LoopFileSystem {
 public:
  explicit LoopFileSystem(uint64_t bytes) {
    std::string pattern = (fs::temp_directory_path() / "firn-loop-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    std::ofstream(image()).close();
    fs::resize_file(image(), bytes);
    fs::create_directory(path());
    std::string command = "{ mkfs.ext4 -q -F -m 0 '" + image().string() + "' && mount -o loop '" + image().string() +
                          "' '" + path().string() + "'; } >'" + (folder_ / "said").string() + "' 2>&1";
    mounted_ = ::geteuid() == 0 && std::system(command.c_str()) == 0;
  }
  ~LoopFileSystem() {
    if (mounted_) ::umount2(path().c_str(), MNT_DETACH);
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  fs::path path() const { return folder_ / "mount"; }
  // Empty when it is there.
  std::string WhyNot() const {
    if (mounted_) return "";
    if (::geteuid() != 0) return "a loop device needs root";
    std::ifstream said(folder_ / "said");
    return "no loop device could be mounted: " + std::string(std::istreambuf_iterator<char>(said), {});
  }
  // Takes all the room there is, to the last byte.
  void Fill() const {
    int fd = ::open(filler().c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    ASSERT_GE(fd, 0);
    std::vector<char> zeros(kMiB);
    for (size_t bytes = zeros.size(); bytes >= 1; bytes /= 2) {
      while (::write(fd, zeros.data(), bytes) == static_cast<ssize_t>(bytes)) {
      }
    }
    ::fsync(fd);
    ::close(fd);
  }
  void Free() const { fs::remove(filler()); }

 private:
  fs::path image() const { return folder_ / "image"; }
  fs::path filler() const { return path() / "filler"; }
  fs::path folder_;
  bool mounted_ = false;
};

KnownModel WideModel() { return {.name = "wide", .layers = 4, .heads = 8, .width = 128, .tokens = 64}; }

void RunFull(uint64_t blocks_before) {
  LoopFileSystem disk(192 * kMiB);
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

  // What is there before: on disk alone, and in memory.
  RangeResult put = PutRange(*client, ns, WideModel(), 0, blocks_before, durable);
  ASSERT_EQ(put.good, blocks_before) << put;
  for (const char* tier : {"hot", "warm"}) ASSERT_TRUE(client->Clear({.tier = tier}).ok());
  constexpr uint64_t kHot = 1000, kHotCount = 4;
  put = PutRange(*client, ns, WideModel(), kHot, kHotCount);
  ASSERT_EQ(put.good, kHotCount) << put;
  EXPECT_EQ(healthy(), 1);

  disk.Fill();
  RangeResult refused;
  for (uint64_t number = 2000; number < 3000 && refused.failed == 0; ++number) {
    refused = PutRange(*client, ns, WideModel(), number, 1, durable);
  }
  ASSERT_EQ(refused.failed, 1u) << refused;
  auto exhausted = PutKnown(*client, ns, WideModel(), 4000, durable);
  EXPECT_EQ(exhausted.status.code(), absl::StatusCode::kResourceExhausted) << exhausted.status;
  EXPECT_TRUE(Eventually([&] { return healthy() == 0; }, kSeenMsMax));
  EXPECT_THAT(HttpGet(port, "/healthz"), testing::HasSubstr("degraded"));
  RangeResult got = GetRange(*client, ns, WideModel(), 0, blocks_before);
  EXPECT_EQ(got.good, blocks_before) << "on disk: " << got;
  got = GetRange(*client, ns, WideModel(), kHot, kHotCount);
  EXPECT_EQ(got.good, kHotCount) << "in memory: " << got;

  disk.Free();
  auto freed = std::chrono::steady_clock::now();
  auto since = [&] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - freed).count();
  };
  uint64_t next = 5000;
  EXPECT_TRUE(Eventually([&] { return PutRange(*client, ns, WideModel(), next++, 1, durable).good == 1; }, kBackMsMax));
  int64_t back_ms = since();
  if (blocks_before > 0) {
    EXPECT_TRUE(Eventually([&] { return healthy() == 1; }, kHealthyMsMax));
  }
  std::printf("writes worked %lld ms after there was room, all was well after %lld ms\n",
              static_cast<long long>(back_ms), static_cast<long long>(since()));
  put = PutRange(*client, ns, WideModel(), 6000, 20, durable);
  EXPECT_EQ(put.good, 20u) << put;
  daemon.KillNow();
  started = daemon.Start();
  ASSERT_TRUE(started.ok()) << started;
  client = daemon.Connect();
  got = GetRange(*client, ns, WideModel(), 0, blocks_before);
  EXPECT_EQ(got.good, blocks_before) << got;
  got = GetRange(*client, ns, WideModel(), 6000, 20);
  EXPECT_EQ(got.good, 20u) << got;
}

TEST(FullDisk, C25_comes_back_by_itself) { RunFull(40); }

// The index has nothing to write when the disk fills up: whoever waits for its next flush waits for ever.
TEST(FullDisk, C25_comes_back_by_itself_with_nothing_in_the_index) { RunFull(0); }

}  // namespace
}  // namespace firn
