#include "codecs/fp4/fp4_codec.h"

#include <algorithm>

#include "base/status.h"
#include "codecs/fp4/fp4_format.h"
#include "codecs/fp8/fp8_codec.h"
#include "codecs/numeric/bit_stream.h"

namespace firn::fp4 {
namespace {

uint64_t CodeBytes(const RunShape& shape) { return CodeRowBytes(shape.width, 4) * shape.tokens * shape.heads; }

}  // namespace

Survey SurveyValues(const EncodeTile& tile) { return fp8::SurveyValues(tile); }

uint64_t NvRunBytes(const RunShape& shape, RunKind kind) {
  if (kind != RunKind::kMeta) return kind == RunKind::kWhole ? CodeBytes(shape) : 0;
  return sizeof(float) + uint64_t{BlocksOf(shape.width, kNvBlock)} * shape.tokens * shape.heads;
}

uint64_t MxRunBytes(const RunShape& shape, RunKind kind) {
  if (kind == RunKind::kMeta) return MxMetaOffset(shape.coding, shape.width, shape.tokens);
  return kind == RunKind::kWhole ? CodeBytes(shape) : 0;
}

uint64_t NvMetaOffset(const PartCoding&, uint32_t, uint32_t) { return 0; }

uint64_t MxMetaOffset(const PartCoding&, uint32_t width, uint32_t token) {
  return uint64_t{BlocksOf(width, kMxBlock)} * token;
}

uint32_t NvTileTokens(const PartCoding&, uint32_t, uint32_t tokens) { return tokens; }

uint32_t MxTileTokens(const PartCoding&, uint32_t width, uint32_t) {
  // A tile's values stay in the first-level cache.
  constexpr uint32_t kTileValues = 8192;
  return std::clamp(kTileValues / width, 1u, 64u);
}

absl::Status Validate(const PartCoding& coding, DType, uint32_t) {
  constexpr uint8_t kOutside = PartCoding::kRotated | PartCoding::kCentred | PartCoding::kBalanced |
                               PartCoding::kPreRope;  // Done to rows before they come here.
  if ((coding.flags & ~kOutside) != 0 || coding.meta_type != MetaType::kFp32 || coding.group != 0 || coding.bits != 0 ||
      coding.outliers != 0) {
    return InvalidArgument(
        "FP4 codes with flags {:#x}, metadata type {}, groups of {}, {} bits, {} outliers; FP32 and "
        "none of the others expected",
        coding.flags, static_cast<int>(coding.meta_type), coding.group, coding.bits, coding.outliers);
  }
  return absl::OkStatus();
}

}  // namespace firn::fp4
