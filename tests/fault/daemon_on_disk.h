// A daemon whose cold tier lies on a small disk of its own, for tests of what becomes of it when that goes bad.
//
// Threads: one thread drives it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>

#include "base/units.h"
#include "tests/support/daemon_process.h"
#include "tests/support/free_port.h"
#include "tests/support/known_ranges.h"
#include "tests/support/loop_file_system.h"
#include "tests/support/observe.h"

namespace firn {

class DaemonOnDisk : public ::testing::Test {
 protected:
  static constexpr uint64_t kHot = 1000, kHotCount = 4;  // Blocks in memory.

  explicit DaemonOnDisk(LoopFileSystem::Disk disk) : disk_(192 * kMiB, disk), port_(FreePort()) {
    DaemonOptions options;
    options.hot_capacity = options.warm_capacity = "16MiB";
    options.cold_capacity = "128MiB";
    options.cold_path = (disk_.path() / "cold").string();
    options.admin_http = "127.0.0.1:" + std::to_string(port_);
    options.extra_toml = "[store]\npromote_on_get = false\n";
    daemon_ = std::make_unique<DaemonProcess>(options);
  }
  void SetUp() override {
    if (!disk_.WhyNot().empty()) GTEST_SKIP() << disk_.WhyNot();
    ASSERT_NO_FATAL_FAILURE(StartDaemon());
    auto registered = client_->RegisterNamespace(model_.Facts());
    ASSERT_TRUE(registered.ok()) << registered.status();
    ns_ = *registered;
  }
  void TearDown() override {
    if (HasFailure()) std::printf("the daemon's log:\n%s\n", daemon_->Log().c_str());
  }

  void StartDaemon() {
    absl::Status started = daemon_->Start();
    ASSERT_TRUE(started.ok()) << started;
    client_ = daemon_->Connect();
  }
  RangeResult Put(uint64_t first, uint64_t count, const firnkv::PutOptions& options = {}) {
    return PutRange(*client_, ns_, model_, first, count, options);
  }
  RangeResult Get(uint64_t first, uint64_t count) { return GetRange(*client_, ns_, model_, first, count); }
  absl::Status PutOneDurably(uint64_t number) { return PutKnown(*client_, ns_, model_, number, durable_).status; }
  // Blocks 0 to `on_disk` - 1 on disk alone, and kHotCount from kHot on in memory.
  void PutBefore(uint64_t on_disk) {
    RangeResult put = Put(0, on_disk, durable_);
    ASSERT_EQ(put.good, on_disk) << put;
    for (const char* tier : {"hot", "warm"}) ASSERT_TRUE(client_->Clear({.tier = tier}).ok());
    put = Put(kHot, kHotCount);
    ASSERT_EQ(put.good, kHotCount) << put;
    EXPECT_EQ(Healthy(), 1);
  }
  std::string Http(const std::string& path) const { return HttpGet(port_, path); }
  double Healthy() const { return MetricValue(Http("/metrics"), "firn_tier_healthy{tier=\"cold\"}"); }

  const KnownModel model_{.name = "wide", .layers = 4, .heads = 8, .width = 128, .tokens = 64};  // 1 MiB.
  const firnkv::PutOptions durable_{.ack = firnkv::AckLevel::kDurable};
  LoopFileSystem disk_;
  const uint16_t port_;
  std::unique_ptr<DaemonProcess> daemon_;  // Ends before its disk.
  std::unique_ptr<firnkv::Client> client_;
  firnkv::Namespace ns_;
};

}  // namespace firn
