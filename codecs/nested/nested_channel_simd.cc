#include <algorithm>

#include "base/check.h"
#include "codecs/nested/nested_codec.h"
#include "codecs/nested/nested_format.h"
#include "codecs/numeric/float_rows.h"
#include "codecs/numeric/inline_buffer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codecs/nested/nested_channel_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR
#include "codecs/nested/planes-inl.h"
#include "codecs/nested/scales-inl.h"
#include "codecs/numeric/group_rows-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void EncodeChannelTarget(const EncodeTile& tile) { nested::EncodeChannelReference(tile); }
void DecodeChannelTarget(const DecodeTile& tile) { nested::DecodeChannelReference(tile); }
Survey SurveyChannelTarget(const EncodeTile& tile) { return nested::SurveyChannelReference(tile); }

#else

using FloatRow = InlineBuffer<float, kInlineWidth>;

// Codes of `rows` rows, `width` apart. Four vectors of channels at a time keep their minima and steps in registers.
template <class In>
HWY_INLINE void QuantizeRows(In in, const typename In::Lane* HWY_RESTRICT source, uint32_t rows, uint32_t width,
                             const float* HWY_RESTRICT minimum, const float* HWY_RESTRICT inverse,
                             uint8_t* HWY_RESTRICT codes) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  size_t c = 0;
  for (; c + 4 * lanes <= width; c += 4 * lanes) {
    const auto low0 = hn::LoadU(df, minimum + c), low1 = hn::LoadU(df, minimum + c + lanes);
    const auto low2 = hn::LoadU(df, minimum + c + 2 * lanes), low3 = hn::LoadU(df, minimum + c + 3 * lanes);
    const auto factor0 = hn::LoadU(df, inverse + c), factor1 = hn::LoadU(df, inverse + c + lanes);
    const auto factor2 = hn::LoadU(df, inverse + c + 2 * lanes), factor3 = hn::LoadU(df, inverse + c + 3 * lanes);
    for (uint32_t r = 0; r < rows; ++r) {
      const auto* from = source + size_t{r} * width + c;
      uint8_t* to = codes + size_t{r} * width + c;
      StoreCodes(df, hn::Mul(hn::Sub(LoadAsFloat(df, in, from), low0), factor0), to);
      StoreCodes(df, hn::Mul(hn::Sub(LoadAsFloat(df, in, from + lanes), low1), factor1), to + lanes);
      StoreCodes(df, hn::Mul(hn::Sub(LoadAsFloat(df, in, from + 2 * lanes), low2), factor2), to + 2 * lanes);
      StoreCodes(df, hn::Mul(hn::Sub(LoadAsFloat(df, in, from + 3 * lanes), low3), factor3), to + 3 * lanes);
    }
  }
  for (uint32_t r = 0; c < width && r < rows; ++r) {
    const auto* from = source + size_t{r} * width;
    uint8_t* to = codes + size_t{r} * width;
    for (size_t at = c; at < width; at += lanes) {
      const size_t start = width < lanes ? 0 : std::min<size_t>(at, width - lanes);
      const auto x = width < lanes ? LoadFewAsFloat(df, in, from, width) : LoadAsFloat(df, in, from + start);
      const auto low = hn::LoadU(df, minimum + start), factor = hn::LoadU(df, inverse + start);
      StoreCodes(df, hn::Mul(hn::Sub(x, low), factor), to + start);
    }
  }
}

