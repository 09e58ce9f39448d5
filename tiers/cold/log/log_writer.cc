#include "tiers/cold/log/log_writer_parts.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"

namespace firn {
LogWriter::LogWriter(const LogWriterOptions& options) : options_(options), current_(std::make_shared<Epoch>()) {}

LogWriter::~LogWriter() = default;

uint64_t LogWriter::open_room_bytes() const {
  uint64_t room = 0;
  for (const auto& stream_room : room_) room += stream_room.load(std::memory_order_relaxed);
  return room;
}

void LogWriter::Append(std::unique_ptr<LogItem> item) {
  BeginWork();
  auto at = waiting_.end();
  if (item->privileged) {
    // Ahead of those that may have to wait for room: it may be what makes it.
    at = std::find_if(waiting_.begin(), waiting_.end(), [](const auto& other) { return !other->privileged; });
  }
  waiting_.insert(at, std::move(item));
  PlaceWaiting();
}

void LogWriter::RetryWaiting() { PlaceWaiting(); }

uint64_t LogWriter::waiting_bytes() const {
  if (waiting_.empty()) return 0;
  uint64_t bytes = options_.segment_bytes;
  for (const LogExtent& extent : waiting_.front()->extents) bytes = std::max(bytes, SegmentBytesFor(extent));
  return bytes;
}

bool LogWriter::asking() const {
  return std::any_of(requested_.begin(), requested_.end(), [](bool requested) { return requested; });
}

void LogWriter::PlaceWaiting() {
  while (!waiting_.empty() && EnsureRoom(*waiting_.front())) {
    std::unique_ptr<LogItem> item = std::move(waiting_.front());
    waiting_.pop_front();
    Place(std::move(item));
  }
  Advance();
}

uint64_t LogWriter::SegmentBytesFor(const LogExtent& extent) const {
  uint64_t needed =
      kSegmentHeaderBytes + AlignUp(extent.header.extent_bytes(), kIoAlignment) + FooterBytes(kExtentHeaderBytesMax);
  return std::max(options_.segment_bytes, AlignUp(needed, kIoAlignment));
}

bool LogWriter::HasRoom(const Segment& segment, const LogExtent& extent) const {
  // What a group in the making will take is counted from its start, since extents are placed when they are added.
  uint64_t entries = segment.entries.size() + (uint64_t{segment.unsettled} + 1) * kExtentHeaderBytesMax;
  uint64_t end = AlignUp(segment.append_at, kIoAlignment) + AlignUp(extent.header.extent_bytes(), kIoAlignment);
  return !segment.untrusted && end + FooterBytes(entries) <= segment.file->size();
}

bool LogWriter::EnsureRoom(const LogItem& item) {
  bool room = true;
  for (const LogExtent& extent : item.extents) {
    Stream stream = extent.header.stream;
    SegmentPtr& open = open_[IndexOf(stream)];
    if (open != nullptr && HasRoom(*open, extent)) continue;
    if (open != nullptr) Fill(open);
    uint64_t bytes = SegmentBytesFor(extent);
    if (spare_ != nullptr && spare_->file->size() >= bytes) {
      OpenSegment(stream, std::exchange(spare_, nullptr));
      PrepareSpare();
      continue;
    }
    RequestSegment(stream, bytes, item.privileged);
    room = false;
  }
  return room;
}

void LogWriter::RequestSegment(Stream stream, uint64_t bytes, bool privileged) {
  if (std::exchange(requested_[IndexOf(stream)], true)) return;
  BeginWork();
  options_.segments->Create(bytes, privileged, [this, stream](absl::StatusOr<SegmentPtr> created) mutable {
    options_.queue->Post(
        [this, stream, created = std::move(created)]() mutable { OnCreated(stream, std::move(created)); });
  });
}

void LogWriter::OnCreated(Stream stream, absl::StatusOr<SegmentPtr> created) {
  requested_[IndexOf(stream)] = false;
  if (created.ok()) {
    SegmentPtr& open = open_[IndexOf(stream)];
    if (open == nullptr) {
      OpenSegment(stream, *std::move(created));
      PrepareSpare();
    } else if (spare_ == nullptr) {
      spare_ = *std::move(created);  // The spare before it has been taken meanwhile.
    } else {
      options_.segments->Condemn(*created);
    }
    PlaceWaiting();
  } else if (!options_.sink->OnNoSegment(created.status())) {
    FailWaiting(created.status());
  }
  EndWork();
}

void LogWriter::PrepareSpare() {
  if (spare_ != nullptr || spare_requested_ || closed_) return;
  // Not worth it where it would take what is left.
  if (options_.segments->free_bytes(false) < 4 * options_.segment_bytes) return;
  spare_requested_ = true;
  BeginWork();
  options_.segments->Create(options_.segment_bytes, false, [this](absl::StatusOr<SegmentPtr> created) mutable {
    options_.queue->Post([this, created = std::move(created)]() mutable {
      spare_requested_ = false;
      if (created.ok()) spare_ = *std::move(created);
      if (closed_ && spare_ != nullptr) options_.segments->Condemn(std::exchange(spare_, nullptr));
      EndWork();
    });
  });
}

void LogWriter::FailWaiting(const absl::Status& status) {
  std::deque<std::unique_ptr<LogItem>> failed;
  failed.swap(waiting_);
  std::vector<std::unique_ptr<LogItem>> settled;
  for (std::unique_ptr<LogItem>& item : failed) {
    if (item->extents.empty()) {
      Place(std::move(item));  // Waits for what came before it, and that is on its way.
      continue;
    }
    item->status = status;
    settled.push_back(std::move(item));
  }
  size_t count = settled.size();
  if (count > 0) options_.sink->OnSettled(std::move(settled));
  Advance();
  if (count > 0) EndWork(static_cast<int64_t>(count));
}

void LogWriter::OpenSegment(Stream stream, SegmentPtr segment) {
  segment->stream = stream;
  auto write = std::make_shared<Write>();
  write->segment = segment;
  write->buffer = AlignedBuffer(kSegmentHeaderBytes);
  std::vector<uint8_t> header = SerializeSegmentHeader({segment->id, stream, segment->salt, segment->file->size()});
  std::copy(header.begin(), header.end(), write->buffer.data());
  room_[IndexOf(stream)] = segment->file->size() - kSegmentHeaderBytes - kTrailerBytes;
  open_[IndexOf(stream)] = std::move(segment);
  ByteSpan bytes = write->buffer.span();
  StartWrite(std::move(write), 0, {bytes});
}

void LogWriter::Place(std::unique_ptr<LogItem> item) {
  // Places first: the extent with the record header names its siblings.
  for (LogExtent& extent : item->extents) {
    Stream stream = extent.header.stream;
    SegmentPtr& open = open_[IndexOf(stream)];
    uint64_t bytes = extent.header.extent_bytes();
    if (bytes >= options_.pack_below_bytes) {
      CloseGroup(stream);
      open->append_at = AlignUp(open->append_at, kIoAlignment);
    } else {
      Group* group = groups_[IndexOf(stream)].get();
      if (group != nullptr && AlignUp(group->used, kExtentAlignment) + bytes > group->buffer.size()) CloseGroup(stream);
      group = groups_[IndexOf(stream)].get();
      open->append_at = AlignUp(open->append_at, group == nullptr ? kIoAlignment : kExtentAlignment);
    }
    current_->bytes += bytes;
    extent.segment = open;
    extent.header.place = {open->id, open->append_at};
    ++open->unsettled;
    current_->touched[open->id] = open;
    PlaceExtent(item.get(), &extent);
    uint64_t entries = open->entries.size() + uint64_t{open->unsettled} * kExtentHeaderBytesMax;
    uint64_t taken = AlignUp(open->append_at, kIoAlignment) + FooterBytes(entries);
    room_[IndexOf(stream)] = open->file->size() > taken ? open->file->size() - taken : 0;
  }
  for (LogExtent& extent : item->extents) {
    if (extent.header.has_record_header) {
      for (size_t i = 0; i < extent.header.siblings.size(); ++i)
        extent.header.siblings[i] = item->extents[i + 1].header.place;
    }
    extent.serialized_header = SerializeExtentHeader(extent.header, extent.segment->salt);
    FIRN_CHECK(extent.serialized_header.size() <= extent.memory->pieces()[0].size());
    if (extent.header.extent_bytes() >= options_.pack_below_bytes) {
      WriteDirect(item.get(), &extent);
    } else {
      AddToGroup(item.get(), &extent);
    }
  }
  current_->items.push_back(std::move(item));
}

// Takes the extent's space; where it is packed, in the stream's group.
void LogWriter::PlaceExtent(LogItem* item, LogExtent* extent) {
  Segment& segment = *extent->segment;
  uint64_t bytes = extent->header.extent_bytes();
  if (bytes >= options_.pack_below_bytes) {
    segment.append_at += AlignUp(bytes, kIoAlignment);
    return;
  }
  std::unique_ptr<Group>& group = groups_[IndexOf(extent->header.stream)];
  if (group == nullptr) {
    group = std::make_unique<Group>();
    group->file_offset = segment.append_at;
    uint64_t wanted = std::max(kGroupBytes, AlignUp(bytes, kIoAlignment));
    if (wanted == kGroupBytes && !spare_buffers_.empty()) {
      group->buffer = std::move(spare_buffers_.back());
      spare_buffers_.pop_back();
    } else {
      group->buffer = AlignedBuffer(wanted);
    }
  }
  uint64_t at = segment.append_at - group->file_offset;
  // What lies between two extents may be another tenant's old bytes.
  std::memset(group->buffer.data() + group->used, 0, at - group->used);
  group->used = at + bytes;
  group->extents.emplace_back(item, extent);
  segment.append_at += bytes;
}

void LogWriter::AddToGroup(LogItem*, LogExtent* extent) {
  Group& group = *groups_[IndexOf(extent->header.stream)];
  uint8_t* target = group.buffer.data() + (extent->header.place.offset - group.file_offset);
  uint64_t left = extent->header.extent_bytes();
  for (MutableByteSpan piece : extent->memory->pieces()) {
    piece = piece.first(std::min<uint64_t>(left, piece.size()));
    std::memcpy(target + (extent->header.extent_bytes() - left), piece.data(), piece.size());
    left -= piece.size();
  }
  FIRN_CHECK(left == 0);
  std::memcpy(target, extent->serialized_header.data(), extent->serialized_header.size());
  extent->memory.reset();
}

void LogWriter::CloseGroup(Stream stream) {
  std::unique_ptr<Group> group = std::move(groups_[IndexOf(stream)]);
  if (group == nullptr) return;
  Segment& segment = *open_[IndexOf(stream)];
  uint64_t padded = AlignUp(group->used, kIoAlignment);
  std::memset(group->buffer.data() + group->used, 0, padded - group->used);
  segment.append_at = AlignUp(segment.append_at, kIoAlignment);
  auto write = std::make_shared<Write>();
  write->segment = open_[IndexOf(stream)];
  write->extents = std::move(group->extents);
  write->buffer = std::move(group->buffer);
  ByteSpan bytes = write->buffer.span().first(padded);
  uint64_t offset = group->file_offset;
  StartWrite(std::move(write), offset, {bytes});
}

void LogWriter::WriteDirect(LogItem* item, LogExtent* extent) {
  std::memcpy(extent->memory->pieces()[0].data(), extent->serialized_header.data(), extent->serialized_header.size());
  uint64_t bytes = extent->header.extent_bytes();
  uint64_t left = AlignUp(bytes, kIoAlignment);
  uint64_t at = 0;
  std::vector<ByteSpan> pieces;
  for (MutableByteSpan piece : extent->memory->pieces()) {
    if (left == 0) break;
    uint64_t take = std::min<uint64_t>(left, piece.size());
    if (at + take > bytes) {
      uint64_t used = bytes > at ? bytes - at : 0;
      std::memset(piece.data() + used, 0, take - used);
    }
    pieces.push_back(piece.first(take));
    left -= take;
    at += take;
  }
  FIRN_CHECK(left == 0);
  auto write = std::make_shared<Write>();
  write->segment = extent->segment;
  write->extents.emplace_back(item, extent);
  StartWrite(std::move(write), extent->header.place.offset, std::move(pieces));
}

void LogWriter::SealAll(bool for_good) {
  closed_ |= for_good;
  for (SegmentPtr& open : open_) {
    if (open != nullptr) Fill(open);
  }
  if (spare_ != nullptr) {
    options_.segments->Condemn(spare_);
    spare_ = nullptr;
  }
  Advance();
}

}  // namespace firn
