// Many clients at once on few keys: every byte that anybody reads is right, a clear clears, and afterwards the daemon
// has no more descriptors and no more memory than before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "client/trial/known_blocks.h"
#include "tests/support/daemon_process.h"
#include "tests/support/mixed_load.h"
#include "tests/support/observe.h"

namespace firn {
namespace {

constexpr int kClients = 24;
constexpr uint64_t kKeys = 48;
constexpr int kOperations = 150;  // Of each client, each round.
constexpr uint64_t kGrowthBytesMax = 48 * kMiB;

KnownModel MiddleModel() { return {.name = "middle", .layers = 4, .heads = 2, .width = 64, .tokens = 64}; }  // 128 KiB.

class Crowd : public ::testing::Test {
 protected:
  Crowd() : daemon_(Options()) {}

  static DaemonOptions Options() {
    DaemonOptions options;
    options.hot_capacity = options.warm_capacity = "4MiB";  // Less than the keys need: blocks move all the time.
    options.cold_capacity = "64MiB";
    return options;
  }

  void SetUp() override {
    absl::Status started = daemon_.Start();
    ASSERT_TRUE(started.ok()) << started;
    client_ = daemon_.Connect();
    for (const char* name : {"one", "other"}) {
      KnownModel model = MiddleModel();
      model.name = name;
      auto ns = client_->RegisterNamespace(model.Facts());
      ASSERT_TRUE(ns.ok()) << ns.status();
      spaces_.push_back(*ns);
    }
  }

  void Operate(firnkv::Client& client, const firnkv::Namespace& ns, std::mt19937_64& random) {
    absl::Status status = OperateOnce(client, ns, MiddleModel(), kKeys, random, tally_);
    if (status.ok()) return;
    ++failed_;
    ADD_FAILURE() << status;
  }

  // Everybody with a connection of their own, all at once; half in each namespace.
  void Round(uint64_t seed) {
    std::vector<std::thread> threads;
    for (int i = 0; i < kClients; ++i) {
      threads.emplace_back([this, i, seed] {
        auto client = daemon_.Connect();
        std::mt19937_64 random(seed + static_cast<uint64_t>(i));
        for (int n = 0; n < kOperations; ++n) Operate(*client, spaces_[static_cast<size_t>(i) % 2], random);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // Segments of the log come and go.
  uint64_t Descriptors() const { return OpenDescriptors(daemon_.pid(), daemon_.cold_path()); }

  uint64_t Settled() {
    EXPECT_TRUE(Eventually([this] {
      auto stats = client_->GetStats();
      return stats.ok() && stats->gauges.at("readers") == 0 && stats->gauges.at("puts_in_flight") == 0 &&
             stats->gauges.at("moves_in_flight") == 0;
    }));
    auto verified = client_->Verify();
    EXPECT_TRUE(verified.ok() && verified->consistent) << testing::PrintToString(verified->findings);
    return Descriptors();
  }

  uint64_t Found(const firnkv::Namespace& ns) {
    std::vector<firnkv::BlockKey> keys;
    for (uint64_t number = 0; number < kKeys; ++number) keys.push_back(KnownKey(number));
    auto located = client_->Exists(ns, keys);
    EXPECT_TRUE(located.ok()) << located.status();
    uint64_t found = 0;
    for (const auto& one : *located) found += one.found ? 1 : 0;
    return found;
  }

  DaemonProcess daemon_;
  std::unique_ptr<firnkv::Client> client_;
  std::vector<firnkv::Namespace> spaces_;
  LoadTally tally_;
  std::atomic<uint64_t> failed_{0};
};

TEST_F(Crowd, C51_many_clients_on_few_keys_leave_nothing_behind) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Round(seed);  // What is made once, such as threads and caches, is made now.
  uint64_t descriptors = Settled(), resident = daemon_.ResidentBytes();
  for (uint64_t round = 1; round <= 3; ++round) Round(seed + round * 1000);
  uint64_t now = Settled();
  EXPECT_TRUE(Eventually([&] { return (now = Descriptors()) <= descriptors; })) << now;
  EXPECT_LE(daemon_.ResidentBytes(), resident + kGrowthBytesMax + kSanitizerBytes);
  EXPECT_EQ(tally_.wrong, 0u);
  EXPECT_EQ(failed_, 0u);
  EXPECT_GT(tally_.stored, 100u);
  EXPECT_GT(tally_.read, 100u);
  EXPECT_GT(tally_.deleted, 50u);
  std::printf(
      "%llu stored, %llu read, %llu missed, %llu deleted; descriptors %llu, then %llu; resident %.1f MiB, %.1f\n",
      static_cast<unsigned long long>(tally_.stored), static_cast<unsigned long long>(tally_.read),
      static_cast<unsigned long long>(tally_.missed), static_cast<unsigned long long>(tally_.deleted),
      static_cast<unsigned long long>(descriptors), static_cast<unsigned long long>(now),
      static_cast<double>(resident) / kMiB, static_cast<double>(daemon_.ResidentBytes()) / kMiB);
}

TEST_F(Crowd, C51_clear_under_load_clears_and_leaves_the_others) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::atomic<bool> over{false};
  std::thread clearing([&] {
    auto client = daemon_.Connect();
    for (int i = 0; !over; ++i) {
      firnkv::Client::ClearScope scope;
      if (i % 3 == 0) scope.ns = spaces_[0].fingerprint;
      if (i % 3 == 1) scope.tier = i % 2 == 0 ? "warm" : "cold";
      auto cleared = client->Clear(scope);
      EXPECT_TRUE(cleared.ok()) << cleared.status();
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
  });
  Round(seed);
  over = true;
  clearing.join();
  Settled();
  EXPECT_EQ(tally_.wrong, 0u);
  for (const firnkv::Namespace& ns : spaces_) {
    for (uint64_t number = 0; number < kKeys; ++number) {
      firnkv::PutOptions durable{.ack = firnkv::AckLevel::kDurable};
      ASSERT_TRUE(PutKnown(*client_, ns, MiddleModel(), number, durable).status.ok());
    }
    ASSERT_EQ(Found(ns), kKeys);
  }
  // One namespace, also after a kill; the other stays.
  ASSERT_TRUE(client_->Clear({.ns = spaces_[0].fingerprint}).ok());
  EXPECT_EQ(Found(spaces_[0]), 0u);
  EXPECT_EQ(Found(spaces_[1]), kKeys);
  daemon_.KillNow();
  ASSERT_TRUE(daemon_.Start().ok());
  client_ = daemon_.Connect();
  EXPECT_EQ(Found(spaces_[0]), 0u);
  EXPECT_EQ(Found(spaces_[1]), kKeys);
  // Everything; and again, which has nothing to do.
  ASSERT_TRUE(client_->Clear({}).ok());
  EXPECT_EQ(Found(spaces_[1]), 0u);
  auto again = client_->Clear({});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(*again, 0u);
  daemon_.KillNow();
  ASSERT_TRUE(daemon_.Start().ok());
  client_ = daemon_.Connect();
  EXPECT_EQ(Found(spaces_[1]), 0u);
  Settled();
}

}  // namespace
}  // namespace firn
