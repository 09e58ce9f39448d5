// Making space: whole segments, dead ones first, then the finest planes, then blocks.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/checksum.h"
#include "base/status.h"
#include "tiers/cold/cold_items.h"
#include "tiers/cold/log/segment_reader.h"

namespace firn {
namespace {

// The class of segments that goes first, then the better of them. Planes that can be given up without losing a block
// come before blocks; p8 before p4.
struct VictimScore {
  int rank = 0;
  double benefit = 0;
  bool operator>(const VictimScore& other) const {
    return rank != other.rank ? rank > other.rank : benefit > other.benefit;
  }
};

VictimScore ScoreOf(const Segment& segment, uint32_t next_id) {
  if (segment.live_extents == 0) return {4, static_cast<double>(segment.data_bytes)};
  double live = std::min(
      1.0, static_cast<double>(segment.live_bytes) / static_cast<double>(std::max<uint64_t>(segment.data_bytes, 1)));
  double age = static_cast<double>(next_id - segment.id);
  // What is gained, for as long as it is likely to stay gained, over what it costs to move what lives (Rosenblum and
  // Ousterhout, The Design and Implementation of a Log-Structured File System, section 3.4). A full segment is worth
  // its age a little, too.
  double benefit = (1.05 - live) * age / (1 + live);
  switch (segment.stream) {
    case Stream::kP8:
      return {3, benefit};
    case Stream::kP4:
      return {2, benefit};
    default:
      return {1, benefit};
  }
}

// What a packed record leaves behind when it is rewritten: its finest plane, unless that is protected or the store
// wants it kept.
RunMask DegradedOnTheWay(const ExtentHeader& header, ColdEvents* events) {
  if (!header.has_record_header) return {};
  for (RunKind kind : {RunKind::kP8, RunKind::kP4}) {
    RunMask plane = (header.shape.runs & RunMask::Both(kind)) - header.note.protect;
    if (plane.Empty()) continue;
    return events->JudgeReclaim(header.note.identity, plane) == ReclaimVerdict::kDrop ? plane : RunMask();
  }
  return {};
}

// The note of a record without `dropped`.
RecordNote Without(RecordNote note, RunMask dropped) {
  for (Part part : kParts) {
    auto pick = [&](size_t i) -> PrecisionClass& { return part == Part::kK ? note.classes[i].k : note.classes[i].v; };
    if (dropped.Has(RunKind::kP4, part)) {
      pick(0) = pick(1) = pick(2);
    } else if (dropped.Has(RunKind::kP8, part)) {
      pick(0) = pick(1);
    }
  }
  note.written = note.written - dropped;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (dropped.Has(i)) note.run_bytes[i] = 0;
  }
  return note;
}

}  // namespace

uint64_t ColdTier::FreeTarget() const {
  uint64_t share = static_cast<uint64_t>(static_cast<double>(segments_->capacity_bytes()) * options_.free_fraction);
  // Whoever may not use the reserve needs a segment beside it.
  return std::max({share, 2 * options_.segment_bytes, options_.segment_bytes + writer_->waiting_bytes()});
}

SegmentPtr ColdTier::ChooseVictim() {
  std::lock_guard lock(mu_);
  SegmentPtr best, oldest_facts;
  VictimScore best_score;
  int facts_segments = 0;
  for (const SegmentPtr& segment : segments_->All()) {
    if (segment->state != SegmentState::kSealed) continue;
    if (segment->stream == Stream::kFacts) {
      ++facts_segments;
      if (oldest_facts == nullptr) oldest_facts = segment;  // All() goes by id.
      continue;
    }
    VictimScore score = ScoreOf(*segment, segments_->next_id());
    if (best == nullptr || score > best_score) {
      best = segment;
      best_score = score;
    }
  }
  // Facts and tombstones are always rewritten from the oldest on; that only helps once segments have gone for good.
  constexpr int kFactsSegmentsMany = 4;
  uint64_t gone = removals_ - removals_at_facts_reclaim_;
  uint64_t enough = facts_segments > kFactsSegmentsMany ? 1 : static_cast<uint64_t>(facts_segments) + 1;
  bool facts_worth_it = facts_segments >= 2 && gone >= enough;
  if (oldest_facts != nullptr && (facts_worth_it || (best == nullptr && gone > 0))) return oldest_facts;
  return best;
}

