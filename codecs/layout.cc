#include "codecs/layout.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "codecs/record.h"

namespace firn {
namespace {

constexpr size_t kRowBytesMax = 4096;

const char* NameOf(Part part) { return part == Part::kK ? "K" : "V"; }

struct Dimension {
  uint64_t stride = 0;
  uint64_t count = 0;
};

// Layers, heads, tokens, channels.
std::array<Dimension, 4> DimensionsOf(const PartLayout& layout, const PartShape& shape) {
  return {{{layout.layer_stride, shape.layers},
           {layout.head_stride, shape.heads},
           {layout.token_stride, shape.tokens},
           {layout.channel_stride, shape.width}}};
}

// The first value after the last one, or nothing where 64 bits do not hold it.
std::optional<uint64_t> EndOf(uint64_t offset, std::span<const Dimension> dimensions) {
  uint64_t end = 0;
  if (__builtin_add_overflow(offset, uint64_t{1}, &end)) return std::nullopt;
  for (const Dimension& d : dimensions) {
    uint64_t reach = 0;
    if (__builtin_mul_overflow(d.stride, d.count - 1, &reach) || __builtin_add_overflow(end, reach, &end)) {
      return std::nullopt;
    }
  }
  return end;
}

// Outermost first; dimensions of one element do not matter.
std::vector<Dimension> Nested(std::array<Dimension, 4> dimensions) {
  std::vector<Dimension> nested;
  for (const Dimension& d : dimensions) {
    if (d.count > 1) nested.push_back(d);
  }
  std::stable_sort(nested.begin(), nested.end(),
                   [](const Dimension& a, const Dimension& b) { return a.stride > b.stride; });
  return nested;
}

// Whether every dimension steps over all that lies inside it.
bool StepsClear(const std::vector<Dimension>& nested) {
  for (size_t i = 0; i < nested.size(); ++i) {
    uint64_t inside = *EndOf(0, std::span(nested).subspan(i + 1));
    if (nested[i].stride < inside) return false;
  }
  return true;
}

// Whether K and V never meet: their ranges do not, or they share an outer dimension that steps over both, inside of
// which they never meet.
bool Disjoint(const PartLayout& k, std::span<const Dimension> k_nested, const PartLayout& v,
              std::span<const Dimension> v_nested) {
  while (true) {
    uint64_t k_end = *EndOf(k.offset, k_nested), v_end = *EndOf(v.offset, v_nested);
    if (k_end <= v.offset || v_end <= k.offset) return true;
    if (k_nested.empty() || v_nested.empty()) return false;
    Dimension outer = k_nested.front();
    if (outer.stride != v_nested.front().stride || outer.count != v_nested.front().count) return false;
    k_nested = k_nested.subspan(1);
    v_nested = v_nested.subspan(1);
    uint64_t begin = std::min(k.offset, v.offset);
    uint64_t end = std::max(*EndOf(k.offset, k_nested), *EndOf(v.offset, v_nested));
    if (end - begin > outer.stride) return false;
  }
}

absl::Status CheckPart(const PartLayout& layout, const PartShape& shape, Part part, uint32_t value_bytes,
                       uint64_t buffer_bytes) {
  auto dimensions = DimensionsOf(layout, shape);
  std::optional<uint64_t> end = EndOf(layout.offset, dimensions);
  uint64_t end_bytes = 0;
  if (!end.has_value() || __builtin_mul_overflow(*end, uint64_t{value_bytes}, &end_bytes)) {
    return InvalidArgument("layout of {}: offset {} and strides {}, {}, {}, {} pass 2^64 bytes", NameOf(part),
                           layout.offset, layout.layer_stride, layout.head_stride, layout.token_stride,
                           layout.channel_stride);
  }
  if (end_bytes > buffer_bytes) {
    return InvalidArgument("layout of {}: its values reach to byte {}, the buffer has {}", NameOf(part), end_bytes,
                           buffer_bytes);
  }
  if (!StepsClear(Nested(dimensions))) {
    return InvalidArgument(
        "layout of {}: values share a place with strides {}, {}, {}, {} over {} layers, {} heads, {} tokens, {} "
        "channels",
        NameOf(part), layout.layer_stride, layout.head_stride, layout.token_stride, layout.channel_stride, shape.layers,
        shape.heads, shape.tokens, shape.width);
  }
  return absl::OkStatus();
}

// Steps through a run front to back.
template <typename Byte>
class Cursor {
 public:
  explicit Cursor(const Scattered<Byte>& run) : run_(run) {}

  // Calls visit(piece) for the pieces of the next `bytes`, in order.
  template <typename Visit>
  void Take(uint64_t bytes, Visit visit) {
    while (bytes > 0) {
      std::span<Byte> piece = run_.spans()[piece_].subspan(offset_);
      piece = piece.first(std::min<uint64_t>(piece.size(), bytes));
      visit(piece);
      bytes -= piece.size();
      offset_ += piece.size();
      if (offset_ == run_.spans()[piece_].size()) {
        ++piece_;
        offset_ = 0;
      }
    }
  }

