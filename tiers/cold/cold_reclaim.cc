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

}  // namespace

uint64_t ColdTier::FreeTarget() const {
  uint64_t share = static_cast<uint64_t>(static_cast<double>(segments_->capacity_bytes()) * options_.free_fraction);
  uint64_t refused = 0;
  {
    std::lock_guard lock(mu_);
    if (refused_bytes_ > 0 && options_.clock->NowNs() < refused_until_ns_) {
      // As it will be counted when it is asked for again.
      uint64_t needed = refused_bytes_ + draft_bytes_ + unplaced_bytes_;
      refused = needed - std::min(needed, writer_->open_room_bytes());
    }
  }
  // Whoever may not use the reserve needs a segment beside it.
  return std::max(
      {share, 2 * options_.segment_bytes, options_.segment_bytes + std::max(writer_->waiting_bytes(), refused)});
}

SegmentPtr ColdTier::ChooseVictim() {
  std::lock_guard lock(mu_);
  SegmentPtr best, oldest_facts, unread;
  VictimScore best_score;
  int facts_segments = 0;
  for (const SegmentPtr& segment : segments_->All()) {
    if (segment->state != SegmentState::kSealed || segment->spared_until_ns > options_.clock->NowNs()) continue;
    // What the next start may find in it is let go only where there is nothing else.
    if (segment->unread) {
      if (unread == nullptr) unread = segment;
      continue;
    }
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
  return best != nullptr || segments_->free_bytes(true) > 0 ? best : unread;
}

void ColdTier::MaybeReclaim() {
  if (reclaim_ != nullptr || segments_->removing()) return;  // Comes back when that is done.
  if (segments_->free_bytes(true) < FreeTarget()) {
    // Nothing is given up for room that nobody will use.
    SegmentPtr victim = closing_ ? nullptr : ChooseVictim();
    if (victim != nullptr) return StartReclaim(std::move(victim));
    if (segments_->free_bytes(true) == 0 && writer_->open_room_bytes() > 0 && writer_->idle())
      return writer_->SealAll(false);
  }
  // Nothing goes now. What waits fits all the same where a segment was cut to its length since it was refused; else it
  // would wait forever.
  const uint64_t waiting = writer_->waiting_bytes();
  const uint64_t free = segments_->free_bytes(writer_->waiting_is_privileged());
  if (waiting == 0 || writer_->asking()) return;
  if (waiting <= free) return Post([this] { writer_->RetryWaiting(); });
  writer_->FailWaiting(ResourceExhausted("tier {}: {} of {} bytes free, and no segment can be reclaimed", name(), free,
                                         segments_->capacity_bytes()));
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
      // Its checksum is with the extent itself.
      header.payload_bytes = header.contents().End() - header.header_bytes();
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
  ColdEvents* events = events_;
  std::vector<ReclaimVerdict> verdicts(live.size(), ReclaimVerdict::kDrop);
  uint64_t kept_bytes = 0;
  for (size_t i = 0; i < live.size() && events != nullptr; ++i) {
    verdicts[i] = events->JudgeReclaim(live[i].note.identity, live[i].shape.runs);
    if (verdicts[i] == ReclaimVerdict::kKeep) kept_bytes += live[i].extent_bytes();
  }
  if (kept_bytes > budget) return SpareVictim(job);
  budget -= kept_bytes;
  std::vector<ExtentHeader> drop;
  for (size_t i = 0; i < live.size(); ++i) {
    uint64_t bytes = live[i].extent_bytes();
    bool stays = verdicts[i] == ReclaimVerdict::kKeep || (verdicts[i] == ReclaimVerdict::kRelocate && bytes <= budget);
    if (stays && verdicts[i] == ReclaimVerdict::kRelocate) budget -= bytes;
    bool whole = verdicts[i] == ReclaimVerdict::kKeep;
    // Whoever pins it between the verdict and now is heard.
    if (!stays && events != nullptr) {
      stays = whole = !events->LetGo(live[i].note.identity, live[i].shape.runs, live[i].has_record_header);
    }
    if (stays) {
      RunMask dropped = whole ? RunMask() : LeftBehind(live[i], events);
      job->relocate.emplace_back(std::move(live[i]), dropped);
    } else {
      drop.push_back(std::move(live[i]));
    }
  }
  DropExtents(job, drop, /*tell=*/false);
  RelocateNext(job);
}

void ColdTier::SpareVictim(const std::shared_ptr<ReclaimJob>& job) {
  FIRN_CHECK(reclaim_ == job);
  constexpr int64_t kSparedNs = 1'000'000'000;
  {
    std::lock_guard lock(mu_);
    job->victim->state = SegmentState::kSealed;
    job->victim->spared_until_ns = options_.clock->NowNs() + kSparedNs;
  }
  reclaim_ = nullptr;
  MaybeReclaim();
}

void ColdTier::DropExtents(const std::shared_ptr<ReclaimJob>& job, const std::vector<ExtentHeader>& extents,
                           bool tell) {
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
        // Whoever still refers to it holds nothing of a segment that goes.
        uint64_t base_bytes = AlignUp(copy->layout->ExtentBytes(0), kExtentAlignment);
        stored_bytes_ -= base_bytes;
        copy->stored_units -= static_cast<uint32_t>(base_bytes / kExtentAlignment);
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
  if (ColdEvents* events = events_; events != nullptr && tell) {
    for (const Lost& one : lost) events->OnRunsLost(one.identity, one.runs, one.whole);
  }
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
  if (job->victim->stream == Stream::kFacts) facts_segments_going_.insert(job->victim->id);
  {
    std::lock_guard lock(mu_);
    ++cold_counters_.reclaimed_segments;
    cold_counters_.reclaimed_bytes += job->victim->file->allocated_bytes();
    segments_->Condemn(job->victim);
  }
  job->victim = nullptr;  // Unless a reader has it, its file goes now.
}

void ColdTier::OnSegmentRemoved(uint32_t id, const absl::Status& status) {
  Post([this, id, status] {
    if (status.ok()) {
      if (facts_segments_going_.erase(id) == 0) ++removals_;
      IndexBatch batch;
      batch.Delete(SegmentKey(id));
      batch.DeletePrefix(TombstonePrefix(id));
      ApplyBatch(std::move(batch));
    } else {
      OnWriteError(status);
    }
    writer_->RetryWaiting();
    RetryFlushes();
    MaybeReclaim();
  });
}

}  // namespace firn
