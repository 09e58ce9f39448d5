// Ten thousand blocks and everything that a restart may find: a clean stop, a kill, clients that did not notice, an
// index that is gone, a log that is gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "base/status.h"
#include "firnkv/session.h"
#include "tests/support/daemon_process.h"
#include "tests/support/known_ranges.h"
#include "tests/support/observe.h"
#include "tests/support/one_namespace.h"

namespace firn {
namespace {

constexpr uint64_t kBlocks = 10'000;
constexpr uint64_t kHitsMin = kBlocks * 99 / 100;

KnownModel TinyModel() { return {.name = "tiny", .layers = 2, .heads = 1, .width = 32, .tokens = 16}; }

class Restart : public OneNamespace {
 protected:
  // A stop drops what does not fit its budget: here it gets as long as a slow machine takes for all of it.
  Restart() : OneNamespace({.extra_toml = "[shutdown]\nbudget = \"120s\"\n"}, TinyModel()) {}

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(Start());
    RangeResult put = PutRange(*client_, ns_, TinyModel(), 0, kBlocks);
    ASSERT_EQ(put.good, kBlocks) << put;
  }

  // At least 99 % of the blocks are there and decode, and every answer is one of the two that are allowed.
  void ExpectKept(const char* after) {
    RangeResult got = GetRange(*client_, ns_, TinyModel(), 0, kBlocks);
    EXPECT_GE(got.good, kHitsMin) << after << ": " << got;
    EXPECT_EQ(got.wrong + got.failed, 0u) << after << ": " << got;
    std::printf("%s: %.2f %% of %llu blocks hit, ready in %lld ms\n", after,
                100.0 * static_cast<double>(got.good) / static_cast<double>(kBlocks),
                static_cast<unsigned long long>(kBlocks), static_cast<long long>(daemon_.ready_ms()));
  }

  // The daemon agrees with its own recount, and takes and gives blocks.
  void ExpectWorks() {
    auto verified = client_->Verify();
    ASSERT_TRUE(verified.ok()) << verified.status();
    EXPECT_TRUE(verified->consistent) << testing::PrintToString(verified->findings);
    firnkv::PutOptions durable{.ack = firnkv::AckLevel::kDurable};
    RangeResult put = PutRange(*client_, ns_, TinyModel(), kBlocks, 100, durable);
    EXPECT_EQ(put.good, 100u) << put;
    RangeResult got = GetRange(*client_, ns_, TinyModel(), kBlocks, 100);
    EXPECT_EQ(got.good, 100u) << got;
  }
};

TEST_F(Restart, C24_a_clean_stop_keeps_ten_thousand_blocks) {
  ASSERT_EQ(daemon_.Terminate(150'000), 0) << daemon_.Log();
  ASSERT_NO_FATAL_FAILURE(Start());
  ExpectKept("clean stop");
  ExpectWorks();
}

TEST_F(Restart, C24_a_kill_keeps_ten_thousand_blocks) {
  ASSERT_TRUE(client_->Flush(ns_).ok());
  daemon_.KillNow();
  ASSERT_NO_FATAL_FAILURE(Start());
  ExpectKept("kill -9");
  ExpectWorks();
}

// Whoever held sessions, pins and connections learns that they are gone; what they left does not stand in the way of
// the new daemon, which is there within moments of the old one.
TEST_F(Restart, C24_a_restart_while_the_old_clients_are_there) {
  ASSERT_TRUE(client_->Flush(ns_).ok());
  std::vector<std::unique_ptr<firnkv::Client>> clients;
  std::vector<std::unique_ptr<firnkv::Session>> sessions;
  firnkv::BlockKey key = KnownKey(7);
  for (int i = 0; i < 4; ++i) {
    clients.push_back(daemon_.Connect());
    auto session = clients.back()->OpenSession("old client");
    ASSERT_TRUE(session.ok()) << session.status();
    auto pinned = clients.back()->Pin(ns_, std::span(&key, 1), **session);
    ASSERT_TRUE(pinned.ok() && pinned->front().ok());
    sessions.push_back(*std::move(session));
  }
  daemon_.KillNow();
  ASSERT_NO_FATAL_FAILURE(Start());
  ExpectKept("kill -9 under open sessions");
  auto stats = client_->GetStats();
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_EQ(stats->gauges.at("pins"), 0u);
  for (size_t i = 0; i < clients.size(); ++i) {
    EXPECT_TRUE(Eventually([&] { return !sessions[i]->alive(); }));
    auto pinned = clients[i]->Pin(ns_, std::span(&key, 1), *sessions[i]);
    EXPECT_FALSE(pinned.ok() && pinned->front().ok());
    RangeResult got = GetRange(*clients[i], ns_, TinyModel(), 0, 100);
    EXPECT_EQ(got.good, 100u) << "a client of the old daemon: " << got;
  }
  ExpectWorks();
}

TEST_F(Restart, C24_the_index_is_gone_and_is_made_anew) {
  ASSERT_EQ(daemon_.Terminate(150'000), 0) << daemon_.Log();
  ASSERT_GT(std::filesystem::remove_all(daemon_.cold_path() / "index"), 1u);
  ASSERT_NO_FATAL_FAILURE(Start());
  ExpectKept("clean stop, index deleted");
  // The same after a kill, with deletions that must not come back from the log.
  std::vector<firnkv::BlockKey> keys;
  for (uint64_t number = 0; number < 50; ++number) keys.push_back(KnownKey(number));
  auto deleted = client_->Delete(ns_, keys);
  ASSERT_TRUE(deleted.ok()) << deleted.status();
  daemon_.KillNow();
  ASSERT_GT(std::filesystem::remove_all(daemon_.cold_path() / "index"), 1u);
  ASSERT_NO_FATAL_FAILURE(Start());
  RangeResult gone = GetRange(*client_, ns_, TinyModel(), 0, 50);
  EXPECT_EQ(gone.missed, 50u) << gone;
  ExpectKept("kill -9, index deleted");
  ExpectWorks();
}

TEST_F(Restart, C24_the_log_is_gone_and_the_index_is_left) {
  ASSERT_EQ(daemon_.Terminate(150'000), 0) << daemon_.Log();
  ASSERT_GT(std::filesystem::remove_all(daemon_.cold_path() / "log"), 1u);
  ASSERT_NO_FATAL_FAILURE(Start());
  RangeResult got = GetRange(*client_, ns_, TinyModel(), 0, kBlocks);
  EXPECT_EQ(got.missed, kBlocks) << got;
  auto stats = client_->GetStats();
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_EQ(stats->gauges.at("blocks"), 0u);
  EXPECT_EQ(stats->tiers.at(2).copies, 0u);
  ExpectWorks();
  // Nor does the old index speak up one start later.
  ASSERT_EQ(daemon_.Terminate(150'000), 0) << daemon_.Log();
  ASSERT_NO_FATAL_FAILURE(Start());
  got = GetRange(*client_, ns_, TinyModel(), 0, kBlocks);
  EXPECT_EQ(got.missed, kBlocks) << got;
  got = GetRange(*client_, ns_, TinyModel(), kBlocks, 100);
  EXPECT_EQ(got.good, 100u) << got;
}

}  // namespace
}  // namespace firn
