// Everything at once, many times: after it, every invariant holds and every byte that was served was right.
#include <gtest/gtest.h>

#include <random>

#include "tiers/store/store_hammer_test_util.h"

namespace firn {
namespace {

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
        bool fine = put.ok() || put.code() == absl::StatusCode::kAlreadyExists ||
                    put.code() == absl::StatusCode::kResourceExhausted;
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
        (void)h.Degrade(key, static_cast<uint8_t>(rng() % 3),
                        rng() % 2 ? PrecisionClass::k4Bit : PrecisionClass::k2Bit);
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

TEST(StoreRandom, C30_nothing_is_held_after_many_threads) {
  ThreadPoolExecutor pool(2);
  HarnessOptions options;
  options.hot_bytes = options.warm_bytes = kTestBlockBytes * 8;
  options.cold_bytes = kTestBlockBytes * 24;
  options.executor = &pool;
  StoreHarness harness(options);
  HammerFromManyThreads(harness, {.operations_a_thread = 3000, .tick = {}});
}

TEST(StoreRandom, C30_nothing_is_held_after_sequences_with_windows_in_memory_alone) {
  ThreadPoolExecutor pool(2);
  HarnessOptions options;
  options.hot_bytes = options.warm_bytes = kTestBlockBytes * 8;
  options.cold_bytes = kTestBlockBytes * 6;
  options.cold_persistent = false;
  options.executor = &pool;
  StoreHarness harness(options);
  PrecisionPlan plan;
  plan.recent_tokens = 40;
  absl::Status planned = InternalError("no answer");
  harness.store->RegisterNamespace(StoreHarness::Facts(), plan,
                                   [&](absl::StatusOr<NamespaceId> ns) { planned = ns.status(); });
  ASSERT_TRUE(planned.ok()) << planned;
  HammerFromManyThreads(harness, {.operations_a_thread = 2000, .sequence_blocks = 12, .tick = {}});
}

}  // namespace
}  // namespace firn
