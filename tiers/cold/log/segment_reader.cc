#include "tiers/cold/log/segment_reader.h"

#include <algorithm>
#include <utility>

#include "base/checksum.h"
#include "base/status.h"

namespace firn {

absl::StatusOr<AlignedBuffer> SegmentReader::ReadSpan(uint64_t offset, uint64_t bytes) {
  AlignedBuffer buffer(bytes);
  FIRN_ASSIGN_OR_RETURN(uint64_t got, device_->ReadBlocking(file_, offset, buffer.span()));
  if (got < bytes) return DataLoss("{}: {} of {} bytes at {} are there", file_->name(), got, bytes, offset);
  return buffer;
}

absl::StatusOr<AlignedBuffer> SegmentReader::ReadGiven(uint64_t bytes, uint64_t* refused_bytes) {
  auto whole = ReadSpan(0, bytes);
  if (whole.ok() || !StatusErrno(whole.status()).has_value()) return whole;
  AlignedBuffer buffer(bytes);
  constexpr uint64_t kStep = 64 * kIoAlignment;
  for (uint64_t at = 0; at < bytes; at += kStep) {
    const uint64_t step = std::min(kStep, bytes - at);
    auto got = device_->ReadBlocking(file_, at, buffer.span().subspan(at, step));
    if (got.ok() && *got == step) continue;
    for (uint64_t sector = at; sector < at + step; sector += kIoAlignment) {
      MutableByteSpan target = buffer.span().subspan(sector, kIoAlignment);
      got = device_->ReadBlocking(file_, sector, target);
      if (got.ok() && *got == kIoAlignment) continue;
      std::fill(target.begin(), target.end(), uint8_t{0});
      *refused_bytes += kIoAlignment;
      if (*refused_bytes > kRefusedBytesMax) return whole.status();
    }
  }
  return buffer;
}

absl::StatusOr<SegmentHeader> SegmentReader::ReadHeader() {
  if (file_->size() < kSegmentHeaderBytes) return DataLoss("{} has {} bytes", file_->name(), file_->size());
  FIRN_ASSIGN_OR_RETURN(AlignedBuffer block, ReadSpan(0, kSegmentHeaderBytes));
  ByteSpan bytes = block.span();
  if (std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == 0; })) {
    return NotFound("{} was never written to", file_->name());
  }
  return ParseSegmentHeader(bytes);
}

absl::StatusOr<SegmentContents> SegmentReader::ReadFooter(uint32_t id, uint64_t salt) {
  uint64_t size = file_->size();
  if (size % kIoAlignment != 0 || size < kSegmentHeaderBytes + kTrailerBytes) {
    return DataLoss("{} has {} bytes: no footer", file_->name(), size);
  }
  FIRN_ASSIGN_OR_RETURN(AlignedBuffer block, ReadSpan(size - kTrailerBytes, kTrailerBytes));
  FIRN_ASSIGN_OR_RETURN(Trailer trailer, ParseTrailer(block.span(), salt));
  if (trailer.segment != id || trailer.footer_at < kSegmentHeaderBytes || trailer.footer_at > size ||
      trailer.footer_bytes > size - trailer.footer_at ||
      trailer.footer_at + FooterBytes(trailer.footer_bytes) != size) {
    return DataLoss("{}: a footer of {} bytes at {} does not fit its {} bytes", file_->name(), trailer.footer_bytes,
                    trailer.footer_at, size);
  }
  SegmentContents contents;
  contents.sealed = true;
  contents.data_end = trailer.footer_at;
  if (trailer.footer_bytes == 0) return contents;
  FIRN_ASSIGN_OR_RETURN(AlignedBuffer entries, ReadSpan(trailer.footer_at, trailer.footer_bytes));
  FIRN_ASSIGN_OR_RETURN(Footer footer, ParseFooter(entries.span(), trailer, salt));
  contents.extents = std::move(footer.entries);
  for (const ExtentHeader& header : contents.extents) {
    // Near the end of its range the offset would wrap around with the length.
    uint64_t at = header.place.offset;
    if (at < kSegmentHeaderBytes || at > contents.data_end || header.extent_bytes() > contents.data_end - at ||
        at % kExtentAlignment != 0) {
      return DataLoss("{}: its footer names an extent of {} bytes at {}", file_->name(), header.extent_bytes(), at);
    }
  }
  return contents;
}

absl::StatusOr<SegmentContents> SegmentReader::Scan(uint32_t id, uint64_t salt, const Mend& mend) {
  uint64_t size = AlignDown(file_->size(), kIoAlignment);
  SegmentContents contents;
  // Whole segments fit in memory; a jumbo one is as long as the one record that it holds.
  if (size <= kSegmentHeaderBytes) return contents;
  FIRN_ASSIGN_OR_RETURN(AlignedBuffer memory, ReadGiven(size, &contents.refused_bytes));
  MutableByteSpan bytes = memory.span();
  uint64_t at = kSegmentHeaderBytes;
  while (at + kExtentAlignment <= size) {
    auto header = ParseExtentHeader(bytes.subspan(at, std::min<uint64_t>(kExtentHeaderBytesMax, size - at)), salt);
    bool ours = header.ok() && header->place == ExtentPlace{id, at} && header->extent_bytes() <= size - at;
    if (!ours) {
      // Not an extent's start. Groups start at blocks, so that the next one is found there whatever became of this one.
      at = at % kIoAlignment == 0 ? at + kIoAlignment : AlignUp(at, kIoAlignment);
      continue;
    }
    ByteSpan payload = bytes.subspan(at + header->header_bytes(), header->payload_bytes);
    uint64_t end = at + header->extent_bytes();
    bool whole = Crc64(payload, header->sequence) == header->payload_crc;
    if (!whole && mend) {
      whole = mend(*header, bytes.subspan(at, header->extent_bytes()));
      contents.mended += whole ? 1 : 0;
    }
    if (whole) {
      contents.data_end = std::max(contents.data_end, end);
      contents.extents.push_back(*std::move(header));
      at = AlignUp(end, kExtentAlignment);
    } else {
      ++contents.torn;
      // Its length is right, but another group may have been written into the torn one's blocks by nobody: go on behind
      // it.
      at = AlignUp(end, kExtentAlignment);
    }
  }
  return contents;
}

absl::StatusOr<std::vector<uint8_t>> SegmentReader::ReadPayload(const ExtentHeader& header) {
  uint64_t start = header.place.offset + header.header_bytes();
  uint64_t from = AlignDown(start, kIoAlignment);
  uint64_t end = start + header.payload_bytes;
  if (end > file_->size()) return DataLoss("{}: an extent ends at {} of {} bytes", file_->name(), end, file_->size());
  if (header.payload_bytes == 0) return std::vector<uint8_t>();
  FIRN_ASSIGN_OR_RETURN(AlignedBuffer memory, ReadSpan(from, AlignUp(end, kIoAlignment) - from));
  ByteSpan payload = ByteSpan(memory.span()).subspan(start - from, header.payload_bytes);
  if (Crc64(payload, header.sequence) != header.payload_crc) {
    return DataLoss("{}: the payload at {} does not check", file_->name(), header.place.offset);
  }
  return std::vector<uint8_t>(payload.begin(), payload.end());
}

}  // namespace firn
