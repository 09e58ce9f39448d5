// The cold tier's capacity is a bound on its directory, also when it was lowered; what the daemon says it uses is what
// is there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/status.h"
#include "base/units.h"
#include "tests/support/daemon_process.h"
#include "tests/support/known_ranges.h"
#include "tests/support/observe.h"

namespace firn {
namespace {

constexpr uint64_t kSegment = 2 * kMiB;  // A tier of this size has such segments.
// What `used_bytes` counts for the index on top of its files: as much again, which a compaction may take, and this.
constexpr uint64_t kIndexSlack = kMiB;

KnownModel WideModel() { return {.name = "wide", .layers = 4, .heads = 8, .width = 128, .tokens = 64}; }  // 1 MiB.

class Budget : public ::testing::Test {
 protected:
  Budget() : daemon_(Options()) {}

  static DaemonOptions Options() {
    DaemonOptions options;
    options.hot_capacity = "16MiB";
    options.warm_capacity = "16MiB";
    options.cold_capacity = "64MiB";
    return options;
  }

  void Start() {
    absl::Status started = daemon_.Start();
    ASSERT_TRUE(started.ok()) << started;
    client_ = daemon_.Connect();
    auto ns = client_->RegisterNamespace(WideModel().Facts());
    ASSERT_TRUE(ns.ok()) << ns.status();
    ns_ = *ns;
  }

  firnkv::TierStats Cold() {
    auto stats = client_->GetStats();
    EXPECT_TRUE(stats.ok()) << stats.status();
    return stats.ok() ? stats->tiers.at(2) : firnkv::TierStats{};
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

  DaemonProcess daemon_;
  std::unique_ptr<firnkv::Client> client_;
  firnkv::Namespace ns_;
};

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
