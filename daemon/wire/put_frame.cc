#include "daemon/wire/put_frame.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"
#include "firn/v1/kv.pb.h"

namespace firn {
namespace {

constexpr uint32_t kPayloadField = 15;
enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

// Reads across the slices of one message.
class Cursor {
 public:
  explicit Cursor(std::span<const ByteSpan> slices) : slices_(slices) {
    for (ByteSpan slice : slices) remaining_ += slice.size();
  }
  uint64_t remaining() const { return remaining_; }

  // Hands out the next `count` bytes, piece by piece; the caller has checked that they exist.
  template <typename Piece>
  void Take(uint64_t count, Piece piece) {
    FIRN_DCHECK(count <= remaining_);
    remaining_ -= count;
    while (count > 0) {
      ByteSpan rest = slices_[slice_].subspan(offset_);
      if (rest.empty()) {
        ++slice_;
        offset_ = 0;
        continue;
      }
      size_t take = static_cast<size_t>(std::min<uint64_t>(rest.size(), count));
      piece(rest.first(take));
      offset_ += take;
      count -= take;
    }
  }

  // A base-128 number of at most ten bytes, whose bytes are also appended to `raw`. False when it is cut or too long.
  bool Varint(uint64_t* value, std::string* raw) {
    *value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (remaining_ == 0) return false;
      uint8_t byte = 0;
      Take(1, [&byte](ByteSpan one) { byte = one[0]; });
      raw->push_back(static_cast<char>(byte));
      if (shift < 63 || (byte & 0x7f) <= 1) *value |= uint64_t{byte & 0x7fu} << shift;
      if ((byte & 0x80) == 0) return true;
    }
    return false;
  }

 private:
  const std::span<const ByteSpan> slices_;
  size_t slice_ = 0;
  size_t offset_ = 0;
  uint64_t remaining_ = 0;
};

absl::Status Malformed(const char* what) { return InvalidArgument("malformed PutRequest: {}", what); }

}  // namespace

absl::StatusOr<PutFrame> ParsePutFrame(std::span<const ByteSpan> slices) {
  Cursor cursor(slices);
  PutFrame frame;
  bool has_payload = false;
  std::string raw;  // Tag and length of the field being read.
  while (cursor.remaining() > 0) {
    raw.clear();
    uint64_t tag = 0, length = 0;
    // A tag has 32 bits: protobuf takes no longer one.
    if (!cursor.Varint(&tag, &raw) || tag > 0xffffffffu || raw.size() > 5 || (tag >> 3) == 0) {
      return Malformed("a field's tag");
    }
    uint32_t field = static_cast<uint32_t>(tag >> 3);
    switch (tag & 7) {
      case kVarint:
        if (!cursor.Varint(&length, &raw)) return Malformed("a number");
        length = 0;
        break;
      case kFixed64:
        length = 8;
        break;
      case kFixed32:
        length = 4;
        break;
      case kLengthDelimited:
        if (!cursor.Varint(&length, &raw)) return Malformed("a field's length");
        break;
      default:
        return Malformed("groups and unknown wire types are not accepted");
    }
    if (length > cursor.remaining()) return Malformed("a field is longer than the message");
    if (field == kPayloadField) {
      if ((tag & 7) != kLengthDelimited) return Malformed("the payload's wire type");
      if (has_payload) return Malformed("a second payload");
      has_payload = true;
      frame.payload_bytes = length;
      cursor.Take(length, [&frame](ByteSpan piece) { frame.payload.push_back(piece); });
      continue;
    }
    if (frame.control.size() + raw.size() + length > kControlBytesMax) {
      return InvalidArgument("PutRequest: fields other than the payload have over {} bytes", kControlBytesMax);
    }
    frame.control += raw;
    cursor.Take(length, [&frame](ByteSpan piece) { frame.control += AsText(piece); });
  }
  return frame;
}

std::string GetFramePrefix(const v1::GetResponse& control, uint64_t payload_bytes) {
  FIRN_DCHECK(control.payload().empty());
  std::string prefix = control.SerializeAsString();
  if (payload_bytes == 0) return prefix;
  prefix.push_back(static_cast<char>(kPayloadTag));
  while (payload_bytes >= 0x80) {
    prefix.push_back(static_cast<char>((payload_bytes & 0x7f) | 0x80));
    payload_bytes >>= 7;
  }
  prefix.push_back(static_cast<char>(payload_bytes));
  return prefix;
}

}  // namespace firn
