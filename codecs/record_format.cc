// The bytes of a header (docs/formats/record.md).
#include <algorithm>
#include <iterator>

#include "base/bytes.h"
#include "base/check.h"
#include "base/checksum.h"
#include "base/status.h"
#include "codecs/record.h"

namespace firn {
namespace {

// Flags of the serialized header alone: behind the checks follow the precisions of the part's heads, and the map of
// the tokens kept exact.
constexpr uint16_t kMixedK = 2, kMixedV = 4, kExactMap = 8;
constexpr uint16_t kMapFlags = kMixedK | kMixedV | kExactMap;

uint16_t MapFlagsOf(const RecordHeader& header) {
  int flags = (header.Mixed(Part::kK) ? kMixedK : 0) | (header.Mixed(Part::kV) ? kMixedV : 0);
  return static_cast<uint16_t>(flags | (header.exact_map.empty() ? 0 : kExactMap));
}

// Of one part's precisions.
uint64_t CeilingBytes(const BlockShape& shape) { return (uint64_t{shape.layers} * shape.heads + 31) / 32 * 8; }
uint64_t MapBytesOf(const BlockShape& shape, uint16_t flags) {
  return ((flags & kMixedK) != 0 ? CeilingBytes(shape) : 0) + ((flags & kMixedV) != 0 ? CeilingBytes(shape) : 0) +
         ((flags & kExactMap) != 0 ? TokenMapWords(shape.tokens) * 8 : 0);
}

// Two bits say the class of a head.
constexpr PrecisionClass kCeilingClasses[] = {PrecisionClass::k2Bit, PrecisionClass::k3Bit, PrecisionClass::k4Bit,
                                              PrecisionClass::k8Bit};
uint64_t CeilingCode(PrecisionClass c) {
  return static_cast<uint64_t>(std::find(std::begin(kCeilingClasses), std::end(kCeilingClasses), c) -
                               std::begin(kCeilingClasses));
}

constexpr uint32_t kMagic = 0x524B5646;  // "FVKR" as bytes.
constexpr uint16_t kVersion = 1;
constexpr uint64_t kCheckBytes = 8;
constexpr uint64_t kCrcBytes = 8;
constexpr uint64_t kHeaderBytesMin = kRecordHeaderFixedBytes + kRecordHeaderRunBytes;

void WriteCeilings(ByteWriter* writer, const ClassMap& ceilings) {
  for (size_t at = 0; at < ceilings.size(); at += 32) {
    uint64_t word = 0;
    for (size_t i = 0; i < std::min<size_t>(32, ceilings.size() - at); ++i) {
      word |= CeilingCode(ceilings[at + i]) << (2 * i);
    }
    writer->Write<uint64_t>(word);
  }
}

// False where bits stand that mean nothing.
bool ReadCeilings(ByteReader* reader, size_t count, ClassMap* ceilings) {
  ceilings->reserve(count);
  uint64_t word = 0;
  for (size_t i = 0; i < count; ++i, word >>= 2) {
    if (i % 32 == 0) {
      if (word != 0) return false;
      word = reader->Read<uint64_t>();
    }
    ceilings->push_back(kCeilingClasses[word & 3]);
  }
  return word == 0;
}

void WriteCoding(ByteWriter* writer, const PartCoding& coding) {
  writer->Write<uint16_t>(static_cast<uint16_t>(coding.codec));
  writer->Write<uint8_t>(static_cast<uint8_t>(coding.meta_type));
  writer->Write<uint8_t>(coding.flags);
  writer->Write<uint16_t>(coding.group);
  writer->Write<uint8_t>(coding.bits);
  writer->Write<uint8_t>(coding.outliers);
  writer->WriteBytes(coding.artifact.span());
}

Digest ReadDigest(ByteReader* reader) { return Digest::FromBytes(reader->ReadBytes(32)).value_or(Digest{}); }

// Every Read of the functions below is within kHeaderBytesMin, which the caller has checked. Returns false where bytes
// that mean nothing are not zero: they would be lost, and a later version may give them a meaning.
void ReadCoding(ByteReader* reader, PartCoding* coding) {
  coding->codec = static_cast<CodecId>(reader->Read<uint16_t>());
  coding->meta_type = static_cast<MetaType>(reader->Read<uint8_t>());
  coding->flags = reader->Read<uint8_t>();
  coding->group = reader->Read<uint16_t>();
  coding->bits = reader->Read<uint8_t>();
  coding->outliers = reader->Read<uint8_t>();
  coding->artifact = ReadDigest(reader);
}

bool ReadFixed(ByteReader* reader, RecordHeader* header, uint16_t* flags) {
  *flags = reader->Read<uint16_t>();
  header->flags = *flags & RecordHeader::kFlags;
  reader->Skip(sizeof(uint32_t));  // The length, known by now.
  header->encoded = RunMask(reader->Read<uint16_t>());
  header->dtype = static_cast<DType>(reader->Read<uint8_t>());
  uint8_t has_parent = reader->Read<uint8_t>();
  header->identity.namespace_fingerprint = ReadDigest(reader);
  header->identity.key = ReadDigest(reader);
  Digest parent = ReadDigest(reader);
  if (has_parent == 1) header->parent = parent;
  bool zero = has_parent <= 1 && (has_parent == 1 || parent.IsZero());
  header->identity.generation = reader->Read<uint64_t>();
  header->expires_unix_ms = reader->Read<int64_t>();
  header->identity.shard = reader->Read<uint16_t>();
  zero &= reader->Read<uint16_t>() == 0;
  header->first_token = reader->Read<uint32_t>();
  header->exact_tokens = reader->Read<uint32_t>();
  header->shape.layers = reader->Read<uint32_t>();
  header->shape.heads = reader->Read<uint32_t>();
  header->shape.k_width = reader->Read<uint32_t>();
  header->shape.v_width = reader->Read<uint32_t>();
  header->shape.tokens = reader->Read<uint32_t>();
  for (PartCoding& coding : header->coding) ReadCoding(reader, &coding);
  for (PartErrors& errors : header->errors) {
    errors.int8 = reader->Read<float>();
    errors.int4 = reader->Read<float>();
    errors.int2 = reader->Read<float>();
  }
  return zero;
}

// Reads the run table and the checks; allocates only what the header's own length has room for.
absl::Status ReadRuns(ByteReader* reader, uint64_t extra_bytes, RecordHeader* header) {
  std::array<uint32_t, kRunIds> counts{};
  uint64_t checks_total = 0;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (!header->encoded.Has(i)) continue;
    header->runs[i].bytes = reader->Read<uint64_t>();
    header->runs[i].layers_per_check = reader->Read<uint32_t>();
    counts[i] = reader->Read<uint32_t>();
    checks_total += counts[i];
  }
  if (!reader->ok() || reader->remaining() != checks_total * kCheckBytes + extra_bytes) {
    return DataLoss("record header: {} checks do not fit the {} bytes left for them", checks_total,
                    reader->remaining());
  }
  for (uint32_t i = 0; i < kRunIds; ++i) {
    header->runs[i].checks.reserve(counts[i]);
    for (uint32_t c = 0; c < counts[i]; ++c) header->runs[i].checks.push_back(reader->Read<uint64_t>());
  }
  return absl::OkStatus();
}

// The serialized bytes without the CRC, once length, version and CRC are right.
absl::StatusOr<ByteSpan> IntactBody(ByteSpan bytes) {
  if (bytes.size() < kHeaderBytesMin) {
    return DataLoss("record header: {} bytes, at least {} expected", bytes.size(), kHeaderBytesMin);
  }
  ByteReader reader(bytes);
  uint32_t magic = reader.Read<uint32_t>();
  uint16_t version = reader.Read<uint16_t>();
  reader.Skip(sizeof(uint16_t));
  uint64_t length = reader.Read<uint32_t>();
  if (magic != kMagic) return DataLoss("record header: magic {:#010x}, expected {:#010x}", magic, kMagic);
  if (version != kVersion) return DataLoss("record header: version {}, this build reads {}", version, kVersion);
  if (length % 8 != 0 || length < kHeaderBytesMin || length > kRecordHeaderBytesMax) {
    return DataLoss("record header: length {}, a multiple of 8 from {} to {} expected", length, kHeaderBytesMin,
                    kRecordHeaderBytesMax);
  }
  if (length > bytes.size()) return DataLoss("record header: {} of its {} bytes are there", bytes.size(), length);
  ByteSpan body = bytes.first(length - kCrcBytes);
  uint64_t stored = LoadLe<uint64_t>(bytes.data() + body.size());
  uint64_t computed = Crc64(body, 0);
  if (stored != computed) return DataLoss("record header: CRC {:#018x}, its bytes give {:#018x}", stored, computed);
  return body;
}

}  // namespace

