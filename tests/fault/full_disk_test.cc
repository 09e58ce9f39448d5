// A file system that fills up under the cold tier's log and index, from outside, and has room again later: puts that
// need the disk are refused meanwhile, everything that is there is served, and nobody has to restart anything.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
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
constexpr int64_t kBackMsMax = 30'000;
// The gauge remembers a failure for 30 s.
constexpr int64_t kHealthyMsMax = 60'000;

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

  ASSERT_TRUE(disk.Fill());
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
