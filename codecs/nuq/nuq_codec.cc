#include "codecs/nuq/nuq_codec.h"

#include <algorithm>
#include <vector>

#include "base/status.h"
#include "codecs/numeric/bit_stream.h"
#include "codecs/nuq/nuq_format.h"

namespace firn::nuq {
namespace {

absl::Status Validate(const PartCoding& coding, uint8_t flags) {
  if ((coding.flags & ~flags) != 0) {
    return InvalidArgument("codebook codes with flags {:#x}; flags of {:#x} are theirs", coding.flags, flags);
  }
  if (coding.bits < 2 || coding.bits > 4) return InvalidArgument("codebook codes of {} bits, 2 to 4", coding.bits);
  if (coding.meta_type == MetaType::kNone) return InvalidArgument("codebook codes without a metadata type");
  return absl::OkStatus();
}

uint64_t CodeBytes(const RunShape& shape) {
  return CodeRowBytes(shape.width, shape.coding.bits) * shape.tokens * shape.heads;
}

}  // namespace

void TakeLargest(uint32_t* keys, uint32_t size, uint32_t count, uint32_t* taken) {
  // Keys and places together differ everywhere, so what is taken does not depend on how.
  std::vector<uint64_t> order(size);
  for (uint32_t i = 0; i < size; ++i) order[i] = uint64_t{keys[i]} << 32 | (0xFFFFFFFFu - i);
  std::nth_element(order.begin(), order.begin() + count, order.end(), std::greater<>());
  for (uint32_t i = 0; i < count; ++i) {
    taken[i] = 0xFFFFFFFFu - static_cast<uint32_t>(order[i]);
    keys[taken[i]] = 0;
  }
}

uint64_t ChannelRunBytes(const RunShape& shape, RunKind kind) {
  if (kind == RunKind::kMeta) {
    const PartCoding& coding = shape.coding;
    uint64_t rest = uint64_t{shape.tokens % GroupTokens(coding)} * shape.width;
    return ChannelMetaOffset(coding, shape.width, shape.tokens) + OutlierBytes(coding, rest);
  }
  return kind == RunKind::kWhole ? CodeBytes(shape) : 0;
}

uint64_t TokenRunBytes(const RunShape& shape, RunKind kind) {
  if (kind != RunKind::kMeta) return kind == RunKind::kWhole ? CodeBytes(shape) : 0;
  uint64_t range_bytes = 2 * nested::MetaValueBytes(shape.coding.meta_type);
  return (range_bytes + OutlierBytes(shape.coding, uint64_t{shape.heads} * shape.width)) * shape.tokens;
}

uint64_t ChannelMetaOffset(const PartCoding& coding, uint32_t width, uint32_t token) {
  const uint32_t group = GroupTokens(coding);
  return OutlierBytes(coding, uint64_t{group} * width) * (token / group);
}

uint64_t TokenMetaOffset(const PartCoding&, uint32_t, uint32_t) { return 0; }

uint32_t ChannelTileTokens(const PartCoding& coding, uint32_t width, uint32_t) {
  if (coding.group > 0) return coding.group;
  // A tile's values stay in the first-level cache.
  constexpr uint32_t kTileValues = 8192;
  return std::clamp(kTileValues / width, 1u, 64u);
}

uint32_t TokenTileTokens(const PartCoding&, uint32_t, uint32_t tokens) { return tokens; }

absl::Status ValidateChannel(const PartCoding& coding, DType, uint32_t) {
  return Validate(coding, PartCoding::kPreRope);
}

absl::Status ValidateToken(const PartCoding& coding, DType, uint32_t) {
  if (coding.group != 0) return InvalidArgument("codebook codes of values in groups of {}", coding.group);
  return Validate(coding, PartCoding::kRotated | PartCoding::kCentred | PartCoding::kBalanced | PartCoding::kPreRope);
}

}  // namespace firn::nuq
