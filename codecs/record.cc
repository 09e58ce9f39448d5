#include "codecs/record.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/check.h"
#include "base/checksum.h"
#include "base/status.h"

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
constexpr uint64_t kCeilingCodes = 4;
// kCeilingCodes for classes that heads do not have apart.
uint64_t CeilingCode(PrecisionClass c) {
  return static_cast<uint64_t>(std::find(std::begin(kCeilingClasses), std::end(kCeilingClasses), c) -
                               std::begin(kCeilingClasses));
}

constexpr uint32_t kMagic = 0x524B5646;  // "FVKR" as bytes.
constexpr uint16_t kVersion = 1;
constexpr uint64_t kCheckBytes = 8;
constexpr uint64_t kCrcBytes = 8;
constexpr uint64_t kHeaderBytesMin = kRecordHeaderFixedBytes + kRecordHeaderRunBytes;

// The finalizer of SplitMix64: a bijection of 64-bit words.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

uint32_t CheckCount(const RunInfo& run, uint32_t layers) {
  if (run.bytes == 0) return 0;
  return (layers + run.layers_per_check - 1) / run.layers_per_check;
}

// Codes whose bits are those of each head.
bool MixesBits(const RecordHeader& header, Part part) {
  return header.Mixed(part) && header.CodingOf(part).bits == 0 &&
         FamilyOf(header.CodingOf(part).codec) == CodecFamily::kCodes;
}

absl::Status CheckCeilings(const RecordHeader& header, Part part) {
  const ClassMap& ceilings = header.CeilingsOf(part);
  if (ceilings.empty()) return absl::OkStatus();
  const char* name = part == Part::kK ? "K" : "V";
  CodecFamily family = FamilyOf(header.CodingOf(part).codec);
  if (family != CodecFamily::kNested && !MixesBits(header, part)) {
    return InvalidArgument("codec {} of {} has one precision for all heads",
                           static_cast<int>(header.CodingOf(part).codec), name);
  }
  uint64_t expected = uint64_t{header.shape.layers} * header.shape.heads;
  if (ceilings.size() != expected) {
    return InvalidArgument("{} precisions of {}, one of each of {} heads expected", ceilings.size(), name, expected);
  }
  for (PrecisionClass c : ceilings) {
    if (CeilingCode(c) < kCeilingCodes && (family != CodecFamily::kNested || c != PrecisionClass::k3Bit)) continue;
    return InvalidArgument("a head of {} at class {}", name, static_cast<int>(c));
  }
  if (std::adjacent_find(ceilings.begin(), ceilings.end(), std::not_equal_to<>()) == ceilings.end()) {
    return InvalidArgument("all heads of {} have the same precision, which is said otherwise", name);
  }
  return absl::OkStatus();
}

absl::Status CheckCoding(const RecordHeader& header, Part part) {
  const PartCoding& coding = header.CodingOf(part);
  const char* name = part == Part::kK ? "K" : "V";
  CodecFamily family = FamilyOf(coding.codec);
  uint32_t width = header.shape.part(part).width;
  if (family == CodecFamily::kUnknown) {
    return InvalidArgument("codec {} of {} is not known", static_cast<int>(coding.codec), name);
  }
  if ((family == CodecFamily::kAbsent) != (width == 0)) {
    return InvalidArgument("codec {} does not fit {} of width {}", static_cast<int>(coding.codec), name, width);
  }
  if (static_cast<uint8_t>(coding.meta_type) > static_cast<uint8_t>(MetaType::kFp32)) {
    return InvalidArgument("metadata type {} of {} is not known", static_cast<int>(coding.meta_type), name);
  }
  if ((coding.flags & ~PartCoding::kFlags) != 0) {
    return InvalidArgument("coding flags {:#x} of {} are not known", coding.flags, name);
  }
  if (coding.outliers > PartCoding::kOutliersMax) {
    return InvalidArgument("{} thousandths of {} are outliers, at most {}", coding.outliers, name,
                           PartCoding::kOutliersMax);
  }
  if (family == CodecFamily::kCodes && ClassOfCodes(coding) == PrecisionClass::kNone && !MixesBits(header, part)) {
    return InvalidArgument("codes of {} bits for {}: 8, 4, 3 or 2 where the codec has a choice", coding.bits, name);
  }
  FIRN_RETURN_IF_ERROR(CheckCeilings(header, part));
  if (family == CodecFamily::kNested && !header.encoded.Has(RunKind::kMeta, part)) {
    if (header.RunBytes(RunMask::Of(RunKind::kP2, part)) > 0)
      return InvalidArgument("{} is nested without metadata", name);
  }
  return absl::OkStatus();
}

