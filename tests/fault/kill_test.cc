// kill -9 under load, again and again: no wrong byte, no lost durable acknowledgement, nothing deleted comes back,
// ready in time.
//
// FIRN_KILL_CYCLES sets how often (default 20; the long run asks for 100).
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "base/status.h"
#include "client/trial/known_blocks.h"
#include "tests/support/daemon_process.h"

namespace firn {
namespace {

constexpr uint64_t kNumbersMax = 600;
constexpr int64_t kReadyMsMax = 5000;

// What the daemon has promised and must keep across a kill.
struct Promises {
  std::mutex mu;
  std::map<uint64_t, firnkv::Precision> durable;  // By number; the large model's are odd.
  std::set<uint64_t> deleted;
  uint64_t blocks_checked = 0, deletions_checked = 0;  // After all kills together.
};

class Load {
 public:
  Load(DaemonProcess& daemon, Promises& promises, uint32_t seed) : daemon_(daemon), promises_(promises), seed_(seed) {}

  // Works until the daemon dies or `stop` is set.
  void Run(const std::atomic<bool>& stop) {
    auto client = daemon_.Connect();
    KnownModel models[2] = {SmallModel(), LargeModel()};
    firnkv::Namespace spaces[2];
    for (int i = 0; i < 2; ++i) {
      auto ns = client->RegisterNamespace(models[i].Facts());
      if (!ns.ok()) return;
      spaces[i] = *ns;
    }
    std::mt19937 rng(seed_);
    while (!stop) {
      uint64_t number = rng() % kNumbersMax;
      if (number % 2 == 1) number %= kNumbersMax / 8;  // Fewer of the large ones.
      size_t which = number % 2;
      const KnownModel& model = models[which];
      switch (rng() % 8) {
        case 0:
        case 1:
        case 2: {
          firnkv::PutOptions options;
          bool durable = rng() % 2 == 0;
          if (durable) options.ack = firnkv::AckLevel::kDurable;
          {
            std::lock_guard lock(promises_.mu);
            promises_.deleted.erase(number);
          }
          auto put = PutKnown(*client, spaces[which], model, number, options);
          if (put.status.code() == absl::StatusCode::kUnavailable) return;
          if (put.status.ok() && durable && put.stored) {
            std::lock_guard lock(promises_.mu);
            promises_.durable[number] = put.durable_class.Min();
          }
          break;
        }
        default: {
          double error = 0;
          auto got = GetKnown(*client, spaces[which], model, number, &error);
          if (got.status.code() == absl::StatusCode::kUnavailable) return;
          if (got.status.ok() && !(error <= ErrorLimit(got.served.Min()))) {
            ADD_FAILURE() << "wrong bytes: block " << number << " served as " << firnkv::PrecisionName(got.served.Min())
                          << " with error " << error;
          }
        }
      }
    }
  }

 private:
  DaemonProcess& daemon_;
  Promises& promises_;
  const uint32_t seed_;
};

void CheckPromises(DaemonProcess& daemon, Promises& promises) {
  auto client = daemon.Connect();
  KnownModel models[2] = {SmallModel(), LargeModel()};
  for (size_t which = 0; which < 2; ++which) {
    auto ns = client->RegisterNamespace(models[which].Facts());
    ASSERT_TRUE(ns.ok()) << Message(ns.status());
    for (const auto& [number, durable] : promises.durable) {
      if (number % 2 != which) continue;
      double error = 0;
      auto got = GetKnown(*client, *ns, models[which], number, &error);
      ++promises.blocks_checked;
      ASSERT_TRUE(got.status.ok()) << "block " << number
                                   << " was acknowledged as durable and is lost: " << Message(got.status);
      EXPECT_LE(error, ErrorLimit(got.served.Min())) << number;
      EXPECT_GE(got.served.Min(), durable) << number;
    }
    for (uint64_t number : promises.deleted) {
      if (number % 2 != which) continue;
      double error = 0;
      ++promises.deletions_checked;
      EXPECT_EQ(GetKnown(*client, *ns, models[which], number, &error).status.code(), absl::StatusCode::kNotFound)
          << "block " << number << " was deleted, and is back";
    }
  }
}

// Deletes some of what is there, between kills, when nobody else is at work. A Delete that was answered holds.
void DeleteSome(DaemonProcess& daemon, Promises& promises, std::mt19937& rng) {
  auto client = daemon.Connect();
  KnownModel models[2] = {SmallModel(), LargeModel()};
  for (size_t which = 0; which < 2; ++which) {
    auto ns = client->RegisterNamespace(models[which].Facts());
    ASSERT_TRUE(ns.ok());
    std::vector<uint64_t> chosen;
    for (const auto& [number, durable] : promises.durable) {
      if (number % 2 == which && rng() % 5 == 0) chosen.push_back(number);
    }
    for (uint64_t number : chosen) {
      firnkv::BlockKey key = KnownKey(number);
      auto deleted = client->Delete(*ns, std::span(&key, 1));
      ASSERT_TRUE(deleted.ok() && (*deleted)[0].ok());
      promises.durable.erase(number);
      promises.deleted.insert(number);
    }
  }
}

TEST(Kill, C24_C26_nothing_lost_nothing_wrong) {
  const char* asked = std::getenv("FIRN_KILL_CYCLES");
  const int cycles = asked == nullptr ? 20 : std::atoi(asked);
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 rng(seed);
  DaemonProcess daemon;
  Promises promises;
  int64_t slowest_ready_ms = 0;
  for (int cycle = 0; cycle < cycles && !::testing::Test::HasFailure(); ++cycle) {
    SCOPED_TRACE("cycle " + std::to_string(cycle));
    absl::Status started = daemon.Start();
    ASSERT_TRUE(started.ok()) << Message(started);
    slowest_ready_ms = std::max(slowest_ready_ms, daemon.ready_ms());
    ASSERT_NO_FATAL_FAILURE(CheckPromises(daemon, promises));
    ASSERT_NO_FATAL_FAILURE(DeleteSome(daemon, promises, rng));
    std::atomic<bool> stop{false};
    std::vector<std::thread> workers;
    for (int i = 0; i < 2; ++i) {
      workers.emplace_back(
          [&, worker_seed = rng()] { Load(daemon, promises, static_cast<uint32_t>(worker_seed)).Run(stop); });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100 + rng() % 600));
    daemon.KillNow();
    stop = true;
    for (auto& worker : workers) worker.join();
  }
  EXPECT_GT(promises.blocks_checked, 0u);
  RecordProperty("durable_blocks", static_cast<int>(promises.durable.size()));
  RecordProperty("slowest_ready_ms", static_cast<int>(slowest_ready_ms));
  std::printf("%d kills, %llu durable blocks and %llu deletions looked up after them, slowest start %lld ms\n", cycles,
              static_cast<unsigned long long>(promises.blocks_checked),
              static_cast<unsigned long long>(promises.deletions_checked), static_cast<long long>(slowest_ready_ms));
  EXPECT_LT(slowest_ready_ms, kReadyMsMax * 4);  // A hang, not a slow machine, is what this catches.
}

}  // namespace
}  // namespace firn
