// 256 clients at once, some slow, some that die in the middle of what they do: every byte that anybody reads is right,
// nobody starves, and the daemon's memory and descriptors do not grow.
//
// FIRN_LOAD_SECONDS sets how long (8).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/latency.h"
#include "base/units.h"
#include "tests/support/daemon_process.h"
#include "tests/support/free_port.h"
#include "tests/support/mixed_load.h"
#include "tests/support/observe.h"
#include "tests/support/slow_link.h"

namespace firn {
namespace {

constexpr size_t kClients = 256, kSlow = 32, kDying = 16;
constexpr uint64_t kKeys = 512;
constexpr int64_t kSlowBytesPerSecond = 256 << 10;
// Of what threads and the allocator keep, most of it in the first minute: 200 MiB are resident then, and stay.
constexpr uint64_t kGrowthBytesMax = 160 * kMiB;

KnownModel SmallModel() { return {.name = "small", .layers = 4, .heads = 2, .width = 64, .tokens = 32}; }  // 64 KiB.

double Seconds() {
  const char* text = std::getenv("FIRN_LOAD_SECONDS");
  return text == nullptr ? 8 : std::strtod(text, nullptr);
}

std::unique_ptr<firnkv::Client> ConnectTo(const std::string& path) {
  firnkv::ClientOptions options;
  options.address = path;
  auto client = firnkv::Client::Create(options);
  EXPECT_TRUE(client.ok()) << client.status();
  return client.ok() ? *std::move(client) : nullptr;
}

// The upper end of the bucket that has it.
double QuantileMs(const LatencySnapshot& latency, double quantile) {
  uint64_t passed = 0;
  for (size_t i = 0; i < kLatencyBoundsNs.size(); ++i) {
    passed += latency.buckets[i];
    if (static_cast<double>(passed) >= quantile * static_cast<double>(latency.count()))
      return static_cast<double>(kLatencyBoundsNs[i]) / 1e6;
  }
  return static_cast<double>(kLatencyBoundsNs.back()) / 1e6;
}

struct Client {
  std::unique_ptr<firnkv::Client> connection;
  std::atomic<uint64_t> operations{0};
};

TEST(Load, C51_256_clients_some_slow_some_dying) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const uint16_t port = FreePort();
  DaemonOptions options;
  options.hot_capacity = options.warm_capacity = "8MiB";  // Less than the keys need: blocks move all the time.
  options.cold_capacity = "64MiB";
  options.admin_http = "127.0.0.1:" + std::to_string(port);
  DaemonProcess daemon(options);
  absl::Status started = daemon.Start();
  ASSERT_TRUE(started.ok()) << started;
  auto watcher = daemon.Connect();
  auto ns = watcher->RegisterNamespace(SmallModel().Facts());
  ASSERT_TRUE(ns.ok()) << ns.status();

