#include <algorithm>
#include <limits>

#include "codecs/fp8/fp8_codec.h"
#include "codecs/numeric/float_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codecs/fp8/fp8_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR
#include "codecs/numeric/magnitude-inl.h"
#include "codecs/numeric/vector_formats-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void EncodeFp8Target(const EncodeTile& tile) { fp8::EncodeReference(tile); }
void DecodeFp8Target(const DecodeTile& tile) { fp8::DecodeReference(tile); }
void DecodeCodesTarget(const uint8_t* codes, uint64_t count, bool e5m2, float scale, DType out, uint8_t* target) {
  fp8::DecodeCodesReference(codes, count, e5m2, scale, out, target);
}
Survey SurveyFp8Target(const EncodeTile& tile) {
  Survey survey;
  for (uint64_t i = 0; i < uint64_t{tile.heads} * tile.tokens * tile.width; ++i) {
    survey.non_finite |= !std::isfinite(LoadFloat(tile.source, tile.in, i));
  }
  return survey;
}

#else

// What differs between the two formats; see FloatToE4m3 and FloatToE5m2 for the arithmetic.
struct E4m3 {
  static constexpr int kShift = 20;
  static constexpr int32_t kLargest = 0x43E00000, kMinNormal = 0x3C800000, kRounding = 0x7FFFF, kBias = 120 << 23;
  static constexpr float kAlign = 0x1p14f, kMax = kE4m3Max;
};
struct E5m2 {
  static constexpr int kShift = 21;
  static constexpr int32_t kLargest = 0x47600000, kMinNormal = 0x38800000, kRounding = 0xFFFFF, kBias = 112 << 23;
  static constexpr float kAlign = 0x1p7f, kMax = kE5m2Max;
};

// Without kSpecial, values are finite and no larger than what rounds to the format's largest.
template <bool kSpecial, class Format, class DF>
HWY_INLINE hn::Vec<hn::Rebind<uint8_t, DF> > ToFp8(DF df, Format, hn::Vec<DF> value) {
  const hn::RebindToSigned<DF> di;
  const hn::RebindToUnsigned<DF> du;
  const auto bits = hn::BitCast(di, value);
  const auto magnitude = hn::And(bits, hn::Set(di, 0x7FFFFFFF));
  auto clamped = magnitude;
  if constexpr (kSpecial) clamped = hn::Min(magnitude, hn::Set(di, Format::kLargest));
  const auto odd = hn::And(hn::ShiftRight<Format::kShift>(clamped), hn::Set(di, 1));
  const auto rounded = hn::Add(hn::Add(clamped, hn::Set(di, Format::kRounding - Format::kBias)), odd);
  const auto normal = hn::ShiftRight<Format::kShift>(rounded);
  const auto align = hn::Set(df, Format::kAlign);
  const auto small = hn::Sub(hn::BitCast(di, hn::Add(hn::BitCast(df, clamped), align)), hn::BitCast(di, align));
  auto code = hn::IfThenElse(hn::Lt(clamped, hn::Set(di, Format::kMinNormal)), small, normal);
  if constexpr (kSpecial) code = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, 0x7F800000)), hn::Set(di, 0x7F), code);
  const auto sign = hn::And(hn::ShiftRight<24>(bits), hn::Set(di, 0x80));
  return hn::TruncateTo(hn::Rebind<uint8_t, DF>(), hn::BitCast(du, hn::Or(code, sign)));
}

template <bool kSpecial, class In, class Format>
void EncodeValues(In in, Format format, const typename In::Lane* HWY_RESTRICT from, size_t count, float inverse,
                  uint8_t* HWY_RESTRICT codes) {
  const hn::ScalableTag<float> df;
  const hn::Rebind<uint8_t, decltype(df)> d8;
  const auto factor = hn::Set(df, inverse);
  const size_t ahead = count * sizeof(*from);
  ForVectors(count, hn::Lanes(df), [&](size_t at, size_t lanes) HWY_ATTR {
    PrefetchAhead(from + at, ahead);  // What the next scale is for: memory works while codes are computed.
    if (HWY_LIKELY(lanes == hn::Lanes(df))) {
      const auto value = hn::Mul(LoadAsFloat(df, in, from + at), factor);
      return hn::StoreU(ToFp8<kSpecial>(df, format, value), d8, codes + at);
    }
    alignas(64) uint8_t few[hn::MaxLanes(d8)];
    hn::StoreU(ToFp8<kSpecial>(df, format, hn::Mul(LoadFewAsFloat(df, in, from + at, lanes), factor)), d8, few);
    std::memcpy(codes + at, few, lanes);
  });
}

