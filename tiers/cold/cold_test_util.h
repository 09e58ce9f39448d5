// A cold tier over memory or a directory for tests: opened, written, read, cut off and opened again.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "tiers/cold/cold_tier.h"
#include "tiers/cold/device/faulty_device.h"
#include "tiers/cold/device/memory_device.h"
#include "tiers/cold/index/memory_index.h"
#include "tiers/conformance/test_blocks.h"
#include "tiers/conformance/tier_conformance.h"

namespace firn {

// Shares one device or index between the tiers that are opened on it, one after the other.
class BorrowedDevice final : public BlockDevice {
 public:
  explicit BorrowedDevice(BlockDevice* base) : BlockDevice(uint64_t{512} << 10), base_(base) {}
  std::string_view backend() const override { return base_->backend(); }

 protected:
  absl::StatusOr<FilePtr> CreateImpl(const std::string& name, uint64_t bytes) override {
    return base_->Create(name, bytes);
  }
  absl::StatusOr<FilePtr> OpenImpl(const std::string& name) override { return base_->Open(name); }
  absl::Status RemoveImpl(const std::string& name) override { return base_->Remove(name); }
  absl::Status TruncateImpl(const FilePtr& file, uint64_t bytes) override { return base_->Truncate(file, bytes); }
  absl::StatusOr<std::vector<FileEntry>> ListImpl() override { return base_->List(); }
  void SubmitImpl(RawIo io) override { Submit(base_, std::move(io)); }
  int64_t BlockingImpl(const RawIo& io) override { return Blocking(base_, io); }

 private:
  BlockDevice* const base_;
};

class BorrowedIndex final : public KeyValueIndex {
 public:
  explicit BorrowedIndex(KeyValueIndex* base) : base_(base) {}
  // Afterwards nothing reaches the index any more, as if the process had ended.
  void Freeze() { frozen_ = true; }
  // Get finds a damaged block, as where only a part of the index is.
  void DamageGets() { damaged_ = true; }
  absl::Status Apply(const IndexBatch& batch) override { return frozen_ ? Unavailable("frozen") : base_->Apply(batch); }
  absl::Status Sync() override { return frozen_ ? Unavailable("frozen") : base_->Sync(); }
  absl::StatusOr<std::optional<std::string>> Get(const std::string& key) override {
    if (damaged_) return DataLoss("damaged");
    return base_->Get(key);
  }
  absl::Status Visit(const std::string& first, const std::string& last, const Visitor& visit) override {
    return base_->Visit(first, last, visit);
  }
  absl::StatusOr<uint64_t> FileBytes() override { return base_->FileBytes(); }
  absl::Status Reopen() override { return frozen_ ? Unavailable("frozen") : base_->Reopen(); }

 private:
  KeyValueIndex* const base_;
  std::atomic<bool> frozen_{false};
  std::atomic<bool> damaged_{false};
};

// What a store would answer and hear. Keeps everything that `keep` holds.
class RecordingEvents final : public ColdEvents {
 public:
  ReclaimVerdict JudgeReclaim(const Identity& identity, RunMask leaving) override {
    std::lock_guard lock(mu);
    ++judged;
    return judge ? judge(identity, leaving) : ReclaimVerdict::kDrop;
  }
  bool LetGo(const Identity& identity, RunMask runs, bool whole) override {
    std::lock_guard lock(mu);
    if (let_go && !let_go(identity, runs)) return false;
    lost.push_back({identity, runs, whole});
    return true;
  }
  void OnRunsLost(const Identity& identity, RunMask runs, bool whole) override {
    std::lock_guard lock(mu);
    lost.push_back({identity, runs, whole});
  }
  void OnRelocated(const Identity& identity, const CopyPtr& copy) override {
    std::lock_guard lock(mu);
    relocated.emplace_back(identity, copy);
  }
  size_t wholes() {
    std::lock_guard lock(mu);
    size_t count = 0;
    for (const Lost& one : lost) count += one.whole ? 1 : 0;
    return count;
  }

