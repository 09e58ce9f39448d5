// A tier: one level of the chain, hot to cold, and what it stores.
//
// A tier stores copies: a record header and some of its runs. Writing is Reserve (space and memory to fill), fill,
// Commit (all or nothing: the copy exists only when its bytes are in place). Reading returns an EncodedBlock that keeps
// its bytes alive. The tier does not know what a copy is for; the store's index does, and names it when it commits.
//
// Public calls are not virtual: they count and check in one place, then call the protected *Impl ones.
// Threads: every call is safe from any thread. Completions run on the tier's executor or inside the call; they must not
// block.
//
// Ownership: a CopyPtr is a reference. A copy's bytes are given back when the last reference is dropped, so a reader is
// protected by what it holds, never by a lease. Dropping the index's reference to a persistent copy does not delete it
// from the medium's own index: Forget does.
//
// Errors: ResourceExhausted when it does not fit now, InvalidArgument when it never can, DataLoss when stored bytes do
// not check, Unavailable when the medium failed, FailedPrecondition after Shutdown.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "base/latency.h"
#include "codecs/block_codec.h"
#include "codecs/ecc/ecc.h"
#include "codecs/encoded_block.h"
#include "codecs/record.h"
#include "codecs/types.h"

namespace firn {

class Tier;

// One stored form of a block in one tier. Immutable: narrowing makes another copy that shares the runs that stay.
class Copy {
 public:
  virtual ~Copy() = default;
  Copy(const Copy&) = delete;
  Copy& operator=(const Copy&) = delete;

  // Runs that can be read now. A cold copy loses runs when their segment is reclaimed, so this may shrink, never grow.
  virtual RunMask Runs() const = 0;
  // Bytes that this copy takes of its tier's capacity, at its current precision.
  virtual uint64_t StoredBytes() const = 0;

 protected:
  Copy() = default;
};
using CopyPtr = std::shared_ptr<const Copy>;

// Space taken for a copy that is being written. Destroying a draft that was not committed gives everything back.
class Draft {
 public:
  virtual ~Draft() = default;
  const RecordLayout& layout() const { return layout_; }
  // Exactly layout().run_bytes[i] writable bytes for every present run.
  const MutableRuns& runs() const { return runs_; }

 protected:
  RecordLayout layout_;
  MutableRuns runs_;
};

struct CommitOptions {
  // Runs that a floor, an error limit or a pin protects: on media where reclaiming degrades, they are kept apart.
  RunMask protect;
  // Where the medium may go away with what it took, the draft comes back here before `done` is called, with Unavailable
  // and with success: its runs are still what they were filled with, so that they can go elsewhere. Null: it is
  // dropped.
  std::shared_ptr<std::unique_ptr<Draft>> returned = nullptr;
  // The tier's device mover filled the draft: its bytes are where they belong, and runs() mean nothing.
  bool in_place = false;
};

struct TierUsage {
  uint64_t capacity_bytes = 0;
  uint64_t used_bytes =
      0;  // Committed copies, drafts and the medium's own overhead; above capacity only after SetCapacity.
  uint64_t overhead_bytes = 0;  // Of these, the medium's own: used = sum of StoredBytes + draft_bytes + overhead_bytes.
  uint64_t draft_bytes = 0;     // Of these, reserved and not yet committed.
  uint64_t copies = 0;
  uint64_t held_bytes = 0;         // Of used_bytes, copies that nobody but readers refers to.
  uint64_t quarantined_bytes = 0;  // Of overhead_bytes, places that gave wrong bytes again and again.
};

struct TierCounters {
  uint64_t reserves = 0, reserve_failures = 0;
  uint64_t commits = 0, commit_failures = 0, committed_bytes = 0;
  uint64_t reads = 0, read_failures = 0, read_bytes = 0;
  uint64_t narrows = 0, narrowed_bytes = 0;
  // Code words and shards that error correction changed, and that were beyond it.
  uint64_t ecc_corrected = 0, ecc_uncorrectable = 0;
  // From the call to its completion, failures included; reads of a header alone are left out.
  LatencySnapshot read_latency, commit_latency;
};

// The payload of a ResourceExhausted that passes by itself, and that making room in the tier would not end.
inline constexpr char kPassingShortage[] = "firnkv.passing_shortage";
inline bool WantsRoom(const absl::Status& status) {
  return status.code() == absl::StatusCode::kResourceExhausted && !status.GetPayload(kPassingShortage).has_value();
}

// Re-codes copies where they lie: what a tier offers whose bytes are far from the processor.
class TierRecoder {
 public:
  struct Recoded {
    std::unique_ptr<Draft> draft;  // Of the tier asked for, filled.
    std::shared_ptr<const RecordHeader> header;
  };
  using RecodeDone = absl::AnyInvocable<void(absl::StatusOr<Recoded>)>;
  // Gives what reading `copy`, verifying it and EncodeInto would give in a draft of `to`. Unimplemented where that is
  // the way to go: no kernel for a coding, values that want another plan, a tier that cannot be written from here.
  // DataLoss where the copy is damaged; ResourceExhausted where `to` has no room. `artifacts` must outlive the call.
  virtual void Recode(CopyPtr copy, const Identity& identity, const EncodeSpec& spec, const ArtifactSource& artifacts,
                      Tier* to, RecodeDone done) = 0;

