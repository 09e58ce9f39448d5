// The way of a copy into the log: reserve, lay out, checksum, append, publish.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/checksum.h"
#include "base/status.h"
#include "tiers/cold/cold_items.h"

namespace firn {
namespace {

// Whoever was refused comes back within that, or has given up.
constexpr int64_t kRefusedForNs = 10'000'000'000;

uint64_t ExtentHeaderBound(RunMask written) {
  ExtentHeader header;
  header.note.written = written;
  header.note.parent = Digest();
  header.siblings.resize(kRecordExtentsMax - 1);
  return header.header_bytes();
}

RunLengths LengthsOf(const RecordLayout& layout) {
  RunLengths lengths{};
  for (uint32_t i = 0; i < kRunIds; ++i) lengths[i] = static_cast<uint32_t>(layout.run_bytes[i]);
  return lengths;
}

}  // namespace

ColdTier::ColdDraft::ColdDraft(ColdTier* tier, const RecordLayout& layout, std::vector<DraftExtent> extents,
                               uint64_t bytes)
    : tier_(tier), extents_(std::move(extents)), bytes_(bytes) {
  layout_ = layout;
  RunLengths lengths = LengthsOf(layout);
  for (const DraftExtent& extent : extents_) {
    for (uint32_t i = 0; i < kRunIds; ++i) {
      if (extent.shape.runs.Has(i)) runs_[i] = SpanAt(*extent.memory, RunOffset(extent.shape, lengths, i), lengths[i]);
    }
  }
}

// The extents of a draft, without memory.
absl::StatusOr<std::vector<ColdTier::DraftExtent>> ColdTier::PlanDraft(const RecordLayout& layout) const {
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (layout.run_bytes[i] > kBlockBytesMax)
      return InvalidArgument("run {} of {} bytes, at most {}", i, layout.run_bytes[i], kBlockBytesMax);
  }
  RunMask base = layout.present;
  uint64_t extent_header = ExtentHeaderBound(layout.present);
  std::vector<DraftExtent> extents(1);
  for (auto [kind, stream] : {std::pair{RunKind::kP4, Stream::kP4}, std::pair{RunKind::kP8, Stream::kP8}}) {
    RunMask plane = layout.present & RunMask::Both(kind);
    uint64_t bytes = layout.run_bytes[RunIndex(kind, Part::kK)] + layout.run_bytes[RunIndex(kind, Part::kV)];
    if (plane.Empty() || bytes < options_.split_plane_bytes) continue;
    base = base - plane;
    extents.push_back({stream, {plane, static_cast<uint32_t>(AlignUp(extent_header, kExtentAlignment))}, nullptr});
  }
  uint64_t runs_at = AlignUp(extent_header + HeaderBytesBound(layout), kExtentAlignment);
  extents[0] = {Stream::kBase, {base, static_cast<uint32_t>(runs_at)}, nullptr};
  return extents;
}

absl::Status ColdTier::Admit(uint64_t asked, uint64_t bytes) {
  bool trouble = false, no_room = false;
  absl::Status status;
  {
    std::lock_guard lock(mu_);
    trouble = health_.state != ColdState::kOk;
    if (health_.state == ColdState::kReadOnly) {
      status = ResourceExhausted("tier {} takes no writes: {}", name(), health_.reason);
    } else if (health_.state == ColdState::kFailed) {
      status = Unavailable("tier {} takes no writes: {}", name(), health_.reason);
    } else if (backlog_full_) {
      status = Unavailable("tier {} takes no writes until its index can be written: {}", name(), health_.reason);
    } else {
      uint64_t room = segments_->free_bytes(false) + writer_->open_room_bytes();
      uint64_t taken = draft_bytes_ + unplaced_bytes_;
      uint64_t free = room > taken ? room - taken : 0;
      if (bytes > free) {
        no_room = true;
        status = ResourceExhausted("tier {}: {} bytes asked for, {} with overhead; {} of {} free", name(), asked, bytes,
                                   free, segments_->capacity_bytes());
      } else if (!admission_.Take(bytes, options_.clock->NowNs())) {
        ++cold_counters_.admission_refusals;
        status = ResourceExhausted("tier {}: {} bytes asked for, over its write rate of {} bytes a second", name(),
                                   bytes, admission_.rate());
      } else {
        draft_bytes_ += bytes;
        if (bytes >= refused_bytes_) refused_bytes_ = 0;
      }
    }
  }
  if (trouble) Post([this] { MaybeProbe(); });
  if (!status.ok() && !trouble) {
    Post([this, bytes = no_room ? bytes : 0] {
      if (bytes > 0) WantRoom(bytes);
      MaybeReclaim();
    });
  }
  return status;
}

