// Addresses of rows and the geometry of a batch, as kernels see them.
#pragma once

#include "kernels/views.h"

namespace firn::kernels {

// How addresses are found: rows of a block one after another, or as their view says; runs at even distances, or as
// their views say. What a kernel need not look up it need not wait for.
enum class Places { kLinear, kAnyRows, kAny };

struct RowAt {
  uint32_t block, layer, head, token;  // `token` counts coded tokens.
};

// Rows of a batch in the order of the runs: [block][layer][head][token].
struct BatchShape {
  uint32_t blocks, layers, heads, tokens, width;
  FastDivisor by_tokens, by_heads, by_layers, by_blocks, by_block_rows;

  BatchShape() = default;
  BatchShape(uint32_t b, uint32_t l, uint32_t h, uint32_t t, uint32_t w)
      : blocks(b),
        layers(l),
        heads(h),
        tokens(t),
        width(w),
        by_tokens(t),
        by_heads(h),
        by_layers(l),
        by_blocks(b),
        by_block_rows(l * h * t) {}

  FIRN_HOST_DEVICE uint32_t rows() const { return blocks * layers * heads * tokens; }
  FIRN_HOST_DEVICE uint32_t block_rows() const { return by_block_rows.divisor; }
  FIRN_HOST_DEVICE RowAt HeadOf(uint32_t head_index) const {
    RowAt at{};
    uint32_t layer_index = by_heads.Quotient(head_index);
    at.head = head_index - layer_index * heads;
    at.block = by_layers.Quotient(layer_index);
    at.layer = layer_index - at.block * layers;
    return at;
  }
  FIRN_HOST_DEVICE RowAt Of(uint32_t row) const {
    uint32_t head_index = by_tokens.Quotient(row);
    RowAt at = HeadOf(head_index);
    at.token = row - head_index * tokens;
    return at;
  }
  FIRN_HOST_DEVICE RowAt InBlockAt(uint32_t block, uint32_t in_block) const {
    RowAt at{};
    uint32_t head_index = by_tokens.Quotient(in_block);
    at.block = block;
    at.layer = by_heads.Quotient(head_index);
    at.head = head_index - at.layer * heads;
    at.token = in_block - head_index * tokens;
    return at;
  }
  // The row's number within its block.
  FIRN_HOST_DEVICE uint64_t InBlock(const RowAt& at) const {
    return (uint64_t{at.layer} * heads + at.head) * tokens + at.token;
  }
};

#ifdef __CUDACC__
// Byte `offset` of a block's run.
template <Places kPlaces>
__device__ __forceinline__ uint8_t* RunBytesAt(const RunView& run, uint32_t block, uint32_t offset) {
  if constexpr (kPlaces == Places::kAny) return run.At(block, offset);
  return run.base + block * run.block_stride + offset;
}

// Channel 0 of a row.
template <typename Value>
__device__ __forceinline__ Value* RowOf(const RowsView& view, const FastDivisor& by_page, const RowAt& at) {
  uint32_t token = at.token + view.first_token;
  uint32_t index = by_page.Quotient(token), inside = token - index * view.page_tokens;
  uint64_t page = uint64_t{at.block} * view.pages_per_block + index;
  if (view.pages != nullptr) page = view.pages[page];
  Value* layer = view.layer_bases != nullptr ? static_cast<Value*>(view.layer_bases[at.layer])
                                             : static_cast<Value*>(view.base) + at.layer * view.layer_stride;
  return layer + static_cast<int64_t>(page) * view.page_stride + inside * view.token_stride +
         at.head * view.head_stride;
}
#endif

}  // namespace firn::kernels
