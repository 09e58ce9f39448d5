// What an operator sees of a daemon while its disk fails and while everything is cleared: every series, never a
// negative number, counters that only rise and that add up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>
#include <sstream>
#include <thread>

#include "base/status.h"
#include "tests/support/daemon_process.h"
#include "tests/support/free_port.h"
#include "tests/support/known_ranges.h"
#include "tests/support/observe.h"

namespace firn {
namespace {

constexpr int64_t kSeenMsMax = 10'000;

// Series, labels included, and their values.
std::map<std::string, double> Parse(const std::string& metrics) {
  std::map<std::string, double> out;
  std::istringstream lines(metrics);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    size_t space = line.rfind(' ');
    out[line.substr(0, space)] = std::stod(line.substr(space + 1));
  }
  return out;
}

bool IsCounter(const std::string& series) { return series.substr(0, series.find('{')).ends_with("_total"); }

double Sum(const std::map<std::string, double>& series, const std::string& name) {
  double sum = 0;
  for (const auto& [key, value] : series) {
    if (key == name || key.starts_with(name + "{")) sum += value;
  }
  return sum;
}

class Metrics : public ::testing::Test {
 protected:
  Metrics() : port_(FreePort()), daemon_(Options(port_)) {}

  static DaemonOptions Options(uint16_t port) {
    DaemonOptions options;
    options.hot_capacity = options.warm_capacity = "8MiB";
    options.cold_capacity = "64MiB";
    options.admin_http = "127.0.0.1:" + std::to_string(port);
    return options;
  }

  void SetUp() override {
    absl::Status started = daemon_.Start();
    ASSERT_TRUE(started.ok()) << started;
    client_ = daemon_.Connect();
    auto ns = client_->RegisterNamespace(SmallModel().Facts());
    ASSERT_TRUE(ns.ok()) << ns.status();
    ns_ = *ns;
    first_ = Scrape();
    ASSERT_FALSE(first_.empty());
  }

  std::map<std::string, double> Scrape() { return Parse(HttpGet(port_, "/metrics")); }

  // `now` has the series of the first scrape and no others, and no counter below `before`.
  void ExpectSound(const std::map<std::string, double>& before, const std::map<std::string, double>& now) {
    ASSERT_EQ(now.size(), first_.size());
    for (const auto& [series, value] : now) {
      ASSERT_EQ(first_.count(series), 1u) << series << " was not there from the start";
      ASSERT_TRUE(std::isfinite(value) && value >= 0) << series << " " << value;
      ASSERT_TRUE(!IsCounter(series) || value >= before.at(series)) << series << " fell to " << value;
    }
  }

  const uint16_t port_;
  DaemonProcess daemon_;
  std::unique_ptr<firnkv::Client> client_;
  firnkv::Namespace ns_;
  std::map<std::string, double> first_;
};

TEST_F(Metrics, C60_cold_writes_that_fail_are_seen) {
  const firnkv::PutOptions durable{.ack = firnkv::AckLevel::kDurable};
  RangeResult put = PutRange(*client_, ns_, SmallModel(), 0, 50, durable);
  ASSERT_EQ(put.good, 50u) << put;
  auto before = Scrape();
  ExpectSound(first_, before);
  EXPECT_EQ(before.at("firn_tier_healthy{tier=\"cold\"}"), 1);
  EXPECT_EQ(HttpGet(port_, "/healthz"), "ok\n");
  // No further segment can be made in a folder that is gone; the open ones take what fits.
  std::filesystem::remove_all(daemon_.cold_path() / "log");
  RangeResult refused;
  for (uint64_t at = 1000; at < 3000 && refused.failed == 0; at += 50) {
    refused = PutRange(*client_, ns_, SmallModel(), at, 50, durable);
  }
  ASSERT_GT(refused.failed, 0u);
  EXPECT_TRUE(Eventually(
      [&] {
        auto now = Scrape();
        double failures = now.at("firn_tier_commit_failures_total{tier=\"cold\"}") +
                          now.at("firn_tier_reserve_failures_total{tier=\"cold\"}") -
                          before.at("firn_tier_commit_failures_total{tier=\"cold\"}") -
                          before.at("firn_tier_reserve_failures_total{tier=\"cold\"}");
        return failures > 0 && now.at("firn_tier_healthy{tier=\"cold\"}") == 0;
      },
      kSeenMsMax));
  EXPECT_THAT(HttpGet(port_, "/healthz"), testing::HasSubstr("degraded"));
  ExpectSound(before, Scrape());
  // What memory holds is served.
  put = PutRange(*client_, ns_, SmallModel(), 5000, 20);
  EXPECT_EQ(put.good, 20u) << put;
  RangeResult got = GetRange(*client_, ns_, SmallModel(), 5000, 20);
  EXPECT_EQ(got.good, 20u) << got;
}

TEST_F(Metrics, C60_scrapes_answer_and_add_up_while_everything_is_cleared) {
  constexpr uint64_t kBlocks = 2000;
  std::atomic<bool> over{false};
  uint64_t scrapes = 0;
  std::thread scraping([&] {
    auto before = first_;
    while (!over && !HasFailure()) {
      auto now = Scrape();
      ExpectSound(before, now);
      before = std::move(now);
      ++scrapes;
    }
  });
  RangeResult all;
  uint64_t stored = 0;
  for (int round = 0; round < 4; ++round) {
    RangeResult put = PutRange(*client_, ns_, SmallModel(), 0, kBlocks);
    EXPECT_EQ(put.good, kBlocks) << put;
    stored += put.good;
    RangeResult got = GetRange(*client_, ns_, SmallModel(), 0, kBlocks + 100);
    EXPECT_EQ(got.failed + got.wrong, 0u) << got;
    all.good += got.good;
    all.missed += got.missed;
    auto cleared = client_->Clear({});
    ASSERT_TRUE(cleared.ok()) << cleared.status();
    auto now = Scrape();
    EXPECT_EQ(now.at("firn_blocks"), 0);
    EXPECT_EQ(Sum(now, "firn_tier_copies"), 0);
    EXPECT_EQ(Sum(now, "firn_tier_blocks"), 0);
  }
  over = true;
  scraping.join();
  EXPECT_GT(scrapes, 10u);
  auto last = Scrape();
  EXPECT_EQ(last.at("firn_puts_stored_total"), static_cast<double>(stored));
  EXPECT_EQ(last.at("firn_gets_total"), static_cast<double>(all.good + all.missed));
  EXPECT_EQ(Sum(last, "firn_tier_hits_total"), static_cast<double>(all.good));
  EXPECT_EQ(Sum(last, "firn_misses_total"), static_cast<double>(all.missed));
  EXPECT_EQ(last.at("firn_removed_total"), static_cast<double>(stored));
  EXPECT_TRUE(Eventually([this] { return Scrape().at("firn_readers") == 0; }));
  std::printf("%llu scrapes, %zu series\n", static_cast<unsigned long long>(scrapes), last.size());
}

}  // namespace
}  // namespace firn
