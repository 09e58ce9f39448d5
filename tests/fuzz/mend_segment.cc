#include "tests/fuzz/mend_segment.h"

#include <algorithm>

#include "base/checksum.h"
#include "tests/fuzz/fuzz_target.h"
#include "tiers/cold/log/extent_format.h"

namespace firn::fuzz {
namespace {

// Offsets of fields, as the format's page has them.
constexpr size_t kSegmentSaltAt = 16, kSegmentCrcEnd = 40;
constexpr size_t kLengthAt = 6, kSequenceAt = 24, kPayloadBytesAt = 32, kPayloadCrcAt = 40, kExtentBytesMin = 56;
constexpr size_t kFooterPlaceAt = 16, kFooterBytesAt = 24, kFooterCrcAt = 32;

// 0: no extent begins here.
uint64_t ExtentHeaderLength(ByteSpan bytes) {
  if (bytes.size() < kExtentBytesMin || !AsText(bytes).starts_with("FEXT")) return 0;
  uint64_t length = LoadLe<uint16_t>(bytes.data() + kLengthAt);
  return length < kExtentBytesMin || length > std::min<uint64_t>(bytes.size(), kExtentHeaderBytesMax) ? 0 : length;
}

}  // namespace

uint64_t MendSegmentHeader(MutableByteSpan file) {
  MendCrc(file.first(kSegmentCrcEnd), 0);
  return LoadLe<uint64_t>(file.data() + kSegmentSaltAt);
}

uint64_t MendExtentHeader(MutableByteSpan bytes, uint64_t salt) {
  uint64_t length = ExtentHeaderLength(bytes);
  MendCrc(bytes.first(length), salt);
  return length;
}

void MendExtent(MutableByteSpan bytes, uint64_t salt) {
  uint64_t length = ExtentHeaderLength(bytes);
  if (length == 0) return;
  uint64_t payload_bytes = LoadLe<uint64_t>(bytes.data() + kPayloadBytesAt);
  if (payload_bytes <= bytes.size() - length) {
    uint64_t crc = Crc64(bytes.subspan(length, payload_bytes), LoadLe<uint64_t>(bytes.data() + kSequenceAt));
    StoreLe<uint64_t>(bytes.data() + kPayloadCrcAt, crc);
  }
  MendExtentHeader(bytes, salt);
}

void MendFooter(MutableByteSpan footer, uint64_t salt) {
  if (footer.size() < kTrailerBytes) return;
  MutableByteSpan trailer = footer.last(kTrailerBytes), entries = footer.first(footer.size() - kTrailerBytes);
  uint64_t entries_bytes = LoadLe<uint64_t>(trailer.data() + kFooterBytesAt);
  if (entries_bytes <= entries.size()) {
    entries = entries.first(entries_bytes);
    for (uint64_t at = 0, length = 1; at < entries.size() && length > 0; at += length) {
      length = MendExtentHeader(entries.subspan(at), salt);
    }
    StoreLe<uint64_t>(trailer.data() + kFooterCrcAt, Crc64(entries, salt));
  }
  MendCrc(trailer, salt);
}

uint64_t FooterPlace(ByteSpan file) { return LoadLe<uint64_t>(file.last(kTrailerBytes).data() + kFooterPlaceAt); }

}  // namespace firn::fuzz