absl::Status CheckRuns(const RecordHeader& header) {
  uint32_t layers = header.shape.layers;
  uint64_t total_bytes = 0;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    const RunInfo& run = header.runs[i];
    if (!header.encoded.Has(i)) {
      if (run != RunInfo{}) return InvalidArgument("run {} is described but not encoded", i);
      continue;
    }
    if (run.bytes > kBlockBytesMax)
      return InvalidArgument("run {} has {} bytes, at most {}", i, run.bytes, kBlockBytesMax);
    if (run.bytes % layers != 0 && !header.Mixed(RunPartOf(i)))
      return InvalidArgument("run {} of {} bytes does not divide by {} layers", i, run.bytes, layers);
    if (run.layers_per_check == 0 || run.layers_per_check > layers) {
      return InvalidArgument("run {} joins {} layers a check, 1 to {}", i, run.layers_per_check, layers);
    }
    if (run.checks.size() != CheckCount(run, layers)) {
      return InvalidArgument("run {} has {} checks, not {}", i, run.checks.size(), CheckCount(run, layers));
    }
    total_bytes += run.bytes;
  }
  if (total_bytes > 2 * kBlockBytesMax) {
    return InvalidArgument("the runs have {} bytes together, at most {}", total_bytes, 2 * kBlockBytesMax);
  }
  return absl::OkStatus();
}

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

// What `runs` of one part decode to, whatever its heads have; `runs` holds only encoded ones.
PrecisionClass ClassOfRuns(const RecordHeader& header, Part part, RunMask runs) {
  PartShape shape = header.shape.part(part);
  if (shape.width == 0) return PrecisionClass::kExact;
  for (RunKind kind : {RunKind::kMeta, RunKind::kExact}) {
    if (header.encoded.Has(kind, part) && !runs.Has(kind, part)) return PrecisionClass::kNone;
  }
  if (header.exact_tokens >= shape.tokens && runs.Has(RunKind::kExact, part)) return PrecisionClass::kExact;
  bool fp8 = header.dtype == DType::kFp8E4m3 || header.dtype == DType::kFp8E5m2;
  switch (FamilyOf(header.CodingOf(part).codec)) {
    case CodecFamily::kUnknown:
    case CodecFamily::kAbsent:
      return PrecisionClass::kNone;
    case CodecFamily::kSource:
      if (!runs.Has(RunKind::kWhole, part)) return PrecisionClass::kNone;
      return fp8 ? PrecisionClass::k8Bit : PrecisionClass::kExact;
    case CodecFamily::kCodes:
      if (!runs.Has(RunKind::kWhole, part)) return PrecisionClass::kNone;
      return MixesBits(header, part) ? PrecisionClass::k8Bit : ClassOfCodes(header.CodingOf(part));
    case CodecFamily::kNested:
      if (!runs.Has(RunKind::kP2, part)) return PrecisionClass::kNone;
      if (!runs.Has(RunKind::kP4, part)) return PrecisionClass::k2Bit;
      return runs.Has(RunKind::kP8, part) ? PrecisionClass::k8Bit : PrecisionClass::k4Bit;
  }
  return PrecisionClass::kNone;
}

// The encoded ones of `runs`, with those that have no bytes.
RunMask EncodedAmong(const RecordHeader& header, RunMask runs) {
  runs = runs & header.encoded;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (header.encoded.Has(i) && header.runs[i].bytes == 0) runs |= RunMask::Of(RunKindOf(i), RunPartOf(i));
  }
  return runs;
}

