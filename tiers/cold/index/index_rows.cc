#include "tiers/cold/index/index_rows.h"

#include <utility>

#include "base/status.h"

namespace firn {
namespace {

constexpr uint8_t kRowVersion = 1;
constexpr uint8_t kHasParent = 1;

template <typename T>
void AppendBigEndian(std::string* key, T number) {
  for (int shift = (static_cast<int>(sizeof(T)) - 1) * 8; shift >= 0; shift -= 8)
    key->push_back(static_cast<char>(number >> shift));
}

template <typename T>
T ReadBigEndian(std::string_view bytes) {
  T number = 0;
  for (size_t i = 0; i < sizeof(T); ++i) number = static_cast<T>(number << 8 | static_cast<uint8_t>(bytes[i]));
  return number;
}

std::string ToString(ByteWriter writer) { return std::string(AsText(writer.bytes())); }

Digest ReadDigest(ByteReader* reader) { return Digest::FromBytes(reader->ReadBytes(32)).value_or(Digest{}); }

absl::Status CheckRowVersion(ByteReader* reader) {
  uint8_t version = reader->Read<uint8_t>();
  if (version != kRowVersion) return DataLoss("index row: version {}, this build reads {}", version, kRowVersion);
  return absl::OkStatus();
}

}  // namespace

std::string RecordKey(uint64_t sequence) {
  std::string key = "L";
  AppendBigEndian(&key, sequence);
  return key;
}

std::string SegmentKey(uint32_t segment) {
  std::string key = "S";
  AppendBigEndian(&key, segment);
  return key;
}

std::string TombstonePrefix(uint32_t segment) {
  std::string key = "T";
  AppendBigEndian(&key, segment);
  return key;
}

std::string TombstoneKey(uint32_t segment, uint64_t sequence) {
  std::string key = TombstonePrefix(segment);
  AppendBigEndian(&key, sequence);
  return key;
}

std::string UnloggedKey(uint64_t sequence) {
  std::string key = "U";
  AppendBigEndian(&key, sequence);
  return key;
}

std::string FactKey(const std::string& kind, const std::string& name) {
  return "F" + kind + std::string(1, '\0') + name;
}

std::string NamespaceKey(uint64_t sequence) {
  std::string key = "N";
  AppendBigEndian(&key, sequence);
  return key;
}

std::string NumberKey(std::string_view name) { return "M" + std::string(name); }

std::string RecordValue(const RecordRow& row) {
  const RecordNote& note = row.note;
  ByteWriter writer;
  writer.bytes().reserve(256);
  writer.Write<uint8_t>(kRowVersion);
  writer.Write<uint8_t>(note.parent ? kHasParent : 0);
  writer.Write<uint8_t>(static_cast<uint8_t>(row.extents.size()));
  writer.Write<uint8_t>(note.ecc.Packed());
  writer.WriteBytes(note.identity.namespace_fingerprint.span());
  writer.WriteBytes(note.identity.key.span());
  writer.Write<uint64_t>(note.identity.generation);
  writer.Write<uint16_t>(note.identity.shard);
  writer.Write<uint16_t>(note.written.bits());
  writer.Write<uint16_t>(note.protect.bits());
  for (const ClassPair& c : note.classes) {
    writer.Write<uint8_t>(static_cast<uint8_t>(c.k));
    writer.Write<uint8_t>(static_cast<uint8_t>(c.v));
  }
  writer.Write<uint32_t>(note.first_token);
  writer.Write<uint32_t>(note.tokens);
  writer.Write<uint32_t>(note.header_bytes);
  writer.Write<int64_t>(note.expires_unix_ms);
  writer.Write<uint64_t>(note.digest);
  if (note.parent) writer.WriteBytes(note.parent->span());
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (note.written.Has(i)) writer.Write<uint32_t>(note.run_bytes[i]);
  }
  for (const RowExtent& extent : row.extents) {
    writer.Write<uint32_t>(extent.place.segment);
    writer.Write<uint32_t>(static_cast<uint32_t>(extent.place.offset / kExtentAlignment));
    writer.Write<uint32_t>(extent.shape.runs_at);
    writer.Write<uint16_t>(extent.shape.runs.bits());
  }
  return ToString(std::move(writer));
}