void ColdTier::MaybeReclaim() {
  if (reclaim_ != nullptr || segments_->removing()) return;  // Comes back when that is done.
  if (segments_->free_bytes(true) >= FreeTarget()) return;
  SegmentPtr victim = ChooseVictim();
  if (victim != nullptr) return StartReclaim(std::move(victim));
  if (segments_->free_bytes(true) == 0 && writer_->open_room_bytes() > 0 && writer_->idle())
    return writer_->SealAll(false);
  if (writer_->waiting_bytes() > segments_->free_bytes(false)) {
    writer_->FailWaiting(ResourceExhausted("tier {}: {} of {} bytes free, and no segment can be reclaimed", name(),
                                           segments_->free_bytes(false), segments_->capacity_bytes()));
  }
}

void ColdTier::StartReclaim(SegmentPtr victim) {
  reclaim_ = std::make_shared<ReclaimJob>();
  reclaim_->victim = std::move(victim);
  bool dead = false;
  {
    std::lock_guard lock(mu_);
    reclaim_->victim->state = SegmentState::kReclaiming;
    dead = reclaim_->victim->live_extents == 0 && reclaim_->victim->stream != Stream::kFacts;
  }
  if (dead) return FinishReclaim(reclaim_);
  PostToExecutor([this, job = reclaim_] {
    SegmentReader reader(device_.get(), job->victim->file);
    auto contents = reader.ReadFooter(job->victim->id, job->victim->salt);
    if (!contents.ok() && job->victim->stream == Stream::kFacts)
      contents = reader.Scan(job->victim->id, job->victim->salt);
    bool known = contents.ok();
    if (known) job->entries = std::move(contents->extents);
    Post([this, job, known] {
      // A segment without a footer is full of extents all the same; the index knows whose.
      if (!known && job->victim->stream != Stream::kFacts) job->entries = EntriesFromIndex(job->victim);
      OnVictimFooter(job);
    });
  });
}

std::vector<ExtentHeader> ColdTier::EntriesFromIndex(const SegmentPtr& segment) {
  std::vector<ColdCopyPtr> copies;
  std::vector<uint64_t> offsets;
  {
    std::lock_guard lock(mu_);
    for (size_t i = 0; i < segment->slots.size(); ++i) {
      if (segment->slots[i] == nullptr) continue;
      copies.push_back(segment->slots[i]);
      offsets.push_back(uint64_t{segment->slot_offsets[i]} * kExtentAlignment);
    }
  }
  std::vector<ExtentHeader> entries;
  for (size_t i = 0; i < copies.size(); ++i) {
    auto value = index_->Get(RecordKey(copies[i]->sequence));
    if (!value.ok() || !value->has_value()) continue;
    auto row = ParseRecordRow(RecordKey(copies[i]->sequence), **value);
    if (!row.ok()) continue;
    for (const RowExtent& extent : row->extents) {
      if (extent.place != ExtentPlace{segment->id, offsets[i]}) continue;
      ExtentHeader header;
      header.stream = segment->stream;
      header.place = extent.place;
      header.sequence = row->sequence;
      header.shape = extent.shape;
      header.has_record_header = &extent == &row->extents[0];
      header.note = row->note;
      entries.push_back(std::move(header));
    }
  }
  return entries;
}

ColdCopyPtr ColdTier::LiveCopyLocked(const ReclaimJob& job, const ExtentHeader& header, size_t* extent) {
  auto slot = job.slot_at.find(header.place.offset);
  if (slot == job.slot_at.end()) return nullptr;
  const ColdCopyPtr& copy = job.victim->slots[slot->second];
  if (copy == nullptr || copy->sequence != header.sequence) return nullptr;
  for (size_t i = 0; i < kRecordExtentsMax; ++i) {
    if (copy->extents[i].segment == job.victim->id && copy->extents[i].slot == slot->second) {
      *extent = i;
      return copy;
    }
  }
  return nullptr;
}

void ColdTier::OnVictimFooter(std::shared_ptr<ReclaimJob> job) {
  if (job->victim->stream == Stream::kFacts) return ReclaimFacts(job);
  std::vector<ExtentHeader> live;
  {
    std::lock_guard lock(mu_);
    for (uint32_t i = 0; i < job->victim->slots.size(); ++i) {
      if (job->victim->slots[i] != nullptr) job->slot_at[uint64_t{job->victim->slot_offsets[i]} * kExtentAlignment] = i;
    }
    size_t extent = 0;
    for (ExtentHeader& header : job->entries) {
      if (header.kind == ExtentKind::kRecord && LiveCopyLocked(*job, header, &extent) != nullptr)
        live.push_back(std::move(header));
    }
  }
  job->entries.clear();
  uint64_t budget = static_cast<uint64_t>(static_cast<double>(options_.segment_bytes) * options_.relocate_fraction);
  std::vector<ExtentHeader> drop;
  ColdEvents* events = events_;
  for (ExtentHeader& header : live) {
    ReclaimVerdict verdict =
        events == nullptr ? ReclaimVerdict::kDrop : events->JudgeReclaim(header.note.identity, header.shape.runs);
    uint64_t bytes = ExtentEnd(header.shape, header.note.run_bytes);
    if (verdict == ReclaimVerdict::kRelocate && bytes <= budget) {
      budget -= bytes;
      RunMask dropped = DegradedOnTheWay(header, events);
      job->relocate.emplace_back(std::move(header), dropped);
    } else {
      drop.push_back(std::move(header));
    }
  }
  DropExtents(job, drop);
  RelocateNext(job);
}

