#include "kernels/view_checks.h"

#include "base/status.h"
#include "codecs/types.h"

namespace firn::kernels {

absl::Status CheckExtent(const BatchExtent& extent) {
  if (extent.layers > kLayersMax || extent.heads > kHeadsMax || extent.tokens > kTokensMax) {
    return InvalidArgument("{} layers, {} heads, {} tokens; the limits are {}, {}, {}", extent.layers, extent.heads,
                           extent.tokens, kLayersMax, kHeadsMax, kTokensMax);
  }
  uint64_t heads = uint64_t{extent.blocks} * extent.layers * extent.heads;
  if (heads > kRowsMax || heads * extent.tokens > kRowsMax) {
    return InvalidArgument("{} blocks of {} layers, {} heads, {} tokens have more than {} rows", extent.blocks,
                           extent.layers, extent.heads, extent.tokens, kRowsMax);
  }
  return absl::OkStatus();
}

absl::Status CheckRows(const RowsView& rows, uint32_t tokens) {
  if (rows.base == nullptr && rows.layer_bases == nullptr) return InvalidArgument("rows without an address");
  if (rows.page_tokens == 0 || rows.page_tokens > kRowsMax) {
    return InvalidArgument("pages of {} tokens; 1 to {} expected", rows.page_tokens, kRowsMax);
  }
  uint64_t last = uint64_t{rows.first_token} + tokens;
  if (last <= uint64_t{rows.pages_per_block} * rows.page_tokens) return absl::OkStatus();
  return InvalidArgument("{} tokens from token {} on, but {} pages of {} tokens a block", tokens, rows.first_token,
                         rows.pages_per_block, rows.page_tokens);
}

absl::Status CheckValuesAndMeta(DType values, MetaType meta) {
  if (values != DType::kFp16 && values != DType::kBf16 && values != DType::kFp32) {
    return Unimplemented("values of type {}; FP16, BF16 and FP32 are coded on a GPU", DTypeName(values));
  }
  bool fits = meta == MetaType::kFp32 || (meta == MetaType::kFp16 && values != DType::kBf16) ||
              (meta == MetaType::kBf16 && values != DType::kFp16);
  if (fits) return absl::OkStatus();
  return InvalidArgument("metadata of type {} for values of type {}", static_cast<int>(meta), DTypeName(values));
}

bool AlignedRun(const RunView& run, uint64_t to) { return Aligned(run.base, to) && run.block_stride % to == 0; }

absl::Status CheckRun(const RunView& run, const char* name, uint64_t access_bytes) {
  constexpr uint32_t kPageShiftMin = 4, kPageShiftMax = 40;
  if (run.pages != nullptr &&
      (run.base == nullptr || run.page_shift < kPageShiftMin || run.page_shift > kPageShiftMax)) {
    return InvalidArgument("pages of 2^{} bytes of {}; 2^{} to 2^{} from a base expected", run.page_shift, name,
                           kPageShiftMin, kPageShiftMax);
  }
  if (!AlignedRun(run, access_bytes)) return InvalidArgument("{} is not aligned to {} bytes", name, access_bytes);
  return absl::OkStatus();
}

bool AlignedRows(const RowsView& rows) {
  auto even = [](int64_t stride) { return stride % 8 == 0; };
  return rows.channel_stride == 1 && Aligned(rows.base, 16) && even(rows.layer_stride) && even(rows.page_stride) &&
         even(rows.token_stride) && even(rows.head_stride);
}

bool LinearRows(const RowsView& rows, uint32_t heads, uint32_t tokens, uint32_t width) {
  return rows.layer_bases == nullptr && rows.pages == nullptr && rows.pages_per_block == 1 && rows.first_token == 0 &&
         rows.channel_stride == 1 && rows.token_stride == width && rows.head_stride == int64_t{tokens} * width &&
         rows.layer_stride == rows.head_stride * heads;
}

}  // namespace firn::kernels
