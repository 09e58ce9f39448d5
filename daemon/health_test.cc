// A tier that fails shows, for as long as it fails and a while longer; one that works does not.
#include "daemon/health.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/http/metrics.h"

namespace firn {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSecondNs = 1'000'000'000;

StoreStats StatsWith(uint64_t commit_failures, uint64_t read_failures) {
  StoreStats stats;
  stats.tiers.resize(2);
  stats.tiers[0].name = "hot";
  stats.tiers[1].name = "cold";
  stats.tiers[1].counters.commit_failures = commit_failures;
  stats.tiers[1].counters.read_failures = read_failures;
  return stats;
}

TEST(Health, C60_failures_show_and_pass) {
  HealthMonitor health(10'000);
  int64_t now_ns = 100 * kSecondNs;
  health.Observe(StatsWith(0, 0), now_ns);
  EXPECT_TRUE(health.Troubles(now_ns).empty());
  health.Observe(StatsWith(3, 1), now_ns + kSecondNs);
  auto troubles = health.Troubles(now_ns + kSecondNs);
  ASSERT_EQ(troubles.size(), 1u);
  EXPECT_EQ(troubles[0].tier, "cold");
  EXPECT_THAT(troubles[0].what, HasSubstr("3 writes and 1 reads failed"));
  health.Observe(StatsWith(3, 1), now_ns + 2 * kSecondNs);  // Quiet since.
  EXPECT_EQ(health.Troubles(now_ns + 20 * kSecondNs).size(), 1u);
  EXPECT_TRUE(health.Troubles(now_ns + 40 * kSecondNs).empty());
  health.SetMediumTrouble("cold", "the medium is full");
  ASSERT_EQ(health.Troubles(now_ns + 50 * kSecondNs).size(), 1u);
  health.SetMediumTrouble("cold", "");
  EXPECT_TRUE(health.Troubles(now_ns + 50 * kSecondNs).empty());
}

TEST(Health, A_hanging_medium_shows_while_it_hangs) {
  HealthMonitor health(10'000);
  int64_t now_ns = 100 * kSecondNs;
  EXPECT_FALSE(health.SetOldestIo("cold", std::nullopt));
  EXPECT_FALSE(health.SetOldestIo("cold", Outstanding::Oldest{"read", 10 * kSecondNs}));  // Slow, not yet too slow.
  EXPECT_EQ(health.Text(now_ns), "ok\n");
  EXPECT_TRUE(health.SetOldestIo("cold", Outstanding::Oldest{"read", 12 * kSecondNs}));
  EXPECT_FALSE(health.SetOldestIo("cold", Outstanding::Oldest{"read", 13 * kSecondNs}));
  EXPECT_EQ(
      health.Text(now_ns),
      "degraded\ntier cold: its medium hangs: a read has had no answer for 13.0 s; limits.disk_stall is 10.0 s\n");
  health.SetMediumTrouble("cold", "the medium is full");  // Neither hides the other.
  EXPECT_EQ(health.Troubles(now_ns).size(), 2u);
  health.SetMediumTrouble("cold", "");
  EXPECT_TRUE(health.SetOldestIo("cold", std::nullopt));
  EXPECT_EQ(health.Text(now_ns), "ok\n");
}

TEST(Metrics, AreAllThereBeforeTheStoreIs) {
  Config config = DefaultConfig({"/s", "/r"});
  ServiceCore core({.executor = nullptr, .clock = Clock::Real(), .limits = config.limits, .tiers = {}, .version = "1"});
  StoreStats none = ZeroStats(config);
  MetricsInput input;
  input.stats = &none;
  input.core = &core;
  input.config = &config;
  input.unhealthy = {"cold"};
  std::string text = MetricsText(input);
  EXPECT_THAT(text, HasSubstr("firn_ready 0\n"));
  EXPECT_THAT(text, HasSubstr("firn_tier_hits_total{tier=\"cold\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("firn_tier_healthy{tier=\"cold\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("firn_tier_healthy{tier=\"hot\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("firn_rpc_seconds_count{method=\"Put\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("firn_rpc_seconds_bucket{method=\"Lookup\",le=\"0.0001\"} 0\n"));
  EXPECT_THAT(text, Not(HasSubstr("firn_rpc_seconds_count{method=\"Watch\"}")));
  for (const char* what : {"read", "write", "demotion"}) {
    EXPECT_THAT(text, HasSubstr(fmt::format("firn_tier_{}_seconds_bucket{{tier=\"cold\",le=\"+Inf\"}} 0\n", what)));
    EXPECT_THAT(text, HasSubstr(fmt::format("firn_tier_{}_seconds_sum{{tier=\"hot\"}} 0\n", what)));
  }
  EXPECT_THAT(text, Not(HasSubstr("nan")));
}

// What Prometheus wants of a histogram: buckets that add up, the last of them the count.
TEST(Metrics, HistogramsAddUp) {
  Config config = DefaultConfig({"/s", "/r"});
  ServiceCore core({.executor = nullptr, .clock = Clock::Real(), .limits = config.limits, .tiers = {}, .version = "1"});
  for (int64_t us : {5, 20, 20, 3'000, 60'000'000}) core.counters().Took(Method::kGet, us * 1000);
  StoreStats none = ZeroStats(config);
  MetricsInput input;
  input.stats = &none;
  input.core = &core;
  input.config = &config;
  std::string text = MetricsText(input);
  for (auto [bound, count] :
       {std::pair("1e-05", 1), {"2.5e-05", 3}, {"0.0025", 3}, {"0.005", 4}, {"30", 4}, {"+Inf", 5}}) {
    EXPECT_THAT(text, HasSubstr(fmt::format("firn_rpc_seconds_bucket{{method=\"Get\",le=\"{}\"}} {}\n", bound, count)));
  }
  EXPECT_THAT(text, HasSubstr("firn_rpc_seconds_count{method=\"Get\"} 5\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE firn_rpc_seconds histogram\n"));
}

}  // namespace
}  // namespace firn
