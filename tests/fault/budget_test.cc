// The cold tier's capacity is a bound on its directory, at every moment and through kills; what the daemon says it uses
// is what is there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "tests/support/daemon_process.h"
#include "tests/support/known_ranges.h"
#include "tests/support/observe.h"
#include "tests/support/one_namespace.h"

namespace firn {
namespace {

constexpr uint64_t kCapacity = 64 * kMiB;
constexpr uint64_t kSegment = 2 * kMiB;  // A tier of this size has such segments.
constexpr uint64_t kWrittenEachRound = 3 * kCapacity;
constexpr int kRounds = 5;
// What `used_bytes` counts for the index on top of its files: as much again, which a compaction may take, and this.
constexpr uint64_t kIndexSlack = kMiB;

KnownModel WideModel() { return {.name = "wide", .layers = 4, .heads = 8, .width = 128, .tokens = 64}; }  // 1 MiB.

// Watches the directory for as long as it lives.
class DiskWatch {
 public:
  explicit DiskWatch(std::filesystem::path folder) : folder_(std::move(folder)), thread_([this] { Run(); }) {}
  ~DiskWatch() {
    stop_ = true;
    thread_.join();
  }
  uint64_t most() const { return most_; }
  uint64_t looks() const { return looks_; }

 private:
  void Run() {
    for (; !stop_; ++looks_) {
      most_ = std::max<uint64_t>(most_, DiskBytes(folder_));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  const std::filesystem::path folder_;
  std::atomic<uint64_t> most_{0}, looks_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

class Budget : public OneNamespace {
 protected:
  Budget() : OneNamespace(Options(), WideModel()) {}

  static DaemonOptions Options() {
    DaemonOptions options;
    options.hot_capacity = "16MiB";
    options.warm_capacity = "16MiB";
    options.cold_capacity = "64MiB";
    return options;
  }

  firnkv::TierStats Cold() {
    auto stats = client_->GetStats();
    EXPECT_TRUE(stats.ok()) << stats.status();
    return stats.ok() ? stats->tiers.at(2) : firnkv::TierStats{};
  }

  // Writes blocks that nobody has written before, from two threads, until `bytes` have gone to disk since the start;
  // then kills the daemon in the middle of it.
  void WriteAndKill(uint64_t bytes) {
    std::atomic<bool> stop{false};
    std::vector<std::thread> writers;
    for (int i = 0; i < 2; ++i) {
      writers.emplace_back([this, &stop] {
        auto client = daemon_.Connect();
        while (!stop) PutRange(*client, ns_, WideModel(), next_.fetch_add(8), 8);
      });
    }
    EXPECT_TRUE(Eventually([&] { return Cold().counters.at("committed_bytes") >= bytes; }, 120'000));
    daemon_.KillNow();
    stop = true;
    for (std::thread& writer : writers) writer.join();
  }

  // What the tier says it uses, against its files: segments in full, the index twice and a slack.
  void ExpectUsageIsDiskUse() {
    ASSERT_TRUE(client_->Flush(ns_).ok());
    auto difference = [this] {
      double counted = static_cast<double>(Cold().used_bytes);
      double files = static_cast<double>(DiskBytes(daemon_.cold_path() / "log")) +
                     2 * static_cast<double>(DiskBytes(daemon_.cold_path() / "index")) + kIndexSlack;
      return std::abs(counted - files) / files;
    };
    EXPECT_TRUE(Eventually([&] { return difference() <= 0.01; }))
        << Cold().used_bytes << " bytes counted, " << DiskBytes(daemon_.cold_path() / "log") << " of segments and "
        << DiskBytes(daemon_.cold_path() / "index") << " of index on disk";
  }

  std::atomic<uint64_t> next_{0};
};

TEST_F(Budget, C23_du_stays_within_the_capacity_through_kills) {
  DiskWatch watch(daemon_.cold_path());
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    ASSERT_NO_FATAL_FAILURE(Start());
    ASSERT_NO_FATAL_FAILURE(ExpectUsageIsDiskUse());
    ASSERT_NO_FATAL_FAILURE(WriteAndKill(kWrittenEachRound));
    std::ofstream(daemon_.cold_path() / "log" / "deadbeef.seg.new") << "left by a crash";
  }
  ASSERT_NO_FATAL_FAILURE(Start());
  EXPECT_FALSE(std::filesystem::exists(daemon_.cold_path() / "log" / "deadbeef.seg.new"));
  ASSERT_NO_FATAL_FAILURE(ExpectUsageIsDiskUse());
  EXPECT_LE(watch.most(), kCapacity + kSegment);
  EXPECT_GT(watch.most(), kCapacity / 2);
  std::printf("most on disk: %.1f MiB of %.1f, in %llu looks; %llu blocks of 1 MiB written\n",
              static_cast<double>(watch.most()) / kMiB, static_cast<double>(kCapacity) / kMiB,
              static_cast<unsigned long long>(watch.looks()), static_cast<unsigned long long>(next_.load()));
  auto verified = client_->Verify();
  ASSERT_TRUE(verified.ok()) << verified.status();
  EXPECT_TRUE(verified->consistent) << testing::PrintToString(verified->findings);
}

TEST_F(Budget, C23_a_recovered_block_that_is_written_again_counts_once) {
  ASSERT_NO_FATAL_FAILURE(Start());
  constexpr uint64_t kCount = 24;
  firnkv::PutOptions durable{.ack = firnkv::AckLevel::kDurable};
  RangeResult put = PutRange(*client_, ns_, WideModel(), 0, kCount, durable);
  ASSERT_EQ(put.good, kCount) << put;
  daemon_.KillNow();
  ASSERT_NO_FATAL_FAILURE(Start());
  firnkv::TierStats before = Cold();
  EXPECT_EQ(before.copies, kCount);
  for (int again = 0; again < 3; ++again) {
    put = PutRange(*client_, ns_, WideModel(), 0, kCount, durable);
    ASSERT_EQ(put.good, kCount) << put;
  }
  EXPECT_EQ(Cold().copies, kCount);
  auto listed = client_->List(ns_);
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_EQ(listed->size(), kCount);
  RangeResult got = GetRange(*client_, ns_, WideModel(), 0, kCount);
  EXPECT_EQ(got.good, kCount) << got;
  ExpectUsageIsDiskUse();
}

TEST_F(Budget, C23_a_capacity_below_what_is_used_evicts_down) {
  ASSERT_NO_FATAL_FAILURE(Start());
  RangeResult put = PutRange(*client_, ns_, WideModel(), 0, 160);
  ASSERT_EQ(put.good, 160u) << put;
  ASSERT_TRUE(Eventually([this] { return DiskBytes(daemon_.cold_path()) > 36 * kMiB; }));
  ASSERT_EQ(daemon_.Terminate(), 0) << daemon_.Log();
  std::stringstream config;
  config << std::ifstream(daemon_.folder() / "firnd.toml").rdbuf();
  std::string text = config.str();
  text.replace(text.find("64MiB"), 5, "32MiB");
  std::ofstream(daemon_.folder() / "firnd.toml") << text;
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_EQ(Cold().capacity_bytes, 32 * kMiB);
  EXPECT_TRUE(Eventually([this] { return DiskBytes(daemon_.cold_path()) <= 32 * kMiB + kSegment; }))
      << DiskBytes(daemon_.cold_path());
  RangeResult got = GetRange(*client_, ns_, WideModel(), 0, 160);
  EXPECT_GT(got.good, 0u) << got;
  EXPECT_EQ(got.failed + got.wrong, 0u) << got;
}

}  // namespace
}  // namespace firn