void ColdTier::DropExtents(const std::shared_ptr<ReclaimJob>& job, const std::vector<ExtentHeader>& extents) {
  struct Lost {
    Identity identity;
    RunMask runs;
    bool whole;
  };
  std::vector<Lost> lost;
  std::vector<ColdCopyPtr> kept_alive;  // So that none is destroyed under the lock.
  IndexBatch batch;
  {
    std::lock_guard lock(mu_);
    for (const ExtentHeader& header : extents) {
      size_t extent = 0;
      ColdCopyPtr copy = LiveCopyLocked(*job, header, &extent);
      if (copy == nullptr) continue;
      if (extent == 0) {
        lost.push_back({header.note.identity, copy->Runs(), true});
        // No tombstone: without its base nothing of it can come back.
        ForgetLocked(copy, false);
        batch.Delete(RecordKey(copy->sequence));
        ++cold_counters_.dropped_records;
      } else {
        // The row stays as it is: it names a segment that will not exist.
        lost.push_back({header.note.identity, header.shape.runs, false});
        UnlinkExtentLocked(copy.get(), extent);
        copy->extents[extent].segment = 0;
        copy->runs = (copy->Runs() - header.shape.runs).bits();
        UpdateStoredLocked(copy.get());
        ++cold_counters_.degraded_records;
      }
      kept_alive.push_back(std::move(copy));
    }
  }
  ApplyBatch(std::move(batch));
  if (ColdEvents* events = events_) {
    for (const Lost& one : lost) events->OnRunsLost(one.identity, one.runs, one.whole);
  }
}

void ColdTier::RelocateNext(const std::shared_ptr<ReclaimJob>& job) {
  constexpr uint32_t kInFlightMax = 8;
  while (!job->relocate.empty() && job->in_flight < kInFlightMax) {
    auto [header, dropped] = std::move(job->relocate.front());
    job->relocate.pop_front();
    uint64_t from = AlignDown(header.place.offset, kIoAlignment);
    uint64_t head = header.place.offset - from;
    uint64_t bytes = AlignUp(head + ExtentEnd(header.shape, header.note.run_bytes), kIoAlignment);
    auto memory = ChunkPool::Lease::OnHeap(bytes);
    ++job->in_flight;
    BeginTask();
    device_->Read(job->victim->file, from, memory->pieces()[0].first(bytes),
                  [this, job, header = std::move(header), dropped = dropped, memory, head](IoResult result) mutable {
                    Post([this, job, header = std::move(header), dropped, memory = std::move(memory), head,
                          result = std::move(result)]() mutable {
                      OnRelocationRead(job, std::move(header), dropped, std::move(memory), head, std::move(result));
                    });
                    EndTask();
                  });
  }
  if (job->relocate.empty() && job->in_flight == 0) FinishReclaim(job);
}

