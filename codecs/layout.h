// Where a caller's values lie in its own buffer, and the way between there and the canonical order of a run.
//
// A layout is a property of a request: four strides and an offset for K and for V. Blocks are stored canonically,
// [layer][head][token][channel]. Every access is checked against the buffer's length before the first byte is touched.
// Threads: all functions are reentrant and allocate at most a row of 4 KiB.
// Units: offsets and strides count values (DTypeBytes each) from the buffer's start.
// Errors: InvalidArgument, naming the part, the byte reached and the buffer's length; also where two values would share
// a place, which no engine means. Layouts whose dimensions interleave without nesting are refused the same way.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "codecs/encoded_block.h"
#include "codecs/types.h"

namespace firn {

struct PartLayout {
  uint64_t offset = 0;
  uint64_t layer_stride = 0;
  uint64_t head_stride = 0;
  uint64_t token_stride = 0;
  uint64_t channel_stride = 1;
  bool operator==(const PartLayout&) const = default;
};

struct CallerLayout {
  PartLayout k, v;
  bool operator==(const CallerLayout&) const = default;
  const PartLayout& part(Part p) const { return p == Part::kK ? k : v; }
};

// Common arrangements of one dense buffer, outermost dimension first: L layers, 2 K before V, T tokens, H heads, D
// channels.
inline constexpr std::string_view kOrderCanonical = "2LHTD";  // K then V, each as FirnKV stores it.
inline constexpr std::string_view kOrderKvFirst = "2LTHD";    // K of all layers, then V.
inline constexpr std::string_view kOrderBlockFirst =
    "L2THD";  // Each layer: K, then V; paged attention, tokens outside.
inline constexpr std::string_view kOrderHeadsFirst = "L2HTD";  // The same, heads outside.
inline constexpr std::string_view kOrderFusedToken = "LT2HD";  // Each token: its K of all heads, then its V.
inline constexpr std::string_view kOrderFusedHead = "LTH2D";   // Each token and head: K, then V.
inline constexpr std::string_view kOrderTransposed = "2LHDT";  // Channels outside tokens.

// The layout of a dense buffer in `order`, any order of the five letters. Strides span `block_tokens` tokens, of which
// a tail block uses the first shape.tokens. K and V may differ in width unless D stands outside 2.
absl::StatusOr<CallerLayout> DenseLayout(std::string_view order, const BlockShape& shape, uint32_t block_tokens,
                                         DType dtype);

// OK when every value of `shape` lies within `buffer_bytes` and no two share a place.
absl::Status CheckLayout(const CallerLayout& layout, const BlockShape& shape, DType dtype, uint64_t buffer_bytes);

// Copies one part of `caller` into canonical order. `canonical` has exactly the part's bytes (CHECKed).
absl::Status GatherPart(const CallerLayout& layout, const BlockShape& shape, DType dtype, Part part, ByteSpan caller,
                        const MutableRunBytes& canonical);

// The way back. Bytes of `caller` between the values stay as they are.
absl::Status ScatterPart(const CallerLayout& layout, const BlockShape& shape, DType dtype, Part part,
                         const RunBytes& canonical, MutableByteSpan caller);

// Zeroes tokens [shape.tokens, block_tokens) of both parts: what a kernel that reads whole blocks may multiply by zero
// must not be an old NaN.
absl::Status ZeroTail(const CallerLayout& layout, const BlockShape& shape, uint32_t block_tokens, DType dtype,
                      MutableByteSpan caller);

}  // namespace firn