uint64_t MapBytes(const RecordHeader& header) { return MapBytesOf(header.shape, MapFlagsOf(header)); }

std::vector<uint8_t> SerializeHeader(const RecordHeader& header) {
  FIRN_CHECK(CheckHeader(header).ok());
  uint64_t length = kRecordHeaderFixedBytes + kRecordHeaderRunBytes * static_cast<uint64_t>(header.encoded.Count());
  for (const RunInfo& run : header.runs) length += run.checks.size() * kCheckBytes;
  length += MapBytes(header);
  FIRN_CHECK(length <= kRecordHeaderBytesMax);
  ByteWriter writer;
  writer.bytes().reserve(length);
  writer.Write<uint32_t>(kMagic);
  writer.Write<uint16_t>(kVersion);
  writer.Write<uint16_t>(header.flags | MapFlagsOf(header));
  writer.Write<uint32_t>(static_cast<uint32_t>(length));
  writer.Write<uint16_t>(header.encoded.bits());
  writer.Write<uint8_t>(static_cast<uint8_t>(header.dtype));
  writer.Write<uint8_t>(header.parent.has_value() ? 1 : 0);
  writer.WriteBytes(header.identity.namespace_fingerprint.span());
  writer.WriteBytes(header.identity.key.span());
  writer.WriteBytes(header.parent.value_or(Digest{}).span());
  writer.Write<uint64_t>(header.identity.generation);
  writer.Write<int64_t>(header.expires_unix_ms);
  writer.Write<uint16_t>(header.identity.shard);
  writer.Write<uint16_t>(0);
  for (uint32_t value : {header.first_token, header.exact_tokens, header.shape.layers, header.shape.heads,
                         header.shape.k_width, header.shape.v_width, header.shape.tokens}) {
    writer.Write<uint32_t>(value);
  }
  for (const PartCoding& coding : header.coding) WriteCoding(&writer, coding);
  for (const PartErrors& errors : header.errors) {
    for (float value : {errors.int8, errors.int4, errors.int2}) writer.Write<float>(value);
  }
  FIRN_CHECK(writer.size() == kRecordHeaderFixedBytes - kCrcBytes);
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (!header.encoded.Has(i)) continue;
    writer.Write<uint64_t>(header.runs[i].bytes);
    writer.Write<uint32_t>(header.runs[i].layers_per_check);
    writer.Write<uint32_t>(static_cast<uint32_t>(header.runs[i].checks.size()));
  }
  for (const RunInfo& run : header.runs) {
    for (uint64_t check : run.checks) writer.Write<uint64_t>(check);
  }
  for (const ClassMap& ceilings : header.ceilings) WriteCeilings(&writer, ceilings);
  for (uint64_t word : header.exact_map) writer.Write<uint64_t>(word);
  writer.Write<uint64_t>(Crc64(writer.bytes(), 0));
  FIRN_CHECK(writer.size() == length);
  return writer.Take();
}