template <class In, class Format>
void EncodeFp8As(In in, Format format, const EncodeTile& tile, bool e5m2) {
  const bool calibrated = fp8::IsCalibrated(*tile.coding);
  const auto* source = reinterpret_cast<const typename In::Lane*>(tile.source);
  uint8_t *codes = tile.run(RunKind::kWhole), *meta = tile.run(RunKind::kMeta);
  fp8::ForEachScale(tile, [&](uint64_t first, uint64_t count) HWY_ATTR {
    const auto* from = source + first;
    const float magnitude_max = MagnitudeMax(in, from, count);
    const bool finite = magnitude_max < std::numeric_limits<float>::infinity();
    if (tile.survey != nullptr) tile.survey->non_finite |= !finite;
    const float scale = calibrated ? tile.model.scale : fp8::ScaleFor(magnitude_max, e5m2), inverse = 1.0f / scale;
    if (!calibrated) {
      StoreLe<float>(meta, scale);
      meta += sizeof(float);
    }
    // A scale of the values' own leaves none to saturate.
    const bool fits = finite && (!calibrated || magnitude_max * inverse <= Format::kMax);
    if (HWY_LIKELY(fits)) return EncodeValues<false>(in, format, from, count, inverse, codes + first);
    EncodeValues<true>(in, format, from, count, inverse, codes + first);
  });
}

void EncodeFp8Target(const EncodeTile& tile) {
  const bool e5m2 = fp8::IsE5m2(*tile.coding);
  WithFloatType(tile.in, [&](auto in) HWY_ATTR {
    if (e5m2) return EncodeFp8As(in, E5m2(), tile, true);
    EncodeFp8As(in, E4m3(), tile, false);
  });
}

// E5M2 is the upper half of FP16. E4M3 moved into FP16's fields is 2^-8 of its value, apart from NaN.
template <bool kSpecial, class DF>
HWY_INLINE hn::Vec<DF> FromFp8(DF df, E5m2, hn::Vec<hn::Rebind<uint8_t, DF> > codes) {
  return FromHalfBits(df, hn::ShiftLeft<8>(hn::PromoteTo(U16For<DF>(), codes)));
}
template <bool kSpecial, class DF>
HWY_INLINE hn::Vec<DF> FromFp8(DF df, E4m3, hn::Vec<hn::Rebind<uint8_t, DF> > codes) {
  const U16For<DF> du;
  const hn::RebindToSigned<decltype(du)> di;
  const auto extended = hn::PromoteTo(di, hn::BitCast(hn::Rebind<int8_t, DF>(), codes));
  auto half = hn::And(hn::BitCast(du, hn::ShiftLeft<7>(extended)), hn::Set(du, uint16_t{0xBF80}));
  if constexpr (kSpecial) {
    const auto nan = hn::Eq(hn::And(half, hn::Set(du, uint16_t{0x3F80})), hn::Set(du, uint16_t{0x3F80}));
    half = hn::IfThenElse(nan, hn::Or(half, hn::Set(du, uint16_t{0x7E00})), half);
    half = hn::IfThenElse(nan, hn::And(half, hn::Set(du, uint16_t{0xFE00})), half);
  }
  return FromHalfBits(df, half);
}

// The factor by which FromFp8 of a format is too small.
HWY_INLINE float Shrinkage(E4m3) { return 256.0f; }
HWY_INLINE float Shrinkage(E5m2) { return 1.0f; }

// Without kSpecial there is no NaN among the codes, and no product passes the output's largest value.
template <bool kSpecial, class Out, class Format>
void DecodeValues(Out out, Format format, const uint8_t* HWY_RESTRICT codes, size_t count, float scale, float largest,
                  typename Out::Lane* HWY_RESTRICT to) {
  const hn::ScalableTag<float> df;
  const hn::Rebind<uint8_t, decltype(df)> d8;
  const auto limit = hn::Set(df, largest), infinity = hn::Set(df, std::numeric_limits<float>::infinity());
  // One multiplication where both factors together are exact.
  const auto whole_factor = hn::Set(df, Shrinkage(format) * scale), factor = hn::Set(df, scale);
  const auto shrinkage = hn::Set(df, Shrinkage(format));
  auto value_of = [&](hn::Vec<decltype(d8)> code) HWY_ATTR {
    const auto value = FromFp8<kSpecial>(df, format, code);
    if constexpr (!kSpecial) return hn::Mul(value, whole_factor);
    const auto scaled = hn::Mul(hn::Mul(value, shrinkage), factor);
    const auto magnitude = hn::Abs(scaled);
    const auto beyond = hn::And(hn::Gt(magnitude, limit), hn::Lt(magnitude, infinity));
    return hn::IfThenElse(beyond, hn::CopySign(limit, scaled), scaled);
  };
  ForVectors(count, hn::Lanes(df), [&](size_t at, size_t lanes) HWY_ATTR {
    if (HWY_LIKELY(lanes == hn::Lanes(df)))
      return StoreFromFloat(df, out, value_of(hn::LoadU(d8, codes + at)), to + at);
    alignas(64) uint8_t few[hn::MaxLanes(d8)] = {};
    std::memcpy(few, codes + at, lanes);
    StoreFewFromFloat(df, out, value_of(hn::LoadU(d8, few)), to + at, lanes);
  });
}