void ColdTier::OnRelocationRead(const std::shared_ptr<ReclaimJob>& job, ExtentHeader header, RunMask dropped,
                                std::shared_ptr<ChunkPool::Lease> memory, uint64_t head, IoResult result) {
  ByteSpan extent = ByteSpan(memory->pieces()[0]).subspan(head, ExtentEnd(header.shape, header.note.run_bytes));
  auto stored = result.bytes >= head + extent.size()
                    ? ParseExtentHeader(extent, job->victim->salt)
                    : absl::StatusOr<ExtentHeader>(DataLoss("the extent could not be read"));
  bool good = result.status.ok() && stored.ok() && stored->sequence == header.sequence &&
              stored->shape == header.shape &&
              Crc64(extent.subspan(stored->header_bytes()), stored->sequence) == stored->payload_crc;
  ColdCopyPtr copy;
  size_t index = 0;
  size_t siblings = 0;
  {
    std::lock_guard lock(mu_);
    copy = LiveCopyLocked(*job, header, &index);
    for (size_t i = 1; copy != nullptr && i < kRecordExtentsMax; ++i) siblings += copy->extents[i].segment != 0 ? 1 : 0;
  }
  if (!good || copy == nullptr) {
    if (copy != nullptr) DropExtents(job, {header});
    --job->in_flight;
    return RelocateNext(job);
  }
  RecordNote note = Without(stored->note, dropped);
  ByteSpan record_header;
  if (stored->has_record_header) record_header = extent.subspan(stored->header_bytes(), note.header_bytes);
  ExtentShape shape{stored->shape.runs - dropped,
                    static_cast<uint32_t>(AlignUp(kExtentHeaderBytesMax + record_header.size(), kExtentAlignment))};
  DraftExtent moved{stored->stream, shape, ChunkPool::Lease::OnHeap(ExtentEnd(shape, note.run_bytes))};
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (!shape.runs.Has(i)) continue;
    CopyScattered(RunBytes(extent.subspan(RunOffset(stored->shape, stored->note.run_bytes, i), note.run_bytes[i])),
                  SpanAt(*moved.memory, RunOffset(shape, note.run_bytes, i), note.run_bytes[i]));
  }
  auto item = std::make_unique<RelocateItem>();
  item->job = job;
  item->copy = std::move(copy);
  item->old_header = *stored;
  item->dropped = dropped;
  item->privileged = true;
  // Siblings are not named: where they are is the index's to know, and a relocated record was whole once.
  item->extents.push_back(FinishExtent(std::move(moved), note, record_header, stored->sequence, 0, true));
  AppendItem(std::move(item));
}

void ColdTier::RelocateItem::Settled(ColdTier* tier, SettleContext* context) {
  // The job goes on, or ends, only once what follows from this item has been done.
  bool failed = !status.ok();
  context->after.push_back([tier, its_job = job, old = old_header, failed] {
    // What could not be moved goes the way of what is dropped: its old place is given up.
    if (failed) tier->DropExtents(its_job, {old});
    --its_job->in_flight;
    tier->RelocateNext(its_job);
  });
  if (failed) return;
  const ExtentHeader& header = extents[0].header;
  RecordRow row{header.sequence, header.note, {}};
  {
    std::lock_guard lock(tier->mu_);
    size_t index = 0;
    if (tier->LiveCopyLocked(*job, old_header, &index) != copy) {
      // Forgotten on the way: what was written is one more place that must not bring it back.
      if (auto tombstone = TombstoneOf(*this)) tier->forgotten_.push_back(*tombstone);
      tier->forgotten_urgent_ = true;
      return;
    }
    tier->UnlinkExtentLocked(copy.get(), index);
    ColdLayout layout = *copy->layout;
    for (uint32_t i = 0; i < kRunIds; ++i) {
      if (dropped.Has(i)) layout.run_bytes[i] = 0;
    }
    layout.extents[index] = header.shape;
    copy->layout = tier->layouts_.Intern(layout);
    const SegmentPtr& segment = extents[0].segment;
    copy->extents[index] = {segment->id, static_cast<uint32_t>(segment->slots.size())};
    segment->slots.push_back(copy);
    segment->slot_offsets.push_back(static_cast<uint32_t>(header.place.offset / kExtentAlignment));
    segment->live_bytes += AlignUp(ExtentEnd(header.shape, header.note.run_bytes), kExtentAlignment);
    ++segment->live_extents;
    copy->runs = (copy->Runs() - dropped).bits();
    tier->UpdateStoredLocked(copy.get());
    for (size_t i = 0; i < kRecordExtentsMax; ++i) {
      SegmentPtr holder = copy->extents[i].segment == 0 ? nullptr : tier->segments_->Find(copy->extents[i].segment);
      if (holder == nullptr) continue;
      uint64_t offset = uint64_t{holder->slot_offsets[copy->extents[i].slot]} * kExtentAlignment;
      row.extents.push_back({{holder->id, offset}, copy->layout->extents[i]});
    }
    ++tier->cold_counters_.relocated_records;
    tier->cold_counters_.relocated_bytes += header.extent_bytes();
    if (!dropped.Empty()) ++tier->cold_counters_.degraded_records;
  }
  context->batch.Put(RecordKey(row.sequence), RecordValue(row));
  context->after.push_back([tier, identity = header.note.identity, its_copy = copy, lost = dropped] {
    ColdEvents* events = tier->events_;
    if (events == nullptr) return;
    events->OnRelocated(identity, its_copy);
    if (!lost.Empty()) events->OnRunsLost(identity, lost, false);
  });
}

