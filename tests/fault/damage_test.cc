// Segment files that somebody deletes, cuts or locks under a running daemon, or before it starts: the blocks in them
// are misses or whole, everybody else's blocks stay, and nothing stops working.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "tests/support/daemon_process.h"
#include "tests/support/known_ranges.h"
#include "tests/support/observe.h"
#include "tests/support/one_namespace.h"

namespace firn {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kCapacity = 64 * kMiB;
constexpr uint64_t kBlocks = 96;  // Of 1 MiB, so about half of the cold tier at 4 bits.

KnownModel WideModel() { return {.name = "wide", .layers = 4, .heads = 8, .width = 128, .tokens = 64}; }

// A segment of 2 MiB has the bases of so many, or the p4 of fewer.
constexpr uint64_t kBlocksASegmentMax = 16;

// One way of spoiling a file each.
const std::vector<std::pair<const char*, std::function<void(const fs::path&)>>> kDamages = {
    {"deleted", [](const fs::path& file) { fs::remove(file); }},
    {"cut to nothing", [](const fs::path& file) { fs::resize_file(file, 0); }},
    {"cut to half", [](const fs::path& file) { fs::resize_file(file, fs::file_size(file) / 2); }},
    {"one byte short", [](const fs::path& file) { fs::resize_file(file, fs::file_size(file) - 1); }},
    {"locked", [](const fs::path& file) { ::chmod(file.c_str(), 0); }},
};

class Damage : public OneNamespace {
 protected:
  Damage() : OneNamespace(Options(), WideModel()) {}

  static DaemonOptions Options() {
    DaemonOptions options;
    options.hot_capacity = options.warm_capacity = "16MiB";
    options.cold_capacity = "64MiB";
    options.extra_toml = "[store]\npromote_on_get = false\n";
    return options;
  }

  // All blocks are in the cold tier and nowhere else.
  void FillColdTier() {
    RangeResult put = PutRange(*client_, ns_, WideModel(), 0, kBlocks);
    ASSERT_EQ(put.good, kBlocks) << put;
    ASSERT_TRUE(client_->Flush(ns_).ok());
    for (const char* tier : {"hot", "warm"}) ASSERT_TRUE(client_->Clear({.tier = tier}).ok());
    RangeResult got = GetRange(*client_, ns_, WideModel(), 0, kBlocks);
    ASSERT_EQ(got.good, kBlocks) << got;
  }

  // Sealed segments with blocks in them, oldest first.
  std::vector<fs::path> Segments() {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(daemon_.cold_path() / "log")) {
      if (entry.path().extension() == ".seg" && entry.file_size() > kMiB) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
  }

  // Each block is whole or a miss; returns how many are whole.
  uint64_t ExpectWholeOrMissed() {
    RangeResult got = GetRange(*client_, ns_, WideModel(), 0, kBlocks);
    EXPECT_EQ(got.wrong, 0u) << got;
    EXPECT_EQ(got.failed, 0u) << got;
    return got.good;
  }

  // A thousand gets of blocks that nobody damaged, from the disk, and writing until the damaged files have to go.
  void ExpectWorks() {
    auto small = client_->RegisterNamespace(SmallModel().Facts());
    ASSERT_TRUE(small.ok()) << small.status();
    firnkv::PutOptions durable{.ack = firnkv::AckLevel::kDurable};
    RangeResult put = PutRange(*client_, *small, SmallModel(), 0, 100, durable);
    ASSERT_EQ(put.good, 100u) << put;
    for (const char* tier : {"hot", "warm"}) ASSERT_TRUE(client_->Clear({.tier = tier}).ok());
    for (int i = 0; i < 10; ++i) {
      RangeResult got = GetRange(*client_, *small, SmallModel(), 0, 100);
      ASSERT_EQ(got.good, 100u) << got;
    }
    for (uint64_t at = 0; at < 256; at += 16) {  // Of 0.33 MiB on disk: more than the tier has.
      put = PutRange(*client_, ns_, WideModel(), kBlocks + at, 16);
      ASSERT_EQ(put.good, 16u) << put;
    }
    EXPECT_TRUE(Eventually([this] { return DiskBytes(daemon_.cold_path()) <= kCapacity; }));
    ExpectWholeOrMissed();
    auto verified = client_->Verify();
    ASSERT_TRUE(verified.ok()) << verified.status();
    EXPECT_TRUE(verified->consistent) << testing::PrintToString(verified->findings);
    auto stats = client_->GetStats();
    ASSERT_TRUE(stats.ok()) << stats.status();
    EXPECT_LE(stats->tiers.at(2).used_bytes, kCapacity);
  }
};

TEST_F(Damage, C22_under_a_running_daemon) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(FillColdTier());
  std::vector<fs::path> segments = Segments();
  ASSERT_GE(segments.size(), kDamages.size() + 2);
  uint64_t before = kBlocks;
  for (size_t i = 0; i < kDamages.size(); ++i) {
    SCOPED_TRACE(kDamages[i].first);
    kDamages[i].second(segments[i]);
    uint64_t good = ExpectWholeOrMissed();
    EXPECT_GE(good + kBlocksASegmentMax, before);
    before = good;
  }
  EXPECT_LT(before, kBlocks) << "no damage was noticed";
  EXPECT_GT(before, kBlocks / 2);
  std::printf("%llu of %llu blocks are whole\n", static_cast<unsigned long long>(before),
              static_cast<unsigned long long>(kBlocks));
  ExpectWorks();
}

TEST_F(Damage, C22_before_a_start) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(FillColdTier());
  daemon_.KillNow();
  std::vector<fs::path> segments = Segments();
  ASSERT_GE(segments.size(), kDamages.size() + 2);
  for (size_t i = 0; i < kDamages.size(); ++i) kDamages[i].second(segments[i]);
  ASSERT_NO_FATAL_FAILURE(Start());
  uint64_t good = ExpectWholeOrMissed();
  EXPECT_LT(good, kBlocks) << "no damage was noticed";
  EXPECT_GT(good, kBlocks / 2);
  std::printf("%llu of %llu blocks are whole\n", static_cast<unsigned long long>(good),
              static_cast<unsigned long long>(kBlocks));
  ExpectWorks();
}

}  // namespace
}  // namespace firn
