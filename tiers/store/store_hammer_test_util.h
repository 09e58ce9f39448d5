// Everything at once from many threads, on any tiers; then every invariant, and every byte that was served was right.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include "tiers/store/store_harness_test_util.h"

namespace firn {

// The largest error of a right answer: INT2 of noisy values. Another block's values give about 1.
inline constexpr double kWorstError = 0.5;

struct HammerOptions {
  int operations_a_thread = 1000;
  uint32_t threads = 4;
  uint32_t keys = 48;
  uint32_t sequence_blocks = 1;  // So many keys follow one another.
  std::function<void()> tick;    // Called with the store's Tick, about every millisecond.
};

// C30: hit, miss, error, cancelled and dead-client paths from many threads; then nothing is held.
inline void HammerFromManyThreads(StoreHarness& h, const HammerOptions& options) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> wrong{0}, served{0}, waiting{0};
  std::thread ticker([&] {
    while (!stop) {
      h.clock.AdvanceMs(20);
      h.store->Tick();
      if (options.tick) options.tick();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < options.threads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 rng(seed + t);
      SessionId session = h.store->OpenSession("tenant");
      for (int i = 0; i < options.operations_a_thread; ++i) {
        uint64_t key = rng() % options.keys;
        PutSpec spec = h.Spec(key);
        spec.session = session;
        if (uint64_t place = key % options.sequence_blocks; place > 0) {
          spec.first_token = static_cast<uint32_t>(place) * spec.tokens;
          spec.parent = TestKey(key - 1);
        }
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
            rng() % 2 ? (void)h.store->Pin(h.ns, TestKey(key), session)
                      : (void)h.store->Unpin(h.ns, TestKey(key), session);
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
  // A completion may still be on its way out when the last move has ended: quiet must last.
  for (int quiet = 0; quiet < 20;) {
    StoreStats stats = h.store->Stats();
    bool still = stats.moves_in_flight == 0 && stats.readers == 0 && stats.heals_in_flight == 0;
    quiet = waiting == 0 && still ? quiet + 1 : 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  stop = true;
  ticker.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(served, 0u);
  h.ExpectConsistent();
  StoreStats stats = h.store->Stats();
  EXPECT_EQ(stats.pins, 0u);
  EXPECT_EQ(stats.readers, 0u);
  EXPECT_EQ(stats.puts_in_flight, 0u);
}

}  // namespace firn
