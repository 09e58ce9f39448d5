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
#endif

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void EncodeChannelTarget(const EncodeTile& tile) { nested::EncodeChannelReference(tile); }
void DecodeChannelTarget(const DecodeTile& tile) { nested::DecodeChannelReference(tile); }
Survey SurveyChannelTarget(const EncodeTile& tile) { return nested::SurveyChannelReference(tile); }

#else

constexpr size_t kInlineWidth = 1024;
using FloatRow = InlineBuffer<float, kInlineWidth>;

// The extremes of floats seen as integers. Positive floats order as they do, negative ones the other way round, so the
// largest signed, the largest and the smallest unsigned integer together tell both extremes, with -0 just below +0.
template <class DI>
struct Extremes {
  using DU = hn::RebindToUnsigned<DI>;
  hn::Vec<DI> signed_max;
  hn::Vec<DU> unsigned_max, unsigned_min;

  HWY_INLINE void Start(hn::Vec<DI> bits) {
    signed_max = bits;
    unsigned_max = unsigned_min = hn::BitCast(DU(), bits);
  }
  HWY_INLINE void Add(hn::Vec<DI> bits) {
    const auto magnitude_first = hn::BitCast(DU(), bits);
    signed_max = hn::Max(signed_max, bits);
    unsigned_max = hn::Max(unsigned_max, magnitude_first);
    unsigned_min = hn::Min(unsigned_min, magnitude_first);
  }
  HWY_INLINE void Store(hn::TFromD<DI>* low, hn::TFromD<DI>* high) const {
    const DI di;
    const auto most = hn::BitCast(di, unsigned_max), least = hn::BitCast(di, unsigned_min);
    const auto some_negative = hn::Lt(most, hn::Zero(di)), all_negative = hn::Lt(signed_max, hn::Zero(di));
    hn::StoreU(hn::IfThenElse(some_negative, most, least), di, low);
    hn::StoreU(hn::IfThenElse(all_negative, least, signed_max), di, high);
  }
};

// Walks down kVectors neighbouring vectors of `tokens` rows at once, so that whole rows are read in order.
template <int kVectors, class DI, class T = hn::TFromD<DI> >
HWY_INLINE void ExtremesDown(DI di, const T* HWY_RESTRICT from, size_t stride, uint32_t tokens, T* low, T* high) {
  const size_t lanes = hn::Lanes(di);
  Extremes<DI> e0, e1, e2, e3;
  e0.Start(hn::LoadU(di, from));
  if constexpr (kVectors == 4) {
    e1.Start(hn::LoadU(di, from + lanes));
    e2.Start(hn::LoadU(di, from + 2 * lanes));
    e3.Start(hn::LoadU(di, from + 3 * lanes));
  }
  for (uint32_t t = 1; t < tokens; ++t) {
    from += stride;
    if constexpr (kVectors == 4) {
      for (size_t line = 0; line < 4 * lanes * sizeof(T); line += 64) PrefetchAhead(from, line + kPrefetchBytes);
    }
    e0.Add(hn::LoadU(di, from));
    if constexpr (kVectors == 4) {
      e1.Add(hn::LoadU(di, from + lanes));
      e2.Add(hn::LoadU(di, from + 2 * lanes));
      e3.Add(hn::LoadU(di, from + 3 * lanes));
    }
  }
  e0.Store(low, high);
  if constexpr (kVectors == 4) {
    e1.Store(low + lanes, high + lanes);
    e2.Store(low + 2 * lanes, high + 2 * lanes);
    e3.Store(low + 3 * lanes, high + 3 * lanes);
  }
}

// Rows narrower than a vector, put one by one where a whole vector can be read.
template <class DI, class T = hn::TFromD<DI> >
void ExtremesOfNarrowRows(DI di, const T* from, size_t width, uint32_t tokens, T* low, T* high) {
  alignas(64) T few[hn::MaxLanes(di)] = {};
  Extremes<DI> extremes;
  for (uint32_t t = 0; t < tokens; ++t) {
    std::memcpy(few, from + size_t{t} * width, width * sizeof(T));
    if (t == 0) {
      extremes.Start(hn::Load(di, few));
    } else {
      extremes.Add(hn::Load(di, few));
    }
  }
  extremes.Store(low, high);
}

// Finds each channel's extremes over `tokens` rows, as floats.
template <class In>
void RangesAlongTokens(In in, const typename In::Lane* rows, uint32_t width, uint32_t tokens, float* lowest,
                       float* highest) {
  using Integer = std::conditional_t<sizeof(typename In::Lane) == 2, int16_t, int32_t>;
  const hn::ScalableTag<Integer> di;
  const size_t lanes = hn::Lanes(di);
  const auto* from = reinterpret_cast<const Integer*>(rows);
  InlineBuffer<typename In::Lane, kInlineWidth> low_bits(width), high_bits(width);
  auto* low = reinterpret_cast<Integer*>(low_bits.data());
  auto* high = reinterpret_cast<Integer*>(high_bits.data());
  if (width < lanes) {
    ExtremesOfNarrowRows(di, from, width, tokens, low, high);
  } else {
    size_t c = 0;
    for (; c + 4 * lanes <= width; c += 4 * lanes) ExtremesDown<4>(di, from + c, width, tokens, low + c, high + c);
    ForVectors(width - c, lanes, [&](size_t at, size_t count) HWY_ATTR {
      // Fewer than a vector are left: the last vector of the row, which overlaps what is done.
      size_t start = count < lanes ? width - lanes : c + at;
      if (count > 0) ExtremesDown<1>(di, from + start, width, tokens, low + start, high + start);
    });
  }
  const hn::ScalableTag<float> df;
  for (size_t c = 0; c < width; c += hn::Lanes(df)) {
    hn::Store(LoadAsFloat(df, in, low_bits.data() + c), df, lowest + c);
    hn::Store(LoadAsFloat(df, in, high_bits.data() + c), df, highest + c);
  }
}

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

template <class Meta>
void WriteMetaRow(Meta meta, const float* values, uint32_t width, uint8_t* to) {
  const hn::ScalableTag<float> df;
  auto* lanes = reinterpret_cast<typename Meta::Lane*>(to);
  ForVectors(width, hn::Lanes(df), [&](size_t at, size_t count) HWY_ATTR {
    const auto value = hn::LoadU(df, values + at);
    if (HWY_LIKELY(count == hn::Lanes(df))) return StoreFromFloat(df, meta, value, lanes + at);
    StoreFewFromFloat(df, meta, value, lanes + at, count);
  });
}

template <class Meta>
void ReadMetaRow(Meta meta, const uint8_t* from, uint32_t width, float* values) {
  const hn::ScalableTag<float> df;
  const auto* lanes = reinterpret_cast<const typename Meta::Lane*>(from);
  ForVectors(width, hn::Lanes(df), [&](size_t at, size_t count) HWY_ATTR {
    const bool whole = count == hn::Lanes(df);
    hn::StoreU(HWY_LIKELY(whole) ? LoadAsFloat(df, meta, lanes + at) : LoadFewAsFloat(df, meta, lanes + at, count), df,
               values + at);
  });
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
