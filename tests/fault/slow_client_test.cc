// Clients that are slow or have stopped: they get their bytes whole or a clean error, whatever becomes of the blocks
// meanwhile; the daemon's memory stays bounded, and what they held comes back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "tests/support/daemon_process.h"
#include "tests/support/free_port.h"
#include "tests/support/known_ranges.h"
#include "tests/support/observe.h"
#include "tests/support/slow_link.h"

namespace firn {
namespace {

constexpr uint64_t kHotBytes = 48 * kMiB, kWarmBytes = 32 * kMiB;
constexpr uint64_t kTransportBytes = 128 * kMiB;
// What the process may have resident beside what it was given: the cold tier's buffers, code, RocksDB and the
// allocator.
constexpr uint64_t kOwnBytes = 256 * kMiB;

constexpr int64_t kDeadConnectionMsMax = 70'000;

KnownModel BigModel() { return {.name = "big", .layers = 32, .heads = 8, .width = 128, .tokens = 128}; }  // 16 MiB.
KnownModel WideModel() { return {.name = "wide", .layers = 4, .heads = 8, .width = 128, .tokens = 64}; }  // 1 MiB.

class SlowClient : public ::testing::Test {
 protected:
  SlowClient() : port_(FreePort()), daemon_(Options(port_)) {}

  static DaemonOptions Options(uint16_t port) {
    DaemonOptions options;
    options.admin_http = "127.0.0.1:" + std::to_string(port);
    options.hot_capacity = "48MiB";
    options.warm_capacity = "32MiB";
    options.cold_capacity = "256MiB";
    options.extra_toml = "[limits]\ntransport_budget = \"128MiB\"\nread_stall = \"3s\"\nput_idle = \"3s\"\n";
    return options;
  }

  void SetUp() override {
    absl::Status started = daemon_.Start();
    ASSERT_TRUE(started.ok()) << started;
    client_ = daemon_.Connect();
    big_ = *client_->RegisterNamespace(BigModel().Facts());
    wide_ = *client_->RegisterNamespace(WideModel().Facts());
    link_ = std::make_unique<SlowLink>(daemon_.socket_path(), daemon_.folder() / "slow.sock");
    watch_ = std::thread([this] {
      for (; !stop_; std::this_thread::sleep_for(std::chrono::milliseconds(5))) {
        most_resident_ = std::max<uint64_t>(most_resident_, daemon_.ResidentBytes());
      }
    });
  }

  void TearDown() override {
    link_.reset();
    stop_ = true;
    if (watch_.joinable()) watch_.join();
    if (client_ == nullptr) return;
    // Nobody holds anything any more, and the daemon never had more memory than it was given.
    EXPECT_TRUE(Eventually([this] { return Gauge("readers") == 0 && Gauge("puts_in_flight") == 0; }));
    auto stats = client_->GetStats();
    ASSERT_TRUE(stats.ok()) << stats.status();
    for (const auto& tier : stats->tiers) EXPECT_EQ(tier.counters.at("held_bytes"), 0u) << tier.name;
    uint64_t limit = kHotBytes + kWarmBytes + kTransportBytes + kOwnBytes + kSanitizerBytes + Gauge("index_bytes");
    EXPECT_LE(most_resident_, limit);
    std::printf("most resident: %.0f MiB; allowed: %.0f\n", static_cast<double>(most_resident_) / kMiB,
                static_cast<double>(limit) / kMiB);
    auto verified = client_->Verify();
    ASSERT_TRUE(verified.ok()) << verified.status();
    EXPECT_TRUE(verified->consistent) << testing::PrintToString(verified->findings);
  }

  uint64_t Gauge(const std::string& name) {
    auto stats = client_->GetStats();
    EXPECT_TRUE(stats.ok()) << stats.status();
    return stats.ok() ? stats->gauges.at(name) : 0;
  }

