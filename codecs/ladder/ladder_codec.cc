#include "codecs/ladder/ladder_codec.h"

#include <algorithm>

#include "base/status.h"
#include "codecs/ladder/row_format.h"
#include "codecs/nested/nested_format.h"

namespace firn::ladder {

bool TakesWidth(uint32_t width) { return width <= kWidthMax && nested::RotationSize(width) >= kRotationMin; }

uint64_t RunBytes(const RunShape& shape, RunKind kind) {
  if (kind == RunKind::kMeta) return MetaOffset(shape.coding, shape.width, shape.tokens);
  if (kind == RunKind::kP2 || kind == RunKind::kP4) return nested::TwoBitRowBytes(shape.width) * shape.tokens;
  if (kind == RunKind::kP8) return nested::FourBitRowBytes(shape.width) * shape.tokens;
  return 0;
}

uint64_t MetaOffset(const PartCoding& coding, uint32_t, uint32_t token) {
  return uint64_t{token} * MetaRowBytes(coding.meta_type);
}

uint32_t GainTileTokens(const PartCoding&, uint32_t width, uint32_t) {
  // A tile's values stay in the first-level cache.
  constexpr uint32_t kTileValues = 8192;
  return std::clamp(kTileValues / width, 1u, 64u);
}

uint32_t TrellisTileTokens(const PartCoding&, uint32_t width, uint32_t) {
  // The search runs along 64 rows at once; a tile's codes and paths stay in the second-level cache.
  constexpr uint32_t kTileValues = 65536;
  return std::clamp(kTileValues / width, 16u, 64u);
}

absl::Status Validate(const PartCoding& coding, DType, uint32_t width) {
  constexpr uint8_t kFlags = PartCoding::kRotated | PartCoding::kCentred | PartCoding::kBalanced | PartCoding::kPreRope;
  if ((coding.flags & ~kFlags) != 0 || (coding.flags & PartCoding::kRotated) == 0) {
    return InvalidArgument("a ladder code with flags {:#x}; it has {:#x}, and is always rotated", coding.flags, kFlags);
  }
  if (coding.group != 0 || coding.bits != 0 || coding.outliers != 0) {
    return InvalidArgument("a ladder code with groups of {}, {} bits and {} outliers, all of which are 0 here",
                           coding.group, coding.bits, coding.outliers);
  }
  if (coding.meta_type == MetaType::kNone) return InvalidArgument("a ladder code without a metadata type");
  if (!TakesWidth(width)) {
    return InvalidArgument("a ladder code of width {}; it takes multiples of {} up to {}", width, kRotationMin,
                           kWidthMax);
  }
  return absl::OkStatus();
}

}  // namespace firn::ladder
