// The segment file format: segment header, extents, footer (docs/formats/segment.md has the grammar and worked bytes).
//
// A segment is a 4 KiB header block, extents, and once it is sealed a footer: the headers of its extents again, and a
// trailer in the file's last 4 KiB. An extent is a header and a payload: some runs of a record (and, in the base
// extent, the record's header), a fact, or tombstones. Extent headers are checksummed with the segment's secret salt as
// the seed, so that no payload that a client chose can pass for one; payloads with the sequence number. Threads: pure
// functions. Units: offsets are bytes from the start of the file; inside an extent, from the extent's start. Errors:
// DataLoss for bytes that are not what they should be, FailedPrecondition for a version of the future.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/digest.h"
#include "codecs/ecc/ecc.h"
#include "codecs/record.h"
#include "codecs/types.h"
#include "tiers/cold/device/device.h"

namespace firn {

inline constexpr uint64_t kSegmentHeaderBytes = kIoAlignment;
inline constexpr uint64_t kTrailerBytes = kIoAlignment;
inline constexpr uint64_t kExtentAlignment = 64;  // Of extents in a shared block, and of runs in an extent.
inline constexpr uint64_t kParityAlignment = 8;
inline constexpr uint64_t kExtentHeaderBytesMax = 512;
inline constexpr uint32_t kRecordExtentsMax = 4;

// Which segments an extent goes to. Persistent ids.
enum class Stream : uint8_t { kBase = 0, kP4 = 1, kP8 = 2, kProtected = 3, kFacts = 4, kUnassigned = 255 };
inline constexpr uint32_t kStreams = 5;

enum class ExtentKind : uint8_t { kRecord = 1, kFact = 2, kFactRemoved = 3, kTombstones = 4, kNamespaceForgotten = 5 };

// Written when the segment is made, and again, with its stream, when it is opened. All of it lies in one sector, which
// a power cut does not tear.
struct SegmentHeader {
  uint32_t id = 0;  // Never 0, never used twice.
  Stream stream = Stream::kBase;
  uint64_t salt = 0;
  uint64_t bytes = 0;  // As created; sealing cuts the file behind its footer.
};

struct ExtentPlace {
  uint32_t segment = 0;  // 0: nowhere.
  uint64_t offset = 0;
  bool operator==(const ExtentPlace&) const = default;
};

// Which runs an extent holds, and where the first one starts; the others follow, each aligned to kExtentAlignment, and
// then the parity of what has some, each aligned to kParityAlignment.
struct ExtentShape {
  RunMask runs;
  uint32_t runs_at = 0;
  bool operator==(const ExtentShape&) const = default;
};
using RunLengths = std::array<uint32_t, kRunIds>;
uint64_t RunOffset(const ExtentShape& shape, const RunLengths& lengths, uint32_t run_index);
// All that decides where things lie in an extent of a record.
struct ExtentContents {
  ExtentShape shape;
  RunLengths lengths{};
  uint32_t header_bytes = 0;  // Of the record header; 0 where another extent has it.
  EccPolicy ecc;

  // Behind the last run: the record header's parity, then that of the runs. So reads do not pass it, and no sector has
  // both a header and its parity.
  uint64_t HeaderParityOffset() const;
  uint64_t ParityOffset(uint32_t run_index) const;
  uint64_t End() const;
};
// Where a record header lies that has parity: it ends where the runs start, so that it is found whatever became of the
// extent's header.
uint64_t ProtectedHeaderOffset(const ExtentShape& shape, uint32_t header_bytes);

// What every extent of a record says about the whole record.
struct RecordNote {
  Identity identity;
  std::optional<Digest> parent;
  uint32_t first_token = 0;
  uint32_t tokens = 0;
  int64_t expires_unix_ms = 0;
  uint64_t digest = 0;        // HeaderDigest of the record header.
  uint32_t header_bytes = 0;  // Of the serialized record header.
  RunMask written;            // The runs that the record had when this was written.
  RunMask protect;
  RunLengths run_bytes{};              // Of the runs in `written`.
  std::array<ClassPair, 3> classes{};  // With everything, without p8, without p4 and p8.
  EccPolicy ecc;                       // What its header and its runs are protected with.
  bool operator==(const RecordNote&) const = default;

  // The class of what is left when only `present` runs are.
  ClassPair ClassOf(RunMask present) const;
};

struct ExtentHeader {
  ExtentKind kind = ExtentKind::kRecord;
  Stream stream = Stream::kBase;
  ExtentPlace place;
  uint64_t sequence = 0;  // Names one written copy; a relocated copy keeps it.
  uint64_t payload_bytes = 0;
  uint64_t payload_crc = 0;  // Seeded with `sequence`.
  // Records only.
  ExtentShape shape;
  bool has_record_header = false;
  bool relocated = false;
  std::vector<ExtentPlace> siblings;  // In the extent with the record header: where the others are.
  RecordNote note;

  uint64_t header_bytes() const;  // Serialized.
  // Of the record's header, where this extent has it.
  uint64_t record_header_at() const;
  ExtentContents contents() const {
    return {shape, note.run_bytes, has_record_header ? note.header_bytes : 0, note.ecc};
  }
  uint64_t extent_bytes() const { return header_bytes() + payload_bytes; }
};

struct Footer {
  std::vector<ExtentHeader> entries;
  uint64_t data_end = 0;
};

std::vector<uint8_t> SerializeSegmentHeader(const SegmentHeader& header);  // kSegmentHeaderBytes.
absl::StatusOr<SegmentHeader> ParseSegmentHeader(ByteSpan block);

std::vector<uint8_t> SerializeExtentHeader(const ExtentHeader& header, uint64_t salt);
// `bytes` may go on behind the header.
absl::StatusOr<ExtentHeader> ParseExtentHeader(ByteSpan bytes, uint64_t salt);

// The last block of a sealed segment: says where the footer is.
struct Trailer {
  uint32_t segment = 0;
  uint32_t entries = 0;
  uint64_t footer_at = 0;
  uint64_t footer_bytes = 0;
  uint64_t footer_crc = 0;
};
// The footer's bytes with the trailer, a multiple of kIoAlignment, to be written at `at`; `entries` are serialized
// headers.
std::vector<uint8_t> SerializeFooter(uint32_t segment, uint64_t salt, uint64_t at, ByteSpan entries,
                                     uint32_t entry_count);
uint64_t FooterBytes(uint64_t entries_bytes);
absl::StatusOr<Trailer> ParseTrailer(ByteSpan block, uint64_t salt);
absl::StatusOr<Footer> ParseFooter(ByteSpan entries, const Trailer& trailer, uint64_t salt);

// Payloads of the facts stream.
struct FactPayload {
  std::string kind;
  std::string name;
  std::vector<uint8_t> value;  // Empty for a removal.
};
std::vector<uint8_t> SerializeFact(const FactPayload& fact);
absl::StatusOr<FactPayload> ParseFact(ByteSpan payload);

// A copy that must not come back: needed as long as any of the segments that hold its extents exists.
struct Tombstone {
  uint64_t sequence = 0;
  std::array<uint32_t, kRecordExtentsMax> segments{};  // 0: none.
};
std::vector<uint8_t> SerializeTombstones(const std::vector<Tombstone>& tombstones);
absl::StatusOr<std::vector<Tombstone>> ParseTombstones(ByteSpan payload);

}  // namespace firn