void ColdTier::WantRoom(uint64_t bytes) {
  {
    std::lock_guard lock(mu_);
    int64_t now_ns = options_.clock->NowNs();
    bool wanted_already = bytes <= refused_bytes_ && now_ns < refused_until_ns_;
    if (wanted_already && bytes < refused_bytes_) return;
    if (wanted_already) {
      refused_until_ns_ = now_ns + kRefusedForNs;
      return;
    }
  }
  // Nothing is given up for a record that would not fit even then: facts stay, and so do the index and foreign files.
  uint64_t stays = segments_->used_bytes() - segments_->segment_bytes() + options_.segment_bytes;
  for (const SegmentPtr& segment : segments_->All()) {
    if (segment->stream == Stream::kFacts) stays += segment->file->allocated_bytes();
  }
  if (stays + bytes > segments_->capacity_bytes()) return;
  std::lock_guard lock(mu_);
  refused_bytes_ = bytes;
  refused_until_ns_ = options_.clock->NowNs() + kRefusedForNs;
}

void ColdTier::ReturnDraft(uint64_t bytes) {
  std::lock_guard lock(mu_);
  draft_bytes_ -= bytes;
}

std::shared_ptr<void> ColdTier::TakeLargeTurn() {
  if (large_draft_->exchange(true)) return nullptr;
  return {large_draft_.get(), [flag = large_draft_](void*) { flag->store(false); }};
}

absl::StatusOr<std::unique_ptr<Draft>> ColdTier::ReserveImpl(const RecordLayout& layout) {
  if (closing_) return FailedPrecondition("cold tier {} is closed", name());
  FIRN_ASSIGN_OR_RETURN(std::vector<DraftExtent> extents, PlanDraft(layout));
  // The first has the record header.
  auto bytes_of = [&, lengths = LengthsOf(layout)](const DraftExtent& extent) {
    uint64_t header = &extent == &extents[0] ? HeaderBytesBound(layout) : 0;
    return ExtentContents{extent.shape, lengths, static_cast<uint32_t>(header), options_.ecc}.End();
  };
  uint64_t bytes = 0;
  for (const DraftExtent& extent : extents) bytes += AlignUp(bytes_of(extent), kIoAlignment);
  FIRN_RETURN_IF_ERROR(Admit(layout.TotalBytes(), bytes));
  uint64_t cost = 0;
  for (const DraftExtent& extent : extents) cost += staging_->CostOf(bytes_of(extent));
  std::shared_ptr<void> turn = cost > staging_->budget_bytes() ? TakeLargeTurn() : nullptr;
  for (DraftExtent& extent : extents) {
    uint64_t extent_bytes = bytes_of(extent);
    if (turn != nullptr) {
      auto lease = ChunkPool::Lease::OnHeap(extent_bytes);
      extent.memory = {lease.get(), [lease, turn](ChunkPool::Lease*) {}};
    } else if (cost <= staging_->budget_bytes()) {
      extent.memory = staging_->Take(extent_bytes, layout.namespace_tag);
    }
    if (extent.memory == nullptr) {
      std::lock_guard lock(mu_);
      draft_bytes_ -= bytes;
      admission_.GiveBack(bytes);
      if (cost > staging_->budget_bytes()) {
        return ResourceExhausted(
            "tier {}: {} bytes asked for; another record over the {} bytes of staging memory is on "
            "its way, and they go one at a time",
            name(), bytes, staging_->budget_bytes());
      }
      return ResourceExhausted("tier {}: {} bytes asked for, {} of {} bytes of staging memory free", name(), bytes,
                               staging_->free_bytes(), staging_->budget_bytes());
    }
  }
  return std::unique_ptr<Draft>(new ColdDraft(this, layout, std::move(extents), bytes));
}

void ColdTier::CommitImpl(std::unique_ptr<Draft> draft, std::shared_ptr<const RecordHeader> header,
                          const CommitOptions& options, CommitDone done) {
  auto& cold = static_cast<ColdDraft&>(*draft);
  absl::Status valid = closing_ ? FailedPrecondition("cold tier {} is closed", name()) : CheckHeader(*header);
  for (uint32_t i = 0; valid.ok() && i < kRunIds; ++i) {
    if (header->runs[i].bytes != cold.layout().run_bytes[i]) {
      valid = InvalidArgument("run {}: the header says {} bytes, {} were reserved", i, header->runs[i].bytes,
                              cold.layout().run_bytes[i]);
    }
  }
  if (!valid.ok()) {
    draft.reset();
    return done(valid);
  }
  std::vector<uint8_t> serialized = SerializeHeader(*header);
  if (uint64_t bound = HeaderBytesBound(cold.layout()); serialized.size() > bound) {
    draft.reset();
    return done(InternalError("tier {}: a header of {} bytes, {} were reserved", name(), serialized.size(), bound));
  }
  auto item = std::make_unique<CommitItem>();
  RecordNote& note = item->note;
  note.identity = header->identity;
  note.parent = header->parent;
  note.first_token = header->first_token;
  note.tokens = header->shape.tokens;
  note.expires_unix_ms = header->expires_unix_ms;
  note.digest = HeaderDigest(serialized);
  note.header_bytes = static_cast<uint32_t>(serialized.size());
  note.ecc = options_.ecc;
  note.written = header->encoded;
  note.protect = options.protect & header->encoded;
  note.run_bytes = LengthsOf(cold.layout());
  RunMask coarser = header->encoded - RunMask::Both(RunKind::kP8);
  note.classes = {ClassOf(*header, header->encoded), ClassOf(*header, coarser),
                  ClassOf(*header, coarser - RunMask::Both(RunKind::kP4))};
  item->sequence = next_sequence_++;
  item->bytes = cold.bytes();
  item->done = std::move(done);
  std::vector<DraftExtent> extents = std::move(cold.extents());
  SplitProtected(&extents, note.run_bytes, note.protect);
  for (size_t i = 0; i < extents.size(); ++i) {
    ByteSpan record_header = i == 0 ? ByteSpan(serialized) : ByteSpan();
    item->extents.push_back(
        FinishExtent(std::move(extents[i]), note, record_header, item->sequence, extents.size() - 1, false));
  }
  {
    std::lock_guard lock(mu_);
    unplaced_bytes_ += item->bytes;
  }
  draft.reset();
  Post([this, item = std::move(item)]() mutable { AppendItem(std::move(item)); });
}