 private:
  const Scattered<Byte>& run_;
  size_t piece_ = 0;
  uint64_t offset_ = 0;
};

// Visits the values of a part in canonical order as rows: visit(byte offset, values) where the values lie `step` apart.
// Rows are as long as the layout allows.
template <typename Visit>
void VisitRows(const PartLayout& layout, const PartShape& shape, uint32_t value_bytes, Visit visit) {
  auto dimensions = DimensionsOf(layout, shape);
  uint64_t row = 1;
  size_t outer = dimensions.size();
  while (outer > 0 && (dimensions[outer - 1].stride == row || dimensions[outer - 1].count == 1)) {
    row *= dimensions[outer - 1].count;
    --outer;
  }
  uint64_t step = 1;
  if (row == 1 && outer > 0) {
    step = dimensions[outer - 1].stride;
    row = dimensions[outer - 1].count;
    --outer;
  }
  std::array<uint64_t, 4> at{};
  while (true) {
    uint64_t offset = layout.offset;
    for (size_t i = 0; i < outer; ++i) offset += at[i] * dimensions[i].stride;
    visit(offset * value_bytes, row, step * value_bytes);
    size_t i = outer;
    while (i > 0 && ++at[i - 1] == dimensions[i - 1].count) at[--i] = 0;
    if (i == 0) return;
  }
}

template <typename Value>
void CopySteps(const uint8_t* source, size_t source_step, uint8_t* target, size_t target_step, size_t values) {
  for (size_t i = 0; i < values; ++i) std::memcpy(target + i * target_step, source + i * source_step, sizeof(Value));
}

void CopyStepped(const uint8_t* source, size_t source_step, uint8_t* target, size_t target_step, size_t values,
                 uint32_t value_bytes) {
  if (value_bytes == 1) return CopySteps<uint8_t>(source, source_step, target, target_step, values);
  if (value_bytes == 2) return CopySteps<uint16_t>(source, source_step, target, target_step, values);
  FIRN_CHECK(value_bytes == 4);
  CopySteps<uint32_t>(source, source_step, target, target_step, values);
}

// FP32 is never stored: its limits are those of the block it is decoded from.
DType StoredAs(DType dtype) { return dtype == DType::kFp32 ? DType::kFp16 : dtype; }

}  // namespace

absl::StatusOr<CallerLayout> DenseLayout(std::string_view order, const BlockShape& shape, uint32_t block_tokens,
                                         DType dtype) {
  std::string letters(order);
  std::sort(letters.begin(), letters.end());
  if (letters != "2DHLT") return InvalidArgument("layout order \"{}\": each of 2, L, H, T and D once expected", order);
  if (shape.tokens > block_tokens) return InvalidArgument("{} tokens in a block of {}", shape.tokens, block_tokens);
  BlockShape whole = shape;
  whole.tokens = block_tokens;
  FIRN_RETURN_IF_ERROR(CheckShape(whole, StoredAs(dtype)));
  if (order.find('D') < order.find('2') && shape.k_width != shape.v_width) {
    return InvalidArgument("layout order \"{}\": K of width {} and V of width {} do not interleave", order,
                           shape.k_width, shape.v_width);
  }
  CallerLayout layout;
  uint64_t k_inside = 1, v_inside = 1;
  for (auto letter = order.rbegin(); letter != order.rend(); ++letter) {
    auto nest = [&](uint64_t PartLayout::*stride, uint64_t k_count, uint64_t v_count) {
      layout.k.*stride = k_inside;
      layout.v.*stride = v_inside;
      k_inside *= k_count;
      v_inside *= v_count;
    };
    if (*letter == 'L') nest(&PartLayout::layer_stride, shape.layers, shape.layers);
    if (*letter == 'H') nest(&PartLayout::head_stride, shape.heads, shape.heads);
    if (*letter == 'T') nest(&PartLayout::token_stride, block_tokens, block_tokens);
    if (*letter == 'D') nest(&PartLayout::channel_stride, shape.k_width, shape.v_width);
    if (*letter == '2') {
      layout.v.offset = k_inside;
      k_inside = v_inside = k_inside + v_inside;
    }
  }
  return layout;
}

absl::Status CheckLayout(const CallerLayout& layout, const BlockShape& shape, DType dtype, uint64_t buffer_bytes) {
  FIRN_RETURN_IF_ERROR(CheckShape(shape, StoredAs(dtype)));
  for (Part part : kParts) {
    if (shape.part(part).width == 0) continue;
    FIRN_RETURN_IF_ERROR(CheckPart(layout.part(part), shape.part(part), part, DTypeBytes(dtype), buffer_bytes));
  }
  if (shape.k_width == 0 || shape.v_width == 0) return absl::OkStatus();
  auto k_nested = Nested(DimensionsOf(layout.k, shape.part(Part::kK)));
  auto v_nested = Nested(DimensionsOf(layout.v, shape.part(Part::kV)));
  if (!Disjoint(layout.k, k_nested, layout.v, v_nested)) {
    return InvalidArgument("layout: K from value {} and V from value {} share a place", layout.k.offset,
                           layout.v.offset);
  }
  return absl::OkStatus();
}

absl::Status GatherPart(const CallerLayout& layout, const BlockShape& shape, DType dtype, Part part, ByteSpan caller,
                        const MutableRunBytes& canonical) {
  FIRN_RETURN_IF_ERROR(CheckLayout(layout, shape, dtype, caller.size()));
  uint32_t value_bytes = DTypeBytes(dtype);
  PartShape part_shape = shape.part(part);
  FIRN_CHECK(canonical.size() == part_shape.values() * value_bytes);
  if (part_shape.width == 0) return absl::OkStatus();
  Cursor<uint8_t> cursor(canonical);
  std::array<uint8_t, kRowBytesMax> row;
  VisitRows(layout.part(part), part_shape, value_bytes, [&](uint64_t at, uint64_t values, uint64_t step) {
    const uint8_t* from = caller.data() + at;
    if (step == value_bytes) {
      cursor.Take(values * value_bytes, [&](MutableByteSpan to) {
        std::memcpy(to.data(), from, to.size());
        from += to.size();
      });
      return;
    }
    while (values > 0) {
      uint64_t count = std::min<uint64_t>(values, kRowBytesMax / value_bytes);
      CopyStepped(from, step, row.data(), value_bytes, count, value_bytes);
      const uint8_t* packed = row.data();
      cursor.Take(count * value_bytes, [&](MutableByteSpan to) {
        std::memcpy(to.data(), packed, to.size());
        packed += to.size();
      });
      from += count * step;
      values -= count;
    }
  });
  return absl::OkStatus();
}

absl::Status ScatterPart(const CallerLayout& layout, const BlockShape& shape, DType dtype, Part part,
                         const RunBytes& canonical, MutableByteSpan caller) {
  FIRN_RETURN_IF_ERROR(CheckLayout(layout, shape, dtype, caller.size()));
  uint32_t value_bytes = DTypeBytes(dtype);
  PartShape part_shape = shape.part(part);
  FIRN_CHECK(canonical.size() == part_shape.values() * value_bytes);
  if (part_shape.width == 0) return absl::OkStatus();
  Cursor<const uint8_t> cursor(canonical);
  std::array<uint8_t, kRowBytesMax> row;
  VisitRows(layout.part(part), part_shape, value_bytes, [&](uint64_t at, uint64_t values, uint64_t step) {
    uint8_t* to = caller.data() + at;
    if (step == value_bytes) {
      cursor.Take(values * value_bytes, [&](ByteSpan from) {
        std::memcpy(to, from.data(), from.size());
        to += from.size();
      });
      return;
    }
    while (values > 0) {
      uint64_t count = std::min<uint64_t>(values, kRowBytesMax / value_bytes);
      uint8_t* packed = row.data();
      cursor.Take(count * value_bytes, [&](ByteSpan from) {
        std::memcpy(packed, from.data(), from.size());
        packed += from.size();
      });
      CopyStepped(row.data(), value_bytes, to, step, count, value_bytes);
      to += count * step;
      values -= count;
    }
  });
  return absl::OkStatus();
}

absl::Status ZeroTail(const CallerLayout& layout, const BlockShape& shape, uint32_t block_tokens, DType dtype,
                      MutableByteSpan caller) {
  if (block_tokens < shape.tokens) return InvalidArgument("{} tokens in a block of {}", shape.tokens, block_tokens);
  if (block_tokens == shape.tokens) return absl::OkStatus();
  BlockShape whole = shape;
  whole.tokens = block_tokens;
  FIRN_RETURN_IF_ERROR(CheckLayout(layout, whole, dtype, caller.size()));
  uint32_t value_bytes = DTypeBytes(dtype);
  for (Part part : kParts) {
    PartShape tail = shape.part(part);
    if (tail.width == 0) continue;
    tail.tokens = block_tokens - shape.tokens;
    PartLayout from = layout.part(part);
    from.offset += shape.tokens * from.token_stride;
    VisitRows(from, tail, value_bytes, [&](uint64_t at, uint64_t values, uint64_t step) {
      if (step == value_bytes) {
        std::memset(caller.data() + at, 0, values * value_bytes);
        return;
      }
      for (uint64_t i = 0; i < values; ++i) std::memset(caller.data() + at + i * step, 0, value_bytes);
    });
  }
  return absl::OkStatus();
}

}  // namespace firn