void ColdTier::FinishReclaim(std::shared_ptr<ReclaimJob> job) {
  if (reclaim_ != job) return;
  // What moved out must be known to be elsewhere before the old place goes.
  if (!index_broken_) {
    absl::Status synced = index_->Sync();
    if (!synced.ok()) {
      index_broken_ = true;
      EnterTrouble(ColdState::kDegraded, Message(synced));
    }
  }
  reclaim_ = nullptr;
  {
    std::lock_guard lock(mu_);
    ++cold_counters_.reclaimed_segments;
    cold_counters_.reclaimed_bytes += job->victim->file->allocated_bytes();
    segments_->Condemn(job->victim);
  }
  job->victim = nullptr;  // Unless a reader has it, its file goes now.
}

void ColdTier::ReclaimFacts(const std::shared_ptr<ReclaimJob>& job) {
  removals_at_facts_reclaim_ = removals_;
  PostToExecutor([this, job] {
    SegmentReader reader(device_.get(), job->victim->file);
    std::vector<std::pair<ExtentHeader, std::vector<uint8_t>>> payloads;
    for (ExtentHeader& header : job->entries) {
      auto payload = reader.ReadPayload(header);
      // What cannot be read any more cannot be kept; the index still has the facts themselves.
      if (payload.ok()) payloads.emplace_back(std::move(header), *std::move(payload));
    }
    Post([this, job, payloads = std::move(payloads)]() mutable { KeepFacts(job, std::move(payloads)); });
  });
}

// Rewrites what is still needed of the oldest facts segment. Removals are not: what they removed was here, or before.
void ColdTier::KeepFacts(const std::shared_ptr<ReclaimJob>& job,
                         std::vector<std::pair<ExtentHeader, std::vector<uint8_t>>> payloads) {
  auto all_kept = std::make_shared<bool>(true);
  job->in_flight = 1;  // This function.
  auto noted = [this, job, all_kept](absl::Status status) {
    *all_kept &= status.ok();
    if (--job->in_flight > 0) return;
    if (*all_kept) return FinishReclaim(job);
    job->victim->state = SegmentState::kSealed;
    reclaim_ = nullptr;
    Post([this] { MaybeReclaim(); });
  };
  auto rewrite = [&](ExtentKind kind, ByteSpan payload, uint64_t sequence) {
    auto item = std::make_unique<TombstoneItem>();
    item->privileged = true;
    item->done = noted;
    item->extents.push_back(MakeFactExtent(kind, payload, sequence));
    ++job->in_flight;
    AppendItem(std::move(item));
  };
  std::vector<Tombstone> tombstones;
  for (auto& [header, payload] : payloads) {
    if (header.kind == ExtentKind::kFact) {
      auto fact = ParseFact(payload);
      if (!fact.ok()) continue;
      auto known = facts_.find(FactKey(fact->kind, fact->name));
      if (known == facts_.end() || known->second.sequence != header.sequence) continue;
      ++job->in_flight;
      AppendItem(MakeFactItem(ExtentKind::kFact, *fact, header.sequence, true, noted));
    } else if (header.kind == ExtentKind::kTombstones) {
      auto old = ParseTombstones(payload);
      if (!old.ok()) continue;
      for (const Tombstone& tombstone : *old) {
        bool needed = std::any_of(tombstone.segments.begin(), tombstone.segments.end(),
                                  [&](uint32_t id) { return id != 0 && segments_->Exists(id); });
        if (needed) tombstones.push_back(tombstone);
      }
    } else if (header.kind == ExtentKind::kNamespaceForgotten) {
      auto row = ParseNamespaceRow(AsText(payload));
      if (row.ok() && row->segment_bound > segments_->oldest_id()) rewrite(header.kind, payload, header.sequence);
    }
  }
  if (!tombstones.empty()) rewrite(ExtentKind::kTombstones, SerializeTombstones(tombstones), next_sequence_++);
  noted(absl::OkStatus());
}

void ColdTier::OnSegmentRemoved(uint32_t id, const absl::Status& status) {
  Post([this, id, status] {
    if (status.ok()) {
      ++removals_;
      IndexBatch batch;
      batch.Delete(SegmentKey(id));
      batch.DeletePrefix(TombstonePrefix(id));
      ApplyBatch(std::move(batch));
    } else {
      OnWriteError(status);
    }
    writer_->RetryWaiting();
    MaybeReclaim();
  });
}

}  // namespace firn
