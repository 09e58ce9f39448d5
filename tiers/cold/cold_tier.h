// The cold tier: copies in a segment log on a block device, with a location index that can be rebuilt from it.
//
// Writing: Reserve lays a record out as up to four extents (metadata, sinks and p2; p4; p8; what is protected) in
// staging memory of the pool; Commit checksums them and hands them to the log; the copy exists once they are durable
// and the index has been told. Reading: only the extents that hold the asked runs, from their starts, so that each is
// checked against the identity, the sequence number and the digest that the copy remembers. Space: whole segments are
// reclaimed in the background; where a plane has its own segments, that is the degradation of its blocks. Threads: as
// Tier. The log is written on one serial queue of the executor. Completions run on the executor. Ownership: owns the
// device and the index. Close before destroying it, with an executor that runs; drafts go before the tier. Errors: as
// Tier; ResourceExhausted also while the medium is full (ColdHealth says so), Unavailable while it fails.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tiers/cold/cold_copy.h"
#include "tiers/cold/cold_options.h"
#include "tiers/cold/index/index_rows.h"
#include "tiers/cold/index/key_value_index.h"
#include "tiers/cold/log/log_writer.h"
#include "tiers/cold/token_bucket.h"
#include "tiers/tier.h"

namespace firn {

class ColdTier final : public Tier, private LogSink {
 public:
  // Recovers what is there and calls `recovery` for all of it, then is ready. InvalidArgument for options that do not
  // fit.
  static absl::StatusOr<std::unique_ptr<ColdTier>> Open(const ColdOptions& options, std::unique_ptr<BlockDevice> device,
                                                        std::unique_ptr<KeyValueIndex> index,
                                                        const ColdRecovery& recovery, ColdRecoveryReport* report);
  ~ColdTier() override;

  // Whom reclaiming asks and tells; null: nobody, and everything may be dropped. Outlives the tier or is taken back
  // first.
  void SetEvents(ColdEvents* events);

  // Durable when `done` is OK. Limits: 16 MiB a value, 4 KiB a kind and a name.
  void PutFact(RecoveredFact fact, FlushDone done);
  void DeleteFact(const std::string& kind, const std::string& name, FlushDone done);
  // All copies of a namespace committed so far are forgotten at once; durable when `done` is OK.
  void ForgetNamespace(const Digest& namespace_fingerprint, FlushDone done);

  // Lower than what is used: evicts down in the background.
  // Segments are reclaimed until it is kept.
  absl::Status SetCapacity(uint64_t bytes) override;
  // What time brings: measuring the index, trying a failed medium again, reclaiming. Call it about once a second.
  void Tick();
  // Seals the open segments and syncs the index. `done` comes when all is on the medium; everything is refused from now
  // on.
  void Close(FlushDone done);

  bool persistent() const override { return true; }
  EccPolicy ecc() const override { return options_.ecc; }
  bool HasParity(const Copy& copy) const override;
  bool narrows_in_place() const override { return false; }
  TierUsage Usage() const override;
  ColdHealth Health() const;
  ColdCounters ReclaimCounters() const;
  BlockDevice& device() { return *device_; }
  // What its medium has owed an answer for longest, the index included; nothing: it has answered everything.
  std::optional<Outstanding::Oldest> OldestIo() const { return device_->outstanding().Now(); }
  // Nothing runs or waits on the tier's account.
  bool idle() const;

 protected:
  absl::StatusOr<std::unique_ptr<Draft>> ReserveImpl(const RecordLayout& layout) override;
  void CommitImpl(std::unique_ptr<Draft> draft, std::shared_ptr<const RecordHeader> header,
                  const CommitOptions& options, CommitDone done) override;
  void ReadImpl(CopyPtr copy, const Identity& identity, RunMask runs, ReadDone done) override;
  void ReadCorrectedImpl(CopyPtr copy, const Identity& identity, RunMask runs, ReadDone done) override;
  absl::StatusOr<CopyPtr> NarrowImpl(const CopyPtr& copy, RunMask keep) override;
  void ForgetImpl(const CopyPtr& copy, const Identity& identity) override;
  void FlushImpl(FlushDone done) override;

 private:
  struct SettleContext {
    IndexBatch batch;
    std::vector<Task> after;  // Run once the index has been told.
  };
  struct Item;  // A LogItem that knows what to do when it settles.
  struct CommitItem;
  struct RelocateItem;
  struct FactItem;
  struct TombstoneItem;
  struct NamespaceItem;
  struct FlushItem;
  class ColdDraft;
  struct DraftExtent;
  struct ReadOp;
  struct ReadPart;
  struct ReclaimJob;
  class Recoverer;
  struct FactPlace {
    uint64_t sequence = 0;
    ExtentPlace place;
  };

