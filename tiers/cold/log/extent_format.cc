#include "tiers/cold/log/extent_format.h"

#include <utility>

#include "base/check.h"
#include "base/checksum.h"
#include "base/status.h"

namespace firn {
namespace {

constexpr uint32_t kSegmentMagic = 0x47455346;  // "FSEG" as bytes.
constexpr uint32_t kExtentMagic = 0x54584546;   // "FEXT"
constexpr uint32_t kTrailerMagic = 0x52545346;  // "FSTR"
constexpr uint16_t kVersion = 1;
constexpr uint64_t kCrcBytes = 8;
constexpr uint64_t kSegmentFieldsBytes = 32;
constexpr uint64_t kExtentFixedBytes = 48;   // Magic to payload CRC.
constexpr uint64_t kRecordFixedBytes = 128;  // Identity to the reserved bytes.
constexpr uint8_t kHasParent = 1, kHasRecordHeader = 2, kRelocated = 4;

absl::Status CheckVersion(const char* what, uint16_t version) {
  if (version == kVersion) return absl::OkStatus();
  return FailedPrecondition("{} has version {}; this build reads {}", what, version, kVersion);
}

void WriteClass(ByteWriter* writer, ClassPair c) {
  writer->Write<uint8_t>(static_cast<uint8_t>(c.k));
  writer->Write<uint8_t>(static_cast<uint8_t>(c.v));
}

bool ReadClass(ByteReader* reader, PrecisionClass* c) {
  *c = static_cast<PrecisionClass>(reader->Read<uint8_t>());
  switch (*c) {
    case PrecisionClass::kNone:
    case PrecisionClass::k2Bit:
    case PrecisionClass::k3Bit:
    case PrecisionClass::k4Bit:
    case PrecisionClass::k8Bit:
    case PrecisionClass::kExact:
      return true;
  }
  return false;
}

void WriteRecordPart(ByteWriter* writer, const ExtentHeader& header) {
  const RecordNote& note = header.note;
  writer->WriteBytes(note.identity.namespace_fingerprint.span());
  writer->WriteBytes(note.identity.key.span());
  writer->Write<uint64_t>(note.identity.generation);
  writer->Write<uint16_t>(note.identity.shard);
  uint8_t flags = (note.parent ? kHasParent : 0) | (header.has_record_header ? kHasRecordHeader : 0) |
                  (header.relocated ? kRelocated : 0);
  writer->Write<uint8_t>(flags);
  writer->Write<uint8_t>(static_cast<uint8_t>(header.siblings.size()));
  writer->Write<uint32_t>(note.first_token);
  writer->Write<uint32_t>(note.tokens);
  writer->Write<uint32_t>(note.header_bytes);
  writer->Write<int64_t>(note.expires_unix_ms);
  writer->Write<uint64_t>(note.digest);
  writer->Write<uint32_t>(header.shape.runs_at);
  writer->Write<uint16_t>(header.shape.runs.bits());
  writer->Write<uint16_t>(note.written.bits());
  writer->Write<uint16_t>(note.protect.bits());
  for (const ClassPair& c : note.classes) WriteClass(writer, c);
  writer->Write<uint8_t>(note.ecc.Packed());
  writer->WriteZeros(7);
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (note.written.Has(i)) writer->Write<uint32_t>(note.run_bytes[i]);
  }
  if (note.parent) writer->WriteBytes(note.parent->span());
  for (const ExtentPlace& place : header.siblings) {
    writer->Write<uint32_t>(place.segment);
    writer->Write<uint64_t>(place.offset);
  }
}

Digest ReadDigest(ByteReader* reader) { return Digest::FromBytes(reader->ReadBytes(32)).value_or(Digest{}); }

absl::Status ReadRecordPart(ByteReader* reader, ExtentHeader* header) {
  RecordNote& note = header->note;
  note.identity.namespace_fingerprint = ReadDigest(reader);
  note.identity.key = ReadDigest(reader);
  note.identity.generation = reader->Read<uint64_t>();
  note.identity.shard = reader->Read<uint16_t>();
  uint8_t flags = reader->Read<uint8_t>();
  header->has_record_header = (flags & kHasRecordHeader) != 0;
  header->relocated = (flags & kRelocated) != 0;
  uint8_t siblings = reader->Read<uint8_t>();
  note.first_token = reader->Read<uint32_t>();
  note.tokens = reader->Read<uint32_t>();
  note.header_bytes = reader->Read<uint32_t>();
  note.expires_unix_ms = reader->Read<int64_t>();
  note.digest = reader->Read<uint64_t>();
  header->shape.runs_at = reader->Read<uint32_t>();
  header->shape.runs = RunMask(reader->Read<uint16_t>());
  note.written = RunMask(reader->Read<uint16_t>());
  note.protect = RunMask(reader->Read<uint16_t>());
  bool known = true;
  for (ClassPair& c : note.classes) {
    known &= ReadClass(reader, &c.k);
    known &= ReadClass(reader, &c.v);
  }
  auto ecc = EccPolicy::Unpack(reader->Read<uint8_t>());
  if (ecc.ok()) note.ecc = *ecc;
  known &= ecc.ok();
  reader->Skip(7);
  known &= (flags & ~(kHasParent | kHasRecordHeader | kRelocated)) == 0 && siblings < kRecordExtentsMax;
  if (!reader->ok() || !known || !RunMask::All().Contains(note.written | note.protect) ||
      !note.written.Contains(header->shape.runs) || note.header_bytes > kRecordHeaderBytesMax) {
    return DataLoss("extent header: a field of its record part is out of range");
  }
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (note.written.Has(i)) note.run_bytes[i] = reader->Read<uint32_t>();
    if (note.run_bytes[i] > kBlockBytesMax) return DataLoss("extent header: run {} of {} bytes", i, note.run_bytes[i]);
  }
  if ((flags & kHasParent) != 0) note.parent = ReadDigest(reader);
  for (uint8_t i = 0; i < siblings; ++i) {
    ExtentPlace place;
    place.segment = reader->Read<uint32_t>();
    place.offset = reader->Read<uint64_t>();
    header->siblings.push_back(place);
  }
  uint64_t runs_end = header->contents().End();
  uint64_t front = header->header_bytes();
  if (header->has_record_header) front += note.header_bytes;
  if (header->shape.runs_at < front || runs_end != header->extent_bytes()) {
    return DataLoss("extent header: runs from {} to {} do not fit its {} bytes", header->shape.runs_at, runs_end,
                    header->extent_bytes());
  }
  return absl::OkStatus();
}

}  // namespace

