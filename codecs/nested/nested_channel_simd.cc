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

// Integers that order the bit patterns of floats, -0 just before +0; the mapping is its own inverse.
template <class DI>
HWY_INLINE hn::Vec<DI> OrderOf(DI di, hn::Vec<DI> bits) {
  using T = hn::TFromD<DI>;
  constexpr int kTopBit = sizeof(T) * 8 - 1;
  return hn::Xor(bits, hn::And(hn::ShiftRight<kTopBit>(bits), hn::Set(di, hwy::LimitsMax<T>())));
}

// Finds each channel's extremes over `tokens` rows, as floats.
template <class In>
void RangesAlongTokens(In in, const typename In::Lane* rows, uint32_t width, uint32_t tokens, float* lowest,
                       float* highest) {
  using Integer = std::conditional_t<sizeof(typename In::Lane) == 2, int16_t, int32_t>;
  const hn::ScalableTag<Integer> di;
  const auto* integers = reinterpret_cast<const Integer*>(rows);
  InlineBuffer<typename In::Lane, kInlineWidth> low_bits(width), high_bits(width);
  ForVectors(width, hn::Lanes(di), [&](size_t at, size_t count) HWY_ATTR {
    const Integer* from = integers + at;
    auto load = [&](const Integer* p) HWY_ATTR {
      if (HWY_LIKELY(count == hn::Lanes(di))) return OrderOf(di, hn::LoadU(di, p));
      alignas(64) Integer few[hn::MaxLanes(di)] = {};
      std::memcpy(few, p, count * sizeof(Integer));
      return OrderOf(di, hn::Load(di, few));
    };
    auto low = load(from), high = low;
    for (uint32_t t = 1; t < tokens; ++t) {
      from += width;
      const auto order = load(from);
      low = hn::Min(low, order);
      high = hn::Max(high, order);
    }
    hn::StoreU(OrderOf(di, low), di, reinterpret_cast<Integer*>(low_bits.data()) + at);
    hn::StoreU(OrderOf(di, high), di, reinterpret_cast<Integer*>(high_bits.data()) + at);
  });
  const hn::ScalableTag<float> df;
  for (size_t c = 0; c < width; c += hn::Lanes(df)) {
    hn::Store(LoadAsFloat(df, in, low_bits.data() + c), df, lowest + c);
    hn::Store(LoadAsFloat(df, in, high_bits.data() + c), df, highest + c);
  }
}

template <class In>
HWY_INLINE void QuantizeRow(In in, const typename In::Lane* row, uint32_t width, const float* minimum,
                            const float* inverse, uint8_t* codes) {
  const hn::ScalableTag<float> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Rebind<uint8_t, decltype(df)> d8;
  const auto steps = hn::Set(df, nested::kSteps);
  const auto offset = hn::Set(di, static_cast<int32_t>(nested::kCodeOffset));
  ForVectors(width, hn::Lanes(df), [&](size_t at, size_t count) HWY_ATTR {
    const auto x =
        HWY_LIKELY(count == hn::Lanes(df)) ? LoadAsFloat(df, in, row + at) : LoadFewAsFloat(df, in, row + at, count);
    const auto position = hn::Mul(hn::Sub(x, hn::LoadU(df, minimum + at)), hn::LoadU(df, inverse + at));
    const auto level = hn::NearestInt(hn::Min(position, steps));
    hn::StoreU(hn::DemoteTo(d8, hn::Add(level, offset)), d8, codes + at);
  });
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
  InlineBuffer<uint8_t, kInlineWidth> codes(width);
  PlaneRows<uint8_t> planes{tile.run(RunKind::kP2), tile.run(RunKind::kP4), tile.run(RunKind::kP8)};
  uint8_t* meta_out = tile.run(RunKind::kMeta);
  for (uint32_t first = 0; first < tile.tokens; first += coding.group) {
    const uint32_t count = std::min<uint32_t>(coding.group, tile.tokens - first);
    RangesAlongTokens(in, rows, width, count, minimum.data(), step.data());
    WithMetaType(coding.meta_type, [&](auto meta) HWY_ATTR {
      ScalesOf(meta, coding.meta_type, width, minimum.data(), step.data(), inverse.data());
      WriteMetaRow(meta, minimum.data(), width, meta_out);
      WriteMetaRow(meta, step.data(), width, meta_out + meta_bytes);
    });
    meta_out += 2 * meta_bytes;
    for (uint32_t t = 0; t < count; ++t, rows += width) {
      QuantizeRow(in, rows, width, minimum.data(), inverse.data(), codes.data());
      PackRow(codes.data(), width, planes);
      planes.Next(width);
    }
  }
}

template <class Out>
void DecodeChannelTo(Out out, const DecodeTile& tile) {
  const PartCoding& coding = *tile.coding;
  const uint32_t width = tile.width;
  const size_t meta_bytes = size_t{width} * nested::MetaValueBytes(coding.meta_type);
  const hn::ScalableTag<float> df;
  const hn::RebindToSigned<decltype(df)> di;
  const hn::Rebind<uint8_t, decltype(df)> d8;
  const float largest = OutputLimit(tile.out);
  const auto limit = hn::Set(df, largest), lower_limit = hn::Set(df, -largest);
  FloatRow minimum(width), step(width);
  InlineBuffer<uint8_t, kInlineWidth> levels(width);
  PlaneRows<const uint8_t> planes{tile.run(RunKind::kP2), tile.run(RunKind::kP4), tile.run(RunKind::kP8)};
  auto* target = reinterpret_cast<typename Out::Lane*>(tile.target);
  const uint8_t* meta_in = tile.run(RunKind::kMeta);
  for (uint32_t t = 0; t < tile.tokens; ++t, target += width) {
    if (t % coding.group == 0) {
      WithMetaType(coding.meta_type, [&](auto meta) HWY_ATTR {
        ReadMetaRow(meta, meta_in, width, minimum.data());
        ReadMetaRow(meta, meta_in + meta_bytes, width, step.data());
      });
      meta_in += 2 * meta_bytes;
    }
    UnpackRow(planes, width, tile.precision, levels.data());
    planes.Next(width);
    ForVectors(width, hn::Lanes(df), [&](size_t at, size_t count) HWY_ATTR {
      const auto level = hn::ConvertTo(df, hn::PromoteTo(di, hn::LoadU(d8, levels.data() + at)));
      auto value = hn::Add(hn::LoadU(df, minimum.data() + at), hn::Mul(hn::LoadU(df, step.data() + at), level));
      value = hn::Min(hn::Max(value, lower_limit), limit);
      if (HWY_LIKELY(count == hn::Lanes(df))) return StoreFromFloat(df, out, value, target + at);
      StoreFewFromFloat(df, out, value, target + at, count);
    });
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
