// Memory that clients share: what one may take in advance, what it holds, and who is ended so that others get on.
#include <gtest/gtest.h>

#include "base/units.h"
#include "daemon/core/byte_budget.h"
#include "daemon/core/stream_watchdog.h"

namespace firn {
namespace {

TEST(ByteBudget, WhatIsTakenAheadLeavesHalfForThoseWhoHaveNothing) {
  ByteBudget budget(100);
  auto held = std::make_shared<std::atomic<uint64_t>>(0);
  auto ahead = budget.TryAcquireAhead(50, held);
  ASSERT_NE(ahead, nullptr);
  EXPECT_EQ(budget.TryAcquireAhead(1, held), nullptr);
  auto first = budget.TryAcquire(40, held);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(budget.TryAcquireAhead(1, held), nullptr);  // More is taken than half.
  EXPECT_EQ(held->load(), 90u);
  ahead.reset();
  EXPECT_EQ(held->load(), 40u);
  EXPECT_NE(budget.TryAcquireAhead(10), nullptr);
}

TEST(ByteBudget, SaysWhatIsWaitedFor) {
  ByteBudget budget(100);
  auto held = std::make_shared<std::atomic<uint64_t>>(0);
  auto all = budget.TryAcquire(100);
  std::unique_ptr<ByteBudget::Grant> later;
  auto take = [&later](absl::StatusOr<std::unique_ptr<ByteBudget::Grant>> grant) { later = *std::move(grant); };
  budget.Acquire(70, take, held);
  EXPECT_EQ(budget.waiting_bytes(), 70u);
  EXPECT_EQ(held->load(), 0u);
  all.reset();
  EXPECT_EQ(budget.waiting_bytes(), 0u);
  EXPECT_EQ(held->load(), 70u);
  later.reset();
  EXPECT_EQ(budget.used_bytes(), 0u);
}

class FakeStream final : public WatchedStream {
 public:
  explicit FakeStream(std::optional<Stall> stall) : stall_(stall) {}
  void EndIfStalled(int64_t) override {}
  std::optional<Stall> Stalled() override { return ended ? std::nullopt : stall_; }
  void EndStall() override { ended = true; }
  bool ended = false;

 private:
  const std::optional<Stall> stall_;
};

TEST(StreamWatchdog, EndsTheLongestStallsWhileOthersWaitAndNoMoreThanItTakes) {
  constexpr int64_t kNow = 10'000'000'000, kMs = 1'000'000;
  auto stream = [](int64_t since_ms, uint64_t bytes) {
    return std::make_shared<FakeStream>(WatchedStream::Stall{since_ms * kMs, bytes});
  };
  auto oldest = stream(1000, 10), empty = stream(1500, 0), older = stream(2000, 10), old = stream(3000, 10);
  auto fresh = stream(9500, 10);
  auto moving = std::make_shared<FakeStream>(std::nullopt);
  StreamWatchdog watchdog;
  for (const auto& one : {old, moving, oldest, fresh, empty, older}) watchdog.Watch(one);
  watchdog.Sweep(kNow, 0);
  EXPECT_FALSE(oldest->ended);
  watchdog.Sweep(kNow, 15);
  EXPECT_TRUE(oldest->ended && older->ended);
  EXPECT_FALSE(old->ended || fresh->ended || moving->ended || empty->ended);
  watchdog.Sweep(kNow, 1000);
  EXPECT_TRUE(old->ended);
  EXPECT_FALSE(fresh->ended || moving->ended || empty->ended);
}

}  // namespace
}  // namespace firn
