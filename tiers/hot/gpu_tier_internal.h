// The GPU tier's inside: the books of a pool, its records, copies and reads.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "tiers/hot/gpu_tier.h"

namespace firn {

// Where scattered bytes lie for the child; false where it has not mapped some of them.
inline bool PlacesOf(const GpuLink& link, const RunBytes& bytes, std::vector<gpu::Place>* places) {
  for (const auto& span : bytes.spans()) {
    if (!link.Locate(span.data(), span.size(), places)) return false;
  }
  return true;
}

// The books of one child's pool. Records and copies keep it alive; the child's death ends its use, not its life.
struct GpuTier::Pool {
  Pool(uint64_t e, uint64_t bytes) : epoch(e), extents(bytes) {}
  const uint64_t epoch;
  std::atomic<bool> alive{true};

  std::mutex mu;
  // Guarded by mu.
  ExtentPool extents;
  uint64_t draft_bytes = 0, held_bytes = 0, copies = 0, records = 0;
};

// Extents of one record's runs, and how many copies share each.
struct GpuTier::Record {
  struct Run {
    uint64_t offset = 0;
    uint64_t bytes = 0;    // Of the run; it takes ExtentBytes of them.
    uint32_t copies = 0;   // That use it.
    uint32_t indexed = 0;  // Of these, not forgotten by the index.
    bool held() const { return copies > 0 && indexed == 0; }
  };
  explicit Record(std::shared_ptr<Pool> p) : pool(std::move(p)) {}
  ~Record() {
    std::lock_guard lock(pool->mu);
    for (Run& run : runs) {
      if (run.copies == 0 && run.bytes > 0 && draft) Free(&run);
    }
    --pool->records;
  }
  // All or nothing. Needs no lock of the caller's.
  bool TakeExtents(const RecordLayout& layout, uint64_t limit_bytes);
  void Free(Run* run) {
    pool->extents.Free(run->offset, run->bytes);
    if (draft) pool->draft_bytes -= ExtentBytes(run->bytes);
    run->bytes = 0;
  }
  void Share(RunMask mask);
  void Unindex(RunMask mask);
  void Release(RunMask mask, bool indexed);
  void Publish(RunMask mask);

  const std::shared_ptr<Pool> pool;
  std::shared_ptr<const RecordHeader> header;  // Once committed.
  bool draft = true;                           // Guarded by pool->mu, as is `runs`.
  std::array<Run, kRunIds> runs;
};

class GpuTier::GpuCopy final : public Copy {
 public:
  GpuCopy(std::shared_ptr<Record> r, RunMask runs) : record(std::move(r)), runs_(runs) {}
  ~GpuCopy() override { record->Release(runs_, !forgotten_.load(std::memory_order_relaxed)); }

  RunMask Runs() const override { return record->pool->alive.load(std::memory_order_acquire) ? runs_ : RunMask(); }
  uint64_t StoredBytes() const override {
    uint64_t total = 0;
    for (uint32_t i = 0; i < kRunIds; ++i) {
      if (runs_.Has(i)) total += ExtentBytes(record->header->runs[i].bytes);
    }
    return total;
  }
  RunMask stored() const { return runs_; }
  void Forget() const {
    if (!forgotten_.exchange(true)) record->Unindex(runs_);
  }
  const std::shared_ptr<Record> record;

 private:
  const RunMask runs_;
  mutable std::atomic<bool> forgotten_{false};  // Not part of what the copy is: the index's view of it.
};

// A draft's extents, and the host memory that it is filled in: none where it is filled from device memory.
class GpuTier::GpuDraft final : public Draft {
 public:
  GpuDraft(std::shared_ptr<Record> r, std::shared_ptr<Arena> staging, ArenaRecord* staged, const RecordLayout& layout)
      : record(std::move(r)), staging_(std::move(staging)), staged_(staged) {
    layout_ = layout;
    if (staged_ == nullptr) return;
    Arena::PieceBytes pieces = staging_->Bytes(*staged_, staged_->pieces());
    for (uint32_t i = 0; i < kRunIds; ++i) runs_[i] = std::move(pieces[i]);
  }
  ~GpuDraft() override {
    if (staged_ != nullptr) staging_->Abort(staged_);
  }

  const std::shared_ptr<Record> record;
  EncodedBlock source;  // Where it is filled from memory that the child has mapped.

 private:
  const std::shared_ptr<Arena> staging_;
  ArenaRecord* const staged_;
};

// Room for every check, so that a header can be written down before they are known.
void MakeRoomForChecks(RecordHeader* header);
// The header without what only encoding tells: what a child's answer must have in common with its job.
std::vector<uint8_t> PlanBytes(RecordHeader header);

// Bytes in staging, for as long as somebody looks at them.
class StagedBytes {
 public:
  StagedBytes(std::shared_ptr<Arena> staging, ArenaRecord* record, Task freed)
      : staging_(std::move(staging)), record_(record), freed_(std::move(freed)) {}
  StagedBytes(const StagedBytes&) = delete;
  StagedBytes& operator=(const StagedBytes&) = delete;
  ~StagedBytes() {
    staging_->Abort(record_);
    freed_();
  }

 private:
  const std::shared_ptr<Arena> staging_;
  ArenaRecord* const record_;
  Task freed_;
};

// Reads in order: each takes staging for its runs, the child copies them there, and they stay until nobody looks at
// them any more. Outlives the tier where a reader does. Thread-safe.
class GpuTier::Reads : public std::enable_shared_from_this<GpuTier::Reads> {
 public:
  Reads(std::string name, std::shared_ptr<Arena> staging, std::shared_ptr<GpuLink> link, Executor* executor)
      : name_(std::move(name)), staging_(std::move(staging)), link_(std::move(link)), executor_(executor) {}

  void Add(CopyPtr copy, RunMask runs, ReadDone done);
  // Starts what staging has room for.
  void Serve();
  // Staging for something else, where there is room now; `*pieces` are its runs.
  absl::StatusOr<std::shared_ptr<const void>> Take(const RecordLayout& layout, MutableRuns* pieces);

 private:
  struct Read {
    CopyPtr copy;
    RunMask runs;
    ReadDone done;
  };
  // False where staging has no room now.
  bool TryStart(const std::shared_ptr<Read>& read);
  void Answer(std::shared_ptr<Read> read, absl::StatusOr<EncodedBlock> block);

  const std::string name_;
  const std::shared_ptr<Arena> staging_;
  const std::shared_ptr<GpuLink> link_;
  Executor* const executor_;

  std::mutex mu_;
  // Guarded by mu_.
  std::deque<std::shared_ptr<Read>> waiting_;
  bool serving_ = false, serve_again_ = false;
};

}  // namespace firn