  auto slow_link = std::make_unique<SlowLink>(daemon.socket_path(), daemon.folder() / "slow.sock");
  slow_link->LimitToClient(kSlowBytesPerSecond);
  slow_link->LimitToServer(kSlowBytesPerSecond);
  LoadTally tally, dying_tally;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> failed{0}, deaths{0};
  LatencyHistogram latency;
  std::vector<Client> clients(kClients - kDying);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < clients.size(); ++i) {
    threads.emplace_back([&, i] {
      const bool slow = i < kSlow;
      clients[i].connection = ConnectTo(slow ? slow_link->path() : daemon.socket_path());
      std::mt19937_64 random(seed + i);
      while (!stop) {
        const auto begin = std::chrono::steady_clock::now();
        absl::Status status = OperateOnce(*clients[i].connection, *ns, SmallModel(), kKeys, random, tally);
        if (!slow) {
          latency.Add(std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin).count());
        }
        if (!status.ok() && ++failed < 10) ADD_FAILURE() << "client " << i << ": " << status;
        ++clients[i].operations;
      }
    });
  }
  // Each of these is cut off within a second or so, whatever it is doing, and comes again.
  for (size_t i = 0; i < kDying; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937_64 random(seed + 1000 + i);
      for (int life = 0; !stop; ++life) {
        const std::string path =
            (daemon.folder() / ("dying." + std::to_string(i) + "." + std::to_string(life))).string();
        auto link = std::make_unique<SlowLink>(daemon.socket_path(), path);
        link->LimitToClient(4 * kSlowBytesPerSecond);
        std::thread death([&link, wait_ms = 50 + random() % 1000] {
          std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
          link.reset();
        });
        auto client = ConnectTo(path);
        while (!stop && OperateOnce(*client, *ns, SmallModel(), kKeys, random, dying_tally).ok()) {
        }
        death.join();
        ++deaths;
      }
    });
  }

  // A quarter of the time for what is made once.
  const auto part = std::chrono::duration<double>(Seconds() / 4);
  std::this_thread::sleep_for(part);
  EXPECT_TRUE(Eventually(
      [&] { return std::all_of(clients.begin(), clients.end(), [](const Client& c) { return c.operations > 0; }); },
      120'000));
  EXPECT_GE(MetricValue(HttpGet(port, "/metrics"), "firn_connections"), static_cast<double>(clients.size()));
  const uint64_t descriptors = OpenDescriptors(daemon.pid(), daemon.cold_path());
  const uint64_t resident = daemon.ResidentBytes();
  std::this_thread::sleep_for(3 * part);
  const uint64_t resident_then = daemon.ResidentBytes();
  const uint64_t descriptors_then = OpenDescriptors(daemon.pid(), daemon.cold_path());
  stop = true;
  for (std::thread& thread : threads) thread.join();
  slow_link.reset();

  EXPECT_EQ(tally.wrong + dying_tally.wrong, 0u);
  EXPECT_GT(tally.stored, clients.size());
  EXPECT_GT(tally.read, clients.size());
  EXPECT_EQ(failed, 0u);
  EXPECT_LE(resident_then, resident + kGrowthBytesMax + kSanitizerBytes);
  // The dying have two each where their link and their connection overlap.
  EXPECT_LE(descriptors_then, descriptors + 4 * kDying);
  auto by_operations = [](const Client& a, const Client& b) { return a.operations < b.operations; };
  auto [fewest, most] = std::minmax_element(clients.begin() + kSlow, clients.end(), by_operations);
  // A few seconds are too short to say more.
  if (Seconds() >= 30) {
    EXPECT_GE(fewest->operations * 4, most->operations) << "somebody starves";
  }
  EXPECT_GE(deaths, kDying);
  std::printf(
      "%zu clients, %zu slow, %llu deaths of %zu: %llu operations; p50 at most %g ms, p99 at most %g ms; of one client "
      "%llu to %llu; descriptors %llu, then %llu; resident %.1f MiB, then %.1f\n",
      clients.size(), kSlow, static_cast<unsigned long long>(deaths), kDying,
      static_cast<unsigned long long>(tally.all() + dying_tally.all()), QuantileMs(latency.Snapshot(), 0.5),
      QuantileMs(latency.Snapshot(), 0.99), static_cast<unsigned long long>(fewest->operations),
      static_cast<unsigned long long>(most->operations), static_cast<unsigned long long>(descriptors),
      static_cast<unsigned long long>(descriptors_then), static_cast<double>(resident) / kMiB,
      static_cast<double>(resident_then) / kMiB);
  EXPECT_TRUE(Eventually([&] {
    auto stats = watcher->GetStats();
    return stats.ok() && stats->gauges.at("readers") == 0 && stats->gauges.at("puts_in_flight") == 0 &&
           stats->gauges.at("moves_in_flight") == 0;
  }));
  auto verified = watcher->Verify();
  EXPECT_TRUE(verified.ok() && verified->consistent) << testing::PrintToString(verified->findings);
}

}  // namespace
}  // namespace firn