template <class In>
void EncodeChannelFrom(In in, const EncodeTile& tile) {
  const PartCoding& coding = *tile.coding;
  const uint32_t width = tile.width;
  const size_t meta_bytes = size_t{width} * nested::MetaValueBytes(coding.meta_type);
  const auto* rows = reinterpret_cast<const typename In::Lane*>(tile.source);
  FloatRow minimum(width), step(width), inverse(width);
  InlineBuffer<uint8_t, kInlineWidth> codes(size_t{width} * kRowsTogether);
  PlaneRows<uint8_t> planes{tile.run(RunKind::kP2), tile.run(RunKind::kP4), tile.run(RunKind::kP8)};
  uint8_t* meta_out = tile.run(RunKind::kMeta);
  for (uint32_t first = 0; first < tile.tokens; first += coding.group) {
    const uint32_t count = std::min<uint32_t>(coding.group, tile.tokens - first);
    RangesAlongTokens(in, rows, width, count, minimum.data(), step.data());
    if (tile.survey != nullptr) {
      tile.survey->Join(SurveyRanges(coding.meta_type, width, minimum.data(), step.data()));
    }
    WithMetaType(coding.meta_type, [&](auto meta) HWY_ATTR {
      ScalesOf(meta, coding.meta_type, width, minimum.data(), step.data(), inverse.data());
      WriteMetaRow(meta, minimum.data(), width, meta_out);
      WriteMetaRow(meta, step.data(), width, meta_out + meta_bytes);
    });
    meta_out += 2 * meta_bytes;
    for (uint32_t t = 0; t < count; t += kRowsTogether) {
      const uint32_t together = std::min(kRowsTogether, count - t);
      QuantizeRows(in, rows, together, width, minimum.data(), inverse.data(), codes.data());
      rows += size_t{together} * width;
      PackRows(codes.data(), width, together, width, planes);
      planes.Skip(width, together);
    }
  }
}

// Whether minimum + step * 240, or any level below it, passes `largest` somewhere in the row.
HWY_INLINE bool PassesLimit(const float* minimum, const float* step, uint32_t width, float largest) {
  const hn::ScalableTag<float> df;
  auto most = hn::Zero(df);
  ForVectors(width, hn::Lanes(df), [&](size_t at, size_t count) HWY_ATTR {
    const auto low = hn::LoadU(df, minimum + at);
    const auto high = hn::Add(low, hn::Mul(hn::LoadU(df, step + at), hn::Set(df, 255.0f)));
    const auto bound = hn::Max(hn::Abs(low), hn::Abs(high));
    most = hn::Max(most, hn::IfThenElseZero(hn::FirstN(df, count), bound));
  });
  return !(hn::GetLane(hn::MaxOfLanes(df, most)) <= largest);
}

// Values of `rows` rows of levels, `width` apart. Four vectors of channels at a time keep their minima and steps in
// registers.
template <bool kSaturate, class Out>
HWY_INLINE void DequantizeRows(Out out, const uint8_t* HWY_RESTRICT levels, uint32_t rows, uint32_t width,
                               const float* HWY_RESTRICT minimum, const float* HWY_RESTRICT step, float largest,
                               typename Out::Lane* HWY_RESTRICT target) {
  const hn::ScalableTag<float> df;
  using V = hn::Vec<decltype(df)>;
  const size_t lanes = hn::Lanes(df);
  auto value_of = [&](V low, V by, const uint8_t* level) HWY_ATTR {
    const auto value = hn::Add(low, hn::Mul(by, LoadLevels(df, level)));
    if constexpr (!kSaturate) return value;
    return hn::Min(hn::Max(value, hn::Set(df, -largest)), hn::Set(df, largest));
  };
  size_t c = 0;
  for (; c + 4 * lanes <= width; c += 4 * lanes) {
    const auto low0 = hn::LoadU(df, minimum + c), low1 = hn::LoadU(df, minimum + c + lanes);
    const auto low2 = hn::LoadU(df, minimum + c + 2 * lanes), low3 = hn::LoadU(df, minimum + c + 3 * lanes);
    const auto by0 = hn::LoadU(df, step + c), by1 = hn::LoadU(df, step + c + lanes);
    const auto by2 = hn::LoadU(df, step + c + 2 * lanes), by3 = hn::LoadU(df, step + c + 3 * lanes);
    for (uint32_t r = 0; r < rows; ++r) {
      const uint8_t* from = levels + size_t{r} * width + c;
      auto* to = target + size_t{r} * width + c;
      StoreFromFloat(df, out, value_of(low0, by0, from), to);
      StoreFromFloat(df, out, value_of(low1, by1, from + lanes), to + lanes);
      StoreFromFloat(df, out, value_of(low2, by2, from + 2 * lanes), to + 2 * lanes);
      StoreFromFloat(df, out, value_of(low3, by3, from + 3 * lanes), to + 3 * lanes);
    }
  }
  for (uint32_t r = 0; c < width && r < rows; ++r) {
    const uint8_t* from = levels + size_t{r} * width;
    auto* to = target + size_t{r} * width;
    for (size_t at = c; at < width; at += lanes) {
      const size_t start = width < lanes ? 0 : std::min<size_t>(at, width - lanes);
      const auto value = value_of(hn::LoadU(df, minimum + start), hn::LoadU(df, step + start), from + start);
      if (HWY_LIKELY(width >= lanes)) {
        StoreFromFloat(df, out, value, to + start);
      } else {
        StoreFewFromFloat(df, out, value, to, width);
      }
    }
  }
}

