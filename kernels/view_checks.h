// What launchers ask of views before anything is enqueued. Errors: InvalidArgument, naming the value and the limit.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "codecs/types.h"
#include "kernels/views.h"

namespace firn::kernels {

inline constexpr uint64_t kRowsMax = (uint64_t{1} << 31) - 1;

struct BatchExtent {
  uint32_t blocks, layers, heads, tokens;
  bool Empty() const { return blocks == 0 || layers == 0 || heads == 0 || tokens == 0; }
};

absl::Status CheckExtent(const BatchExtent& extent);
// That rows have an address and that their pages cover the tokens.
absl::Status CheckRows(const RowsView& rows, uint32_t tokens);
// That a run's pieces are aligned to what one access takes, a power of two, so that none straddles two pages.
absl::Status CheckRun(const RunView& run, const char* name, uint64_t access_bytes);

// That values are FP16, BF16, or FP32 of conditioned rows, and that metadata is of a type they may have: their own or
// FP32, any for FP32.
absl::Status CheckValuesAndMeta(DType values, MetaType meta);

inline bool Aligned(const void* at, uint64_t to) { return reinterpret_cast<uintptr_t>(at) % to == 0; }
bool AlignedRun(const RunView& run, uint64_t to);
// Whether the run's bytes are found without looking anything up.
inline bool PlainRun(const RunView& run) { return run.pages == nullptr && run.block_bases == nullptr; }
// Contiguous rows, all of which begin at multiples of eight values. What device arrays of addresses hold is so by their
// contract.
bool AlignedRows(const RowsView& rows);
// Whether the rows of a block lie one after another, [layer][head][token], in a page of their own.
bool LinearRows(const RowsView& rows, uint32_t heads, uint32_t tokens, uint32_t width);

}  // namespace firn::kernels