absl::StatusOr<RecordRow> ParseRecordRow(std::string_view key, std::string_view value) {
  if (key.size() != 9) return DataLoss("index row: a location key of {} bytes", key.size());
  RecordRow row;
  row.sequence = ReadBigEndian<uint64_t>(key.substr(1));
  ByteReader reader(AsBytes(value));
  FIRN_RETURN_IF_ERROR(CheckRowVersion(&reader));
  uint8_t flags = reader.Read<uint8_t>();
  uint8_t extents = reader.Read<uint8_t>();
  RecordNote& note = row.note;
  FIRN_ASSIGN_OR_RETURN(note.ecc, EccPolicy::Unpack(reader.Read<uint8_t>()));
  note.identity.namespace_fingerprint = ReadDigest(&reader);
  note.identity.key = ReadDigest(&reader);
  note.identity.generation = reader.Read<uint64_t>();
  note.identity.shard = reader.Read<uint16_t>();
  note.written = RunMask(reader.Read<uint16_t>());
  note.protect = RunMask(reader.Read<uint16_t>());
  for (ClassPair& c : note.classes) {
    c.k = static_cast<PrecisionClass>(reader.Read<uint8_t>());
    c.v = static_cast<PrecisionClass>(reader.Read<uint8_t>());
  }
  note.first_token = reader.Read<uint32_t>();
  note.tokens = reader.Read<uint32_t>();
  note.header_bytes = reader.Read<uint32_t>();
  note.expires_unix_ms = reader.Read<int64_t>();
  note.digest = reader.Read<uint64_t>();
  if ((flags & kHasParent) != 0) note.parent = ReadDigest(&reader);
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (note.written.Has(i)) note.run_bytes[i] = reader.Read<uint32_t>();
    if (note.run_bytes[i] > kBlockBytesMax) return DataLoss("index row: run {} of {} bytes", i, note.run_bytes[i]);
  }
  row.extents.reserve(extents);
  for (uint8_t i = 0; i < extents && reader.ok(); ++i) {
    RowExtent extent;
    extent.place.segment = reader.Read<uint32_t>();
    extent.place.offset = uint64_t{reader.Read<uint32_t>()} * kExtentAlignment;
    extent.shape.runs_at = reader.Read<uint32_t>();
    extent.shape.runs = RunMask(reader.Read<uint16_t>());
    row.extents.push_back(extent);
  }
  if (!reader.ok() || reader.remaining() != 0 || (flags & ~kHasParent) != 0 || extents == 0 ||
      extents > kRecordExtentsMax || note.header_bytes > kRecordHeaderBytesMax ||
      !RunMask::All().Contains(note.written)) {
    return DataLoss("index row: the location of sequence {} does not parse", row.sequence);
  }
  return row;
}

absl::StatusOr<std::pair<uint64_t, Identity>> ParseRecordName(std::string_view key, std::string_view value) {
  if (key.size() != 9) return DataLoss("index row: a location key of {} bytes", key.size());
  ByteReader reader(AsBytes(value));
  FIRN_RETURN_IF_ERROR(CheckRowVersion(&reader));
  reader.Skip(3);
  Identity identity;
  identity.namespace_fingerprint = ReadDigest(&reader);
  identity.key = ReadDigest(&reader);
  identity.generation = reader.Read<uint64_t>();
  identity.shard = reader.Read<uint16_t>();
  if (!reader.ok()) return DataLoss("index row: a location of {} bytes", value.size());
  return std::pair(ReadBigEndian<uint64_t>(key.substr(1)), identity);
}

std::string FactValue(const FactRow& row) {
  ByteWriter writer;
  writer.Write<uint8_t>(kRowVersion);
  writer.Write<uint64_t>(row.sequence);
  writer.Write<uint32_t>(row.place.segment);
  writer.Write<uint64_t>(row.place.offset);
  writer.WriteBytes(SerializeFact(row.fact));
  return ToString(std::move(writer));
}

absl::StatusOr<FactRow> ParseFactRow(std::string_view value) {
  ByteReader reader(AsBytes(value));
  FIRN_RETURN_IF_ERROR(CheckRowVersion(&reader));
  FactRow row;
  row.sequence = reader.Read<uint64_t>();
  row.place.segment = reader.Read<uint32_t>();
  row.place.offset = reader.Read<uint64_t>();
  FIRN_ASSIGN_OR_RETURN(row.fact, ParseFact(reader.ReadBytes(reader.remaining())));
  return row;
}

std::string NamespaceValue(const NamespaceForgottenRow& row) {
  ByteWriter writer;
  writer.Write<uint8_t>(kRowVersion);
  writer.Write<uint64_t>(row.sequence);
  writer.Write<uint32_t>(row.segment_bound);
  writer.WriteBytes(row.namespace_fingerprint.span());
  return ToString(std::move(writer));
}

absl::StatusOr<NamespaceForgottenRow> ParseNamespaceRow(std::string_view value) {
  ByteReader reader(AsBytes(value));
  FIRN_RETURN_IF_ERROR(CheckRowVersion(&reader));
  NamespaceForgottenRow row;
  row.sequence = reader.Read<uint64_t>();
  row.segment_bound = reader.Read<uint32_t>();
  row.namespace_fingerprint = ReadDigest(&reader);
  if (!reader.ok()) return DataLoss("index row: a forgotten namespace of {} bytes", value.size());
  return row;
}

std::string NumberValue(uint64_t number) {
  ByteWriter writer;
  writer.Write<uint64_t>(number);
  return ToString(std::move(writer));
}

absl::StatusOr<uint64_t> ParseNumber(std::string_view value) {
  if (value.size() != 8) return DataLoss("index row: a number of {} bytes", value.size());
  return LoadLe<uint64_t>(AsBytes(value).data());
}

absl::StatusOr<uint32_t> ParseSegmentKey(std::string_view key) {
  if (key.size() != 5) return DataLoss("index row: a segment key of {} bytes", key.size());
  return ReadBigEndian<uint32_t>(key.substr(1));
}

absl::StatusOr<TombstoneKeyParts> ParseTombstoneKey(std::string_view key) {
  if (key.size() != 13) return DataLoss("index row: a tombstone key of {} bytes", key.size());
  return TombstoneKeyParts{ReadBigEndian<uint32_t>(key.substr(1)), ReadBigEndian<uint64_t>(key.substr(5))};
}

}  // namespace firn