  struct Lost {
    Identity identity;
    RunMask runs;
    bool whole;
  };
  std::mutex mu;
  std::function<ReclaimVerdict(const Identity&, RunMask)> judge;
  std::function<bool(const Identity&, RunMask)> let_go;  // Empty: everything.
  std::vector<Lost> lost;
  std::vector<std::pair<Identity, CopyPtr>> relocated;
  int judged = 0;
};

// Blocks of a few sizes. `kib` is about what a block takes: below 64 KiB a plane they are packed.
inline EncodedBlock ColdBlock(uint64_t number, uint32_t kib, uint64_t namespace_number = 0) {
  // 4 layers, 2 heads, width 64: a token takes 1 KiB at 8 bits, K and V together.
  TestBlockSpec spec{
      "block", {.layers = 4, .heads = 2, .k_width = 64, .v_width = 64, .tokens = kib}, CodecFamily::kNested};
  return MakeTestBlock(spec, TestIdentity(number, namespace_number), number);
}

// A device in memory, an index in memory, and a tier on them whose every step a test runs by hand.
class ColdRig : public TierHarness {
 public:
  explicit ColdRig(uint64_t capacity_bytes = 64 * kMiB, uint64_t segment_bytes = kMiB, uint64_t seed = 1)
      : memory(capacity_bytes + 64 * kMiB), faulty(&memory, seed) {
    options.capacity_bytes = capacity_bytes;
    options.segment_bytes = segment_bytes;
    options.chunk_bytes = 128 * kKiB;
    options.staging_bytes = 64 * kMiB;
    options.read_bytes = 64 * kMiB;
    options.executor = &executor;
    options.clock = &clock;
    options.notice = [this](std::string_view text) { notices.emplace_back(text); };
  }
  ~ColdRig() override { Stop(); }

  absl::Status Open() {
    recovered.clear();
    facts.clear();
    report = ColdRecoveryReport();
    auto borrowed = std::make_unique<BorrowedIndex>(&index);
    borrowed_index = borrowed.get();
    if (damage_index_gets) borrowed_index->DamageGets();
    ColdRecovery recovery;
    recovery.on_copy = [this](RecoveredCopy copy) { recovered.push_back(std::move(copy)); };
    recovery.on_fact = [this](RecoveredFact fact) { facts.push_back(std::move(fact)); };
    auto opened =
        ColdTier::Open(options, std::make_unique<BorrowedDevice>(&faulty), std::move(borrowed), recovery, &report);
    FIRN_RETURN_IF_ERROR(opened.status());
    cold = *std::move(opened);
    cold->SetEvents(&events);
    Run();
    return absl::OkStatus();
  }
  // Runs what is to be run.
  void Run() { executor.RunAll(); }
  void Stop() {
    if (cold == nullptr) return;
    faulty.HoldCompletions(false);
    recovered.clear();
    while (!cold->idle()) Run();
    cold.reset();
    Run();
  }
  absl::Status Close() {
    Awaited<absl::Status> closed;
    cold->Close(closed.Done());
    absl::Status status = closed.Wait(this).value_or(InternalError("never closed"));
    Stop();
    return status;
  }
  // The process ends here: nothing more reaches device or index.
  void Kill() {
    faulty.CrashAfter(0);
    borrowed_index->Freeze();
    Stop();
    faulty.CrashAfter(~uint64_t{0} >> 1);
  }
  Tier& tier() override { return *cold; }
  void Step() override { Run(); }

  absl::StatusOr<CopyPtr> Put(const EncodedBlock& block, RunMask protect = {}) {
    FIRN_ASSIGN_OR_RETURN(std::unique_ptr<Draft> draft, cold->Reserve(block.Layout(block.present)));
    cold->Fill(draft.get(), block);
    CommitOptions commit;
    commit.protect = protect;
    Awaited<absl::StatusOr<CopyPtr>> copy;
    cold->Commit(std::move(draft), block.header, commit, copy.Done());
    auto result = copy.Wait(this);
    if (!result.has_value()) return InternalError("the commit never completed");
    return *std::move(result);
  }
  absl::StatusOr<EncodedBlock> Get(const CopyPtr& copy, const EncodedBlock& block, RunMask runs = RunMask::All()) {
    return Get(copy, block.header->identity, runs);
  }
  absl::StatusOr<EncodedBlock> Get(const CopyPtr& copy, const Identity& identity, RunMask runs = RunMask::All()) {
    Awaited<absl::StatusOr<EncodedBlock>> block;
    cold->Read(copy, identity, runs, block.Done());
    auto result = block.Wait(this);
    if (!result.has_value()) return InternalError("the read never completed");
    return *std::move(result);
  }
  void Flush() {
    Awaited<absl::Status> flushed;
    cold->Flush(flushed.Done());
    auto status = flushed.Wait(this);
    ASSERT_TRUE(status.has_value() && status->ok());
  }
  const RecoveredCopy* Recovered(const Identity& identity) const {
    for (const RecoveredCopy& copy : recovered) {
      if (copy.identity == identity) return &copy;
    }
    return nullptr;
  }

  FakeClock clock;
  ManualExecutor executor;
  MemoryDevice memory;
  FaultyDevice faulty;
  MemoryIndex index;
  RecordingEvents events;
  std::vector<std::string> notices;
  ColdOptions options;
  BorrowedIndex* borrowed_index = nullptr;
  bool damage_index_gets = false;  // At the next Open.
  std::vector<RecoveredCopy> recovered;
  std::vector<RecoveredFact> facts;
  ColdRecoveryReport report;
  std::unique_ptr<ColdTier> cold;
};

}  // namespace firn
