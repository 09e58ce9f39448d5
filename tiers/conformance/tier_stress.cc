// Random operations from several threads. What must survive: every byte read is right, capacity is never passed, and
// when all is dropped nothing is left counted. A failure prints the seed.

#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/units.h"
#include "tiers/conformance/tier_conformance.h"

namespace firn {
namespace {

struct Held {
  CopyPtr copy;
  EncodedBlock original;  // What was put, at full precision.
};

// One thread's work; it shares the tier, and some of its copies through the board, with the others.
class Worker {
 public:
  Worker(TierHarness* harness, bool reclaims, uint64_t seed, std::mutex* mu, std::vector<Held>* board)
      : harness_(harness), reclaims_(reclaims), random_(seed), mu_(*mu), board_(*board) {}

  void Run(int operations) {
    for (int i = 0; i < operations && !testing::Test::HasFailure(); ++i) {
      switch (random_() % 8) {
        case 0:
        case 1:
          Put();
          break;
        case 2:
          Drop();
          break;
        case 3:
          Narrow();
          break;
        case 4:
          Abort();
          break;
        case 5:
          CheckReader();
          break;
        default:
          Read();
      }
      TierUsage usage = harness_->tier().Usage();
      EXPECT_LE(usage.used_bytes, usage.capacity_bytes);
    }
    readers_.clear();
  }

 private:
  EncodedBlock RandomBlock() {
    auto upto = [&](uint64_t limit) { return static_cast<uint32_t>(1 + random_() % limit); };
    TestBlockSpec spec{
        "random",
        {.layers = upto(6), .heads = upto(4), .k_width = upto(160), .v_width = upto(160), .tokens = upto(70)}};
    if (random_() % 4 != 0) spec.family = CodecFamily::kNested;
    if (spec.family == CodecFamily::kNested)
      spec.exact_tokens = static_cast<uint32_t>(random_() % (spec.shape.tokens + 1));
    spec.exact_last = random_() % 2 == 0;
    uint64_t number = random_();
    return MakeTestBlock(spec, TestIdentity(number, random_() % 3), number);
  }

  void Put() {
    EncodedBlock block = RandomBlock();
    auto copy = CommitBlock(harness_, block);
    if (!copy.ok()) {
      EXPECT_TRUE(absl::IsResourceExhausted(copy.status())) << copy.status();
      return Drop();
    }
    std::lock_guard lock(mu_);
    board_.push_back({*std::move(copy), std::move(block)});
  }

  void Abort() {
    EncodedBlock block = RandomBlock();
    auto draft = harness_->tier().Reserve(block.Layout(block.present));
    if (draft.ok() && random_() % 2 == 0) harness_->tier().Fill(draft->get(), block);
  }

  Held Any() {
    std::lock_guard lock(mu_);
    return board_.empty() ? Held{} : board_[random_() % board_.size()];
  }

  void Drop() {
    Held held;
    {
      std::lock_guard lock(mu_);
      if (board_.empty()) return;
      std::swap(board_[random_() % board_.size()], board_.back());
      held = std::move(board_.back());
      board_.pop_back();
    }
    DropCopy(harness_, &held.copy, held.original.header->identity);
  }

  void Narrow() {
    if (!harness_->tier().narrows_in_place()) return;
    std::lock_guard lock(mu_);  // The board's entry is replaced as an index would: by one thread at a time.
    if (board_.empty()) return;
    Held& entry = board_[random_() % board_.size()];
    RunMask dropped = random_() % 2 == 0 ? RunMask::Both(RunKind::kP8) : RunMask::Of(RunKind::kP8, Part::kV);
    auto narrow = harness_->tier().Narrow(entry.copy, entry.copy->Runs() - dropped);
    ASSERT_TRUE(narrow.ok()) << narrow.status();
    CopyPtr old = std::exchange(entry.copy, *std::move(narrow));
    DropCopy(harness_, &old, entry.original.header->identity);
  }

  void Read() {
    Held held = Any();
    if (held.copy == nullptr) return;
    RunMask expected = held.copy->Runs();
    auto read = ReadBlock(harness_, held.copy, held.original.header->identity);
    if (!read.ok()) {
      EXPECT_TRUE(reclaims_) << read.status();
      return;
    }
    EXPECT_TRUE(reclaims_ || read->present == expected);
    EXPECT_TRUE(SameBlock(*read, held.original.Narrowed(read->present)));
    held.copy.reset();
    if (readers_.size() < 4) {
      readers_.emplace_back(*std::move(read), std::move(held.original));
    } else {
      readers_[random_() % readers_.size()] = {*std::move(read), std::move(held.original)};
    }
  }

  // A reader that kept its block while others dropped, narrowed and wrote.
  void CheckReader() {
    if (readers_.empty()) return;
    const auto& [read, original] = readers_[random_() % readers_.size()];
    EXPECT_TRUE(SameBlock(read, original.Narrowed(read.present)));
  }

  TierHarness* harness_;
  bool reclaims_;
  std::mt19937_64 random_;
  std::mutex& mu_;
  std::vector<Held>& board_;  // Guarded by mu_.
  std::vector<std::pair<EncodedBlock, EncodedBlock>> readers_;
};

TEST_P(TierConformance, C34_accounts_agree_after_random_operations_from_many_threads) {
  uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  auto harness = Make(6 * kMiB);
  TierUsage empty = harness->tier().Usage();
  std::mutex mu;
  std::vector<Held> board;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back(
        [&, t] { Worker(harness.get(), GetParam().reclaims_by_itself, seed + t, &mu, &board).Run(400); });
  }
  for (std::thread& thread : threads) thread.join();
  TierUsage busy = harness->tier().Usage();
  EXPECT_EQ(busy.draft_bytes, 0u);
  absl::Status audit = harness->Audit();
  EXPECT_TRUE(audit.ok()) << audit << " seed " << seed;
  if (!GetParam().reclaims_by_itself) {
    EXPECT_EQ(busy.copies, board.size());
    uint64_t stored = 0;
    for (const Held& held : board) stored += held.copy->StoredBytes();
    EXPECT_EQ(busy.used_bytes, stored + busy.overhead_bytes);
    EXPECT_EQ(busy.held_bytes, 0u);
  }
  for (Held& held : board) DropCopy(harness.get(), &held.copy, held.original.header->identity);
  // The last of what reads and reclaiming refer to may be given back by another thread.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (harness->tier().Usage().held_bytes > 0 && std::chrono::steady_clock::now() < until) {
    harness->Step();
    std::this_thread::yield();
  }
  TierUsage idle = harness->tier().Usage();
  EXPECT_EQ(idle.copies, 0u);
  EXPECT_EQ(idle.draft_bytes, 0u);
  EXPECT_EQ(idle.held_bytes, 0u);
  EXPECT_TRUE(GetParam().reclaims_by_itself || idle.used_bytes == empty.used_bytes);
  audit = harness->Audit();
  EXPECT_TRUE(audit.ok()) << audit << " seed " << seed;
}

}  // namespace
}  // namespace firn
