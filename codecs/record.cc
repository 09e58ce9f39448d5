// What a header says: identity, checksums, classes. What may stand in it is in record_check.cc, its bytes in
// record_format.cc.
#include "codecs/record.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "codecs/record_internal.h"

namespace firn {
namespace {

// The finalizer of SplitMix64: a bijection of 64-bit words.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
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

}  // namespace firn
