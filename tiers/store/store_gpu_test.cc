// The store over a chain that begins on a GPU: what a child's death takes, and what it must not take.
#include <gtest/gtest.h>

#include <cstring>
#include <future>

#include "base/units.h"
#include "tiers/cold/device/memory_device.h"
#include "tiers/hot/device_rows.h"
#include "tiers/hot/gpu_test_util.h"
#include "tiers/hot/worker_memory_test_util.h"
#include "tiers/store/real_tiers_test_util.h"
#include "tiers/store/store_hammer_test_util.h"

namespace firn {
namespace {

class GpuChain {
 public:
  explicit GpuChain(gpu::CpuFaults first = {}, gpu::CpuFaults later = {}, uint64_t hot_bytes = kMiB)
      : pool(std::make_unique<ThreadPoolExecutor>(2)) {
    auto warm = MakeWarmTier("warm", kMiB);
    ArenaTier* arena = warm.get();
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
      gpu_options.regions = {RegionOf(arena)};
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

// The harness's blocks, 2 layers, 2 heads, 16 tokens, 64 channels of FP16, in pages of 4 tokens [page][token][head],
// a tensor a layer and part, pages in an order of their own.
struct WorkerCache {
  static constexpr uint32_t kLayers = 2, kHeads = 2, kTokens = 16, kWidth = 64, kPageTokens = 4, kPages = 32;
  static constexpr uint64_t kRow = kWidth * 2, kToken = kRow * kHeads, kPage = kToken * kPageTokens;
  WorkerCache() : memory(4 * kPages * kPage), event(4096) {}
  DeviceRows Rows(uint32_t first_page, bool with_event) const {
    DeviceRows rows;
    rows.memory = {memory.handle()};
    if (with_event) rows.event = event.handle();
    for (uint32_t p = 0; p < 2; ++p) {
      DevicePart& part = rows.parts[p];
      for (uint32_t layer = 0; layer < kLayers; ++layer) part.layers.push_back({0, (layer * 2 + p) * kPages * kPage});
      for (uint32_t i = 0; i < kTokens / kPageTokens; ++i) part.pages.push_back((first_page + 7 * i) % kPages);
      part.page_tokens = kPageTokens;
      part.page_stride = kPage, part.token_stride = kToken, part.head_stride = kRow;
    }
    return rows;
  }
  uint8_t* Row(const DeviceRows& rows, uint32_t p, uint32_t layer, uint32_t head, uint32_t token) const {
    const DevicePart& part = rows.parts[p];
    return memory.base() + part.layers[layer].offset + part.pages[token / kPageTokens] * kPage +
           token % kPageTokens * kToken + head * kRow;
  }
  template <typename Visit>
  void ForRows(const DeviceRows& rows, Visit visit) const {
    for (uint32_t p = 0; p < 2; ++p) {
      size_t at = 0;
      for (uint32_t layer = 0; layer < kLayers; ++layer) {
        for (uint32_t head = 0; head < kHeads; ++head) {
          for (uint32_t token = 0; token < kTokens; ++token, at += kWidth)
            visit(p, at, Row(rows, p, layer, head, token));
        }
      }
    }
  }
  void Fill(const DeviceRows& rows, uint64_t key) const {
    std::vector<uint16_t> values[] = {StoreHarness::Values(key * 2, kLayers * kHeads * kTokens * kWidth),
                                      StoreHarness::Values(key * 2 + 1, kLayers * kHeads * kTokens * kWidth)};
    ForRows(rows, [&](uint32_t p, size_t at, uint8_t* row) { std::memcpy(row, values[p].data() + at, kRow); });
  }
  double RelativeError(const DeviceRows& rows, uint64_t key) const {
    double error = 0, norm = 0;
    ForRows(rows, [&](uint32_t p, size_t at, uint8_t* row) {
      auto values = StoreHarness::Values(key * 2 + p, at + kWidth);
      for (size_t i = 0; i < kWidth; ++i) {
        double x = FromHalf(values[at + i]), y = FromHalf(LoadLe<uint16_t>(row + 2 * i));
        error += (x - y) * (x - y);
        norm += x * x;
      }
    });
    return std::sqrt(error / norm);
  }
  void Signal() const { *reinterpret_cast<std::atomic<uint32_t>*>(event.base()) = 1; }
  WorkerMemory memory, event;
};

absl::Status FillFrom(GpuChain& chain, InFlightPut& put, const DeviceRows& rows) {
  return chain
      .Await<int>([&](auto done) {
        auto shared = std::make_shared<decltype(done)>(std::move(done));
        put.FillFromDevice(rows, [shared](absl::Status status) {
          (*shared)(status.ok() ? absl::StatusOr<int>(0) : absl::StatusOr<int>(status));
        });
      })
      .status();
}

absl::StatusOr<GetResult> GetTo(GpuChain& chain, uint64_t key, const DeviceRows& rows, ClassPair least = {}) {
  return chain.Await<GetResult>([&](auto done) {
    GetSpec spec;
    spec.address = {chain.harness->ns, TestKey(key), 0};
    spec.by_reference = true;
    spec.least = least;
    chain.harness->store->GetToDevice(spec, rows, std::move(done));
  });
}

TEST(StoreOnGpu, BlocksComeFromAndGoToAWorkersMemory) {
  GpuChain chain;
  WorkerCache cache;
  DeviceRows from = cache.Rows(3, true), to = cache.Rows(5, false);
  auto put = chain.harness->store->BeginPut(chain.harness->Spec(1));
  ASSERT_TRUE(put.ok()) << put.status();
  // The producer is slow: what is stored is what is there when its event comes, not before.
  std::thread producer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    cache.Fill(from, 1);
    cache.Signal();
  });
  absl::Status filled = FillFrom(chain, **put, from);
  producer.join();
  ASSERT_TRUE(filled.ok()) << filled;
  auto stored =
      chain.Await<PutResult>([&](auto done) { chain.harness->store->CommitPut(*std::move(put), std::move(done)); });
  ASSERT_TRUE(stored.ok()) << stored.status();
  auto host = chain.Get(1);
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_EQ(chain.harness->RelativeError(*host, 1), 0.0);
  // From every tier: source values, codes in DRAM that have kernels, codes from the log.
  struct Step {
    uint8_t tier;
    double error;
  };
  for (auto [tier, error] : {Step{0, 0.0}, Step{1, 0.02}, Step{2, 0.2}}) {
    SCOPED_TRACE(static_cast<int>(tier));
    if (tier > 0) {
      ASSERT_TRUE(chain.Demote(1, tier).ok());
    }
    std::memset(cache.memory.base(), 0xEE, cache.memory.bytes());
    uint64_t reads = chain.gpu->Counters().read_bytes;
    auto got = GetTo(chain, 1, to);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->tier, tier);
    EXPECT_LE(cache.RelativeError(to, 1), error);
    EXPECT_EQ(chain.gpu->Counters().read_bytes, reads) << "nothing came out of the pool by way of the host";
    uint64_t written = 0;
    for (uint64_t i = 0; i < cache.memory.bytes(); ++i) written += cache.memory.base()[i] != 0xEE;
    EXPECT_LE(written, 2ull * 2 * 2 * 16 * 64 * 2) << "pages of others stay as they were";
  }
  auto missing = GetTo(chain, 77, to);
  EXPECT_TRUE(absl::IsNotFound(missing.status()));
  auto coarse = GetTo(chain, 1, to, {PrecisionClass::kExact, PrecisionClass::kExact});
  EXPECT_TRUE(absl::IsNotFound(coarse.status()));
  chain.harness->ExpectConsistent();
}

// What a child says that it stored is what was to be stored, or nothing is.
TEST(StoreOnGpu, AHeaderThatWasNotPlannedIsRefused) {
  GpuChain chain({.lie_at_job = 1});
  WorkerCache cache;
  DeviceRows from = cache.Rows(3, true);
  cache.Fill(from, 1);
  cache.Signal();
  {
    auto put = chain.harness->store->BeginPut(chain.harness->Spec(1));
    ASSERT_TRUE(put.ok()) << put.status();
    absl::Status filled = FillFrom(chain, **put, from);
    EXPECT_TRUE(absl::IsInternal(filled)) << filled;
  }
  EXPECT_TRUE(absl::IsNotFound(chain.Get(1).status()));
  auto put = chain.harness->store->BeginPut(chain.harness->Spec(1));
  ASSERT_TRUE(put.ok()) << put.status();
  ASSERT_TRUE(FillFrom(chain, **put, from).ok());
  auto stored =
      chain.Await<PutResult>([&](auto done) { chain.harness->store->CommitPut(*std::move(put), std::move(done)); });
  ASSERT_TRUE(stored.ok()) << stored.status();
  EXPECT_EQ(chain.harness->RelativeError(*chain.Get(1), 1), 0.0);
  chain.harness->ExpectConsistent();
}

TEST(StoreOnGpu, DeviceMemoryThatMakesNoSenseIsRefused) {
  GpuChain chain;
  WorkerCache cache;
  cache.Signal();
  struct Case {
    const char* says;
    std::function<void(DeviceRows*)> change;
  };
  const std::vector<Case> cases = {
      {"event", [](DeviceRows* r) { r->event = {}; }},
      {"0 handles", [](DeviceRows* r) { r->memory.clear(); }},
      {"memory 9", [](DeviceRows* r) { r->parts[0].layers[1].memory = 9; }},
      {"1 layers", [](DeviceRows* r) { r->parts[1].layers.pop_back(); }},
      {"3 pages", [](DeviceRows* r) { r->parts[1].pages.pop_back(); }},
      {"pages of 0", [](DeviceRows* r) { r->parts[0].page_tokens = 0; }},
      {"byte", [](DeviceRows* r) { r->parts[0].pages[2] = 100'000; }},
      {"byte", [](DeviceRows* r) { r->parts[1].layers[0].offset = 1 << 24; }},
      {"a stride of 3", [](DeviceRows* r) { r->parts[0].token_stride = 3; }},
      {"a stride of", [](DeviceRows* r) { r->parts[0].head_stride = ~uint64_t{1}; }},
      {"", [](DeviceRows* r) { r->memory[0].fill('x'); }},
      {"", [](DeviceRows* r) { r->event.fill('y'); }},
      {"beyond", [](DeviceRows* r) { r->parts[0].pages[0] = ~0u, r->parts[0].page_stride = uint64_t{1} << 46; }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.says);
    auto put = chain.harness->store->BeginPut(chain.harness->Spec(1));
    ASSERT_TRUE(put.ok()) << put.status();
    DeviceRows rows = cache.Rows(0, true);
    c.change(&rows);
    absl::Status status = FillFrom(chain, **put, rows);
    EXPECT_FALSE(status.ok());
    EXPECT_NE(Message(status).find(c.says), std::string::npos) << status;
  }
  EXPECT_EQ(chain.gpu->LinkStats().deaths, 0u) << "the child refuses, and lives";
  EXPECT_EQ(chain.gpu->Usage().used_bytes, 0u);
}

TEST(StoreOnGpu, WhatWasImportedDiesWithTheChildAndIsNotMadeUp) {
  GpuChain chain({.fatal_at_job = 2});
  WorkerCache cache;
  DeviceRows rows = cache.Rows(0, true);
  cache.Fill(rows, 1);
  cache.Signal();
  auto put = chain.harness->store->BeginPut(chain.harness->Spec(1));
  ASSERT_TRUE(put.ok());
  ASSERT_TRUE(FillFrom(chain, **put, rows).ok());  // Job 1.
  auto stored = chain.Await<PutResult>(
      [&](auto done) { chain.harness->store->CommitPut(*std::move(put), std::move(done)); });  // Job 2.
  EXPECT_TRUE(absl::IsUnavailable(stored.status())) << stored.status();
  EXPECT_TRUE(absl::IsNotFound(chain.Get(1).status()));
  ASSERT_TRUE(chain.gpu->WaitUntilUp(2'000));
  ASSERT_TRUE(chain.Put(1).ok());
  EXPECT_EQ(chain.harness->RelativeError(*chain.Get(1), 1), 0.0);
  chain.harness->ExpectConsistent();
}

TEST(StoreOnGpu, AnImportOutlivesThePutThatAskedForIt) {
  GpuChain chain;
  WorkerCache cache;
  auto put = chain.harness->store->BeginPut(chain.harness->Spec(1));
  ASSERT_TRUE(put.ok());
  std::promise<absl::Status> answer;
  (*put)->FillFromDevice(cache.Rows(0, true), [&](absl::Status status) { answer.set_value(status); });
  put->reset();
  EXPECT_GT(chain.gpu->Usage().used_bytes, 0u) << "the child may still write there";
  cache.Signal();
  EXPECT_TRUE(answer.get_future().get().ok());
  for (int i = 0; i < 1000 && chain.gpu->Usage().used_bytes > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(chain.gpu->Usage().used_bytes, 0u);
  chain.harness->ExpectConsistent();
}

// More than staging has room for: what comes from device memory takes none of it.
TEST(StoreOnGpu, PutsFromDeviceMemoryTakeNoHostMemory) {
  GpuChain chain;
  WorkerCache cache;
  DeviceRows rows = cache.Rows(3, true);
  cache.Fill(rows, 1);
  cache.Signal();
  PutSpec spec = chain.harness->Spec(1);
  spec.from_device = true;
  auto put = chain.harness->store->BeginPut(spec);
  ASSERT_TRUE(put.ok()) << put.status();
  for (const MutableRunBytes& run : (*put)->runs()) EXPECT_EQ(run.size(), 0u);
  EXPECT_GT(chain.gpu->Usage().draft_bytes, 0u);
  EXPECT_EQ(chain.gpu->put_staging_bytes(), 0u);
  ASSERT_TRUE(FillFrom(chain, **put, rows).ok());
  auto stored =
      chain.Await<PutResult>([&](auto done) { chain.harness->store->CommitPut(*std::move(put), std::move(done)); });
  ASSERT_TRUE(stored.ok()) << stored.status();
  EXPECT_EQ(chain.harness->RelativeError(*chain.Get(1), 1), 0.0);

  spec.address.key = TestKey(2);
  put = chain.harness->store->BeginPut(spec);
  ASSERT_TRUE(put.ok()) << put.status();
  stored =
      chain.Await<PutResult>([&](auto done) { chain.harness->store->CommitPut(*std::move(put), std::move(done)); });
  EXPECT_EQ(stored.status().code(), absl::StatusCode::kFailedPrecondition) << stored.status();
  EXPECT_TRUE(absl::IsNotFound(chain.Get(2).status()));
  chain.harness->ExpectConsistent();
  EXPECT_EQ(chain.gpu->Usage().draft_bytes, 0u);
}

// A packed record's runs are not as long as values: they come through the host, or not at all.
TEST(StoreOnGpu, APackedRecordIsNotFilledFromDeviceMemory) {
  GpuChain chain;
  ASSERT_TRUE(chain.Put(1).ok());
  ASSERT_TRUE(chain.Demote(1, 1).ok());
  auto got = chain.Get(1);
  ASSERT_TRUE(got.ok()) << got.status();
  auto header = std::make_shared<RecordHeader>(*got->block.header);
  header->encoded = got->block.present;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (!header->encoded.Has(i)) header->runs[i] = {};
  }
  PutSpec spec = chain.harness->Spec(2);
  spec.packed = header;
  auto put = chain.harness->store->BeginPut(spec);
  ASSERT_TRUE(put.ok()) << put.status();
  WorkerCache cache;
  DeviceRows rows = cache.Rows(0, true);
  cache.Fill(rows, 1);
  cache.Signal();
  absl::Status filled = FillFrom(chain, **put, rows);
  EXPECT_EQ(filled.code(), absl::StatusCode::kFailedPrecondition) << filled;
  EXPECT_EQ(chain.gpu->LinkStats().deaths, 0u);
  spec.address.key = TestKey(3);
  spec.from_device = true;
  EXPECT_EQ(chain.harness->store->BeginPut(spec).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(StoreOnGpu, PutsFromDeviceMemoryNeedATierThatReachesIt) {
  GpuChain chain({}, {}, 0);
  PutSpec spec = chain.harness->Spec(1);
  spec.from_device = true;
  auto put = chain.harness->store->BeginPut(spec);
  EXPECT_EQ(put.status().code(), absl::StatusCode::kFailedPrecondition) << put.status();
  ASSERT_TRUE(chain.Put(1).ok()) << "and the place in line is free again";
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