uint64_t RunOffset(const ExtentShape& shape, const RunLengths& lengths, uint32_t run_index) {
  FIRN_CHECK(shape.runs.Has(run_index));
  uint64_t at = shape.runs_at;
  for (uint32_t i = 0; i < run_index; ++i) {
    if (shape.runs.Has(i)) at = AlignUp(at + lengths[i], kExtentAlignment);
  }
  return at;
}

namespace {

uint64_t RunsEnd(const ExtentShape& shape, const RunLengths& lengths) {
  uint64_t at = shape.runs_at;
  uint64_t end = at;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (!shape.runs.Has(i)) continue;
    end = at + lengths[i];
    at = AlignUp(end, kExtentAlignment);
  }
  return end;
}

// The end of the record header's parity and of that of the runs before `run_index`.
uint64_t ParityEnd(const ExtentContents& contents, uint32_t run_index) {
  uint64_t end = RunsEnd(contents.shape, contents.lengths);
  auto add = [&end](uint64_t bytes) {
    if (bytes > 0) end = AlignUp(end, kParityAlignment) + bytes;
  };
  add(ParityBytes(contents.ecc.OfHeader(), contents.header_bytes));
  for (uint32_t i = 0; i < run_index; ++i) {
    if (contents.shape.runs.Has(i)) add(ParityBytes(contents.ecc.OfRun(i), contents.lengths[i]));
  }
  return end;
}

}  // namespace

uint64_t ExtentContents::HeaderParityOffset() const { return AlignUp(RunsEnd(shape, lengths), kParityAlignment); }

uint64_t ExtentContents::ParityOffset(uint32_t run_index) const {
  FIRN_CHECK(shape.runs.Has(run_index));
  return AlignUp(ParityEnd(*this, run_index), kParityAlignment);
}

uint64_t ExtentContents::End() const { return ParityEnd(*this, kRunIds); }

uint64_t ProtectedHeaderOffset(const ExtentShape& shape, uint32_t header_bytes) {
  FIRN_CHECK(header_bytes <= shape.runs_at);
  return shape.runs_at - header_bytes;
}