 protected:
  ~TierRecoder() = default;
};

struct DeviceRows;

// Moves blocks between a tier and the device memory of workers on the same GPU, without a pass through the host.
class DeviceMover {
 public:
  using ImportDone = absl::AnyInvocable<void(absl::StatusOr<std::shared_ptr<const RecordHeader>>)>;
  using ExportDone = absl::AnyInvocable<void(absl::Status)>;
  // Fills a draft of this tier (Reserve, ReserveForImport), of source values, with a worker's rows once their event has
  // come, and completes the header planned for it. The draft may go meanwhile.
  virtual void Import(Draft* draft, const RecordHeader& planned, const DeviceRows& rows, ImportDone done) = 0;
  // Decodes the runs in `block.present` to where a worker wants them: of `copy`, one of this tier's, where it is given,
  // else of the block's bytes. Checks are verified first; with `copy` alone, codings without a kernel are
  // Unimplemented. `artifacts` must outlive the call.
  virtual void Export(const EncodedBlock& block, CopyPtr copy, const ArtifactSource& artifacts, const DeviceRows& rows,
                      ExportDone done) = 0;

 protected:
  ~DeviceMover() = default;
};

class Tier {
 public:
  using CommitDone = absl::AnyInvocable<void(absl::StatusOr<CopyPtr>)>;
  using ReadDone = absl::AnyInvocable<void(absl::StatusOr<EncodedBlock>)>;
  using FlushDone = absl::AnyInvocable<void(absl::Status)>;

  virtual ~Tier() = default;

  // Takes space for a record of `layout`. Never waits: ResourceExhausted means that the caller must make room first,
  // and its message names the bytes asked for and the bytes free.
  absl::StatusOr<std::unique_ptr<Draft>> Reserve(const RecordLayout& layout);

  // The same for a draft that the tier's device mover fills, and nothing else: it takes no memory on this side, and
  // runs() are empty. Unimplemented where there is no mover.
  absl::StatusOr<std::unique_ptr<Draft>> ReserveForImport(const RecordLayout& layout);

  // Fills a draft with the same runs of an encoded block, in the way that suits the medium: far memory is written past
  // the caches. Every run of the draft must be in `source`, with its length.
  void Fill(Draft* draft, const EncodedBlock& source) const;

  // Publishes a filled draft. `header->encoded` names exactly the draft's runs. On failure nothing is kept.
  void Commit(std::unique_ptr<Draft> draft, std::shared_ptr<const RecordHeader> header, const CommitOptions& options,
              CommitDone done);

  // Reads runs of a copy (those of `runs` that it still has). Does not verify checksums of runs: the store does, once.
  // Media that can return another record's bytes verify the header's identity against `identity` and its digest.
  void Read(CopyPtr copy, const Identity& identity, RunMask runs, ReadDone done);

  // The same, with what the medium keeps for correcting errors: runs and header come as corrected as that reaches,
  // `corrected` where anything was changed or is beyond it. Parity that is itself damaged takes
  // nothing away: runs that check as they lie come as they lie. For reads that did not check; what comes of this one is
  // to be checked as well. Unimplemented where the copy has no such code.
  void ReadCorrected(CopyPtr copy, const Identity& identity, RunMask runs, ReadDone done);

