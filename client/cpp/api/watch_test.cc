#include "firnkv/watch.h"

#include <thread>

#include "client/cpp/testing/fixture.h"

namespace firnkv {
namespace {

using WatchTest = FakeDaemonTest;

constexpr int64_t kPatienceMs = 10'000;

TEST_F(WatchTest, DeliversInOrderAndResumesAfterARestart) {
  Client& client = Connect();
  auto watch = client.Watch();
  ASSERT_TRUE(watch.ok()) << watch.status();
  auto hello = (*watch)->Next(kPatienceMs);
  ASSERT_TRUE(hello.ok()) << hello.status();
  EXPECT_TRUE(hello->events.empty());
  EXPECT_EQ((*watch)->Next(50).status().code(), absl::StatusCode::kDeadlineExceeded);

  uint64_t expected = 1;
  auto expect_until = [&](uint64_t last) {
    while (expected <= last) {
      auto batch = (*watch)->Next(kPatienceMs);
      ASSERT_TRUE(batch.ok()) << batch.status();
      EXPECT_FALSE(batch->gap);
      for (const BlockEvent& event : batch->events) {
        EXPECT_EQ(event.sequence, expected++);
        EXPECT_EQ(event.kind, EventKind::kDemoted);
      }
    }
  };
  for (uint64_t i = 1; i <= 100; ++i) daemon_->Emit(i);  // More than the client queues.
  expect_until(100);
  daemon_->Stop();
  daemon_->Emit(101);
  daemon_->Start(address_);
  daemon_->Emit(102);
  expect_until(102);
}

TEST_F(WatchTest, SaysWhenEventsWereLost) {
  Client& client = Connect();
  daemon_->Emit(50, /*gap=*/true);
  auto watch = client.Watch({}, 10);
  ASSERT_TRUE(watch.ok());
  ASSERT_TRUE((*watch)->Next(kPatienceMs).ok());
  auto batch = (*watch)->Next(kPatienceMs);
  ASSERT_TRUE(batch.ok());
  EXPECT_TRUE(batch->gap);
  EXPECT_EQ(batch->sequence, 50u);
}

TEST_F(WatchTest, IsCancelledFromAnotherThread) {
  Client& client = Connect();
  auto watch = client.Watch();
  ASSERT_TRUE(watch.ok());
  ASSERT_TRUE((*watch)->Next(kPatienceMs).ok());
  std::thread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    (*watch)->Cancel();
  });
  EXPECT_EQ((*watch)->Next(kPatienceMs).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ((*watch)->Next(kPatienceMs).status().code(), absl::StatusCode::kCancelled);
  canceller.join();
}

TEST_F(WatchTest, ADaemonThatStaysAwayEndsTheWait) {
  Client& client = ConnectOnly();
  auto watch = client.Watch();
  ASSERT_TRUE(watch.ok());
  EXPECT_EQ((*watch)->Next(300).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(WatchTest, EndsWhileBatchesAreWaiting) {
  Client& client = Connect();
  auto watch = client.Watch();
  ASSERT_TRUE(watch.ok());
  ASSERT_TRUE((*watch)->Next(kPatienceMs).ok());
  for (uint64_t i = 1; i <= 100; ++i) daemon_->Emit(i);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  watch->reset();  // Must not hang.
}

}  // namespace
}  // namespace firnkv