  ColdTier(const ColdOptions& options, std::unique_ptr<BlockDevice> device, std::unique_ptr<KeyValueIndex> index);

  // --- Life (cold_tier.cc)
  absl::Status CheckOptions() const;
  void Post(Task task);  // On the queue, counted.
  void PostToExecutor(Task task);
  void BeginTask();
  void EndTask();
  void MaybeFinishClose();

  // --- LogSink, on the queue (cold_settle.cc)
  void OnSettled(std::vector<std::unique_ptr<LogItem>> items) override;
  void OnFilled(const SegmentPtr& segment) override;
  void OnWriteError(const absl::Status& status) override;
  bool OnNoSegment(const absl::Status& status) override;
  void OnIdle() override;
  void ApplyBatch(IndexBatch batch);
  void MeasureIndex(bool force);
  void EnterTrouble(ColdState state, const std::string& reason);
  void MaybeProbe();
  void Probe();

  // --- Writing (cold_commit.cc)
  absl::StatusOr<std::vector<DraftExtent>> PlanDraft(const RecordLayout& layout) const;
  absl::Status Admit(uint64_t asked, uint64_t bytes);
  // What a refused reservation lacked room for, on the queue: reclaiming makes that room, if emptying could.
  void WantRoom(uint64_t bytes);
  void ReturnDraft(uint64_t bytes);
  std::shared_ptr<void> TakeLargeTurn();  // Null while somebody else has it.
  void SplitProtected(std::vector<DraftExtent>* extents, const RunLengths& lengths, RunMask protect) const;
  LogExtent FinishExtent(DraftExtent extent, const RecordNote& note, ByteSpan record_header, uint64_t sequence,
                         size_t siblings, bool relocated) const;
  void LinkLocked(const ColdCopyPtr& copy, const std::vector<RowExtent>& extents);
  void UnlinkExtentLocked(ColdCopy* copy, size_t extent);
  void UpdateStoredLocked(ColdCopy* copy);
  // False if it was forgotten before. `in_log`: so that a rebuild does not bring it back.
  bool ForgetLocked(const ColdCopyPtr& copy, bool in_log);
  void DrainForgotten();
  void LogTombstones();
  static std::optional<Tombstone> TombstoneOf(const LogItem& item);
  void Withdraw(const LogItem& item, SettleContext* context);

  // --- Reading (cold_read.cc)
  void BeginRead(CopyPtr copy, const Identity& identity, RunMask runs, bool correct, ReadDone done);
  absl::Status PrepareRead(ReadOp* op);
  bool StartRead(const std::shared_ptr<ReadOp>& op);  // False: no memory now.
  void IssueReads(const std::shared_ptr<ReadOp>& op);
  void RetryWaitingReads();
  void FailWaitingReads();
  void FinishRead(const std::shared_ptr<ReadOp>& op);
  void JudgeRead(ReadOp* op, RunMask* lost, absl::Status* base_error);
  absl::Status TakeRecordHeader(ReadOp* op, const ReadPart& part, ByteSpan front, const ExtentHeader* extent);
  void CorrectRuns(ReadOp* op, EncodedBlock* block);
  // Puts a whole extent right whose header is known; says whether it is what was written now.
  bool MendExtent(const ExtentHeader& header, uint64_t salt, MutableByteSpan extent);
  // What a read came to whose base is good.
  EncodedBlock BlockOf(ReadOp* op);
  void WithholdErased(ReadOp* op, EncodedBlock* block);
  // The same copy again and again: then what the medium refuses of it is lost.
  void CountReadFailure(const ColdCopyPtr& copy, const Identity& identity, RunMask refused);
  // Runs of a copy turned out damaged or missing.
  void LoseRuns(const ColdCopyPtr& copy, const Identity& identity, RunMask lost);

