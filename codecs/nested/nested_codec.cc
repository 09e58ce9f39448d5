#include "codecs/nested/nested_codec.h"

#include <algorithm>

#include "base/status.h"
#include "codecs/nested/nested_format.h"

namespace firn::nested {
namespace {

uint64_t PlaneBytes(RunKind kind, uint32_t width, uint32_t tokens) {
  if (kind == RunKind::kP2 || kind == RunKind::kP4) return TwoBitRowBytes(width) * tokens;
  if (kind == RunKind::kP8) return FourBitRowBytes(width) * tokens;
  return 0;
}

absl::Status ValidateNested(const PartCoding& coding, uint8_t flags) {
  if ((coding.flags & ~flags) != 0 || coding.bits != 0 || coding.outliers != 0) {
    return InvalidArgument("a nested code with flags {:#x}, {} bits and {} outliers; flags of {:#x} are its own",
                           coding.flags, coding.bits, coding.outliers, flags);
  }
  if (coding.meta_type == MetaType::kNone) return InvalidArgument("a nested code without a metadata type");
  if (coding.group == 0) return InvalidArgument("a nested code with groups of 0 values, 1 to 65535");
  return absl::OkStatus();
}

}  // namespace

uint64_t ChannelRunBytes(const RunShape& shape, RunKind kind) {
  if (kind != RunKind::kMeta) return PlaneBytes(kind, shape.width, shape.tokens);
  uint64_t groups = (uint64_t{shape.tokens} + shape.coding.group - 1) / shape.coding.group;
  return groups * shape.width * 2 * MetaValueBytes(shape.coding.meta_type);
}

uint64_t TokenRunBytes(const RunShape& shape, RunKind kind) {
  if (kind != RunKind::kMeta) return PlaneBytes(kind, shape.width, shape.tokens);
  return TokenMetaOffset(shape.coding, shape.width, shape.tokens);
}

uint64_t ChannelMetaOffset(const PartCoding& coding, uint32_t width, uint32_t token) {
  return uint64_t{token / coding.group} * width * 2 * MetaValueBytes(coding.meta_type);
}

uint64_t TokenMetaOffset(const PartCoding& coding, uint32_t width, uint32_t token) {
  uint64_t groups = (uint64_t{width} + coding.group - 1) / coding.group;
  return groups * token * 2 * MetaValueBytes(coding.meta_type);
}

uint32_t ChannelTileTokens(const PartCoding& coding, uint32_t, uint32_t) { return coding.group; }

uint32_t TokenTileTokens(const PartCoding&, uint32_t width, uint32_t) {
  // A tile's values stay in the first-level cache.
  constexpr uint32_t kTileValues = 8192;
  return std::clamp(kTileValues / width, 1u, 64u);
}

absl::Status ValidateChannel(const PartCoding& coding, DType, uint32_t) {
  return ValidateNested(coding, PartCoding::kPreRope);
}

absl::Status ValidateToken(const PartCoding& coding, DType, uint32_t) {
  return ValidateNested(coding,
                        PartCoding::kRotated | PartCoding::kCentred | PartCoding::kBalanced | PartCoding::kPreRope);
}

}  // namespace firn::nested
