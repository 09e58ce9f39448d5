#include "codecs/integer/integer_codec.h"

#include <algorithm>

#include "base/status.h"
#include "codecs/integer/integer_format.h"
#include "codecs/numeric/bit_stream.h"

namespace firn::integer {
namespace {

uint64_t CodeBytes(const RunShape& shape) {
  return CodeRowBytes(shape.width, shape.coding.bits) * shape.tokens * shape.heads;
}

uint64_t GroupBytes(const PartCoding& coding) {
  return uint64_t{ValuesAGroup(coding)} * nested::MetaValueBytes(coding.meta_type);
}

enum class Groups { kSome, kNone };

absl::Status Validate(const PartCoding& coding, Groups groups, bool may_be_calibrated) {
  constexpr uint8_t kOutside = PartCoding::kRotated | PartCoding::kCentred | PartCoding::kBalanced |
                               PartCoding::kPreRope;  // Done to rows before they come here.
  bool calibrated = IsCalibrated(coding);
  if ((coding.flags & ~(kOutside | PartCoding::kSymmetric | PartCoding::kCalibrated)) != 0) {
    return InvalidArgument("integer codes with flags {:#x}", coding.flags);
  }
  if (coding.bits != 8 && coding.bits != 4 && coding.bits != 3 && coding.bits != 2) {
    return InvalidArgument("integer codes of {} bits, 8, 4, 3 or 2", coding.bits);
  }
  if (coding.outliers != 0) return InvalidArgument("integer codes with {} outliers", coding.outliers);
  if (calibrated && (!may_be_calibrated || !IsSymmetric(coding) || coding.bits != 8)) {
    return InvalidArgument("calibrated scales for integers of {} bits and flags {:#x}; for symmetric ones of 8 alone",
                           coding.bits, coding.flags);
  }
  if (coding.meta_type == MetaType::kNone) return InvalidArgument("integer codes without a metadata type");
  if ((coding.group == 0) != (calibrated || groups == Groups::kNone)) {
    return InvalidArgument("integer codes with groups of {} values", coding.group);
  }
  return absl::OkStatus();
}

}  // namespace

uint64_t TokenRunBytes(const RunShape& shape, RunKind kind) {
  if (kind == RunKind::kMeta) return TokenMetaOffset(shape.coding, shape.width, shape.tokens);
  return kind == RunKind::kWhole ? CodeBytes(shape) : 0;
}

uint64_t ChannelRunBytes(const RunShape& shape, RunKind kind) {
  if (kind != RunKind::kMeta) return kind == RunKind::kWhole ? CodeBytes(shape) : 0;
  uint64_t groups = (uint64_t{shape.tokens} + shape.coding.group - 1) / shape.coding.group;
  return groups * shape.width * GroupBytes(shape.coding);
}

uint64_t TensorRunBytes(const RunShape& shape, RunKind kind) {
  if (kind == RunKind::kMeta) return GroupBytes(shape.coding);
  return kind == RunKind::kWhole ? CodeBytes(shape) : 0;
}

uint64_t TokenMetaOffset(const PartCoding& coding, uint32_t width, uint32_t token) {
  if (coding.group == 0) return 0;
  uint64_t groups = (uint64_t{width} + coding.group - 1) / coding.group;
  return groups * token * GroupBytes(coding);
}

uint64_t ChannelMetaOffset(const PartCoding& coding, uint32_t width, uint32_t token) {
  return uint64_t{token / coding.group} * width * GroupBytes(coding);
}

uint64_t TensorMetaOffset(const PartCoding&, uint32_t, uint32_t) { return 0; }

uint32_t TokenTileTokens(const PartCoding&, uint32_t width, uint32_t) {
  // A tile's values stay in the first-level cache.
  constexpr uint32_t kTileValues = 8192;
  return std::clamp(kTileValues / width, 1u, 64u);
}

uint32_t ChannelTileTokens(const PartCoding& coding, uint32_t, uint32_t) { return coding.group; }

uint32_t TensorTileTokens(const PartCoding&, uint32_t, uint32_t tokens) { return tokens; }

absl::Status ValidateToken(const PartCoding& coding, DType, uint32_t) { return Validate(coding, Groups::kSome, true); }
absl::Status ValidateChannel(const PartCoding& coding, DType, uint32_t) {
  return Validate(coding, Groups::kSome, false);
}
absl::Status ValidateTensor(const PartCoding& coding, DType, uint32_t) { return Validate(coding, Groups::kNone, true); }

}  // namespace firn::integer