  // --- Reclaiming, on the queue (cold_reclaim.cc)
  // Waits, until `until_ns`, for tombstones that found no room.
  void TryFlush(int64_t until_ns, FlushDone done);
  void RetryFlushes();
  void MaybeReclaim();
  uint64_t FreeTarget() const;
  SegmentPtr ChooseVictim();
  void StartReclaim(SegmentPtr victim);
  void OnVictimFooter(std::shared_ptr<ReclaimJob> job);
  // What a moved record leaves behind on the way.
  static RunMask LeftBehind(const ExtentHeader& header, ColdEvents* events);
  void RelocateNext(const std::shared_ptr<ReclaimJob>& job);
  void OnRelocationRead(const std::shared_ptr<ReclaimJob>& job, ExtentHeader header, RunMask dropped,
                        std::shared_ptr<ChunkPool::Lease> memory, uint64_t head, bool refused);
  void ReadRelocatedBySectors(const std::shared_ptr<ReclaimJob>& job, ExtentHeader header, RunMask dropped,
                              std::shared_ptr<ChunkPool::Lease> memory, uint64_t head);
  // Leaves a segment alone for a while: too much of it is pinned to be worth moving.
  void SpareVictim(const std::shared_ptr<ReclaimJob>& job);
  void LeaveBehind(const std::shared_ptr<ReclaimJob>& job, const ExtentHeader& header);
  // `tell`: the store has not been asked, and hears of it.
  void DropExtents(const std::shared_ptr<ReclaimJob>& job, const std::vector<ExtentHeader>& extents, bool tell = true);
  void FinishReclaim(std::shared_ptr<ReclaimJob> job);
  ColdCopyPtr LiveCopyLocked(const ReclaimJob& job, const ExtentHeader& header, size_t* extent);
  std::vector<ExtentHeader> EntriesFromIndex(const SegmentPtr& segment);
  void ReclaimFacts(const std::shared_ptr<ReclaimJob>& job);
  void KeepFacts(const std::shared_ptr<ReclaimJob>& job,
                 std::vector<std::pair<ExtentHeader, std::vector<uint8_t>>> payloads);
  void OnSegmentRemoved(uint32_t id, const absl::Status& status);

  // --- Facts (cold_facts.cc)
  std::unique_ptr<Item> MakeFactItem(ExtentKind kind, const FactPayload& fact, uint64_t sequence, bool rewritten,
                                     FlushDone done);
  LogExtent MakeFactExtent(ExtentKind kind, ByteSpan payload, uint64_t sequence) const;
  void AppendItem(std::unique_ptr<Item> item);

  const ColdOptions options_;
  const std::unique_ptr<BlockDevice> device_;
  const std::unique_ptr<KeyValueIndex> index_;
  std::shared_ptr<ChunkPool> staging_;
  // A record larger than all of staging_ is on its way, in memory of its own: one at a time.
  const std::shared_ptr<std::atomic<bool>> large_draft_ = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<ChunkPool> read_pool_;
  SerialQueue queue_;
  std::unique_ptr<SegmentStore> segments_;
  std::unique_ptr<LogWriter> writer_;
  LayoutTable layouts_;
  std::atomic<uint64_t> next_sequence_{1};
  std::atomic<ColdEvents*> events_{nullptr};
  std::atomic<bool> closing_{false};
  std::atomic<int> waiting_read_count_{0};

  // Of the queue alone.
  IndexBatch backlog_;  // What a broken index has not been told.
  bool index_broken_ = false;
  uint64_t index_bytes_measured_ = 0;
  uint64_t index_bytes_since_ = 0;
  std::shared_ptr<ReclaimJob> reclaim_;
  int write_errors_in_a_row_ = 0;
  // What makes rewriting facts worth it: segments of data that are gone, with which tombstones end, and facts that
  // died, a segment's worth counted as one. Rewritten segments of facts are no gain of their own.
  uint64_t removals_ = 0;
  uint64_t removals_at_facts_reclaim_ = 0;
  uint64_t dead_fact_bytes_ = 0;
  std::set<uint32_t> facts_segments_going_;
  std::map<std::string, FactPlace> facts_;  // By FactKey.
  FlushDone close_done_;
  std::vector<Tombstone> unlogged_;  // Known to the index, not yet to the log.
  uint64_t tombstone_failures_ = 0;
  uint64_t tombstones_without_room_ = 0;                        // Of tombstone_failures_, for want of a segment.
  std::vector<std::pair<int64_t, FlushDone>> waiting_flushes_;  // Of the queue: until when, and whom to tell.

  mutable std::mutex mu_;  // Also guards what segments and copies say it does.
  TokenBucket admission_;
  uint64_t copies_ = 0;
  uint64_t stored_bytes_ = 0;
  uint64_t draft_bytes_ = 0;
  uint64_t unplaced_bytes_ = 0;  // Committed and not yet settled.
  // The largest reservation that found no room, until one as large is granted or nobody has come back for a while.
  uint64_t refused_bytes_ = 0;
  int64_t refused_until_ns_ = 0;
  std::vector<Tombstone> forgotten_;
  bool forgotten_urgent_ = false;  // Among them is what failed half-way: the log must know at once.
  bool draining_ = false;
  std::deque<std::shared_ptr<ReadOp>> waiting_reads_;
  ColdHealth health_;
  int64_t next_probe_ns_ = 0;
  bool probing_ = false;
  bool backlog_full_ = false;
  ColdCounters cold_counters_;

  mutable std::mutex tasks_mu_;
  std::condition_variable tasks_done_;
  int64_t tasks_ = 0;  // Guarded by tasks_mu_.
};

}  // namespace firn