  std::unique_ptr<firnkv::Client> ConnectSlowly() {
    firnkv::ClientOptions options;
    options.address = link_->path();
    options.attempts_max = 1;
    auto client = firnkv::Client::Create(options);
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

  const uint16_t port_;
  DaemonProcess daemon_;
  std::unique_ptr<firnkv::Client> client_;
  firnkv::Namespace big_, wide_;
  std::unique_ptr<SlowLink> link_;
  std::atomic<uint64_t> most_resident_{0};
  std::atomic<bool> stop_{false};
  std::thread watch_;
};

TEST_F(SlowClient, C29_a_slow_reader_of_blocks_that_are_deleted_and_churned_away) {
  RangeResult put = PutRange(*client_, big_, BigModel(), 0, 2);
  ASSERT_EQ(put.good, 2u) << put;
  auto slow = ConnectSlowly();
  ASSERT_TRUE(slow->WaitUntilReady(10'000).ok());
  link_->LimitToClient(4 * kMiB);
  uint64_t before = link_->to_client_bytes();
  RangeResult got;
  std::atomic<bool> done{false};
  std::thread reader([&] {
    got = GetRange(*slow, big_, BigModel(), 0, 2);
    done = true;
  });
  EXPECT_TRUE(Eventually([&] { return link_->to_client_bytes() > before + kMiB; }));
  firnkv::BlockKey key = KnownKey(0);
  auto deleted = client_->Delete(big_, std::span(&key, 1));
  ASSERT_TRUE(deleted.ok() && deleted->front().ok());
  EXPECT_GT(Gauge("readers"), 0u);
  for (uint64_t at = 0; at < 10 * kHotBytes / kMiB && !HasFailure(); at += 16) {
    put = PutRange(*client_, wide_, WideModel(), at, 16);
    EXPECT_EQ(put.good, 16u) << put;
  }
  std::printf("%s while the store was churned\n", done ? "the reader ended" : "the reader was still at it");
  link_->LimitToClient(SlowLink::kUnlimited);
  reader.join();
  // Block 0 was on its way when it was deleted; block 1 may have been evicted from memory, not lost.
  EXPECT_EQ(got.wrong, 0u) << got;
  EXPECT_EQ(got.good, 2u) << got;
}

TEST_F(SlowClient, C40_readers_that_stop_are_ended_and_others_are_served) {
  constexpr int kClients = 12;
  RangeResult put = PutRange(*client_, big_, BigModel(), 0, 2);
  ASSERT_EQ(put.good, 2u) << put;
  put = PutRange(*client_, wide_, WideModel(), 0, 8);
  ASSERT_EQ(put.good, 8u) << put;
  std::vector<std::unique_ptr<firnkv::Client>> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(ConnectSlowly());
    ASSERT_TRUE(clients.back()->WaitUntilReady(10'000).ok());
  }
  link_->LimitToClient(kMiB / 2);
  std::vector<RangeResult> got(kClients);
  std::vector<std::thread> readers;
  for (int i = 0; i < kClients; ++i) {
    readers.emplace_back([&, i] { got[static_cast<size_t>(i)] = GetRange(*clients[i], big_, BigModel(), 0, 2); });
  }
  EXPECT_TRUE(Eventually([this] { return Gauge("readers") >= kClients; }));
  link_->LimitToClient(0);
  for (int i = 0; i < 10; ++i) {
    RangeResult others = GetRange(*client_, wide_, WideModel(), 0, 8);
    EXPECT_EQ(others.good, 8u) << others;
  }
  // The stream ends after 3 s; what its connection has taken in by then, when that is found dead, within 50 s.
  auto stopped = std::chrono::steady_clock::now();
  EXPECT_TRUE(Eventually([this] { return Gauge("readers") == 0; }, kDeadConnectionMsMax));
  std::chrono::duration<double> held = std::chrono::steady_clock::now() - stopped;
  std::printf("nothing was held any more after %.1f s\n", held.count());
  link_->LimitToClient(SlowLink::kUnlimited);
  for (std::thread& reader : readers) reader.join();
  // Each stream was ended; its client may have been told so, or have found the connection gone and asked again.
  for (const RangeResult& one : got) {
    EXPECT_EQ(one.wrong, 0u) << one;
    EXPECT_EQ(one.good + one.failed, 2u) << one;
  }
  // Those whose connection was found dead first are not counted as stalled.
  EXPECT_GE(MetricValue(HttpGet(port_, "/metrics"), "firn_stalled_streams_total"), 1);
}

TEST_F(SlowClient, C40_writers_that_stop_half_way_give_their_memory_back) {
  constexpr int kClients = 12;
  std::vector<std::unique_ptr<firnkv::Client>> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(ConnectSlowly());
    ASSERT_TRUE(clients.back()->WaitUntilReady(10'000).ok());
  }
  link_->LimitToServer(kMiB / 4);
  std::vector<RangeResult> put(kClients);
  std::vector<std::thread> writers;
  for (int i = 0; i < kClients; ++i) {
    writers.emplace_back([&, i] {
      firnkv::PutOptions options{.chunk_bytes = 64 * 1024};
      put[static_cast<size_t>(i)] = PutRange(*clients[i], wide_, WideModel(), static_cast<uint64_t>(i), 1, options);
    });
  }
  EXPECT_TRUE(Eventually([this] { return Gauge("puts_in_flight") >= kClients / 2; }));
  link_->LimitToServer(0);
  EXPECT_TRUE(Eventually([this] { return Gauge("puts_in_flight") == 0; }, 30'000));
  RangeResult others = PutRange(*client_, wide_, WideModel(), 100, 16);
  EXPECT_EQ(others.good, 16u) << others;
  link_->LimitToServer(SlowLink::kUnlimited);
  for (std::thread& writer : writers) writer.join();
  // What was cut off is not there; what was answered as stored is, whole.
  for (int i = 0; i < kClients; ++i) {
    RangeResult got = GetRange(*client_, wide_, WideModel(), static_cast<uint64_t>(i), 1);
    EXPECT_EQ(got.good, put[static_cast<size_t>(i)].good) << i << ": " << got;
    EXPECT_EQ(got.wrong + got.failed, 0u) << got;
  }
}

}  // namespace
}  // namespace firn
