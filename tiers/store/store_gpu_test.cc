// The store over a chain that begins on a GPU: what a child's death takes, and what it must not take.
#include <gtest/gtest.h>

#include <future>

#include "base/units.h"
#include "tiers/cold/device/memory_device.h"
#include "tiers/hot/gpu_test_util.h"
#include "tiers/store/real_tiers_test_util.h"
#include "tiers/store/store_hammer_test_util.h"

namespace firn {
namespace {

class GpuChain {
 public:
  explicit GpuChain(gpu::CpuFaults first = {}, gpu::CpuFaults later = {}, uint64_t hot_bytes = kMiB)
      : pool(std::make_unique<ThreadPoolExecutor>(2)) {
    auto warm = MakeWarmTier("warm", kMiB);
    auto* arena = static_cast<ArenaTier*>(warm.get());
    HarnessOptions options;
    options.hot_bytes = hot_bytes;
    options.warm_bytes = kMiB;
    options.cold_bytes = 12 * kMiB;
    options.executor = pool.get();
    options.make_tier = [&](const std::string& name, uint64_t bytes, bool persistent) -> std::unique_ptr<Tier> {
      if (persistent) {
        auto tier = MakeColdTier(name, bytes, pool.get(), std::make_unique<MemoryDevice>(bytes * 4));
        cold = tier.get();
        return tier;
      }
      if (name == "warm") return std::move(warm);
      GpuTierOptions gpu_options = TestGpuOptions(pool.get(), bytes, StartThread(first, later));
      gpu_options.staging_bytes = 8 * kMiB;
      gpu_options.backoff_max_ms = 20;
      gpu_options.regions = {{arena->region().fd(), arena->region().base(), arena->region().bytes(),
                              [arena] { return arena->populated_bytes(); }}};
      auto tier = GpuTier::Open(std::move(gpu_options));
      EXPECT_TRUE(tier.ok()) << Message(tier.status());
      gpu = tier->get();
      return *std::move(tier);
    };
    harness = std::make_unique<StoreHarness>(options);
    cold->SetEvents(harness->store.get());
    gpu->SetOnLost([store = harness->store.get()] { store->OnTierLost(0); });
    EXPECT_TRUE(gpu->WaitUntilUp(10'000));
  }
  ~GpuChain() {
    std::atomic<bool> closed{false};
    cold->Close([&closed](absl::Status) { closed = true; });
    while (!closed) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    gpu->Shutdown();
    pool.reset();  // Nothing runs any more when the store and its tiers go.
    cold->SetEvents(nullptr);
  }

  template <typename T>
  using Start = std::function<void(absl::AnyInvocable<void(absl::StatusOr<T>)>)>;
  template <typename T>
  absl::StatusOr<T> Await(const Start<T>& start) {
    auto answer = std::make_shared<std::promise<absl::StatusOr<T>>>();
    auto future = answer->get_future();
    start([answer](absl::StatusOr<T> got) { answer->set_value(std::move(got)); });
    while (future.wait_for(std::chrono::milliseconds(2)) != std::future_status::ready) {
      harness->clock.AdvanceMs(20);
      harness->store->Tick();
    }
    return future.get();
  }
  absl::StatusOr<PutResult> Put(uint64_t key) {
    return Await<PutResult>([&](auto done) {
      auto shared = std::make_shared<decltype(done)>(std::move(done));
      harness->store->BeginPutWhenRoom(harness->Spec(key), harness->clock.NowNs() + 1'000'000'000,
                                       [this, key, shared](absl::StatusOr<std::unique_ptr<InFlightPut>> put) {
                                         if (!put.ok()) return (*shared)(put.status());
                                         StoreHarness::FillPut(**put, key);
                                         harness->store->CommitPut(
                                             *std::move(put), [shared](auto result) { (*shared)(std::move(result)); });
                                       });
    });
  }
  absl::StatusOr<GetResult> Get(uint64_t key) {
    return Await<GetResult>([&](auto done) {
      GetSpec spec;
      spec.address = {harness->ns, TestKey(key), 0};
      harness->store->Get(spec, std::move(done));
    });
  }
  absl::StatusOr<ClassPair> Demote(uint64_t key, uint8_t tier) {
    return Await<ClassPair>(
        [&](auto done) { harness->store->Demote(harness->ns, TestKey(key), tier, std::move(done)); });
  }
  absl::StatusOr<ClassPair> Promote(uint64_t key, uint8_t tier) {
    return Await<ClassPair>(
        [&](auto done) { harness->store->Promote(harness->ns, TestKey(key), tier, std::move(done)); });
  }
  std::vector<uint8_t> BytesHeld(uint64_t key) {
    auto got = Get(key);
    EXPECT_TRUE(got.ok()) << Message(got.status());
    std::vector<uint8_t> bytes = SerializeHeader(*got->block.header);
    for (const RunBytes& run : got->block.runs) {
      for (ByteSpan span : run.spans()) bytes.insert(bytes.end(), span.begin(), span.end());
    }
    return bytes;
  }

  std::unique_ptr<ThreadPoolExecutor> pool;
  ColdTier* cold = nullptr;  // Owned by the store, as is the next.
  GpuTier* gpu = nullptr;
  std::unique_ptr<StoreHarness> harness;
};

TEST(StoreOnGpu, BlocksGoDownRecodedInTheChildAndComeUpAsCodes) {
  GpuChain chain;
  ASSERT_TRUE(chain.Put(1).ok());
  auto hot = chain.Get(1);
  ASSERT_TRUE(hot.ok()) << hot.status();
  EXPECT_EQ(hot->tier, 0);
  EXPECT_EQ(chain.harness->RelativeError(*hot, 1), 0.0);
  auto now = chain.Demote(1, 1);
  ASSERT_TRUE(now.ok()) << now.status();
  EXPECT_EQ(now->Min(), PrecisionClass::k8Bit);
  EXPECT_EQ(chain.gpu->Counters().read_bytes, hot->block.header->RunBytes(RunMask::All()))
      << "the demotion read nothing out of the pool";
  auto warm = chain.Get(1);
  ASSERT_TRUE(warm.ok());
  EXPECT_EQ(warm->tier, 1);
  EXPECT_LT(chain.harness->RelativeError(*warm, 1), 0.02);
  auto codes = chain.BytesHeld(1);
  ASSERT_TRUE(chain.Promote(1, 0).ok());
  auto promoted = chain.Get(1);
  ASSERT_TRUE(promoted.ok());
  EXPECT_EQ(promoted->tier, 0);
  EXPECT_EQ(chain.BytesHeld(1), codes);
  chain.harness->ExpectConsistent();
}

TEST(StoreOnGpu, TheRecordIsTheOneThatTheProcessorWouldHaveMade) {
  GpuChain chain;
  ASSERT_TRUE(chain.Put(5).ok());
  ASSERT_TRUE(chain.Demote(5, 1).ok());
  auto got = chain.Get(5);
  ASSERT_TRUE(got.ok());
  StoreHarness plain;
  ASSERT_TRUE(plain.Put(5).ok());
  ASSERT_TRUE(plain.Demote(5, 1).ok());
  auto expected = plain.Get(5);
  ASSERT_TRUE(expected.ok());
  for (uint32_t i = 0; i < kRunIds; ++i) {
    std::vector<uint8_t> a, b;
    for (ByteSpan span : got->block.runs[i].spans()) a.insert(a.end(), span.begin(), span.end());
    for (ByteSpan span : expected->block.runs[i].spans()) b.insert(b.end(), span.begin(), span.end());
    EXPECT_EQ(a, b) << "run " << i;
  }
  for (Part part : kParts) {
    EXPECT_EQ(got->block.header->errors[static_cast<size_t>(part)].int8,
              expected->block.header->errors[static_cast<size_t>(part)].int8);
  }
}

TEST(StoreOnGpu, ADeadChildTakesItsBlocksAndTheOthersServeOn) {
  GpuChain chain({.fatal_at_job = 6});
  ASSERT_TRUE(chain.Put(1).ok());         // Job 1.
  ASSERT_TRUE(chain.Demote(1, 1).ok());   // Job 2.
  ASSERT_TRUE(chain.Put(2).ok());         // Job 3.
  ASSERT_TRUE(chain.Promote(1, 0).ok());  // Job 4; the copy below stays.
  ASSERT_TRUE(chain.Get(2).ok());         // Job 5.
  auto lost = chain.Get(2);               // Job 6.
  EXPECT_TRUE(absl::IsNotFound(lost.status())) << lost.status();
  // What has another copy is served from there at once, whatever the child does.
  auto warm = chain.Get(1);
  ASSERT_TRUE(warm.ok()) << warm.status();
  EXPECT_EQ(warm->tier, 1);
  auto put = chain.Put(3);
  EXPECT_TRUE(put.ok()) << put.status();
  EXPECT_TRUE(chain.Get(3).ok());
  ASSERT_TRUE(chain.gpu->WaitUntilUp(2'000));
  ASSERT_TRUE(chain.Put(4).ok());
  EXPECT_EQ(chain.Get(4)->tier, 0);
  chain.harness->ExpectConsistent();
}

TEST(StoreOnGpu, WithoutAChildBlocksEnterTheNextTier) {
  GpuChain chain({}, {}, 0);  // No pool at all.
  auto put = chain.Put(1);
  ASSERT_TRUE(put.ok()) << put.status();
  auto got = chain.Get(1);
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->tier, 1);
  EXPECT_EQ(got->served.Min(), PrecisionClass::k8Bit);
  chain.harness->ExpectConsistent();
}

TEST(StoreOnGpu, NothingIsHeldAfterManyThreads) {
  GpuChain chain;
  HammerFromManyThreads(*chain.harness,
                        {.operations_a_thread = 2000, .keys = 200, .tick = [&] { chain.cold->Tick(); }});
  StoreStats stats = chain.harness->store->Stats();
  EXPECT_GT(stats.tiers[1].demotions_in, 0u);
  EXPECT_GT(stats.tiers[0].hits, 0u);
  EXPECT_TRUE(chain.gpu->AuditForTest().ok());
}

TEST(StoreOnGpu, NothingIsWrongWhileChildrenDieUnderLoad) {
  GpuChain chain({.fatal_at_job = 50}, {.fatal_at_job = 200});
  HammerFromManyThreads(*chain.harness,
                        {.operations_a_thread = 2000, .keys = 200, .tick = [&] { chain.cold->Tick(); }});
  EXPECT_GT(chain.gpu->LinkStats().deaths, 2u);
  EXPECT_TRUE(chain.gpu->AuditForTest().ok());
}

}  // namespace
}  // namespace firn
