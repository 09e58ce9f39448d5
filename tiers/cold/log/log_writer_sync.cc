// The log writer's way to the medium: writes, group syncs, settling, footers.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "tiers/cold/log/log_writer_parts.h"

namespace firn {
namespace {

constexpr size_t kSpareBuffersMax = 8;
constexpr uint64_t kGroupedBytesMax = uint64_t{32} << 20;

}  // namespace

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
    if (current_->empty()) {
      // A segment's own header is settled with the first extent in it. Held until then, a segment that was given up
      // before would never go, and whoever waits for its room never be served.
      if (current_->writes_left == 0) current_->touched.clear();
      return;
    }
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

}  // namespace firn
