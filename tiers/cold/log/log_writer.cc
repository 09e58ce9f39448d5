#include "tiers/cold/log/log_writer.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"

namespace firn {
namespace {

constexpr uint64_t kGroupBytes = uint64_t{256} << 10;
constexpr size_t kSpareBuffersMax = 8;
constexpr uint64_t kGroupedBytesMax = uint64_t{32} << 20;

size_t IndexOf(Stream stream) { return static_cast<size_t>(stream); }

}  // namespace

struct LogWriter::Epoch {
  std::vector<std::unique_ptr<LogItem>> items;
  std::map<uint32_t, SegmentPtr> touched;  // By id: the order of syncs is the same every time.
  uint64_t bytes = 0;
  uint32_t writes_left = 0;
  uint32_t syncs_left = 0;
  bool empty() const { return items.empty(); }
};

// One contiguous stretch on its way to the medium.
struct LogWriter::Write {
  std::shared_ptr<Epoch> epoch;
  SegmentPtr segment;
  std::vector<std::pair<LogItem*, LogExtent*>> extents;  // Empty: the segment's own header.
  AlignedBuffer buffer;                                  // What is written, unless it is an extent's own memory.
  std::atomic<uint32_t> pieces_left{0};
  std::mutex mu;
  absl::Status status;  // Guarded by mu until the last piece has ended.
};

// Small extents that will be written together, placed one behind the other.
struct LogWriter::Group {
  AlignedBuffer buffer;
  uint64_t file_offset = 0;
  uint64_t used = 0;
  std::vector<std::pair<LogItem*, LogExtent*>> extents;
};

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
  const std::vector<uint8_t>& header = extent->serialized_header;
  std::memcpy(target, header.data(), header.size());
  uint64_t bytes = extent->header.extent_bytes();
  std::memcpy(target + header.size(), extent->memory->pieces()[0].data() + header.size(), bytes - header.size());
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

void LogWriter::StartWrite(std::shared_ptr<Write> write, uint64_t offset, std::vector<ByteSpan> pieces) {
  write->epoch = current_;
  ++current_->writes_left;
  ++write->segment->writes_in_flight;
  current_->touched[write->segment->id] = write->segment;
  write->pieces_left = static_cast<uint32_t>(pieces.size());
  BeginWork();
  for (ByteSpan piece : pieces) {
    options_.device->Write(write->segment->file, offset, piece, [this, write](IoResult result) {
      if (!result.status.ok()) {
        std::lock_guard lock(write->mu);
        if (write->status.ok()) write->status = result.status;
      }
      if (--write->pieces_left == 0) options_.queue->Post([this, write] { OnWritten(write); });
    });
    offset += piece.size();
  }
}

void LogWriter::OnWritten(const std::shared_ptr<Write>& write) {
  absl::Status status;
  {
    std::lock_guard lock(write->mu);
    status = write->status;
  }
  for (auto& [item, extent] : write->extents) {
    extent->memory.reset();
    if (!status.ok() && item->status.ok()) item->status = status;
  }
  if (!status.ok()) {
    // A segment without its header is worth nothing; one with a hole takes no more.
    if (write->extents.empty()) write->segment->untrusted = true;
    Fill(write->segment);
    options_.sink->OnWriteError(status);
  }
  if (write->buffer.size() == kGroupBytes && spare_buffers_.size() < kSpareBuffersMax) {
    spare_buffers_.push_back(std::move(write->buffer));
  }
  --write->epoch->writes_left;
  --write->segment->writes_in_flight;
  MaybeSeal(write->segment);
  Advance();
  EndWork();
}

void LogWriter::Advance() {
  if (closing_ == nullptr) {
    if (current_->empty()) return;
    // While more is on its way, a group grows up to a size that makes its syncs worth their while.
    if (current_->writes_left > 0 && current_->bytes < kGroupedBytesMax) return;
    for (uint32_t stream = 0; stream < kStreams; ++stream) CloseGroup(static_cast<Stream>(stream));
    closing_ = std::exchange(current_, std::make_shared<Epoch>());
  }
  if (!syncing_ && closing_->writes_left == 0) StartSync();
}

void LogWriter::StartSync() {
  syncing_ = true;
  std::shared_ptr<Epoch> epoch = closing_;
  BeginWork();
  epoch->syncs_left = static_cast<uint32_t>(epoch->touched.size());
  if (epoch->touched.empty()) {
    options_.queue->Post([this, epoch] { Settle(epoch); });
    return;
  }
  for (const auto& [id, touched] : epoch->touched) {
    SegmentPtr segment = touched;
    options_.device->Sync(segment->file, [this, epoch, segment](IoResult result) mutable {
      options_.queue->Post([this, epoch = std::move(epoch), segment = std::move(segment),
                            status = std::move(result.status)] { OnSynced(epoch, segment, status); });
    });
  }
}

void LogWriter::OnSynced(const std::shared_ptr<Epoch>& epoch, const SegmentPtr& segment, const absl::Status& status) {
  if (!status.ok()) {
    // The kernel has marked the pages clean: what was not durable before will not be told apart from what is.
    segment->untrusted = true;
    Fill(segment);
    options_.sink->OnWriteError(status);
  }
  if (--epoch->syncs_left == 0) Settle(epoch);
}

void LogWriter::Settle(const std::shared_ptr<Epoch>& epoch) {
  std::vector<std::unique_ptr<LogItem>> items = std::move(epoch->items);
  std::map<uint32_t, SegmentPtr> touched = std::move(epoch->touched);
  for (std::unique_ptr<LogItem>& item : items) {
    for (const LogExtent& extent : item->extents) {
      if (extent.segment->untrusted && item->status.ok()) {
        item->status = DataLoss("segment {:08x} could not be made durable", extent.segment->id);
      }
    }
    for (LogExtent& extent : item->extents) {
      Segment& segment = *extent.segment;
      --segment.unsettled;
      if (!item->status.ok()) continue;
      segment.entries.insert(segment.entries.end(), extent.serialized_header.begin(), extent.serialized_header.end());
      ++segment.entry_count;
    }
  }
  size_t count = items.size();
  options_.sink->OnSettled(std::move(items));
  closing_ = nullptr;
  syncing_ = false;
  for (const auto& [id, segment] : touched) MaybeSeal(segment);
  Advance();
  EndWork(static_cast<int64_t>(count) + 1);
}

void LogWriter::Fill(SegmentPtr segment) {
  size_t stream = IndexOf(segment->stream);
  if (open_[stream] != segment) return;
  CloseGroup(segment->stream);
  open_[stream] = nullptr;
  room_[stream] = 0;
  BeginWork();  // Until it is sealed.
  // Where nothing is on its way in it, no settling group would seal it.
  options_.queue->Post([this, segment] { MaybeSeal(segment); });
}

void LogWriter::MaybeSeal(const SegmentPtr& segment) {
  if (open_[IndexOf(segment->stream)] == segment || segment->unsettled > 0 || segment->writes_in_flight > 0) return;
  if (std::exchange(segment->sealing, true)) return;
  if (segment->untrusted) return FinishSeal(segment, DataLoss("segment {:08x} is not trusted", segment->id));
  uint64_t at = AlignUp(segment->append_at, kIoAlignment);
  std::vector<uint8_t> footer = SerializeFooter(segment->id, segment->salt, at, segment->entries, segment->entry_count);
  auto buffer = std::make_shared<AlignedBuffer>(footer.size());
  std::copy(footer.begin(), footer.end(), buffer->data());
  uint64_t end = at + footer.size();
  auto finish = [this, segment](absl::Status status) {
    options_.queue->Post([this, segment, status = std::move(status)] { FinishSeal(segment, status); });
  };
  options_.device->Write(segment->file, at, buffer->span(), [this, segment, buffer, end, finish](IoResult written) {
    if (!written.status.ok()) return finish(written.status);
    options_.device->Sync(segment->file, [this, segment, end, finish](IoResult synced) {
      if (!synced.status.ok()) return finish(synced.status);
      options_.executor->Post([this, segment, end, finish] {
        uint64_t before = segment->file->allocated_bytes();
        absl::Status status = options_.device->Truncate(segment->file, end);
        options_.segments->OnShrunk(before, segment->file->allocated_bytes());
        finish(status);
      });
    });
  });
}

void LogWriter::FinishSeal(const SegmentPtr& segment, const absl::Status& status) {
  segment->has_footer = status.ok();
  segment->entries.clear();
  segment->entries.shrink_to_fit();
  if (!status.ok() && !segment->untrusted) options_.sink->OnWriteError(status);
  options_.sink->OnFilled(segment);
  EndWork();
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