uint64_t ExtentHeader::record_header_at() const {
  FIRN_CHECK(has_record_header);
  return note.ecc.OfHeader() == EccCode::kNone ? header_bytes() : ProtectedHeaderOffset(shape, note.header_bytes);
}

ClassPair RecordNote::ClassOf(RunMask present) const {
  auto of_part = [&](Part part) {
    auto whole = [&](RunKind kind) { return !written.Has(kind, part) || present.Has(kind, part); };
    auto pick = [&](size_t i) { return part == Part::kK ? classes[i].k : classes[i].v; };
    if (!whole(RunKind::kMeta) || !whole(RunKind::kExact) || !whole(RunKind::kP2) || !whole(RunKind::kWhole)) {
      return PrecisionClass::kNone;
    }
    if (!whole(RunKind::kP4)) return pick(2);
    return whole(RunKind::kP8) ? pick(0) : pick(1);
  };
  return {of_part(Part::kK), of_part(Part::kV)};
}

uint64_t ExtentHeader::header_bytes() const {
  uint64_t bytes = kExtentFixedBytes + kCrcBytes;
  if (kind == ExtentKind::kRecord) {
    bytes += kRecordFixedBytes + 4 * static_cast<uint64_t>(note.written.Count()) + (note.parent ? 32 : 0) +
             12 * siblings.size();
  }
  return AlignUp(bytes, 8);
}

std::vector<uint8_t> SerializeSegmentHeader(const SegmentHeader& header) {
  ByteWriter writer;
  writer.Write<uint32_t>(kSegmentMagic);
  writer.Write<uint16_t>(kVersion);
  writer.Write<uint8_t>(static_cast<uint8_t>(header.stream));
  writer.Write<uint8_t>(0);
  writer.Write<uint32_t>(header.id);
  writer.Write<uint32_t>(0);
  writer.Write<uint64_t>(header.salt);
  writer.Write<uint64_t>(header.bytes);
  writer.Write<uint64_t>(Crc64(writer.bytes(), 0));
  writer.WriteZeros(kSegmentHeaderBytes - writer.size());
  return writer.Take();
}

absl::StatusOr<SegmentHeader> ParseSegmentHeader(ByteSpan block) {
  if (block.size() < kSegmentHeaderBytes)
    return DataLoss("segment header: {} bytes of {}", block.size(), kSegmentHeaderBytes);
  ByteReader reader(block.first(kSegmentHeaderBytes));
  if (reader.Read<uint32_t>() != kSegmentMagic) return DataLoss("segment header: not one of a segment");
  uint16_t version = reader.Read<uint16_t>();
  uint64_t crc = LoadLe<uint64_t>(block.data() + kSegmentFieldsBytes);
  if (crc != Crc64(block.first(kSegmentFieldsBytes), 0)) return DataLoss("segment header: its CRC does not check");
  FIRN_RETURN_IF_ERROR(CheckVersion("segment", version));
  SegmentHeader header;
  uint8_t stream = reader.Read<uint8_t>();
  reader.Skip(1);
  header.id = reader.Read<uint32_t>();
  reader.Skip(4);
  header.salt = reader.Read<uint64_t>();
  header.bytes = reader.Read<uint64_t>();
  bool known = stream < kStreams || stream == static_cast<uint8_t>(Stream::kUnassigned);
  if (!known || header.id == 0) return DataLoss("segment header: stream {}, id {}", stream, header.id);
  header.stream = static_cast<Stream>(stream);
  return header;
}

std::vector<uint8_t> SerializeExtentHeader(const ExtentHeader& header, uint64_t salt) {
  ByteWriter writer;
  uint64_t length = header.header_bytes();
  FIRN_CHECK(length <= kExtentHeaderBytesMax);
  writer.bytes().reserve(length);
  writer.Write<uint32_t>(kExtentMagic);
  writer.Write<uint16_t>(kVersion);
  writer.Write<uint16_t>(static_cast<uint16_t>(length));
  writer.Write<uint8_t>(static_cast<uint8_t>(header.kind));
  writer.Write<uint8_t>(static_cast<uint8_t>(header.stream));
  writer.Write<uint16_t>(0);
  writer.Write<uint32_t>(header.place.segment);
  writer.Write<uint64_t>(header.place.offset);
  writer.Write<uint64_t>(header.sequence);
  writer.Write<uint64_t>(header.payload_bytes);
  writer.Write<uint64_t>(header.payload_crc);
  if (header.kind == ExtentKind::kRecord) WriteRecordPart(&writer, header);
  writer.WriteZeros(length - kCrcBytes - writer.size());
  writer.Write<uint64_t>(Crc64(writer.bytes(), salt));
  FIRN_CHECK(writer.size() == length);
  return writer.Take();
}