  // A copy with only the runs in `keep`, in the same tier, without moving a byte. The old copy's other runs are freed
  // when its last reference goes. Unimplemented where the medium degrades by reclaiming instead.
  absl::StatusOr<CopyPtr> Narrow(const CopyPtr& copy, RunMask keep);

  // The index no longer refers to this copy: a persistent medium forgets it, so that it does not come back after a
  // restart. In memory, what is left of the copy's bytes counts as held_bytes from then on, until the last reader drops
  // it; so there it is also called for a copy that its narrowed form replaced. If a later commit of the same identity,
  // or a relocation, has superseded the copy, what superseded it stays.
  void Forget(const CopyPtr& copy, const Identity& identity) { ForgetImpl(copy, identity); }

  // Completes when everything committed before is durable. Volatile media complete at once.
  void Flush(FlushDone done) { FlushImpl(std::move(done)); }

  // From now on no more than `bytes` are used. What is used beyond stays until it is freed: making room is the store's
  // and the medium's work. InvalidArgument, naming the range, where the medium cannot be so large or so small.
  virtual absl::Status SetCapacity(uint64_t bytes) = 0;

  // What new copies are protected with.
  virtual EccPolicy ecc() const { return {}; }
  // Whether reading this copy with error correction may give more: it may have been written under another policy.
  virtual bool HasParity(const Copy& /*copy*/) const { return ecc().any(); }
  virtual bool persistent() const = 0;
  // True where Narrow frees bytes at once (memory); false where only reclaiming does (logs).
  virtual bool narrows_in_place() const = 0;
  // False while the medium cannot take anything, whatever room it has: puts go to the next tier.
  virtual bool available() const { return true; }
  // Null where copies are re-coded by whoever read them.
  virtual TierRecoder* recoder() { return nullptr; }
  // Null where no worker's device memory can be reached.
  virtual DeviceMover* device_mover() { return nullptr; }
  virtual TierUsage Usage() const = 0;
  TierCounters Counters() const;
  const std::string& name() const { return name_; }

 protected:
  explicit Tier(std::string name) : name_(std::move(name)) {}

  virtual absl::StatusOr<std::unique_ptr<Draft>> ReserveImpl(const RecordLayout& layout) = 0;
  virtual absl::StatusOr<std::unique_ptr<Draft>> ReserveForImportImpl(const RecordLayout& layout);
  virtual void CommitImpl(std::unique_ptr<Draft> draft, std::shared_ptr<const RecordHeader> header,
                          const CommitOptions& options, CommitDone done) = 0;
  virtual void ReadImpl(CopyPtr copy, const Identity& identity, RunMask runs, ReadDone done) = 0;
  virtual void ReadCorrectedImpl(CopyPtr copy, const Identity& identity, RunMask runs, ReadDone done);
  virtual absl::StatusOr<CopyPtr> NarrowImpl(const CopyPtr& copy, RunMask keep) = 0;
  virtual void ForgetImpl(const CopyPtr& copy, const Identity& identity) = 0;
  // By default run by run with CopyInImpl.
  virtual void FillImpl(Draft* draft, const EncodedBlock& source) const;
  virtual void CopyInImpl(const RunBytes& source, const MutableRunBytes& target) const;
  virtual void FlushImpl(FlushDone done) = 0;

  void CountCorrections(const EccOutcome& outcome);

 private:
  absl::StatusOr<std::unique_ptr<Draft>> Counted(absl::StatusOr<std::unique_ptr<Draft>> draft);
  // `done` with the read's count before it; timed from now on.
  ReadDone Counted(bool timed, ReadDone done);

  const std::string name_;
  struct AtomicCounters {
    std::atomic<uint64_t> reserves{0}, reserve_failures{0}, commits{0}, commit_failures{0}, committed_bytes{0},
        reads{0}, read_failures{0}, read_bytes{0}, narrows{0}, narrowed_bytes{0}, ecc_corrected{0},
        ecc_uncorrectable{0};
  };
  AtomicCounters counters_;
  LatencyHistogram read_latency_, commit_latency_;
};

}  // namespace firn
