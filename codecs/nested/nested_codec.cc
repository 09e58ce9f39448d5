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

absl::Status ValidateMeta(const PartCoding& coding) {
  if (coding.meta_type == MetaType::kNone) return InvalidArgument("a nested code without a metadata type");
  if (coding.group == 0) return InvalidArgument("a nested code with groups of 0 values, 1 to 65535");
  return absl::OkStatus();
}

}  // namespace

uint64_t ChannelRunBytes(const PartCoding& coding, RunKind kind, DType, uint32_t width, uint32_t tokens) {
  if (kind != RunKind::kMeta) return PlaneBytes(kind, width, tokens);
  uint64_t groups = (uint64_t{tokens} + coding.group - 1) / coding.group;
  return groups * width * 2 * MetaValueBytes(coding.meta_type);
}

uint64_t TokenRunBytes(const PartCoding& coding, RunKind kind, DType, uint32_t width, uint32_t tokens) {
  if (kind != RunKind::kMeta) return PlaneBytes(kind, width, tokens);
  uint64_t groups = (uint64_t{width} + coding.group - 1) / coding.group;
  return groups * tokens * 2 * MetaValueBytes(coding.meta_type);
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
  if (coding.flags != 0) {
    return InvalidArgument("flags {:#x} on a nested code per channel, which has none", coding.flags);
  }
  return ValidateMeta(coding);
}

absl::Status ValidateToken(const PartCoding& coding, DType, uint32_t) {
  constexpr uint8_t kArtifactFlags = PartCoding::kCentred | PartCoding::kBalanced;
  if (((coding.flags & kArtifactFlags) != 0) == coding.artifact.IsZero()) {
    return InvalidArgument("a nested code per token with flags {:#x} {} an artifact", coding.flags,
                           coding.artifact.IsZero() ? "lacks" : "does not use");
  }
  return ValidateMeta(coding);
}

}  // namespace firn::nested
