// What the cold tier puts into the log, and what each does when it has settled. Private to the tier's own files.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tiers/cold/cold_tier.h"

namespace firn {

// A part of a draft: one extent, its runs laid out in memory behind room for the headers.
struct ColdTier::DraftExtent {
  Stream stream = Stream::kBase;
  ExtentShape shape;
  std::shared_ptr<ChunkPool::Lease> memory;
};

class ColdTier::ColdDraft final : public Draft {
 public:
  ColdDraft(ColdTier* tier, const RecordLayout& layout, std::vector<DraftExtent> extents, uint64_t bytes);
  ~ColdDraft() override { tier_->ReturnDraft(bytes_); }
  std::vector<DraftExtent>& extents() { return extents_; }
  uint64_t bytes() const { return bytes_; }

 private:
  ColdTier* const tier_;
  std::vector<DraftExtent> extents_;
  const uint64_t bytes_;  // Taken of the budget.
};

struct ColdTier::Item : LogItem {
  // On the queue. `status` and the extents' places are final.
  virtual void Settled(ColdTier* tier, SettleContext* context) = 0;
};

struct ColdTier::CommitItem final : Item {
  RecordNote note;
  uint64_t sequence = 0;
  uint64_t bytes = 0;
  CommitDone done;
  void Settled(ColdTier* tier, SettleContext* context) override;
};

struct ColdTier::RelocateItem final : Item {
  std::shared_ptr<ReclaimJob> job;
  ColdCopyPtr copy;
  ExtentHeader old_header;
  RunMask dropped;  // Left behind on the way.
  void Settled(ColdTier* tier, SettleContext* context) override;
};

struct ColdTier::FactItem final : Item {
  ExtentKind kind = ExtentKind::kFact;
  FactPayload fact;
  uint64_t sequence = 0;
  bool rewritten = false;  // An old value that moves: nothing where it was replaced or removed meanwhile.
  FlushDone done;
  void Settled(ColdTier* tier, SettleContext* context) override;
};

// Something that only a rebuild reads: the index knows it already.
struct ColdTier::TombstoneItem final : Item {
  FlushDone done;  // May be empty.
  void Settled(ColdTier*, SettleContext* context) override {
    if (!done) return;
    context->after.push_back([done = std::move(done), result = status]() mutable { done(result); });
  }
};

struct ColdTier::NamespaceItem final : Item {
  NamespaceForgottenRow row;
  FlushDone done;
  void Settled(ColdTier* tier, SettleContext* context) override;
};

struct ColdTier::FlushItem final : Item {
  FlushDone done;
  void Settled(ColdTier*, SettleContext* context) override {
    context->after.push_back([done = std::move(done), result = status]() mutable { done(result); });
  }
};

struct ColdTier::ReclaimJob {
  SegmentPtr victim;
  std::vector<ExtentHeader> entries;
  absl::flat_hash_map<uint64_t, uint32_t> slot_at;        // By offset.
  std::deque<std::pair<ExtentHeader, RunMask>> relocate;  // With what is left behind on the way.
  uint32_t in_flight = 0;                                 // Relocations read or on their way into the log.
  bool keeps_victim = false;                              // Something in it could not be moved and must not go.
};

// Bytes [offset, offset + length) of a lease's pieces.
MutableRunBytes SpanAt(const ChunkPool::Lease& lease, uint64_t offset, uint64_t length);
// The record's extents in the order of the item, as rows name them.
std::vector<RowExtent> RowExtentsOf(const LogItem& item);
ColdLayout LayoutOf(const RecordNote& note, const std::vector<RowExtent>& extents);

}  // namespace firn
