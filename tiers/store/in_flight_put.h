// The inside of a put in flight.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tiers/store/store_impl.h"

namespace firn {

// The caller's side of a put in flight. The bytes are either a draft of the tier that it enters, or memory of its own
// where that tier stores another form than the source's.
class InFlightPutImpl final : public InFlightPut {
 public:
  InFlightPutImpl(StoreImpl* store, const PutSpec& spec, EncodePlan plan, bool refines)
      : store_(store), spec_(spec), plan_(std::move(plan)), refines_(refines) {
    if (!spec.token_importance.empty()) {
      ranks_ = std::make_shared<const std::vector<uint8_t>>(RankImportance(spec.token_importance));
      spec_.token_importance = {};
    }
  }
  ~InFlightPutImpl() override {
    draft_.reset();
    if (!published_) store_->AbortPut(name());
  }

  const PutSpec& spec() const override { return spec_; }
  const BlockShape& shape() const override { return plan_.header.shape; }
  const MutableRuns& runs() const override {
    return draft_ != nullptr ? draft_->runs() : held_ != nullptr ? held_->runs() : staged_runs_;
  }
  const RecordLayout& layout() const override { return plan_.layout; }

  EntryName name() const { return {spec_.address.ns, spec_.address.shard, spec_.address.key}; }
  const EncodePlan& plan() const { return plan_; }
  // What it is filled with.
  ClassPair offered() const {
    return Coarser(SourceClass(plan_.header.dtype, plan_.header.shape), ClassOf(plan_.header, plan_.header.encoded));
  }
  // Completes a header of the plan by the bytes that it was filled with; DataLoss where a packed record's do not check.
  absl::Status Seal(RecordHeader* header) const {
    std::array<RunBytes, kRunIds> filled;
    for (uint32_t run = 0; run < kRunIds; ++run) filled[run] = runs()[run];
    if (spec_.packed != nullptr) return AdoptRecord(spec_.packed->identity, header, filled);
    SealSource(header, filled);
    return absl::OkStatus();
  }
  const TokenRanks& ranks() const { return ranks_; }
  // It carries the generation of a coarser block that was there when it began.
  bool refines() const { return refines_; }
  // That block is gone: this is one of its own.
  void Renew(uint64_t generation) {
    plan_.header.identity.generation = generation;
    refines_ = false;
  }
  std::unique_ptr<Draft>& draft() { return draft_; }
  // The values as they came are in memory of its own.
  bool staged() const { return !staged_.empty(); }
  // The bytes are in a draft of a tier that went away.
  void Hold(std::unique_ptr<Draft> draft) { held_ = std::move(draft); }
  // The tier that it enters.
  uint8_t tier() const { return tier_; }
  void set_tier(uint8_t tier) { tier_ = tier; }
  void Stage() {
    staged_.resize(plan_.layout.TotalBytes());
    size_t at = 0;
    for (uint32_t run = 0; run < kRunIds; ++run) {
      staged_runs_[run] = MutableRunBytes(MutableByteSpan(staged_).subspan(at, plan_.layout.run_bytes[run]));
      at += plan_.layout.run_bytes[run];
    }
  }
  void set_published() { published_ = true; }

  void FillFromDevice(const DeviceRows& rows, absl::AnyInvocable<void(absl::Status)> done) override {
    store_->ImportPut(this, rows, std::move(done));
  }
  // The header of what was taken from device memory; null until it has been.
  struct Imported {
    std::mutex mu;
    std::shared_ptr<const RecordHeader> header;  // Guarded by mu.
  };
  const std::shared_ptr<Imported>& imported() const { return imported_; }

  EncodedBlock View(std::shared_ptr<const RecordHeader> header) const {
    EncodedBlock block;
    block.present = header->encoded;
    block.header = std::move(header);
    for (uint32_t run = 0; run < kRunIds; ++run) block.runs[run] = runs()[run];
    return block;
  }

 private:
  StoreImpl* const store_;
  PutSpec spec_;  // Without importance: the ranks have it.
  EncodePlan plan_;
  bool refines_;
  uint8_t tier_ = 0;
  TokenRanks ranks_;  // Null where no importance was given.
  const std::shared_ptr<Imported> imported_ = std::make_shared<Imported>();
  std::unique_ptr<Draft> draft_, held_;
  std::vector<uint8_t> staged_;
  MutableRuns staged_runs_;
  bool published_ = false;
};

}  // namespace firn
