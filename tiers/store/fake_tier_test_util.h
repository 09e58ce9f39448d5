// A tier of plain heap memory for tests of the store: any capacity, persistent or not, with faults on demand.
//
// It must survive: commits that fail, reads that fail or return damaged bytes, completions that come late and on the
// executor. Bytes of copies are counted exactly, so a test can compare used with a recount. Thread-safe.
#pragma once

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/status.h"
#include "codecs/encoded_block.h"
#include "tiers/tier.h"

namespace firn {

struct FakeTierOptions {
  std::string name;
  uint64_t capacity_bytes = 0;
  bool persistent = false;
  Executor* completions = nullptr;  // Null: completions run inside the call.
};

class FakeTier : public Tier {
 public:
  explicit FakeTier(FakeTierOptions options)
      : Tier(options.name), options_(std::move(options)), books_(std::make_shared<Books>()) {}

  // The next `count` commits, or reads, fail with this status.
  void FailCommits(int count, absl::Status status) { Set(&commit_faults_, count, std::move(status)); }
  void FailReads(int count, absl::Status status) { Set(&read_faults_, count, std::move(status)); }
  // The next read of any run in `runs` returns bytes with one bit flipped in each of them.
  void DamageNextRead(RunMask runs) {
    std::lock_guard lock(mu_);
    damage_ = runs;
  }
  uint64_t reads_started() const { return reads_started_.load(); }
  size_t remembered() const {
    std::lock_guard lock(mu_);
    return remembered_.size();
  }
  absl::Status SetCapacity(uint64_t bytes) override {
    std::lock_guard lock(mu_);
    options_.capacity_bytes = bytes;
    return absl::OkStatus();
  }

  bool persistent() const override { return options_.persistent; }
  bool narrows_in_place() const override { return !options_.persistent; }
  TierUsage Usage() const override {
    TierUsage usage;
    std::lock_guard lock(mu_);
    usage.capacity_bytes = options_.capacity_bytes;
    usage.used_bytes = books_->used.load();
    usage.draft_bytes = books_->drafts.load();
    usage.copies = books_->copies.load();
    return usage;
  }

 protected:
  // Shared with drafts and copies, which may outlive the tier.
  struct Books {
    std::atomic<uint64_t> used{0}, drafts{0}, copies{0};
  };
  struct Run {
    std::vector<uint8_t> bytes;
    std::shared_ptr<Books> books;
    ~Run() { books->used -= bytes.size(); }
  };
  struct FakeCopy final : Copy {
    std::shared_ptr<const RecordHeader> header;
    RunMask runs;
    std::array<std::shared_ptr<Run>, kRunIds> bytes;
    std::shared_ptr<Books> books;
    bool counted = false;
    ~FakeCopy() override {
      if (counted) --books->copies;
    }
    RunMask Runs() const override { return runs; }
    uint64_t StoredBytes() const override {
      uint64_t total = 0;
      for (const auto& run : bytes) total += run == nullptr ? 0 : run->bytes.size();
      return total;
    }
  };
  struct FakeDraft final : Draft {
    std::array<std::shared_ptr<Run>, kRunIds> bytes;
    std::shared_ptr<Books> books;
    FakeDraft(const RecordLayout& layout, std::shared_ptr<Books> b) : books(std::move(b)) {
      layout_ = layout;
      for (uint32_t run = 0; run < kRunIds; ++run) {
        if (!layout.present.Has(run)) continue;
        bytes[run] = std::make_shared<Run>();
        bytes[run]->bytes.assign(layout.run_bytes[run], 0xEE);
        bytes[run]->books = books;
        // In two spans, so that nothing comes to rely on contiguous runs.
        MutableByteSpan all(bytes[run]->bytes);
        runs_[run] = MutableRunBytes(all.first(all.size() / 3));
        runs_[run].Append(all.subspan(all.size() / 3));
      }
      books->drafts += layout.TotalBytes();
    }
    ~FakeDraft() override { books->drafts -= layout_.TotalBytes(); }
  };

  absl::StatusOr<std::unique_ptr<Draft>> ReserveImpl(const RecordLayout& layout) override {
    std::lock_guard lock(mu_);
    uint64_t bytes = layout.TotalBytes(), used = books_->used.load();
    if (used + bytes > options_.capacity_bytes) {
      return ResourceExhausted("{} bytes asked for, {} free", bytes,
                               options_.capacity_bytes - std::min(used, options_.capacity_bytes));
    }
    books_->used += bytes;
    return std::make_unique<FakeDraft>(layout, books_);
  }

