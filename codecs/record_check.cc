// What may stand in a header.
#include <algorithm>
#include <functional>
#include <limits>

#include "base/status.h"
#include "codecs/record_internal.h"

namespace firn {
namespace {

uint32_t CheckCount(const RunInfo& run, uint32_t layers) {
  if (run.bytes == 0) return 0;
  return (layers + run.layers_per_check - 1) / run.layers_per_check;
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
    bool coded = c != PrecisionClass::kNone && c < PrecisionClass::kExact && PrecisionClassName(c) != "unknown";
    if (coded && (family != CodecFamily::kNested || c != PrecisionClass::k3Bit)) continue;
    return InvalidArgument("a head of {} at class {}", name, static_cast<int>(c));
  }
  if (std::adjacent_find(ceilings.begin(), ceilings.end(), std::not_equal_to<>()) == ceilings.end()) {
    return InvalidArgument("all heads of {} have the same precision, which is said otherwise", name);
  }
  return absl::OkStatus();
}

// Whether codes cannot be read without metadata of the record's own.
bool CodesNeedMetadata(const PartCoding& coding) {
  CodecFamily family = FamilyOf(coding.codec);
  if (family == CodecFamily::kNested) return true;
  bool calibrated = (coding.flags & PartCoding::kCalibrated) != 0;
  bool keeps_nothing = coding.codec == CodecId::kNuqChannel && coding.outliers == 0;
  return family == CodecFamily::kCodes && !calibrated && !keeps_nothing;
}

// That nothing is missing beside the codes of a part, or beside tokens kept exact: decoding trusts a header for it. A
// part of which nothing was encoded has no class.
absl::Status CheckNeededRuns(const RecordHeader& header, Part part) {
  auto has = [&](RunKind kind) { return header.encoded.Has(kind, part); };
  if (!has(RunKind::kWhole) && !has(RunKind::kP2) && !has(RunKind::kExact)) return absl::OkStatus();
  const PartCoding& coding = header.CodingOf(part);
  const char* name = part == Part::kK ? "K" : "V";
  if (header.exact_tokens > 0 && !has(RunKind::kExact)) {
    return InvalidArgument("{} tokens of {} are exact, and not there", header.exact_tokens, name);
  }
  // The scales that FP8 values came with stand there, too, of all tokens or of those kept exact.
  bool came_so = FamilyOf(coding.codec) == CodecFamily::kSource || header.exact_tokens > 0;
  bool scales = came_so && (header.dtype == DType::kFp8E4m3 || header.dtype == DType::kFp8E5m2);
  bool coded = header.RunBytes(RunMask::Of(RunKind::kWhole, part) | RunMask::Of(RunKind::kP2, part)) > 0;
  if (!has(RunKind::kMeta) && (scales || (coded && CodesNeedMetadata(coding)))) {
    return InvalidArgument("codec {} of {} without metadata", static_cast<int>(coding.codec), name);
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
  return CheckNeededRuns(header, part);
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

}  // namespace

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

}  // namespace firn
