// Random operations from several threads, checked against a model of what may be answered: never another block's bytes,
// never a deleted block, a pinned block always there; at the end nothing is held and nothing has grown.
//
// FIRN_SOAK_OPERATIONS sets how many (default 20,000; the long run asks for 5,000,000), FIRN_SOAK_SEED repeats a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "client/trial/known_blocks.h"
#include "firnkv/session.h"
#include "tests/support/daemon_process.h"
#include "tests/support/observe.h"

namespace firn {
namespace {

constexpr uint64_t kThreads = 4;
constexpr uint64_t kKeysAThread = 600;
constexpr size_t kPinsMax = 8;  // Of a thread at a time, so that room can always be made.
constexpr uint64_t kGrowthBytesMax = 64 * kMiB;

// 4 KiB, 64 KiB and 1 MiB; which one a block has follows from its number.
const KnownModel kModels[] = {{.name = "small", .layers = 1, .heads = 2, .width = 32, .tokens = 16},
                              {.name = "middle", .layers = 4, .heads = 2, .width = 64, .tokens = 32},
                              {.name = "large", .layers = 8, .heads = 4, .width = 128, .tokens = 64}};

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

struct Counts {
  std::atomic<uint64_t> operations{0}, puts{0}, hits{0}, misses{0}, deletes{0}, pins{0}, moves{0}, full{0};
};

// One thread: it alone writes and deletes its keys, so that it knows what may be there; it reads everybody's.
class Worker {
 public:
  Worker(DaemonProcess& daemon, Counts& counts, uint64_t index, uint64_t seed)
      : client_(daemon.Connect()), counts_(counts), first_(index * kKeysAThread), random_(seed) {
    for (const KnownModel& model : kModels) spaces_.push_back(*client_->RegisterNamespace(model.Facts()));
    session_ = *client_->OpenSession("soak " + std::to_string(index));
  }

  void Run(uint64_t operations) {
    for (uint64_t i = 0; i < operations && !::testing::Test::HasFailure(); ++i) {
      Operate();
      ++counts_.operations;
    }
  }

 private:
  static size_t ModelOf(uint64_t number) { return number % 40 == 0 ? 2 : number % 4 == 0 ? 1 : 0; }

  void Operate() {
    uint64_t number = first_ + random_() % kKeysAThread;
    key_ = KnownKey(number);
    ns_ = &spaces_[ModelOf(number)];
    switch (random_() % 16) {
      case 0:
      case 1:
      case 2:
      case 3:
        return Put(number);
      case 4:
        return Delete(number);
      case 5:
        return Pin(number);
      case 6:
        return Demote();
      case 7:
        return Answered("prefetch", client_->Prefetch(*ns_, std::span(&key_, 1)));
      case 8: {
        firnkv::TouchHint hint{.key = key_, .importance = static_cast<float>(random_() % 3) - 1};
        return Answered("touch", client_->Touch(*ns_, std::span(&hint, 1)));
      }
      case 9:
        return Get(random_() % (kThreads * kKeysAThread));
      default:
        return Get(number);
    }
  }

  void Put(uint64_t number) {
    firnkv::PutOptions options;
    if (random_() % 4 == 0) options.ack = firnkv::AckLevel::kDurable;
    absl::Status status = PutKnown(*client_, *ns_, kModels[ModelOf(number)], number, options).status;
    // With an error it may be there or not.
    deleted_.erase(number);
    if (status.code() == absl::StatusCode::kResourceExhausted) {
      ++counts_.full;
      return;
    }
    EXPECT_TRUE(status.ok()) << "put " << number << ": " << status;
    ++counts_.puts;
  }

  void Get(uint64_t number) {
    ns_ = &spaces_[ModelOf(number)];
    double error = 0;
    firnkv::GetResult got = GetKnown(*client_, *ns_, kModels[ModelOf(number)], number, &error);
    if (got.status.ok()) {
      ++counts_.hits;
      EXPECT_LE(error, ErrorLimit(got.served.Min())) << "wrong bytes of block " << number;
      EXPECT_EQ(deleted_.count(number), 0u) << "block " << number << " was deleted, and is there";
      return;
    }
    ++counts_.misses;
    EXPECT_EQ(got.status.code(), absl::StatusCode::kNotFound) << "get " << number << ": " << got.status;
    EXPECT_EQ(pinned_.count(number), 0u) << "pinned block " << number << ": " << got.status;
  }

  void Delete(uint64_t number) {
    if (pinned_.count(number) != 0) return;  // A delete ends pins; what then holds is not this test's.
    auto deleted = client_->Delete(*ns_, std::span(&key_, 1));
    Answered("delete", deleted);
    deleted_.insert(number);
    ++counts_.deletes;
  }

