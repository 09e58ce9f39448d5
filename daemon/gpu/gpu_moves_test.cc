// The store over a chain whose first tier is a real child process: random puts, gets, demotions, promotions,
// degradations and deletions, several under way at once. What must survive: every byte that is served, and whenever
// nothing is under way, every extent of the pool and every counter equal to a recount; after a clear, nothing is held.
//
// FIRN_GPU_STORE_MOVES: how many moves, not counting those that found nothing to do; FIRN_GPU_STORE_SEED: repeats a
// run.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <random>
#include <thread>

#include "base/units.h"
#include "daemon/gpu/gpu_child_test_util.h"
#include "tiers/cold/device/memory_device.h"
#include "tiers/store/real_tiers_test_util.h"
#include "tiers/store/store_hammer_test_util.h"

namespace firn {
namespace {

constexpr uint64_t kKeys = 160;
constexpr uint32_t kTokensMax = 64;
constexpr int kUnderWayMax = 12;
constexpr uint64_t kMovesARecount = 500;

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::strtoull(value, nullptr, 10) : otherwise;
}

enum Move : uint32_t { kPut, kGet, kDemote, kPromote, kDegrade, kDelete, kMoveKinds };
constexpr const char* kMoveNames[kMoveKinds] = {"put", "get", "demote", "promote", "degrade", "delete"};

class GpuMovesTest : public testing::TestWithParam<ChildKind> {
 protected:
  void SetUp() override {
    if (std::string why = WhyNot(GetParam()); !why.empty()) GTEST_SKIP() << why;
    auto warm = MakeWarmTier("warm", 2 * kMiB);
    ArenaTier* arena = warm.get();
    HarnessOptions options;
    options.hot_bytes = 2 * kMiB;
    options.warm_bytes = 2 * kMiB;
    options.cold_bytes = 12 * kMiB;
    options.executor = &*pool_;
    options.make_tier = [&](const std::string& name, uint64_t bytes, bool persistent) -> std::unique_ptr<Tier> {
      if (persistent) {
        auto tier = MakeColdTier(name, bytes, &*pool_, std::make_unique<MemoryDevice>(bytes * 4));
        cold_ = tier.get();
        return tier;
      }
      if (name == "warm") return std::move(warm);
      GpuTierOptions gpu_options;
      gpu_options.capacity_bytes = bytes;
      gpu_options.staging_bytes = gpu_options.scratch_bytes = 64 * kMiB;
      gpu_options.start = StartChild(GetParam());
      gpu_options.executor = &*pool_;
      gpu_options.backoff_first_ms = 5;
      gpu_options.backoff_max_ms = 20;
      gpu_options.regions = {RegionOf(arena)};
      auto tier = GpuTier::Open(std::move(gpu_options));
      EXPECT_TRUE(tier.ok()) << Message(tier.status());
      gpu_ = tier->get();
      return *std::move(tier);
    };
    harness_ = std::make_unique<StoreHarness>(options);
    NamespaceFacts facts = StoreHarness::Facts();
    facts.block_tokens = kTokensMax;
    harness_->ns = harness_->Register(facts);
    cold_->SetEvents(&store());
    gpu_->SetOnLost([store = &store()] { store->OnTierLost(0); });
    ASSERT_TRUE(gpu_->WaitUntilUp(60'000)) << gpu_->LinkStats().last_failure;
    StartTicking();
  }
  void TearDown() override {
    if (harness_ == nullptr) return;
    StopTicking();
    std::atomic<bool> closed{false};
    cold_->Close([&closed](absl::Status) { closed = true; });
    while (!closed) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    gpu_->Shutdown();
    pool_.reset();  // Nothing runs any more when the store and its tiers go.
    cold_->SetEvents(nullptr);
  }

  Store& store() { return *harness_->store; }

  void Run(uint64_t moves, uint64_t kills) {
    const uint64_t seed = FromEnvironment("FIRN_GPU_STORE_SEED", std::random_device{}());
    SCOPED_TRACE("FIRN_GPU_STORE_SEED=" + std::to_string(seed));
    std::printf("FIRN_GPU_STORE_SEED=%llu\n", static_cast<unsigned long long>(seed));
    may_be_lost_ = kills > 0;
    std::mt19937_64 rng(seed);
    uint64_t next_recount = 1, next_kill = kills > 0 ? moves / kills / 2 : moves;
    for (uint64_t done = 0; done < moves && !HasFailure(); done = Total(done_)) {
      Start(rng);
      if (done >= next_kill) KillTheChild(), next_kill += moves / kills;
      if (done >= next_recount) ExpectRecount(), next_recount += kMovesARecount;
    }
    ExpectRecount();
    store().Clear({});
    WaitForQuiet();
    for (uint8_t t = 0; t < store().tier_count(); ++t) {
      TierUsage usage = store().tier(t).tier->Usage();
      EXPECT_EQ(usage.copies, 0u) << usage.used_bytes << " bytes in tier " << int{t};
    }
    EXPECT_EQ(gpu_->Usage().used_bytes, 0u);
    for (uint32_t kind = 0; kind < kMoveKinds; ++kind) {
      std::printf("%s %llu, of these done %llu\n", kMoveNames[kind], static_cast<unsigned long long>(started_[kind]),
                  static_cast<unsigned long long>(done_[kind]));
      if (kills == 0) {
        EXPECT_GT(done_[kind], 0u) << kMoveNames[kind];
      }
    }
    StoreStats stats = store().Stats();
    for (size_t t = 0; t < stats.tiers.size() && kills == 0; ++t) EXPECT_GT(stats.tiers[t].hits, 0u) << "tier " << t;
  }

 private:
  using Counts = std::array<std::atomic<uint64_t>, kMoveKinds>;
  static uint64_t Total(const Counts& counts) { return std::accumulate(counts.begin(), counts.end(), uint64_t{0}); }
  // Of every length, so that extents of all sizes come and go.
  static uint32_t TokensOf(uint64_t key) { return 1 + static_cast<uint32_t>(key * 2654435761u % kTokensMax); }

  void Start(std::mt19937_64& rng) {
    const uint64_t key = rng() % kKeys;
    const Digest name = TestKey(key);
    const NamespaceId ns = harness_->ns;
    // Deletions are few enough, and puts so many, that the tiers stay full.
    static constexpr Move kShares[] = {kPut, kPut, kPut, kGet, kGet, kGet, kDemote, kDemote, kPromote, kDegrade};
    const Move kind = rng() % 24 == 0 ? kDelete : kShares[rng() % std::size(kShares)];
    ++started_[kind], ++under_way_;
    switch (kind) {
      case kPut: {
        store().BeginPutWhenRoom(harness_->Spec(key, TokensOf(key)), harness_->clock.NowNs() + 60'000'000'000,
                                 [this, key](absl::StatusOr<std::unique_ptr<InFlightPut>> put) {
                                   if (!put.ok()) return Done(kPut, put.status());
                                   StoreHarness::FillPut(**put, key);
                                   store().CommitPut(*std::move(put), [this](absl::StatusOr<PutResult> stored) {
                                     if (stored.ok() && stored->stored) ++stored_;
                                     Done(kPut, stored.status());
                                   });
                                 });
        break;
      }
      case kGet: {
        GetSpec get;
        get.address = {ns, name, 0};
        store().Get(get, [this, key](absl::StatusOr<GetResult> got) {
          if (got.ok()) {
            double error = harness_->RelativeError(*got, key);
            EXPECT_LT(error, kWorstError) << "key " << key << " from tier " << int{got->tier};
          }
          absl::Status status = got.status();
          got = absl::CancelledError();  // Lets go of it before it counts as done.
          Done(kGet, status);
        });
        break;
      }
      case kDemote:
        store().Demote(ns, name, static_cast<uint8_t>(1 + rng() % 2), Answer(kDemote));
        break;
      case kPromote:
        store().Promote(ns, name, static_cast<uint8_t>(rng() % 2), Answer(kPromote));
        break;
      case kDegrade: {
        PrecisionClass to = rng() % 2 ? PrecisionClass::k4Bit : PrecisionClass::k2Bit;
        store().Degrade(ns, name, static_cast<uint8_t>(rng() % 3), {to, to}, Answer(kDegrade));
        break;
      }
      default:
        Done(kDelete, store().Delete(ns, name));
    }
    while (under_way_ >= kUnderWayMax) std::this_thread::yield();
  }
  absl::AnyInvocable<void(absl::StatusOr<ClassPair>)> Answer(Move kind) {
    return [this, kind](absl::StatusOr<ClassPair> now) { Done(kind, now.status()); };
  }
  void Done(Move kind, const absl::Status& status) {
    switch (status.code()) {
      case absl::StatusCode::kOk:
        ++done_[kind];
        break;
      case absl::StatusCode::kNotFound:            // Not there, or no longer.
      case absl::StatusCode::kAlreadyExists:       // As fine a copy is there.
      case absl::StatusCode::kAborted:             // The same block is being put or moved.
      case absl::StatusCode::kFailedPrecondition:  // Nothing below or above, or a limit of precision.
      case absl::StatusCode::kResourceExhausted:
        break;
      default:
        EXPECT_TRUE(may_be_lost_ && absl::IsUnavailable(status)) << kMoveNames[kind] << ": " << status;
    }
    --under_way_;
  }

  void StartTicking() {
    stop_ = false;
    ticker_ = std::thread([this] {
      while (!stop_) {
        harness_->clock.AdvanceMs(20);
        store().Tick();
        cold_->Tick();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }
  void StopTicking() {
    stop_ = true;
    if (ticker_.joinable()) ticker_.join();
  }

  void KillTheChild() {
    int pid = gpu_->LinkStats().pid;
    uint64_t deaths = gpu_->LinkStats().deaths;
    ASSERT_GT(pid, 0);
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    for (int i = 0; i < 10'000 && gpu_->LinkStats().deaths == deaths; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_TRUE(gpu_->WaitUntilUp(20'000)) << gpu_->LinkStats().last_failure;
  }

  // A completion may still be on its way out when the last move has ended: quiet must last.
  void WaitForQuiet() {
    auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (int quiet = 0; quiet < 4 && std::chrono::steady_clock::now() < until;) {
      StoreStats stats = store().Stats();
      bool still = under_way_ == 0 && stats.moves_in_flight == 0 && stats.readers == 0 && stats.heals_in_flight == 0;
      quiet = still ? quiet + 1 : 0;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_EQ(under_way_, 0);
  }

  void ExpectRecount() {
    WaitForQuiet();
    // Pressure may begin a move at any tick: what is compared below is taken between two of them.
    StopTicking();
    WaitForQuiet();
    harness_->ExpectConsistent();
    absl::Status extents = gpu_->AuditForTest();
    EXPECT_TRUE(extents.ok()) << extents;
    std::vector<uint64_t> copies(store().tier_count()), bytes(store().tier_count());
    const std::vector<BlockInfo> blocks = store().List(harness_->ns, {}, kKeys + 1, ~uint64_t{0});
    for (const BlockInfo& block : blocks) {
      for (const BlockInfo::CopyInfo& copy : block.copies) ++copies[copy.tier], bytes[copy.tier] += copy.bytes;
    }
    for (uint8_t t = 0; t < copies.size(); ++t) {
      TierUsage usage = store().tier(t).tier->Usage();
      EXPECT_EQ(usage.copies, copies[t]) << "tier " << int{t};
      EXPECT_EQ(usage.used_bytes, bytes[t] + usage.overhead_bytes) << "tier " << int{t};
      EXPECT_EQ(usage.draft_bytes, 0u) << "tier " << int{t};
      EXPECT_EQ(usage.held_bytes, 0u) << "tier " << int{t};
    }
    StoreStats stats = store().Stats();
    EXPECT_EQ(stats.blocks, blocks.size());
    EXPECT_EQ(stats.blocks, stats.puts_stored - stats.puts_replaced - stats.removed);
    EXPECT_EQ(stats.puts_stored, stored_);
    EXPECT_EQ(stats.deletes, done_[kDelete]);
    uint64_t hits = 0, misses = 0;
    for (const TierStats& tier : stats.tiers) hits += tier.hits;
    for (uint64_t count : stats.misses) misses += count;
    EXPECT_EQ(hits, done_[kGet]);
    EXPECT_EQ(hits + misses, started_[kGet]);
    EXPECT_EQ(stats.puts_in_flight, 0u);
    EXPECT_EQ(stats.puts_in_flight_bytes, 0u);
    StartTicking();
  }

 protected:
  std::optional<ThreadPoolExecutor> pool_{std::clamp(std::thread::hardware_concurrency() / 2, 2u, 8u)};
  ColdTier* cold_ = nullptr;  // Owned by the store, as is the next.
  GpuTier* gpu_ = nullptr;
  std::unique_ptr<StoreHarness> harness_;

 private:
  bool may_be_lost_ = false;
  std::atomic<bool> stop_{false};
  std::thread ticker_;
  std::atomic<int> under_way_{0};
  std::atomic<uint64_t> stored_{0};
  Counts started_{}, done_{};
};

constexpr uint64_t kMoves = 2000;

TEST_P(GpuMovesTest, RandomMovesLeaveEveryByteAndEveryCountRight) {
  Run(FromEnvironment("FIRN_GPU_STORE_MOVES", kMoves), 0);
  EXPECT_EQ(gpu_->LinkStats().deaths, 0u);
}

TEST_P(GpuMovesTest, RandomMovesWhileChildrenAreKilled) {
  const uint64_t moves = FromEnvironment("FIRN_GPU_STORE_MOVES", kMoves) / 4,
                 kills = std::max<uint64_t>(4, moves / 1000);
  Run(moves, kills);
  EXPECT_GE(gpu_->LinkStats().deaths, kills);
}

INSTANTIATE_TEST_SUITE_P(On, GpuMovesTest, testing::Values(ChildKind{"Processor", false}, ChildKind{"Cuda", true}),
                         ChildKindName);

}  // namespace
}  // namespace firn