HWY_INLINE bool HasE4m3Nan(const uint8_t* codes, size_t count) {
  const hn::ScalableTag<uint8_t> d8;
  if (count < hn::Lanes(d8)) {
    return std::any_of(codes, codes + count, [](uint8_t code) { return (code & 0x7F) == 0x7F; });
  }
  auto most = hn::Zero(d8);
  ForVectors(count, hn::Lanes(d8), [&](size_t at, size_t) HWY_ATTR {
    most = hn::Max(most, hn::And(hn::LoadU(d8, codes + at), hn::Set(d8, uint8_t{0x7F})));
  });
  return !hn::AllFalse(d8, hn::Eq(most, hn::Set(d8, uint8_t{0x7F})));
}

template <class Out, class Format>
void DecodeCodesAs(Out out, Format format, const uint8_t* codes, size_t count, float scale, float largest,
                   uint8_t* target) {
  auto* to = reinterpret_cast<typename Out::Lane*>(target);
  // E5M2's own Inf and NaN need no care: they stay what they are.
  const bool nan = std::is_same_v<Format, E4m3> && HasE4m3Nan(codes, count);
  const bool exact_factor = scale < 0x1p100f && scale > 0x1p-100f;
  if (HWY_LIKELY(!nan && exact_factor && Format::kMax * scale <= largest)) {
    return DecodeValues<false>(out, format, codes, count, scale, largest, to);
  }
  DecodeValues<true>(out, format, codes, count, scale, largest, to);
}

void DecodeCodesTarget(const uint8_t* codes, uint64_t count, bool e5m2, float scale, DType out, uint8_t* target) {
  WithFloatType(out, [&](auto type) HWY_ATTR {
    if (e5m2) return DecodeCodesAs(type, E5m2(), codes, count, scale, OutputLimit(out), target);
    DecodeCodesAs(type, E4m3(), codes, count, scale, OutputLimit(out), target);
  });
}

void DecodeFp8Target(const DecodeTile& tile) {
  const bool e5m2 = fp8::IsE5m2(*tile.coding), calibrated = fp8::IsCalibrated(*tile.coding);
  const float largest = OutputLimit(tile.out);
  const uint8_t *codes = tile.run(RunKind::kWhole), *meta = tile.run(RunKind::kMeta);
  WithFloatType(tile.out, [&](auto type) HWY_ATTR {
    fp8::ForEachScale(tile, [&](uint64_t first, uint64_t count) HWY_ATTR {
      const float scale = calibrated ? tile.model.scale : LoadLe<float>(meta);
      if (!calibrated) meta += sizeof(float);
      uint8_t* target = tile.target + first * DTypeBytes(tile.out);
      if (e5m2) return DecodeCodesAs(type, E5m2(), codes + first, count, scale, largest, target);
      DecodeCodesAs(type, E4m3(), codes + first, count, scale, largest, target);
    });
  });
}

Survey SurveyFp8Target(const EncodeTile& tile) {
  Survey survey;
  WithFloatType(tile.in, [&](auto in) HWY_ATTR {
    using Lane = typename decltype(in)::Lane;
    const auto* from = reinterpret_cast<const Lane*>(tile.source);
    const float magnitude_max = MagnitudeMax(in, from, size_t{tile.heads} * tile.tokens * tile.width);
    survey.non_finite = !(magnitude_max < std::numeric_limits<float>::infinity());
  });
  return survey;
}

#endif
}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace firn {
HWY_EXPORT(EncodeFp8Target);
HWY_EXPORT(DecodeFp8Target);
HWY_EXPORT(DecodeCodesTarget);
HWY_EXPORT(SurveyFp8Target);
namespace fp8 {
void Encode(const EncodeTile& tile) { HWY_DYNAMIC_DISPATCH(EncodeFp8Target)(tile); }
void DecodeCodes(const uint8_t* codes, uint64_t count, bool e5m2, float scale, DType out, uint8_t* target) {
  HWY_DYNAMIC_DISPATCH(DecodeCodesTarget)(codes, count, e5m2, scale, out, target);
}
void Decode(const DecodeTile& tile) { HWY_DYNAMIC_DISPATCH(DecodeFp8Target)(tile); }
Survey SurveyValues(const EncodeTile& tile) { return HWY_DYNAMIC_DISPATCH(SurveyFp8Target)(tile); }
}  // namespace fp8
}  // namespace firn
#endif