template <class Out>
void DecodeChannelTo(Out out, const DecodeTile& tile) {
  const PartCoding& coding = *tile.coding;
  const uint32_t width = tile.width;
  const size_t meta_bytes = size_t{width} * nested::MetaValueBytes(coding.meta_type);
  const float largest = OutputLimit(tile.out);
  FloatRow minimum(width), step(width);
  InlineBuffer<uint8_t, kInlineWidth> levels(size_t{width} * kRowsTogether);
  PlaneRows<const uint8_t> planes{tile.run(RunKind::kP2), tile.run(RunKind::kP4), tile.run(RunKind::kP8)};
  auto* target = reinterpret_cast<typename Out::Lane*>(tile.target);
  const uint8_t* meta_in = tile.run(RunKind::kMeta);
  for (uint32_t first = 0; first < tile.tokens; first += coding.group) {
    const uint32_t count = std::min<uint32_t>(coding.group, tile.tokens - first);
    WithMetaType(coding.meta_type, [&](auto meta) HWY_ATTR {
      ReadMetaRow(meta, meta_in, width, minimum.data());
      ReadMetaRow(meta, meta_in + meta_bytes, width, step.data());
    });
    meta_in += 2 * meta_bytes;
    const bool saturate = PassesLimit(minimum.data(), step.data(), width, largest);
    for (uint32_t t = 0; t < count; t += kRowsTogether) {
      const uint32_t together = std::min(kRowsTogether, count - t);
      UnpackRows<Unpacked::kLevels>(planes, together, width, tile.precision, width, levels.data());
      planes.Skip(width, together);
      if (HWY_LIKELY(!saturate)) {
        DequantizeRows<false>(out, levels.data(), together, width, minimum.data(), step.data(), largest, target);
      } else {
        DequantizeRows<true>(out, levels.data(), together, width, minimum.data(), step.data(), largest, target);
      }
      target += size_t{together} * width;
    }
  }
}

template <class In>
Survey SurveyChannelFrom(In in, const EncodeTile& tile) {
  const auto* rows = reinterpret_cast<const typename In::Lane*>(tile.source);
  FloatRow lowest(tile.width), highest(tile.width);
  Survey survey;
  for (uint32_t first = 0; first < tile.tokens; first += tile.coding->group) {
    const uint32_t count = std::min<uint32_t>(tile.coding->group, tile.tokens - first);
    RangesAlongTokens(in, rows + size_t{first} * tile.width, tile.width, count, lowest.data(), highest.data());
    survey.Join(SurveyRanges(tile.coding->meta_type, tile.width, lowest.data(), highest.data()));
  }
  if (survey.non_finite) return Survey{.non_finite = true};
  return survey;
}

void EncodeChannelTarget(const EncodeTile& tile) {
  WithFloatType(tile.in, [&](auto in) HWY_ATTR { EncodeChannelFrom(in, tile); });
}
void DecodeChannelTarget(const DecodeTile& tile) {
  WithFloatType(tile.out, [&](auto out) HWY_ATTR { DecodeChannelTo(out, tile); });
}
Survey SurveyChannelTarget(const EncodeTile& tile) {
  Survey survey;
  WithFloatType(tile.in, [&](auto in) HWY_ATTR { survey = SurveyChannelFrom(in, tile); });
  return survey;
}

#endif
}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace firn {
HWY_EXPORT(EncodeChannelTarget);
HWY_EXPORT(DecodeChannelTarget);
HWY_EXPORT(SurveyChannelTarget);
namespace nested {
void EncodeChannel(const EncodeTile& tile) { HWY_DYNAMIC_DISPATCH(EncodeChannelTarget)(tile); }
void DecodeChannel(const DecodeTile& tile) { HWY_DYNAMIC_DISPATCH(DecodeChannelTarget)(tile); }
Survey SurveyChannel(const EncodeTile& tile) { return HWY_DYNAMIC_DISPATCH(SurveyChannelTarget)(tile); }
}  // namespace nested
}  // namespace firn
#endif