absl::StatusOr<ExtentHeader> ParseExtentHeader(ByteSpan bytes, uint64_t salt) {
  if (bytes.size() < kExtentFixedBytes + kCrcBytes) return DataLoss("extent header: {} bytes", bytes.size());
  ByteReader reader(bytes);
  if (reader.Read<uint32_t>() != kExtentMagic) return DataLoss("extent header: none here");
  uint16_t version = reader.Read<uint16_t>();
  uint64_t length = reader.Read<uint16_t>();
  if (length < kExtentFixedBytes + kCrcBytes || length > kExtentHeaderBytesMax || length % 8 != 0 ||
      length > bytes.size()) {
    return DataLoss("extent header: length {} of {} bytes", length, bytes.size());
  }
  if (LoadLe<uint64_t>(bytes.data() + length - kCrcBytes) != Crc64(bytes.first(length - kCrcBytes), salt)) {
    return DataLoss("extent header: its CRC does not check");
  }
  FIRN_RETURN_IF_ERROR(CheckVersion("extent", version));
  ExtentHeader header;
  uint8_t kind = reader.Read<uint8_t>();
  uint8_t stream = reader.Read<uint8_t>();
  reader.Skip(2);
  header.place.segment = reader.Read<uint32_t>();
  header.place.offset = reader.Read<uint64_t>();
  header.sequence = reader.Read<uint64_t>();
  header.payload_bytes = reader.Read<uint64_t>();
  header.payload_crc = reader.Read<uint64_t>();
  if (kind < 1 || kind > static_cast<uint8_t>(ExtentKind::kNamespaceForgotten) || stream >= kStreams ||
      header.payload_bytes > 4 * kBlockBytesMax) {
    return DataLoss("extent header: kind {}, stream {}, {} bytes", kind, stream, header.payload_bytes);
  }
  header.kind = static_cast<ExtentKind>(kind);
  header.stream = static_cast<Stream>(stream);
  if (header.kind == ExtentKind::kRecord) {
    ByteReader record(bytes.first(length - kCrcBytes));
    record.Skip(kExtentFixedBytes);
    FIRN_RETURN_IF_ERROR(ReadRecordPart(&record, &header));
    if (!record.ok()) return DataLoss("extent header: its record part is cut off");
  }
  if (header.header_bytes() != length)
    return DataLoss("extent header: length {}, its fields need {}", length, header.header_bytes());
  return header;
}

uint64_t FooterBytes(uint64_t entries_bytes) { return AlignUp(entries_bytes, kIoAlignment) + kTrailerBytes; }

std::vector<uint8_t> SerializeFooter(uint32_t segment, uint64_t salt, uint64_t at, ByteSpan entries,
                                     uint32_t entry_count) {
  ByteWriter writer;
  writer.bytes().reserve(FooterBytes(entries.size()));
  writer.WriteBytes(entries);
  writer.WriteZeros(AlignUp(entries.size(), kIoAlignment) - entries.size());
  size_t trailer_at = writer.size();
  writer.Write<uint32_t>(kTrailerMagic);
  writer.Write<uint16_t>(kVersion);
  writer.Write<uint16_t>(0);
  writer.Write<uint32_t>(segment);
  writer.Write<uint32_t>(entry_count);
  writer.Write<uint64_t>(at);
  writer.Write<uint64_t>(entries.size());
  writer.Write<uint64_t>(Crc64(entries, salt));
  writer.WriteZeros(trailer_at + kTrailerBytes - kCrcBytes - writer.size());
  writer.Write<uint64_t>(Crc64(ByteSpan(writer.bytes()).subspan(trailer_at), salt));
  return writer.Take();
}

