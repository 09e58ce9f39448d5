// A disk that takes its time: what memory holds is served and new blocks are taken while reads and writes of the cold
// tier hang; what was asked of the disk is answered as soon as it answers, late reads as misses; and
// health says that it hangs, for as long as it does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <future>
#include <thread>

#include "base/units.h"
#include "daemon/health.h"
#include "tests/support/observe.h"
#include "tiers/cold/device/faulty_device.h"
#include "tiers/cold/device/memory_device.h"
#include "tiers/store/real_tiers_test_util.h"
#include "tiers/store/store_harness_test_util.h"

namespace firn {
namespace {

constexpr auto kHang = std::chrono::seconds(30);
constexpr uint8_t kWarm = 1, kCold = 2;
constexpr uint64_t kInHot = 1, kInWarm = 2, kInCold = 3, kAlsoInCold = 4, kOnItsWay = 5;

class SlowDisk : public ::testing::Test {
 protected:
  SlowDisk() {
    HarnessOptions options;
    options.hot_bytes = options.warm_bytes = kMiB;
    options.cold_bytes = 16 * kMiB;
    options.executor = pool_.get();
    options.make_tier = [this](const std::string& name, uint64_t bytes, bool persistent) -> std::unique_ptr<Tier> {
      if (!persistent) return MakeWarmTier(name, bytes);
      auto device = std::make_unique<FaultyDevice>(&memory_, 1);
      disk_ = device.get();
      auto tier = MakeColdTier(name, bytes, pool_.get(), std::move(device), &disk_clock_);
      cold_ = tier.get();
      return tier;
    };
    harness_ = std::make_unique<StoreHarness>(options);
    cold_->SetEvents(harness_->store.get());
  }

  ~SlowDisk() override {
    disk_->HoldCompletions(false);
    std::promise<void> closed;
    cold_->Close([&closed](absl::Status) { closed.set_value(); });
    closed.get_future().wait();
    EXPECT_TRUE(Eventually([this] { return cold_->idle(); }));
    pool_.reset();  // Nothing runs any more when the store and its tiers go.
    cold_->SetEvents(nullptr);
    harness_.reset();
  }

  std::future<absl::StatusOr<PutResult>> Put(uint64_t key) {
    auto answer = std::make_shared<std::promise<absl::StatusOr<PutResult>>>();
    auto put = harness_->store->BeginPut(harness_->Spec(key));
    EXPECT_TRUE(put.ok()) << Message(put.status());
    StoreHarness::FillPut(**put, key);
    harness_->store->CommitPut(*std::move(put), [answer](auto result) { answer->set_value(std::move(result)); });
    return answer->get_future();
  }
  std::future<absl::StatusOr<GetResult>> Get(uint64_t key, int64_t deadline_ns = 0) {
    auto answer = std::make_shared<std::promise<absl::StatusOr<GetResult>>>();
    GetSpec spec;
    spec.address = {harness_->ns, TestKey(key), 0};
    spec.deadline_ns = deadline_ns;
    harness_->store->Get(spec, [answer](auto result) { answer->set_value(std::move(result)); });
    return answer->get_future();
  }
  std::future<absl::StatusOr<ClassPair>> Demote(uint64_t key, uint8_t tier) {
    auto answer = std::make_shared<std::promise<absl::StatusOr<ClassPair>>>();
    harness_->store->Demote(harness_->ns, TestKey(key), tier,
                            [answer](auto now) { answer->set_value(std::move(now)); });
    return answer->get_future();
  }

  // Answered, from `tier`, with the block's own bytes.
  void ExpectServed(std::future<absl::StatusOr<GetResult>> answer, uint64_t key, uint8_t tier, double error_max) {
    ASSERT_EQ(answer.wait_for(kHang), std::future_status::ready) << "block " << key << " waits for the disk";
    auto got = answer.get();
    ASSERT_TRUE(got.ok()) << Message(got.status());
    EXPECT_EQ(got->tier, tier);
    EXPECT_LE(harness_->RelativeError(*got, key), error_max);
  }

  std::string Health(HealthMonitor* health) {
    health->SetOldestIo("cold", cold_->OldestIo());
    return health->Text(disk_clock_.NowNs());
  }

