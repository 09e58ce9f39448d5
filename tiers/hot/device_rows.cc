#include "tiers/hot/device_rows.h"

#include <algorithm>

#include "base/status.h"

namespace firn {
namespace {

constexpr uint64_t kFarthest = uint64_t{1} << 47;
constexpr size_t kMemoriesMax = 2 * kLayersMax;

absl::Status CheckPart(const DevicePart& part, const PartShape& shape, uint32_t value_bytes, size_t memories,
                       std::vector<uint64_t>* ends) {
  if (shape.width == 0) {
    return part.layers.empty() && part.pages.empty() ? absl::OkStatus()
                                                     : InvalidArgument("rows of a part that has width 0");
  }
  if (part.layers.size() != shape.layers) {
    return InvalidArgument("{} layers are placed, the block has {}", part.layers.size(), shape.layers);
  }
  if (part.page_tokens == 0 || part.page_tokens > kTokensMax) {
    return InvalidArgument("pages of {} tokens; 1 to {}", part.page_tokens, kTokensMax);
  }
  uint64_t pages = (uint64_t{shape.tokens} + part.page_tokens - 1) / part.page_tokens;
  if (part.pages.size() != pages) return InvalidArgument("{} pages, the block has {}", part.pages.size(), pages);
  for (uint64_t stride : {part.page_stride, part.token_stride, part.head_stride}) {
    if (stride > kFarthest) return InvalidArgument("a stride of {} bytes; at most {}", stride, kFarthest);
    if (stride % value_bytes != 0) return InvalidArgument("a stride of {} bytes for values of {}", stride, value_bytes);
  }
  // Each term is below 2^79, their sum fits.
  using Wide = unsigned __int128;
  uint32_t last_page = *std::max_element(part.pages.begin(), part.pages.end());
  uint32_t tokens_a_page = std::min(part.page_tokens, shape.tokens);
  Wide within = Wide{last_page} * part.page_stride + Wide{tokens_a_page - 1} * part.token_stride +
                Wide{shape.heads - 1} * part.head_stride + Wide{shape.width} * value_bytes;
  if (within > kFarthest) return InvalidArgument("rows that reach beyond {} bytes of their layer", kFarthest);
  for (const DeviceLayer& layer : part.layers) {
    if (layer.memory >= memories) return InvalidArgument("memory {}; {} are given", layer.memory, memories);
    if (layer.offset > kFarthest || layer.offset % value_bytes != 0) {
      return InvalidArgument("an offset of {} bytes for values of {}", layer.offset, value_bytes);
    }
    if (ends != nullptr) {
      uint64_t end = layer.offset + static_cast<uint64_t>(within);
      (*ends)[layer.memory] = std::max((*ends)[layer.memory], end);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckDeviceRows(const DeviceRows& rows, const BlockShape& shape, uint32_t value_bytes,
                             std::vector<uint64_t>* ends) {
  if (rows.memory.empty() || rows.memory.size() > kMemoriesMax) {
    return InvalidArgument("{} handles of memory; 1 to {}", rows.memory.size(), kMemoriesMax);
  }
  if (ends != nullptr) ends->assign(rows.memory.size(), 0);
  for (Part part : kParts) {
    FIRN_RETURN_IF_ERROR(
        CheckPart(rows.parts[static_cast<size_t>(part)], shape.part(part), value_bytes, rows.memory.size(), ends));
  }
  return absl::OkStatus();
}

}  // namespace firn