  // Pins the block, or lets the oldest one go.
  void Pin(uint64_t number) {
    if (pinned_.size() < kPinsMax && pinned_.count(number) == 0) {
      auto pinned = client_->Pin(*ns_, std::span(&key_, 1), *session_);
      Answered("pin", pinned);
      if (pinned.ok() && pinned->front().ok()) pinned_.insert(number);
      ++counts_.pins;
      return;
    }
    uint64_t other = *pinned_.begin();
    firnkv::BlockKey key = KnownKey(other);
    auto unpinned = client_->Unpin(spaces_[ModelOf(other)], std::span(&key, 1), *session_);
    ASSERT_TRUE(unpinned.ok() && unpinned->front().ok())
        << "unpin " << other << ": " << (unpinned.ok() ? unpinned->front() : unpinned.status());
    pinned_.erase(other);
  }

  void Demote() {
    auto moved = client_->Demote(*ns_, std::span(&key_, 1), random_() % 2 == 0 ? "warm" : "cold");
    ASSERT_TRUE(moved.ok()) << moved.status();
    // Missing, busy, already there, no room: all of these are answers.
    counts_.moves += moved->front().status.ok() ? 1 : 0;
  }

  void Answered(const char* what, const absl::StatusOr<std::vector<absl::Status>>& statuses) {
    ASSERT_TRUE(statuses.ok()) << what << ": " << statuses.status();
    const absl::Status& status = statuses->front();
    bool full = status.code() == absl::StatusCode::kResourceExhausted;
    EXPECT_TRUE(status.ok() || full || status.code() == absl::StatusCode::kNotFound) << what << ": " << status;
  }

  std::unique_ptr<firnkv::Client> client_;
  Counts& counts_;
  const uint64_t first_;
  std::mt19937_64 random_;
  std::vector<firnkv::Namespace> spaces_;
  std::unique_ptr<firnkv::Session> session_;
  std::set<uint64_t> deleted_, pinned_;
  firnkv::BlockKey key_;
  const firnkv::Namespace* ns_ = nullptr;
};

class Soak : public ::testing::Test {
 protected:
  static DaemonOptions Options() {
    DaemonOptions options;
    options.hot_capacity = options.warm_capacity = "16MiB";
    options.cold_capacity = "64MiB";
    return options;
  }

  void RunAll(uint64_t operations, uint64_t seed) {
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([=, this] { Worker(daemon_, counts_, i, seed + i).Run(operations / kThreads); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // Nothing is held, and the daemon agrees with its own recount.
  void ExpectQuiet() {
    auto client = daemon_.Connect();
    auto quiet = [&] {
      auto stats = client->GetStats();
      if (!stats.ok()) return false;
      for (const char* name : {"pins", "readers", "puts_in_flight", "moves_in_flight"}) {
        if (stats->gauges.at(name) != 0) return false;
      }
      return true;
    };
    EXPECT_TRUE(Eventually(quiet));
    auto verified = client->Verify();
    ASSERT_TRUE(verified.ok()) << verified.status();
    EXPECT_TRUE(verified->consistent) << testing::PrintToString(verified->findings);
  }

  DaemonProcess daemon_{Options()};
  Counts counts_;
};

TEST_F(Soak, C30_C34_random_operations_leave_nothing_behind) {
  const uint64_t operations = FromEnvironment("FIRN_SOAK_OPERATIONS", 20'000);
  const uint64_t seed = FromEnvironment("FIRN_SOAK_SEED", std::random_device{}());
  SCOPED_TRACE("FIRN_SOAK_SEED=" + std::to_string(seed));
  std::printf("FIRN_SOAK_OPERATIONS=%llu FIRN_SOAK_SEED=%llu\n", static_cast<unsigned long long>(operations),
              static_cast<unsigned long long>(seed));
  absl::Status started = daemon_.Start();
  ASSERT_TRUE(started.ok()) << started;
  RunAll(std::min<uint64_t>(operations / 4, 20'000), seed + kThreads);  // What is made once is made now.
  ASSERT_NO_FATAL_FAILURE(ExpectQuiet());
  uint64_t descriptors = OpenDescriptors(daemon_.pid(), daemon_.cold_path());
  uint64_t resident = daemon_.ResidentBytes();
  RunAll(operations, seed);
  ASSERT_NO_FATAL_FAILURE(ExpectQuiet());
  EXPECT_TRUE(Eventually([&] { return OpenDescriptors(daemon_.pid(), daemon_.cold_path()) <= descriptors; }));
  EXPECT_LE(daemon_.ResidentBytes(), resident + kGrowthBytesMax + kSanitizerBytes);
  std::printf(
      "%llu operations: %llu puts (%llu without room), %llu hits, %llu misses, %llu deletes, %llu pins, "
      "%llu moves; resident %.1f MiB, then %.1f\n",
      static_cast<unsigned long long>(counts_.operations), static_cast<unsigned long long>(counts_.puts),
      static_cast<unsigned long long>(counts_.full), static_cast<unsigned long long>(counts_.hits),
      static_cast<unsigned long long>(counts_.misses), static_cast<unsigned long long>(counts_.deletes),
      static_cast<unsigned long long>(counts_.pins), static_cast<unsigned long long>(counts_.moves),
      static_cast<double>(resident) / kMiB, static_cast<double>(daemon_.ResidentBytes()) / kMiB);
  EXPECT_GT(counts_.hits, operations / 10);
  EXPECT_GT(counts_.puts, operations / 20);
}

}  // namespace
}  // namespace firn