uint64_t HeaderDigest(ByteSpan serialized) {
  FIRN_CHECK(serialized.size() >= kHeaderBytesMin);
  return LoadLe<uint64_t>(serialized.data() + serialized.size() - kCrcBytes);
}

absl::StatusOr<RecordHeader> ParseHeader(ByteSpan bytes, uint64_t* bytes_used) {
  FIRN_ASSIGN_OR_RETURN(ByteSpan body, IntactBody(bytes));
  ByteReader reader(body);
  reader.Skip(sizeof(kMagic) + sizeof(kVersion));
  RecordHeader header;
  uint16_t flags = 0;
  if (!ReadFixed(&reader, &header, &flags)) return DataLoss("record header: reserved bytes are not zero");
  if (!RunMask::All().Contains(header.encoded)) {
    return DataLoss("record header: runs {:#x} are not known", header.encoded.bits());
  }
  absl::Status shape = CheckShape(header.shape, header.dtype);
  if (!shape.ok()) return DataLoss("record header: {}", Message(shape));
  if ((flags & ~(RecordHeader::kFlags | kMapFlags)) != 0) {
    return DataLoss("record header: flags {:#x} are not known", flags);
  }
  size_t heads = size_t{header.shape.layers} * header.shape.heads;
  bool mixed[2] = {(flags & kMixedK) != 0, (flags & kMixedV) != 0};
  FIRN_RETURN_IF_ERROR(ReadRuns(&reader, MapBytesOf(header.shape, flags), &header));
  for (size_t part = 0; part < 2; ++part) {
    if (mixed[part] && !ReadCeilings(&reader, heads, &header.ceilings[part])) {
      return DataLoss("record header: reserved bits are not zero");
    }
  }
  if ((flags & kExactMap) != 0) {
    for (uint64_t i = 0; i < TokenMapWords(header.shape.tokens); ++i) {
      header.exact_map.push_back(reader.Read<uint64_t>());
    }
  }
  absl::Status valid = CheckHeader(header);
  if (!valid.ok()) return DataLoss("record header: {}", Message(valid));
  if (bytes_used != nullptr) *bytes_used = body.size() + kCrcBytes;
  return header;
}

}  // namespace firn
