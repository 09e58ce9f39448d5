// Reading copies back, and finding out what is lost.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "tiers/cold/cold_read_op.h"

namespace firn {
namespace {

constexpr int kReadAttemptsMax = 3;
constexpr uint8_t kReadFailuresMax =
    3;  // Reads of one copy in a row, each with its attempts: the medium will not give it back.

std::vector<uint8_t> Gather(const MutableRunBytes& bytes) {
  std::vector<uint8_t> out;
  for (MutableByteSpan piece : bytes.spans()) out.insert(out.end(), piece.begin(), piece.end());
  return out;
}

}  // namespace

void ColdTier::ReadImpl(CopyPtr copy, const Identity& identity, RunMask runs, ReadDone done) {
  BeginRead(std::move(copy), identity, runs, /*correct=*/false, std::move(done));
}

void ColdTier::BeginRead(CopyPtr copy, const Identity& identity, RunMask runs, bool correct, ReadDone done) {
  auto op = std::make_shared<ReadOp>();
  op->copy = std::static_pointer_cast<ColdCopy>(std::const_pointer_cast<Copy>(std::move(copy)));
  op->identity = identity;
  op->wanted = runs;
  op->correct = correct;
  op->done = std::move(done);
  BeginTask();
  absl::Status status = PrepareRead(op.get());
  if (status.ok() && !StartRead(op)) {
    std::lock_guard lock(mu_);
    if (waiting_reads_.size() < options_.waiting_reads_max && !closing_) {
      waiting_reads_.push_back(op);
      ++waiting_read_count_;
      op = nullptr;
    } else {
      status = ResourceExhausted("tier {}: {} reads wait for the {} bytes of read memory already", name(),
                                 waiting_reads_.size(), read_pool_->budget_bytes());
    }
  }
  if (op == nullptr) return RetryWaitingReads();  // Memory may have come back between the two.
  if (!status.ok()) {
    op->done(std::move(status));
    EndTask();
  }
}

absl::Status ColdTier::PrepareRead(ReadOp* op) {
  std::lock_guard lock(mu_);
  if (closing_) return FailedPrecondition("cold tier {} is closed", name());
  const ColdCopy& copy = *op->copy;
  op->sequence = copy.sequence;
  op->digest = copy.digest;
  op->lengths = copy.layout->run_bytes;
  op->ecc = copy.layout->ecc;
  if (op->correct && !op->ecc.any()) return Unimplemented("tier {}: the copy has no error correction", name());
  op->header_bytes = copy.layout->header_bytes;
  for (size_t i = 0; i < kRecordExtentsMax; ++i) {
    const ExtentShape& shape = copy.layout->extents[i];
    bool base = i == 0;
    RunMask wanted = shape.runs & op->wanted;
    if (copy.extents[i].segment == 0 || (!base && wanted.Empty())) continue;
    SegmentPtr segment = segments_->Find(copy.extents[i].segment);
    if (segment == nullptr) continue;
    auto part = std::make_unique<ReadPart>();
    part->place = {segment->id, uint64_t{segment->slot_offsets[copy.extents[i].slot]} * kExtentAlignment};
    part->segment = std::move(segment);
    part->shape = shape;
    part->base = base;
    part->needed_bytes = shape.runs_at;
    for (uint32_t run = 0; run < kRunIds; ++run) {
      if (wanted.Has(run)) part->needed_bytes = RunOffset(shape, op->lengths, run) + op->lengths[run];
    }
    // Parity lies behind the last run.
    if (op->correct) part->needed_bytes = copy.layout->ExtentBytes(i);
    part->read_at = AlignDown(part->place.offset, kIoAlignment);
    part->head = part->place.offset - part->read_at;
    part->read_bytes = AlignUp(part->head + part->needed_bytes, kIoAlignment);
    op->parts.push_back(std::move(part));
  }
  if (op->parts.empty() || !op->parts[0]->base)
    return NotFound("tier {}: the copy's segment has been reclaimed", name());
  return absl::OkStatus();
}

bool ColdTier::StartRead(const std::shared_ptr<ReadOp>& op) {
  uint64_t tag = NamespaceTag(op->identity.namespace_fingerprint);
  uint64_t total = 0;
  for (const auto& part : op->parts) total += read_pool_->CostOf(part->read_bytes);
  // Asked first, since giving back the half of it would wake the next reader for nothing.
  if (total <= read_pool_->budget_bytes() && total > read_pool_->free_bytes()) return false;
  for (const auto& part : op->parts) {
    // What the pool could never hold is read all the same: it was written when the pool was larger.
    part->memory = total > read_pool_->budget_bytes()
                       ? ChunkPool::Lease::OnHeap(part->read_bytes)
                       : read_pool_->Take(part->read_bytes, tag, ChunkPool::Contents::kOverwritten);
    if (part->memory == nullptr) {
      for (const auto& taken : op->parts) taken->memory = nullptr;
      return false;
    }
  }
  IssueReads(op);
  return true;
}

void ColdTier::RetryWaitingReads() {
  for (;;) {
    std::shared_ptr<ReadOp> op;
    {
      std::lock_guard lock(mu_);
      if (waiting_reads_.empty()) return;
      op = waiting_reads_.front();
      waiting_reads_.pop_front();
      --waiting_read_count_;
    }
    if (!StartRead(op)) {
      std::lock_guard lock(mu_);
      waiting_reads_.push_front(std::move(op));
      ++waiting_read_count_;
      return;
    }
  }
}

void ColdTier::FailWaitingReads() {
  std::deque<std::shared_ptr<ReadOp>> failed;
  {
    std::lock_guard lock(mu_);
    failed.swap(waiting_reads_);
    waiting_read_count_ = 0;
  }
  for (const auto& op : failed) {
    op->done(FailedPrecondition("cold tier {} is closed", name()));
    EndTask();
  }
}

void ColdTier::IssueReads(const std::shared_ptr<ReadOp>& op) {
  ++op->attempts;
  std::vector<ReadPart*> todo;
  for (const auto& part : op->parts) {
    if (!part->done) todo.push_back(part.get());
  }
  op->parts_left = static_cast<uint32_t>(todo.size());
  for (ReadPart* part : todo) {
    std::vector<MutableByteSpan> pieces;
    uint64_t left = part->read_bytes;
    for (MutableByteSpan piece : part->memory->pieces()) {
      if (left == 0) break;
      piece = piece.first(std::min<uint64_t>(left, piece.size()));
      left -= piece.size();
      for (uint64_t step = op->salvage ? kIoAlignment : piece.size(); !piece.empty();) {
        pieces.push_back(piece.first(std::min<uint64_t>(step, piece.size())));
        piece = piece.subspan(pieces.back().size());
      }
    }
    part->status = absl::OkStatus();
    part->gapless_bytes = part->read_bytes;
    part->pieces_left = static_cast<uint32_t>(pieces.size());
    uint64_t start = 0;
    for (MutableByteSpan piece : pieces) {
      device_->Read(part->segment->file, part->read_at + start, piece,
                    [this, op, part, start, piece, length = piece.size()](IoResult result) {
                      if (op->salvage && !result.status.ok()) {
                        std::memset(piece.data(), 0, piece.size());
                        result = {absl::OkStatus(), length};
                        op->corrected = part->erased = true;
                      }
                      {
                        std::lock_guard lock(part->mu);
                        if (result.bytes < length)
                          part->gapless_bytes = std::min(part->gapless_bytes, start + result.bytes);
                        if (!result.status.ok() && part->status.ok()) part->status = result.status;
                      }
                      if (--part->pieces_left > 0 || --op->parts_left > 0) return;
                      options_.executor->Post([this, op] { FinishRead(op); });
                    });
      start += piece.size();
    }
  }
}

// What each part turned out to be. A part that the medium would not give may come back; one with other bytes than ours,
// or fewer, is lost.
void ColdTier::JudgeRead(ReadOp* op, RunMask* lost, absl::Status* base_error) {
  for (const auto& part : op->parts) {
    absl::Status damage;
    const bool refused = !part->status.ok() && part->status.code() != absl::StatusCode::kInvalidArgument;
    if (refused) {
      if (part->base) *base_error = Unavailable("tier {}: {}", name(), Message(part->status));
      op->refused |= part->base ? RunMask::All() : part->shape.runs;
      continue;
    }
    if (part->gapless_bytes < part->head + part->needed_bytes) {
      damage = DataLoss("segment {:08x} ends inside the extent at {}", part->place.segment, part->place.offset);
    } else {
      std::vector<uint8_t> front =
          Gather(SpanAt(*part->memory, part->head, std::min<uint64_t>(part->shape.runs_at, part->needed_bytes)));
      auto extent = ParseExtentHeader(front, part->segment->salt);
      if (!extent.ok()) {
        // Who the copy is for is in its record header and in the seeds of its checks as well.
        damage = op->ecc.any() ? absl::OkStatus() : extent.status();
        if (op->ecc.any()) op->corrected = true;
      } else if (extent->sequence != op->sequence || extent->place != part->place || extent->shape != part->shape ||
                 extent->note.digest != op->digest) {
        damage = DataLoss("segment {:08x} holds another extent at {}", part->place.segment, part->place.offset);
      } else if (extent->note.identity != op->identity) {
        *base_error =
            NotFound("tier {}: the copy is of another block", name());  // The caller's mistake; nothing is lost.
        continue;
      }
      if (part->base && damage.ok()) damage = TakeRecordHeader(op, *part, front, extent.ok() ? &*extent : nullptr);
    }
    if (damage.ok()) {
      op->present |= part->shape.runs & op->wanted;
      part->done = true;
      continue;
    }
    if (part->erased) {
      // Too much of it was refused for error correction: as if all had been.
      if (part->base) *base_error = Unavailable("tier {}: {}", name(), Message(damage));
      op->refused |= part->base ? RunMask::All() : part->shape.runs;
      continue;
    }
    if (part->base) *base_error = damage;
    // Whoever reads it again, with its parity, may still get it.
    if (op->ecc.any() && !op->correct) continue;
    // Unless it was moved meanwhile: then what was read is no longer what the copy refers to.
    std::lock_guard lock(mu_);
    for (size_t i = 0; i < kRecordExtentsMax; ++i) {
      bool same = op->copy->layout->extents[i] == part->shape && op->copy->extents[i].segment == part->place.segment;
      if (same) *lost |= part->shape.runs;
    }
  }
}

void ColdTier::FinishRead(const std::shared_ptr<ReadOp>& op) {
  RunMask lost;
  absl::Status error;
  op->present = RunMask();
  bool refused = std::any_of(op->parts.begin(), op->parts.end(), [](const auto& part) {
    return !part->status.ok() && part->status.code() != absl::StatusCode::kInvalidArgument;
  });
  if (refused && op->correct && op->attempts >= kReadAttemptsMax && !op->salvage) {
    // Sector by sector: what the medium does not give counts as erased.
    op->salvage = true;
    for (const auto& part : op->parts) part->done = part->status.ok();
    return IssueReads(op);
  }
  if (refused && op->attempts < kReadAttemptsMax) {
    for (const auto& part : op->parts) part->done = part->status.ok();
    {
      std::lock_guard lock(mu_);
      ++cold_counters_.read_retries;
    }
    return IssueReads(op);
  }
  JudgeRead(op.get(), &lost, &error);
  if (!lost.Empty()) LoseRuns(op->copy, op->identity, lost);
  EncodedBlock block;
  if (error.ok()) block = BlockOf(op.get());
  // Where parity may still give what was refused, it is tried with that before it counts.
  if (op->correct || !op->ecc.any()) {
    if (!op->refused.Empty()) {
      CountReadFailure(op->copy, op->identity, op->refused);
    } else if (error.ok()) {
      std::lock_guard lock(mu_);
      op->copy->read_failures = 0;
    }
  }
  op->parts.clear();
  op->copy = nullptr;  // Whoever forgets it now holds the last of it.
  error.ok() ? op->done(std::move(block)) : op->done(std::move(error));
  EndTask();
}

EncodedBlock ColdTier::BlockOf(ReadOp* op) {
  EncodedBlock block;
  block.header = op->header;
  auto memory = std::make_shared<std::vector<std::shared_ptr<ChunkPool::Lease>>>();
  for (const auto& part : op->parts) {
    RunMask runs = part->shape.runs & op->present & op->header->encoded;
    for (uint32_t i = 0; i < kRunIds; ++i) {
      if (!runs.Has(i)) continue;
      block.runs[i] = SpanAt(*part->memory, part->head + RunOffset(part->shape, op->lengths, i), op->lengths[i]);
      block.present |= RunMask::Of(RunKindOf(i), RunPartOf(i));
    }
    memory->push_back(part->memory);
  }
  block.owner = std::move(memory);
  if (op->correct) CorrectRuns(op, &block);
  if (op->salvage) WithholdErased(op, &block);
  block.corrected = op->corrected;
  return block;
}

// A copy that is refused again and again is lost, if it is the copy: of a medium that gives nothing at all, nothing is.
void ColdTier::CountReadFailure(const ColdCopyPtr& copy, const Identity& identity, RunMask refused) {
  SegmentPtr other;
  {
    std::lock_guard lock(mu_);
    if (copy->forgotten || ++copy->read_failures < kReadFailuresMax) return;
    copy->read_failures = 0;
    for (const SegmentPtr& segment : segments_->All()) {
      bool of_it = std::any_of(copy->extents.begin(), copy->extents.end(),
                               [&](const ColdCopy::Extent& extent) { return extent.segment == segment->id; });
      if (other == nullptr || !of_it) other = segment;
      if (!of_it) break;
    }
  }
  if (other == nullptr) return;
  auto buffer = std::make_shared<AlignedBuffer>(kSegmentHeaderBytes);
  MutableByteSpan bytes = buffer->span();
  BeginTask();
  device_->Read(other->file, 0, bytes, [this, copy, identity, refused, buffer, other](IoResult result) mutable {
    if (result.status.ok()) {
      PostToExecutor([this, copy = std::move(copy), identity, refused] { LoseRuns(copy, identity, refused); });
    }
    other = nullptr;
    EndTask();
  });
}

void ColdTier::LoseRuns(const ColdCopyPtr& copy, const Identity& identity, RunMask lost) {
  bool whole = false;
  {
    std::lock_guard lock(mu_);
    if (copy->forgotten) return;
    whole = !(copy->layout->extents[0].runs & lost).Empty() || lost == RunMask::All() ||
            copy->layout->extents[0].runs.Empty();
    if (whole) {
      lost = copy->Runs();
      ForgetLocked(copy, true);
      ++cold_counters_.lost_records;
    } else {
      RunMask gone;
      for (size_t i = 1; i < kRecordExtentsMax; ++i) {
        RunMask runs = copy->layout->extents[i].runs;
        if ((runs & lost).Empty() || copy->extents[i].segment == 0) continue;
        gone |= runs;
        UnlinkExtentLocked(copy.get(), i);
        copy->extents[i].segment = 0;
      }
      if (gone.Empty()) return;
      lost = gone;
      copy->runs = (copy->Runs() - gone).bits();
      UpdateStoredLocked(copy.get());
      cold_counters_.lost_runs += static_cast<uint64_t>(gone.Count());
    }
  }
  Post([this, sequence = copy->sequence, lost, whole] {
    if (whole) return DrainForgotten();
    auto value = index_->Get(RecordKey(sequence));
    if (!value.ok() || !value->has_value()) return;
    auto row = ParseRecordRow(RecordKey(sequence), **value);
    if (!row.ok()) return;
    std::erase_if(row->extents, [&](const RowExtent& extent) { return !(extent.shape.runs & lost).Empty(); });
    IndexBatch batch;
    batch.Put(RecordKey(sequence), RecordValue(*row));
    ApplyBatch(std::move(batch));
  });
  if (ColdEvents* events = events_) events->OnRunsLost(identity, lost, whole);
}

}  // namespace firn
