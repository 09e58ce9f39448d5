#include "tiers/tier.h"

#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"

namespace firn {

absl::StatusOr<std::unique_ptr<Draft>> Tier::Reserve(const RecordLayout& layout) {
  return Counted(ReserveImpl(layout));
}

absl::StatusOr<std::unique_ptr<Draft>> Tier::ReserveForImport(const RecordLayout& layout) {
  return Counted(ReserveForImportImpl(layout));
}

absl::StatusOr<std::unique_ptr<Draft>> Tier::ReserveForImportImpl(const RecordLayout& /*layout*/) {
  return Unimplemented("tier \"{}\" reaches no device memory", name_);
}

absl::StatusOr<std::unique_ptr<Draft>> Tier::Counted(absl::StatusOr<std::unique_ptr<Draft>> draft) {
  (draft.ok() ? counters_.reserves : counters_.reserve_failures).fetch_add(1, std::memory_order_relaxed);
  return draft;
}

void Tier::Fill(Draft* draft, const EncodedBlock& source) const {
  FIRN_CHECK(draft != nullptr && source.present.Contains(draft->layout().present));
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (!draft->layout().present.Has(i)) continue;
    FIRN_CHECK(source.runs[i].size() == draft->layout().run_bytes[i]);
  }
  FillImpl(draft, source);
}

void Tier::FillImpl(Draft* draft, const EncodedBlock& source) const {
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (draft->layout().present.Has(i)) CopyInImpl(source.runs[i], draft->runs()[i]);
  }
}

void Tier::CopyInImpl(const RunBytes& source, const MutableRunBytes& target) const { CopyScattered(source, target); }

void Tier::Commit(std::unique_ptr<Draft> draft, std::shared_ptr<const RecordHeader> header,
                  const CommitOptions& options, CommitDone done) {
  FIRN_CHECK(draft != nullptr && header != nullptr);
  FIRN_CHECK(header->encoded == draft->layout().present);
  uint64_t bytes = draft->layout().TotalBytes();
  int64_t since_ns = Clock::Real()->NowNs();
  CommitImpl(std::move(draft), std::move(header), options,
             [this, bytes, since_ns, done = std::move(done)](absl::StatusOr<CopyPtr> copy) mutable {
               commit_latency_.Add(Clock::Real()->NowNs() - since_ns);
               if (copy.ok()) {
                 counters_.commits.fetch_add(1, std::memory_order_relaxed);
                 counters_.committed_bytes.fetch_add(bytes, std::memory_order_relaxed);
               } else {
                 counters_.commit_failures.fetch_add(1, std::memory_order_relaxed);
               }
               done(std::move(copy));
             });
}

void Tier::Read(CopyPtr copy, const Identity& identity, RunMask runs, ReadDone done) {
  FIRN_CHECK(copy != nullptr);
  done = Counted(!runs.Empty(), std::move(done));
  ReadImpl(std::move(copy), identity, runs, std::move(done));
}

void Tier::ReadCorrected(CopyPtr copy, const Identity& identity, RunMask runs, ReadDone done) {
  FIRN_CHECK(copy != nullptr);
  done = Counted(!runs.Empty(), std::move(done));
  ReadCorrectedImpl(std::move(copy), identity, runs, std::move(done));
}

void Tier::ReadCorrectedImpl(CopyPtr, const Identity&, RunMask, ReadDone done) {
  done(Unimplemented("tier {} has no error correction", name_));
}

void Tier::CountCorrections(const EccOutcome& outcome) {
  counters_.ecc_corrected.fetch_add(outcome.corrected, std::memory_order_relaxed);
  counters_.ecc_uncorrectable.fetch_add(outcome.uncorrectable, std::memory_order_relaxed);
}

Tier::ReadDone Tier::Counted(bool timed, ReadDone done) {
  int64_t since_ns = timed ? Clock::Real()->NowNs() : 0;
  return [this, timed, since_ns, done = std::move(done)](absl::StatusOr<EncodedBlock> block) mutable {
    if (timed) read_latency_.Add(Clock::Real()->NowNs() - since_ns);
    if (block.ok()) {
      counters_.reads.fetch_add(1, std::memory_order_relaxed);
      counters_.read_bytes.fetch_add(block->Layout(block->present).TotalBytes(), std::memory_order_relaxed);
    } else {
      counters_.read_failures.fetch_add(1, std::memory_order_relaxed);
    }
    done(std::move(block));
  };
}

absl::StatusOr<CopyPtr> Tier::Narrow(const CopyPtr& copy, RunMask keep) {
  FIRN_CHECK(copy != nullptr);
  uint64_t before = copy->StoredBytes();
  auto narrowed = NarrowImpl(copy, keep);
  if (narrowed.ok()) {
    counters_.narrows.fetch_add(1, std::memory_order_relaxed);
    counters_.narrowed_bytes.fetch_add(before - (*narrowed)->StoredBytes(), std::memory_order_relaxed);
  }
  return narrowed;
}

TierCounters Tier::Counters() const {
  TierCounters out;
  out.reserves = counters_.reserves.load(std::memory_order_relaxed);
  out.reserve_failures = counters_.reserve_failures.load(std::memory_order_relaxed);
  out.commits = counters_.commits.load(std::memory_order_relaxed);
  out.commit_failures = counters_.commit_failures.load(std::memory_order_relaxed);
  out.committed_bytes = counters_.committed_bytes.load(std::memory_order_relaxed);
  out.reads = counters_.reads.load(std::memory_order_relaxed);
  out.read_failures = counters_.read_failures.load(std::memory_order_relaxed);
  out.read_bytes = counters_.read_bytes.load(std::memory_order_relaxed);
  out.narrows = counters_.narrows.load(std::memory_order_relaxed);
  out.narrowed_bytes = counters_.narrowed_bytes.load(std::memory_order_relaxed);
  out.ecc_corrected = counters_.ecc_corrected.load(std::memory_order_relaxed);
  out.ecc_uncorrectable = counters_.ecc_uncorrectable.load(std::memory_order_relaxed);
  out.read_latency = read_latency_.Snapshot();
  out.commit_latency = commit_latency_.Snapshot();
  return out;
}

}  // namespace firn
