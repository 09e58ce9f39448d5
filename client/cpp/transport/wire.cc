#include "client/cpp/transport/wire.h"

#include <string>

#include "base/status.h"

namespace firnkv {
namespace {

constexpr uint8_t kPayloadTag = kPayloadField << 3 | 2;
constexpr size_t kHeadBytesMax = 1 << 20;

void AppendVarint(std::string* out, uint64_t value) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

// Walks the bytes of a message that lie in several slices.
class SliceCursor {
 public:
  explicit SliceCursor(const std::vector<grpc::Slice>& slices) : slices_(slices) { SkipEmpty(); }

  bool AtEnd() const { return slice_ == slices_.size(); }
  bool ReadByte(uint8_t* out) {
    if (AtEnd()) return false;
    *out = slices_[slice_].begin()[offset_++];
    SkipEmpty();
    return true;
  }
  // The raw bytes of the varint are appended to `raw` (may be null).
  bool ReadVarint(uint64_t* value, std::string* raw) {
    *value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      uint8_t byte = 0;
      if (!ReadByte(&byte)) return false;
      if (raw != nullptr) raw->push_back(static_cast<char>(byte));
      *value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }
  // Hands the next `count` bytes to `take`, span by span.
  template <typename Take>
  bool ReadSpans(uint64_t count, Take take) {
    while (count > 0) {
      if (AtEnd()) return false;
      const grpc::Slice& slice = slices_[slice_];
      size_t length = std::min<uint64_t>(count, slice.size() - offset_);
      take(std::span<const uint8_t>(slice.begin() + offset_, length));
      offset_ += length;
      count -= length;
      SkipEmpty();
    }
    return true;
  }

 private:
  void SkipEmpty() {
    while (slice_ < slices_.size() && offset_ == slices_[slice_].size()) {
      ++slice_;
      offset_ = 0;
    }
  }
  const std::vector<grpc::Slice>& slices_;
  size_t slice_ = 0;
  size_t offset_ = 0;
};

// One field other than the payload, copied verbatim to `head`.
bool CopyField(SliceCursor* cursor, uint64_t tag, std::string* head) {
  constexpr uint64_t kVarint = 0, kFixed64 = 1, kDelimited = 2, kFixed32 = 5;
  uint64_t count = 0;
  switch (tag & 7) {
    case kVarint:
      return cursor->ReadVarint(&count, head);
    case kFixed64:
      count = 8;
      break;
    case kFixed32:
      count = 4;
      break;
    case kDelimited:
      if (!cursor->ReadVarint(&count, head)) return false;
      break;
    default:
      return false;
  }
  if (count > kHeadBytesMax - std::min(kHeadBytesMax, head->size())) return false;
  return cursor->ReadSpans(count, [head](std::span<const uint8_t> piece) {
    head->append(reinterpret_cast<const char*>(piece.data()), piece.size());
  });
}

}  // namespace

grpc::Slice PayloadHold::MakeSlice(std::span<const uint8_t> bytes) {
  slices_.fetch_add(1, std::memory_order_relaxed);
  // gRPC takes a pointer to non-const bytes and never writes through it.
  return grpc::Slice(const_cast<uint8_t*>(bytes.data()), bytes.size(), &PayloadHold::Release, this);
}

void PayloadHold::Release(void* self) {
  static_cast<PayloadHold*>(self)->slices_.fetch_sub(1, std::memory_order_release);
}

grpc::ByteBuffer FramePut(const firn::v1::PutRequest& head, std::span<const std::span<const uint8_t>> payload,
                          PayloadHold* hold) {
  std::string prefix = head.SerializeAsString();
  uint64_t bytes = 0;
  for (const auto& piece : payload) bytes += piece.size();
  if (bytes > 0) {
    prefix.push_back(static_cast<char>(kPayloadTag));
    AppendVarint(&prefix, bytes);
  }
  std::vector<grpc::Slice> slices;
  slices.reserve(payload.size() + 1);
  slices.emplace_back(prefix);
  for (const auto& piece : payload) {
    if (!piece.empty()) slices.push_back(hold->MakeSlice(piece));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::Status ParseGet(const grpc::ByteBuffer& buffer, GetFrame* frame) {
  frame->slices.clear();
  frame->payload.clear();
  frame->payload_bytes = 0;
  if (!buffer.Dump(&frame->slices).ok()) return firn::DataLoss("a message of the Get stream cannot be read");
  SliceCursor cursor(frame->slices);
  std::string head;
  while (!cursor.AtEnd()) {
    std::string raw_tag;
    uint64_t tag = 0;
    bool read = cursor.ReadVarint(&tag, &raw_tag);
    if (read && tag == kPayloadTag) {
      if (frame->payload_bytes > 0) return firn::DataLoss("a message of the Get stream has two payloads");
      read = cursor.ReadVarint(&frame->payload_bytes, nullptr) &&
             cursor.ReadSpans(frame->payload_bytes,
                              [frame](std::span<const uint8_t> piece) { frame->payload.push_back(piece); });
    } else if (read) {
      head += raw_tag;
      read = CopyField(&cursor, tag, &head);
    }
    if (!read) return firn::DataLoss("a message of the Get stream is malformed after {} bytes of fields", head.size());
  }
  if (!frame->head.ParseFromString(head)) return firn::DataLoss("a message of the Get stream does not parse");
  return absl::OkStatus();
}

}  // namespace firnkv
