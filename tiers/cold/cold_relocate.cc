// Moving what the store wants kept out of a segment that is reclaimed.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/checksum.h"
#include "base/status.h"
#include "tiers/cold/cold_items.h"

namespace firn {
namespace {

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

// What a packed record leaves behind when it is rewritten: its finest plane, unless that is protected or the store
// wants it kept.
RunMask ColdTier::LeftBehind(const ExtentHeader& header, ColdEvents* events) {
  if (!header.has_record_header) return {};
  for (RunKind kind : {RunKind::kP8, RunKind::kP4}) {
    RunMask plane = (header.shape.runs & RunMask::Both(kind)) - header.note.protect;
    if (plane.Empty()) continue;
    bool goes = events->JudgeReclaim(header.note.identity, plane) == ReclaimVerdict::kDrop &&
                events->LetGo(header.note.identity, plane, false);
    return goes ? plane : RunMask();
  }
  return {};
}

// What could not be moved goes the way of what is dropped, unless the store holds on to it: then its segment stays.
void ColdTier::LeaveBehind(const std::shared_ptr<ReclaimJob>& job, const ExtentHeader& header) {
  ColdEvents* events = events_;
  if (events == nullptr || events->LetGo(header.note.identity, header.shape.runs, header.has_record_header)) {
    return DropExtents(job, {header}, /*tell=*/false);
  }
  job->keeps_victim = true;
}

void ColdTier::RelocateNext(const std::shared_ptr<ReclaimJob>& job) {
  constexpr uint32_t kInFlightMax = 8;
  while (!job->relocate.empty() && job->in_flight < kInFlightMax) {
    auto [header, dropped] = std::move(job->relocate.front());
    job->relocate.pop_front();
    uint64_t from = AlignDown(header.place.offset, kIoAlignment);
    uint64_t head = header.place.offset - from;
    uint64_t bytes = AlignUp(head + header.extent_bytes(), kIoAlignment);
    auto memory = ChunkPool::Lease::OnHeap(bytes);
    ++job->in_flight;
    BeginTask();
    device_->Read(
        job->victim->file, from, memory->pieces()[0].first(bytes),
        [this, job = job, header = std::move(header), dropped = dropped, memory, head](IoResult result) mutable {
          Post([this, job = std::move(job), header = std::move(header), dropped, memory = std::move(memory), head,
                result = std::move(result)]() mutable {
            const bool refused = !result.status.ok();
            if (refused && header.note.ecc.any()) {
              ReadRelocatedBySectors(job, std::move(header), dropped, std::move(memory), head);
            } else {
              OnRelocationRead(job, std::move(header), dropped, std::move(memory), head, refused);
            }
          });
          EndTask();
        });
  }
  if (!job->relocate.empty() || job->in_flight > 0) return;
  job->keeps_victim ? SpareVictim(job) : FinishReclaim(job);
}

// What the medium refused, sector by sector: those that it does not give are zeros, for error correction to fill.
void ColdTier::ReadRelocatedBySectors(const std::shared_ptr<ReclaimJob>& job, ExtentHeader header, RunMask dropped,
                                      std::shared_ptr<ChunkPool::Lease> memory, uint64_t head) {
  struct Sectors {
    ExtentHeader header;
    std::atomic<uint64_t> left{0};
    std::atomic<bool> refused{false};
  };
  const uint64_t from = header.place.offset - head;
  const uint64_t count = AlignUp(head + header.extent_bytes(), kIoAlignment) / kIoAlignment;
  auto sectors = std::make_shared<Sectors>();
  sectors->header = std::move(header);
  sectors->left = count;
  for (uint64_t i = 0; i < count; ++i) {
    BeginTask();
    MutableByteSpan target = memory->pieces()[0].subspan(i * kIoAlignment, kIoAlignment);
    device_->Read(job->victim->file, from + i * kIoAlignment, target,
                  [this, job = job, sectors, dropped, memory, head, target](IoResult result) mutable {
                    if (!result.status.ok()) {
                      std::memset(target.data(), 0, target.size());
                      sectors->refused = true;
                    }
                    if (--sectors->left == 0) {
                      Post([this, job, sectors, dropped, memory, head] {
                        OnRelocationRead(job, std::move(sectors->header), dropped, memory, head, sectors->refused);
                      });
                    }
                    job = nullptr;  // It has a segment, whose store is the tier's.
                    EndTask();
                  });
  }
}

void ColdTier::OnRelocationRead(const std::shared_ptr<ReclaimJob>& job, ExtentHeader header, RunMask dropped,
                                std::shared_ptr<ChunkPool::Lease> memory, uint64_t head, bool refused) {
  MutableByteSpan extent = memory->pieces()[0].subspan(head, header.extent_bytes());
  auto stored = ParseExtentHeader(extent, job->victim->salt);
  const bool ours = stored.ok() && stored->sequence == header.sequence && stored->shape == header.shape;
  if (!ours) stored = header;
  bool good = ours && Crc64(extent.subspan(stored->header_bytes()), stored->sequence) == stored->payload_crc;
  good = good || MendExtent(*stored, job->victim->salt, extent);
  ColdCopyPtr copy;
  size_t index = 0;
  size_t siblings = 0;
  {
    std::lock_guard lock(mu_);
    copy = LiveCopyLocked(*job, header, &index);
    for (size_t i = 1; copy != nullptr && i < kRecordExtentsMax; ++i) siblings += copy->extents[i].segment != 0 ? 1 : 0;
  }
  if (!good || copy == nullptr) {
    // What the medium would not give may be given another time; other bytes than ours are lost.
    if (copy != nullptr) refused ? LeaveBehind(job, header) : DropExtents(job, {header});
    --job->in_flight;
    return RelocateNext(job);
  }
  RecordNote note = Without(stored->note, dropped);
  ByteSpan record_header;
  if (stored->has_record_header)
    record_header = ByteSpan(extent).subspan(stored->record_header_at(), note.header_bytes);
  uint64_t front = kExtentHeaderBytesMax + record_header.size();
  ExtentShape shape{stored->shape.runs - dropped, static_cast<uint32_t>(AlignUp(front, kExtentAlignment))};
  ExtentContents contents{shape, note.run_bytes, static_cast<uint32_t>(record_header.size()), note.ecc};
  DraftExtent moved{stored->stream, shape, ChunkPool::Lease::OnHeap(contents.End())};
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (!shape.runs.Has(i)) continue;
    CopyScattered(
        RunBytes(ByteSpan(extent).subspan(RunOffset(stored->shape, stored->note.run_bytes, i), note.run_bytes[i])),
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
    if (failed) tier->LeaveBehind(its_job, old);
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
    segment->live_bytes += AlignUp(header.extent_bytes(), kExtentAlignment);
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

}  // namespace firn