  FakeClock disk_clock_;
  std::unique_ptr<ThreadPoolExecutor> pool_ = std::make_unique<ThreadPoolExecutor>(2);
  MemoryDevice memory_{64 * kMiB};
  FaultyDevice* disk_ = nullptr;  // Owned by the cold tier, as that is by the store.
  ColdTier* cold_ = nullptr;
  std::unique_ptr<StoreHarness> harness_;
};

TEST_F(SlowDisk, C56_memory_serves_while_the_disk_hangs) {
  for (uint64_t key = kInHot; key <= kOnItsWay; ++key) ASSERT_TRUE(Put(key).get().ok());
  ASSERT_TRUE(Demote(kInWarm, kWarm).get().ok());
  for (uint64_t key : {kInCold, kAlsoInCold}) ASSERT_TRUE(Demote(key, kCold).get().ok());

  disk_->HoldCompletions(true);
  constexpr int64_t kDeadlineMs = 1000;
  auto patient = Get(kInCold);
  auto late = Get(kAlsoInCold, harness_->clock.NowNs() + kDeadlineMs * 1'000'000);
  auto moving = Demote(kOnItsWay, kCold);
  for (uint64_t i = 0; i < 50; ++i) {
    ASSERT_NO_FATAL_FAILURE(ExpectServed(Get(kInHot), kInHot, 0, 0));
    ASSERT_NO_FATAL_FAILURE(ExpectServed(Get(kInWarm), kInWarm, kWarm, 0.02));
    // Until it has arrived, a block is served from where it leaves.
    ASSERT_NO_FATAL_FAILURE(ExpectServed(Get(kOnItsWay), kOnItsWay, 0, 0));
    if (i % 10 != 0) continue;
    auto put = Put(100 + i);
    ASSERT_EQ(put.wait_for(kHang), std::future_status::ready);
    ASSERT_TRUE(put.get().ok());
  }
  EXPECT_EQ(patient.wait_for(std::chrono::milliseconds(0)), std::future_status::timeout);
  EXPECT_EQ(moving.wait_for(std::chrono::milliseconds(0)), std::future_status::timeout);

  // Its deadline is kept by the clock, not by the disk.
  harness_->clock.AdvanceMs(2 * kDeadlineMs);
  harness_->store->Tick();
  ASSERT_EQ(late.wait_for(kHang), std::future_status::ready);
  EXPECT_EQ(late.get().status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(patient.wait_for(std::chrono::milliseconds(0)), std::future_status::timeout);
  disk_->HoldCompletions(false);
  ExpectServed(std::move(patient), kInCold, kCold, 0.2);
  ASSERT_EQ(moving.wait_for(kHang), std::future_status::ready);
  EXPECT_TRUE(moving.get().ok());
  EXPECT_TRUE(Eventually([this] {
    StoreStats stats = harness_->store->Stats();
    return stats.readers == 0 && stats.moves_in_flight == 0;
  }));
  // The late one lost its answer, not its block.
  auto again = Get(kAlsoInCold);
  ASSERT_EQ(again.wait_for(kHang), std::future_status::ready);
  EXPECT_TRUE(again.get().ok());
  harness_->ExpectConsistent();
}

TEST_F(SlowDisk, Describing_gives_up_on_measured_errors_and_answers) {
  ASSERT_TRUE(Put(kInCold).get().ok());
  ASSERT_TRUE(Demote(kInCold, kCold).get().ok());
  auto describe = [this] {
    auto answer = std::make_shared<std::promise<std::vector<Store::Description>>>();
    harness_->store->DescribeWithErrors(harness_->ns, {TestKey(kInCold)}, harness_->clock.NowNs() + 1'000'000'000,
                                        ~uint64_t{0},
                                        [answer](auto described) { answer->set_value(std::move(described)); });
    return answer->get_future();
  };
  auto measured = describe();
  ASSERT_EQ(measured.wait_for(kHang), std::future_status::ready);
  ClassErrors errors = measured.get().front()->front().errors[0];
  EXPECT_GT(errors.int2, errors.int4);
  EXPECT_GT(errors.int4, 0);

  disk_->HoldCompletions(true);
  auto late = describe();
  EXPECT_EQ(late.wait_for(std::chrono::milliseconds(0)), std::future_status::timeout);
  harness_->clock.AdvanceMs(1'001);
  harness_->store->Tick();
  ASSERT_EQ(late.wait_for(kHang), std::future_status::ready);
  auto answer = late.get();
  ASSERT_TRUE(answer.front().ok());
  EXPECT_TRUE(std::isnan(answer.front()->front().errors[0].int4));
  disk_->HoldCompletions(false);
  ASSERT_TRUE(Eventually([this] { return cold_->idle(); }));
  harness_->ExpectConsistent();
}

TEST_F(SlowDisk, Health_says_that_it_hangs_and_that_it_is_well_again) {
  using ::testing::HasSubstr;
  HealthMonitor health(10'000);
  ASSERT_TRUE(Put(kInCold).get().ok());
  ASSERT_TRUE(Demote(kInCold, kCold).get().ok());
  ASSERT_TRUE(Eventually([this] { return cold_->idle(); }));
  disk_clock_.AdvanceMs(60'000);  // A disk that nobody asks owes nothing.
  EXPECT_EQ(Health(&health), "ok\n");

  disk_->HoldCompletions(true);
  auto patient = Get(kInCold);
  ASSERT_TRUE(Eventually([this] { return cold_->OldestIo().has_value(); }));
  EXPECT_EQ(Health(&health), "ok\n");
  disk_clock_.AdvanceMs(12'500);
  EXPECT_EQ(
      Health(&health),
      "degraded\ntier cold: its medium hangs: a read has had no answer for 12.5 s; limits.disk_stall is 10.0 s\n");
  // What is asked later makes it no younger.
  ASSERT_TRUE(Put(kOnItsWay).get().ok());
  auto moving = Demote(kOnItsWay, kCold);
  disk_clock_.AdvanceMs(1'000);
  EXPECT_THAT(Health(&health), HasSubstr("a read has had no answer for 13.5 s"));

  disk_->HoldCompletions(false);
  ExpectServed(std::move(patient), kInCold, kCold, 0.2);
  ASSERT_EQ(moving.wait_for(kHang), std::future_status::ready);
  EXPECT_TRUE(moving.get().ok());
  ASSERT_TRUE(Eventually([this] { return cold_->idle(); }));
  EXPECT_EQ(Health(&health), "ok\n");

  // A write that hangs says so too.
  disk_->HoldCompletions(true);
  ASSERT_TRUE(Put(kAlsoInCold).get().ok());
  auto writing = Demote(kAlsoInCold, kCold);
  ASSERT_TRUE(Eventually([this] { return cold_->OldestIo().has_value(); }));
  disk_clock_.AdvanceMs(11'000);
  EXPECT_THAT(Health(&health), HasSubstr("tier cold: its medium hangs: a write has had no answer for 11.0 s"));
  disk_->HoldCompletions(false);
  ASSERT_EQ(writing.wait_for(kHang), std::future_status::ready);
}

}  // namespace
}  // namespace firn