absl::StatusOr<Trailer> ParseTrailer(ByteSpan block, uint64_t salt) {
  if (block.size() < kTrailerBytes) return DataLoss("segment trailer: {} bytes", block.size());
  ByteReader reader(block.first(kTrailerBytes));
  if (reader.Read<uint32_t>() != kTrailerMagic) return DataLoss("segment trailer: none here");
  uint16_t version = reader.Read<uint16_t>();
  if (LoadLe<uint64_t>(block.data() + kTrailerBytes - kCrcBytes) !=
      Crc64(block.first(kTrailerBytes - kCrcBytes), salt)) {
    return DataLoss("segment trailer: its CRC does not check");
  }
  FIRN_RETURN_IF_ERROR(CheckVersion("segment trailer", version));
  reader.Skip(2);
  Trailer trailer;
  trailer.segment = reader.Read<uint32_t>();
  trailer.entries = reader.Read<uint32_t>();
  trailer.footer_at = reader.Read<uint64_t>();
  trailer.footer_bytes = reader.Read<uint64_t>();
  trailer.footer_crc = reader.Read<uint64_t>();
  if (trailer.footer_at % kIoAlignment != 0) return DataLoss("segment trailer: footer at {}", trailer.footer_at);
  return trailer;
}

absl::StatusOr<Footer> ParseFooter(ByteSpan entries, const Trailer& trailer, uint64_t salt) {
  if (entries.size() < trailer.footer_bytes)
    return DataLoss("segment footer: {} bytes of {}", entries.size(), trailer.footer_bytes);
  entries = entries.first(trailer.footer_bytes);
  if (Crc64(entries, salt) != trailer.footer_crc) return DataLoss("segment footer: its CRC does not check");
  Footer footer;
  footer.data_end = trailer.footer_at;
  uint64_t at = 0;
  while (at < entries.size()) {
    FIRN_ASSIGN_OR_RETURN(ExtentHeader header, ParseExtentHeader(entries.subspan(at), salt));
    if (header.place.segment != trailer.segment)
      return DataLoss("segment footer: an entry of segment {}", header.place.segment);
    at += header.header_bytes();
    footer.entries.push_back(std::move(header));
  }
  if (footer.entries.size() != trailer.entries) {
    return DataLoss("segment footer: {} entries, {} expected", footer.entries.size(), trailer.entries);
  }
  return footer;
}

std::vector<uint8_t> SerializeFact(const FactPayload& fact) {
  ByteWriter writer;
  for (const std::string* text : {&fact.kind, &fact.name}) {
    writer.Write<uint32_t>(static_cast<uint32_t>(text->size()));
    writer.WriteBytes(AsBytes(*text));
  }
  writer.Write<uint32_t>(static_cast<uint32_t>(fact.value.size()));
  writer.WriteBytes(fact.value);
  return writer.Take();
}

absl::StatusOr<FactPayload> ParseFact(ByteSpan payload) {
  ByteReader reader(payload);
  FactPayload fact;
  fact.kind = AsText(reader.ReadBytes(reader.Read<uint32_t>()));
  fact.name = AsText(reader.ReadBytes(reader.Read<uint32_t>()));
  ByteSpan value = reader.ReadBytes(reader.Read<uint32_t>());
  fact.value.assign(value.begin(), value.end());
  if (!reader.ok() || reader.remaining() != 0) return DataLoss("fact: lengths do not fit its {} bytes", payload.size());
  return fact;
}

std::vector<uint8_t> SerializeTombstones(const std::vector<Tombstone>& tombstones) {
  ByteWriter writer;
  for (const Tombstone& tombstone : tombstones) {
    writer.Write<uint64_t>(tombstone.sequence);
    for (uint32_t segment : tombstone.segments) writer.Write<uint32_t>(segment);
  }
  return writer.Take();
}

absl::StatusOr<std::vector<Tombstone>> ParseTombstones(ByteSpan payload) {
  constexpr size_t kBytes = 8 + 4 * kRecordExtentsMax;
  if (payload.size() % kBytes != 0)
    return DataLoss("tombstones: {} bytes are not a multiple of {}", payload.size(), kBytes);
  ByteReader reader(payload);
  std::vector<Tombstone> out(payload.size() / kBytes);
  for (Tombstone& tombstone : out) {
    tombstone.sequence = reader.Read<uint64_t>();
    for (uint32_t& segment : tombstone.segments) segment = reader.Read<uint32_t>();
  }
  return out;
}

}  // namespace firn