void ColdTier::CommitItem::Settled(ColdTier* tier, SettleContext* context) {
  {
    std::lock_guard lock(tier->mu_);
    tier->unplaced_bytes_ -= bytes;
  }
  if (!status.ok()) {
    tier->Withdraw(*this, context);
    context->after.push_back([done = std::move(done), result = status]() mutable { done(result); });
    return;
  }
  RecordRow row{sequence, note, RowExtentsOf(*this)};
  auto copy = std::make_shared<ColdCopy>(sequence, note.digest);
  copy->layout = tier->layouts_.Intern(LayoutOf(note, row.extents));
  {
    std::lock_guard lock(tier->mu_);
    tier->LinkLocked(copy, row.extents);
  }
  context->batch.Put(RecordKey(sequence), RecordValue(row));
  context->after.push_back(
      [done = std::move(done), copy = std::move(copy)]() mutable { done(CopyPtr(std::move(copy))); });
}

// Some of a failed item may be whole on the medium: it must not come back.
void ColdTier::Withdraw(const LogItem& item, SettleContext*) {
  std::optional<Tombstone> tombstone = TombstoneOf(item);
  if (!tombstone) return;
  std::lock_guard lock(mu_);
  forgotten_.push_back(*tombstone);
  forgotten_urgent_ = true;
}

std::optional<Tombstone> ColdTier::TombstoneOf(const LogItem& item) {
  Tombstone tombstone;
  bool placed = false;
  for (size_t i = 0; i < item.extents.size(); ++i) {
    tombstone.sequence = item.extents[i].header.sequence;
    if (item.extents[i].segment == nullptr) continue;
    tombstone.segments[i] = item.extents[i].segment->id;
    placed = true;
  }
  if (!placed) return std::nullopt;
  return tombstone;
}

// Makes a new copy visible to reclaiming: its extents in their segments, its bytes in the sums.
void ColdTier::LinkLocked(const ColdCopyPtr& copy, const std::vector<RowExtent>& extents) {
  RunMask runs;
  for (size_t i = 0; i < extents.size(); ++i) {
    SegmentPtr segment = segments_->Find(extents[i].place.segment);
    if (segment == nullptr) continue;
    copy->extents[i] = {segment->id, static_cast<uint32_t>(segment->slots.size())};
    segment->slots.push_back(copy);
    segment->slot_offsets.push_back(static_cast<uint32_t>(extents[i].place.offset / kExtentAlignment));
    segment->live_bytes += AlignUp(copy->layout->ExtentBytes(i), kExtentAlignment);
    ++segment->live_extents;
    runs |= extents[i].shape.runs;
  }
  copy->runs = runs.bits();
  ++copies_;
  UpdateStoredLocked(copy.get());
}

void ColdTier::UpdateStoredLocked(ColdCopy* copy) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < kRecordExtentsMax; ++i) {
    if (copy->extents[i].segment == 0) continue;
    bytes += AlignUp(copy->layout->ExtentBytes(i), kExtentAlignment);
  }
  stored_bytes_ -= copy->StoredBytes();
  stored_bytes_ += bytes;
  copy->stored_units = static_cast<uint32_t>(bytes / kExtentAlignment);
}

// Takes one extent out of its segment's live ones. The copy still knows where it is, for readers.
void ColdTier::UnlinkExtentLocked(ColdCopy* copy, size_t extent) {
  if (copy->extents[extent].segment == 0) return;
  SegmentPtr segment = segments_->Find(copy->extents[extent].segment);
  if (segment == nullptr) return;
  ColdCopyPtr& slot = segment->slots[copy->extents[extent].slot];
  if (slot.get() != copy) return;
  slot = nullptr;
  segment->live_bytes -= AlignUp(copy->layout->ExtentBytes(extent), kExtentAlignment);
  --segment->live_extents;
}

absl::StatusOr<CopyPtr> ColdTier::NarrowImpl(const CopyPtr&, RunMask) {
  return Unimplemented("tier {} degrades by reclaiming; write the copy again with fewer runs", name());
}

}  // namespace firn