PrecisionClass ClassOfPart(const RecordHeader& header, Part part, RunMask runs) {
  PrecisionClass c = ClassOfRuns(header, part, runs);
  if (!header.Mixed(part) || c == PrecisionClass::kExact) return c;
  const ClassMap& ceilings = header.CeilingsOf(part);
  return std::min(c, *std::min_element(ceilings.begin(), ceilings.end()));
}

}  // namespace

bool UsesArtifact(const PartCoding& coding) {
  constexpr uint8_t kFlags =
      PartCoding::kCentred | PartCoding::kBalanced | PartCoding::kPreRope | PartCoding::kCalibrated;
  return (coding.flags & kFlags) != 0 || coding.codec == CodecId::kNuqChannel || coding.codec == CodecId::kNuqToken;
}

PrecisionClass ClassOfCodes(const PartCoding& coding) {
  switch (coding.codec) {
    case CodecId::kFp8E4m3:
    case CodecId::kFp8E5m2:
    case CodecId::kFp8E4m3Tensor:
    case CodecId::kFp8E5m2Tensor:
      return coding.bits == 0 ? PrecisionClass::k8Bit : PrecisionClass::kNone;
    case CodecId::kNvFp4:
    case CodecId::kMxFp4:
      return coding.bits == 0 ? PrecisionClass::k4Bit : PrecisionClass::kNone;
    default:
      break;
  }
  for (PrecisionClass c :
       {PrecisionClass::k8Bit, PrecisionClass::k4Bit, PrecisionClass::k3Bit, PrecisionClass::k2Bit}) {
    if (static_cast<uint8_t>(c) == coding.bits) return c;
  }
  return PrecisionClass::kNone;
}

float PartErrors::*PartErrors::SlotOf(PrecisionClass c) {
  switch (c) {
    case PrecisionClass::k8Bit:
      return &PartErrors::int8;
    case PrecisionClass::k4Bit:
    case PrecisionClass::k3Bit:
      return &PartErrors::int4;
    case PrecisionClass::k2Bit:
      return &PartErrors::int2;
    case PrecisionClass::kNone:
    case PrecisionClass::kExact:
      break;
  }
  return nullptr;
}

uint64_t Identity::ChecksumSeed(uint32_t run_index, uint32_t first_layer) const {
  return ChecksumSeeds(*this).Of(run_index, first_layer);
}

ChecksumSeeds::ChecksumSeeds(const Identity& identity) {
  std::array<uint8_t, 16 + 32 + 32 + 2 + 8> encoded{};
  uint8_t* at = encoded.data();
  std::copy_n("firn.run.seed.v1", 16, at);
  std::copy_n(identity.namespace_fingerprint.bytes.data(), 32, at + 16);
  std::copy_n(identity.key.bytes.data(), 32, at + 48);
  StoreLe<uint16_t>(at + 80, identity.shard);
  StoreLe<uint64_t>(at + 82, identity.generation);
  base_ = Sha256(encoded).Prefix();
}

uint64_t ChecksumSeeds::Of(uint32_t run_index, uint32_t first_layer) const {
  return Mix(base_ + (uint64_t{run_index} << 32 | first_layer));
}

uint64_t RecordHeader::RunBytes(RunMask mask) const {
  uint64_t total = 0;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (mask.Has(i)) total += runs[i].bytes;
  }
  return total;
}

uint32_t LayersPerCheck(uint64_t layer_bytes, uint32_t layers) {
  FIRN_CHECK(layers > 0);
  if (layer_bytes == 0) return layers;
  uint64_t joined = (kCheckedBytesMin + layer_bytes - 1) / layer_bytes;
  return static_cast<uint32_t>(std::min<uint64_t>(joined, layers));
}

uint32_t LayersPerCheckOf(const RecordHeader& header, uint32_t run_index) {
  if (header.Mixed(RunPartOf(run_index))) return header.shape.layers;
  return LayersPerCheck(header.runs[run_index].bytes / header.shape.layers, header.shape.layers);
}

uint64_t MapBytes(const RecordHeader& header) { return MapBytesOf(header.shape, MapFlagsOf(header)); }

