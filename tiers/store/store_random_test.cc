// Everything at once, many times: after it, every invariant holds and every byte that was served was right.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "tiers/store/store_harness_test_util.h"

namespace firn {
namespace {

constexpr double kWorstError = 0.5;  // INT2 of noisy values; another block's values give about 1.

// C34: the tiers hold four blocks each, so that everything moves all the time.
TEST(StoreRandom, C34_counters_after_every_step) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 rng(seed);
  HarnessOptions options;
  options.hot_bytes = options.warm_bytes = kTestBlockBytes * 4;
  options.cold_bytes = kTestBlockBytes * 8;
  StoreHarness h(options);
  SessionId session = h.store->OpenSession("tenant");
  std::vector<GetResult> readers;
  for (int step = 0; step < 4000 && !::testing::Test::HasFailure(); ++step) {
    uint64_t key = rng() % 24;
    switch (rng() % 12) {
      case 0:
      case 1:
      case 2: {
        absl::Status put = h.PutWhenRoom(h.Spec(key), key).status();
        bool fine = put.ok() || put.code() == absl::StatusCode::kAlreadyExists || put.code() == absl::StatusCode::kResourceExhausted;
        EXPECT_TRUE(fine) << Message(put);
        break;
      }
      case 3:
      case 4: {
        auto got = h.Get(key);
        if (got.ok()) {
          EXPECT_LT(h.RelativeError(*got, key), kWorstError) << key;
          if (rng() % 4 == 0) readers.push_back(*std::move(got));
        }
        break;
      }
      case 5:
        (void)h.Demote(key, static_cast<uint8_t>(rng() % 3));
        break;
      case 6:
        (void)h.Promote(key, static_cast<uint8_t>(rng() % 3));
        break;
      case 7:
        (void)h.Degrade(key, static_cast<uint8_t>(rng() % 3), rng() % 2 ? PrecisionClass::k4Bit : PrecisionClass::k2Bit);
        break;
      case 8:
        (void)h.store->Delete(h.ns, TestKey(key));
        break;
      case 9:
        rng() % 2 ? (void)h.store->Pin(h.ns, TestKey(key), session) : (void)h.store->Unpin(h.ns, TestKey(key), session);
        break;
      case 10:
        if (!readers.empty()) readers.erase(readers.begin() + static_cast<long>(rng() % readers.size()));
        break;
      default:
        if (rng() % 8 == 0) h.store->CloseSession(session), session = h.store->OpenSession("tenant");
        if (rng() % 64 == 0) h.store->Clear({});
        h.clock.AdvanceMs(10);
        h.store->Tick();
        h.Settle();
    }
    if (step % 10 == 0) h.ExpectConsistent();
  }
  readers.clear();
  h.store->CloseSession(session);
  h.Settle();
  h.ExpectConsistent();
  StoreStats stats = h.store->Stats();
  EXPECT_EQ(stats.pins, 0u);
  EXPECT_EQ(stats.readers, 0u);
  EXPECT_EQ(stats.puts_in_flight, 0u);
  EXPECT_EQ(stats.moves_in_flight, 0u);
  h.store->Clear({});
  for (FakeTier* tier : h.tiers) EXPECT_EQ(tier->Usage().used_bytes, 0u) << tier->name();
}

// C30: hit, miss, error, cancelled and dead-client paths from many threads; then nothing is held.
void HammerFromManyThreads(int operations_a_thread) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  auto pool = std::make_unique<ThreadPoolExecutor>(2);
  HarnessOptions options;
  options.hot_bytes = options.warm_bytes = kTestBlockBytes * 8;
  options.cold_bytes = kTestBlockBytes * 24;
  options.executor = pool.get();
  auto harness = std::make_unique<StoreHarness>(options);
  StoreHarness& h = *harness;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> wrong{0}, served{0}, waiting{0};
  std::thread ticker([&] {
    while (!stop) {
      h.clock.AdvanceMs(20);
      h.store->Tick();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 rng(seed + t);
      SessionId session = h.store->OpenSession("tenant");
      for (int i = 0; i < operations_a_thread; ++i) {
        uint64_t key = rng() % 48;
        PutSpec spec = h.Spec(key);
        spec.session = session;
        if (rng() % 16 == 0) spec.ttl_ms = 50;
        GetSpec get;
        get.address = {h.ns, TestKey(key), 0};
        get.session = session;
        switch (rng() % 10) {
          case 0:
          case 1:
          case 2:
            ++waiting;
            h.store->BeginPutWhenRoom(spec, h.clock.NowNs() + 100'000'000,
                                      [&h, &waiting, key](absl::StatusOr<std::unique_ptr<InFlightPut>> put) {
                                        if (!put.ok() || key % 7 == 0) return void(--waiting);  // Some are abandoned.
                                        StoreHarness::FillPut(**put, key);
                                        h.store->CommitPut(*std::move(put), [&waiting](auto) { --waiting; });
                                      });
            break;
          case 3:
          case 4:
          case 5:
          case 6:
            ++waiting;
            h.store->Get(get, [&h, &waiting, &wrong, &served, key](absl::StatusOr<GetResult> got) {
              if (got.ok()) {
                ++served;
                if (!(h.RelativeError(*got, key) < kWorstError)) ++wrong;
              }
              --waiting;
            });
            break;
          case 7:
            ++waiting;
            if (rng() % 2) {
              h.store->Demote(h.ns, TestKey(key), static_cast<uint8_t>(rng() % 3), [&waiting](auto) { --waiting; });
            } else {
              h.store->Prefetch(h.ns, {TestKey(key), TestKey(key + 1)}, {}, [&waiting](auto) { --waiting; });
            }
            break;
          case 8:
            rng() % 2 ? (void)h.store->Pin(h.ns, TestKey(key), session) : (void)h.store->Unpin(h.ns, TestKey(key), session);
            break;
          default:
            if (rng() % 4 == 0) (void)h.store->Delete(h.ns, TestKey(key));
            if (rng() % 16 == 0) h.store->CloseSession(session), session = h.store->OpenSession("tenant");
        }
        while (waiting > 64) std::this_thread::yield();
      }
      h.store->CloseSession(session);
    });
  }
  for (auto& thread : threads) thread.join();
  while (waiting > 0 || h.store->Stats().moves_in_flight > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  stop = true;
  ticker.join();
  pool.reset();  // Runs what is left.
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(served, 0u);
  h.ExpectConsistent();
  StoreStats stats = h.store->Stats();
  EXPECT_EQ(stats.pins, 0u);
  EXPECT_EQ(stats.readers, 0u);
  EXPECT_EQ(stats.puts_in_flight, 0u);
}

TEST(StoreRandom, C30_nothing_is_held_after_many_threads) { HammerFromManyThreads(3000); }

}  // namespace
}  // namespace firn