  void CommitImpl(std::unique_ptr<Draft> draft, std::shared_ptr<const RecordHeader> header, const CommitOptions&,
                  CommitDone done) override {
    absl::Status fault = Take(&commit_faults_);
    if (!fault.ok()) {
      draft.reset();
      return Complete([fault, done = std::move(done)]() mutable { done(fault); });
    }
    auto* fake = static_cast<FakeDraft*>(draft.get());
    auto copy = std::make_shared<FakeCopy>();
    copy->runs = header->encoded;
    copy->header = std::move(header);
    copy->bytes = fake->bytes;
    copy->books = books_;
    copy->counted = true;
    ++books_->copies;
    if (options_.persistent) {
      std::lock_guard lock(mu_);
      remembered_[Name(copy->header->identity)] = copy;
    }
    draft.reset();
    Complete([copy = std::move(copy), done = std::move(done)]() mutable { done(CopyPtr(std::move(copy))); });
  }

  void ReadImpl(CopyPtr copy, const Identity&, RunMask runs, ReadDone done) override {
    ++reads_started_;
    absl::Status fault = Take(&read_faults_);
    if (!fault.ok()) return Complete([fault, done = std::move(done)]() mutable { done(fault); });
    const auto& fake = static_cast<const FakeCopy&>(*copy);
    EncodedBlock block;
    block.header = fake.header;
    block.present = runs & fake.runs;
    RunMask damage;
    {
      std::lock_guard lock(mu_);
      damage = std::exchange(damage_, RunMask()) & block.present;
    }
    auto spoiled = std::make_shared<std::vector<std::vector<uint8_t>>>();
    for (uint32_t run = 0; run < kRunIds; ++run) {
      if (!block.present.Has(run)) continue;
      block.runs[run] = RunBytes(ByteSpan(fake.bytes[run]->bytes));
      if (damage.Has(run) && !fake.bytes[run]->bytes.empty()) {
        spoiled->push_back(fake.bytes[run]->bytes);
        spoiled->back()[spoiled->back().size() / 2] ^= 0x10;
        block.runs[run] = RunBytes(ByteSpan(spoiled->back()));
      }
    }
    block.owner = std::make_shared<std::pair<CopyPtr, decltype(spoiled)>>(copy, spoiled);
    Complete([block = std::move(block), done = std::move(done)]() mutable { done(std::move(block)); });
  }

  absl::StatusOr<CopyPtr> NarrowImpl(const CopyPtr& copy, RunMask keep) override {
    if (options_.persistent) return Unimplemented("a log degrades by reclaiming");
    const auto& fake = static_cast<const FakeCopy&>(*copy);
    auto narrowed = std::make_shared<FakeCopy>();
    narrowed->header = fake.header;
    narrowed->runs = fake.runs & keep;
    narrowed->books = books_;
    narrowed->counted = true;
    ++books_->copies;
    for (uint32_t run = 0; run < kRunIds; ++run) {
      if (narrowed->runs.Has(run)) narrowed->bytes[run] = fake.bytes[run];
    }
    return CopyPtr(std::move(narrowed));
  }

  void ForgetImpl(const CopyPtr& copy, const Identity& identity) override {
    std::lock_guard lock(mu_);
    auto it = remembered_.find(Name(identity));
    if (it != remembered_.end() && it->second == copy) remembered_.erase(it);
  }

  void FlushImpl(FlushDone done) override {
    Complete([done = std::move(done)]() mutable { done(absl::OkStatus()); });
  }

 private:
  struct Faults {
    int left = 0;
    absl::Status status;
  };
  void Set(Faults* faults, int count, absl::Status status) {
    std::lock_guard lock(mu_);
    *faults = {count, std::move(status)};
  }
  absl::Status Take(Faults* faults) {
    std::lock_guard lock(mu_);
    if (faults->left == 0) return absl::OkStatus();
    --faults->left;
    return faults->status;
  }
  void Complete(Task task) {
    if (options_.completions != nullptr) return options_.completions->Post(std::move(task));
    task();
  }
  static std::string Name(const Identity& id) {
    return id.namespace_fingerprint.Hex() + id.key.Hex() + std::to_string(id.shard);
  }

  mutable std::mutex mu_;
  FakeTierOptions options_;  // Guarded by mu_ where it changes.
  std::shared_ptr<Books> books_;
  std::map<std::string, CopyPtr> remembered_;  // Guarded by mu_: what a restart would find.
  Faults commit_faults_, read_faults_;         // Guarded by mu_.
  RunMask damage_;                             // Guarded by mu_.
  std::atomic<uint64_t> reads_started_{0};
};

}  // namespace firn