absl::Status CheckShape(const BlockShape& shape, DType dtype) {
  if (DTypeBytes(dtype) == 0 || dtype == DType::kFp32) {
    return InvalidArgument("values of type {} are not stored", static_cast<int>(dtype));
  }
  if (shape.layers == 0 || shape.layers > kLayersMax)
    return InvalidArgument("{} layers, 1 to {}", shape.layers, kLayersMax);
  if (shape.heads == 0 || shape.heads > kHeadsMax)
    return InvalidArgument("{} KV heads, 1 to {}", shape.heads, kHeadsMax);
  if (shape.tokens == 0 || shape.tokens > kTokensMax)
    return InvalidArgument("{} tokens, 1 to {}", shape.tokens, kTokensMax);
  if (shape.k_width > kWidthMax || shape.v_width > kWidthMax || (shape.k_width == 0 && shape.v_width == 0)) {
    return InvalidArgument("K width {} and V width {}, at most {} each and not both 0", shape.k_width, shape.v_width,
                           kWidthMax);
  }
  uint64_t bytes = shape.values() * DTypeBytes(dtype);  // At most 2^61 by the limits above.
  if (bytes > kBlockBytesMax) return InvalidArgument("a block of {} bytes, at most {}", bytes, kBlockBytesMax);
  return absl::OkStatus();
}

absl::Status CheckHeader(const RecordHeader& header) {
  FIRN_RETURN_IF_ERROR(CheckShape(header.shape, header.dtype));
  if ((header.flags & ~RecordHeader::kFlags) != 0) return InvalidArgument("flags {:#x} are not known", header.flags);
  if (header.encoded.Empty() || !RunMask::All().Contains(header.encoded)) {
    return InvalidArgument("runs {:#x}, at least one of {:#x}", header.encoded.bits(), RunMask::All().bits());
  }
  FIRN_RETURN_IF_ERROR(CheckExactTokens(header.exact_tokens, header.exact_map, header.shape.tokens));
  if (header.first_token > std::numeric_limits<uint32_t>::max() - header.shape.tokens) {
    return InvalidArgument("{} tokens from position {} pass 2^32", header.shape.tokens, header.first_token);
  }
  for (Part part : kParts) FIRN_RETURN_IF_ERROR(CheckCoding(header, part));
  return CheckRuns(header);
}

ClassPair ClassOf(const RecordHeader& header, RunMask runs) {
  runs = EncodedAmong(header, runs);
  return {ClassOfPart(header, Part::kK, runs), ClassOfPart(header, Part::kV, runs)};
}

ClassPair FinestOf(const RecordHeader& header, RunMask runs) {
  runs = EncodedAmong(header, runs);
  return {ClassOfRuns(header, Part::kK, runs), ClassOfRuns(header, Part::kV, runs)};
}

bool ClassErrors::any() const {
  return !std::isnan(int8) || !std::isnan(int4) || !std::isnan(int3) || !std::isnan(int2);
}

std::array<ClassErrors, 2> ErrorsByClass(const RecordHeader& header) {
  constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();
  std::array<ClassErrors, 2> out;
  for (Part part : kParts) {
    const PartErrors& errors = header.errors[static_cast<size_t>(part)];
    ClassErrors& by_class = out[static_cast<size_t>(part)];
    by_class = {.int8 = errors.int8, .int4 = errors.int4, .int3 = kUnknown, .int2 = errors.int2};
    if (ClassOfPart(header, part, header.encoded) != PrecisionClass::k3Bit) continue;
    std::swap(by_class.int4, by_class.int3);
  }
  return out;
}

RunMask RunsFor(const RecordHeader& header, ClassPair target) {
  RunMask wanted;
  for (Part part : kParts) {
    PrecisionClass c = part == Part::kK ? target.k : target.v;
    if (c == PrecisionClass::kNone) continue;
    for (RunKind kind : {RunKind::kMeta, RunKind::kExact, RunKind::kWhole, RunKind::kP2})
      wanted |= RunMask::Of(kind, part);
    if (c > PrecisionClass::k2Bit) wanted |= RunMask::Of(RunKind::kP4, part);
    if (c > PrecisionClass::k4Bit) wanted |= RunMask::Of(RunKind::kP8, part);
  }
  return wanted & header.encoded;
}

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
