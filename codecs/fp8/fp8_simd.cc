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
void DecodeCodesTarget(const uint8_t* codes, uint64_t count, bool e5m2, float scale, DType out, uint8_t* target) {
  fp8::DecodeCodesReference(codes, count, e5m2, scale, out, target);
}
Survey SurveyFp8Target(const EncodeTile& tile) {
  Survey survey;
  for (uint64_t i = 0; i < uint64_t{tile.tokens} * tile.width; ++i) {
    survey.non_finite |= !std::isfinite(LoadFloat(tile.source, tile.in, i));
  }
  return survey;
}

#else

// What differs between the two formats; see FloatToE4m3 and FloatToE5m2 for the arithmetic.
struct E4m3 {
  static constexpr int kShift = 20;
  static constexpr int32_t kLargest = 0x43E00000, kMinNormal = 0x3C800000, kRounding = 0x7FFFF, kBias = 120 << 3;
  static constexpr float kAlign = 0x1p14f;
};
struct E5m2 {
  static constexpr int kShift = 21;
  static constexpr int32_t kLargest = 0x47600000, kMinNormal = 0x38800000, kRounding = 0xFFFFF, kBias = 112 << 2;
  static constexpr float kAlign = 0x1p7f;
};

template <class Format, class DF>
HWY_INLINE hn::Vec<hn::Rebind<uint8_t, DF> > ToFp8(DF df, Format, hn::Vec<DF> value) {
  const hn::RebindToSigned<DF> di;
  const hn::RebindToUnsigned<DF> du;
  const auto bits = hn::BitCast(di, value);
  const auto sign = hn::BitCast(di, hn::ShiftLeft<7>(hn::ShiftRight<31>(hn::BitCast(du, bits))));
  const auto magnitude = hn::And(bits, hn::Set(di, 0x7FFFFFFF));
  const auto clamped = hn::Min(magnitude, hn::Set(di, Format::kLargest));
  const auto odd = hn::And(hn::ShiftRight<Format::kShift>(clamped), hn::Set(di, 1));
  const auto rounded = hn::Add(hn::Add(clamped, hn::Set(di, Format::kRounding)), odd);
  const auto normal = hn::Sub(hn::ShiftRight<Format::kShift>(rounded), hn::Set(di, Format::kBias));
  const auto align = hn::Set(df, Format::kAlign);
  const auto small = hn::Sub(hn::BitCast(di, hn::Add(hn::BitCast(df, clamped), align)), hn::BitCast(di, align));
  auto code = hn::IfThenElse(hn::Lt(clamped, hn::Set(di, Format::kMinNormal)), small, normal);
  code = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, 0x7F800000)), hn::Set(di, 0x7F), code);
  return hn::DemoteTo(hn::Rebind<uint8_t, DF>(), hn::Or(code, sign));
}

template <class In, class Format>
void EncodeFp8As(In in, Format format, const EncodeTile& tile, bool e5m2) {
  const hn::ScalableTag<float> df;
  const hn::Rebind<uint8_t, decltype(df)> d8;
  const size_t count = size_t{tile.tokens} * tile.width;
  const auto* from = reinterpret_cast<const typename In::Lane*>(tile.source);
  const float scale = fp8::ScaleFor(MagnitudeMax(in, from, count), e5m2);
  StoreLe<float>(tile.run(RunKind::kMeta), scale);
  uint8_t* codes = tile.run(RunKind::kWhole);
  const auto inverse = hn::Set(df, 1.0f / scale);
  ForVectors(count, hn::Lanes(df), [&](size_t at, size_t lanes) HWY_ATTR {
    if (HWY_LIKELY(lanes == hn::Lanes(df))) {
      return hn::StoreU(ToFp8(df, format, hn::Mul(LoadAsFloat(df, in, from + at), inverse)), d8, codes + at);
    }
    alignas(64) uint8_t few[hn::MaxLanes(d8)];
    hn::StoreU(ToFp8(df, format, hn::Mul(LoadFewAsFloat(df, in, from + at, lanes), inverse)), d8, few);
    std::memcpy(codes + at, few, lanes);
  });
}

void EncodeFp8Target(const EncodeTile& tile) {
  const bool e5m2 = tile.coding->codec == CodecId::kFp8E5m2;
  WithFloatType(tile.in, [&](auto in) HWY_ATTR {
    if (e5m2) return EncodeFp8As(in, E5m2(), tile, true);
    EncodeFp8As(in, E4m3(), tile, false);
  });
}

// E5M2 is the upper half of FP16. E4M3 moved into FP16's fields is 2^-8 of its value, apart from NaN.
template <class DF>
HWY_INLINE hn::Vec<DF> FromFp8(DF df, E5m2, hn::Vec<U16For<DF> > codes) {
  return FromHalfBits(df, hn::ShiftLeft<8>(codes));
}
template <class DF>
HWY_INLINE hn::Vec<DF> FromFp8(DF df, E4m3, hn::Vec<U16For<DF> > codes) {
  const U16For<DF> du;
  const auto sign = hn::ShiftLeft<8>(hn::And(codes, hn::Set(du, uint16_t{0x80})));
  const auto magnitude = hn::And(codes, hn::Set(du, uint16_t{0x7F}));
  const auto nan = hn::Eq(magnitude, hn::Set(du, uint16_t{0x7F}));
  const auto half = hn::IfThenElse(nan, hn::Set(du, uint16_t{0x7E00}), hn::ShiftLeft<7>(magnitude));
  return hn::Mul(FromHalfBits(df, hn::Or(half, sign)), hn::Set(df, 256.0f));
}

template <class Out, class Format>
void DecodeCodesAs(Out out, Format format, const uint8_t* codes, size_t count, float scale, float largest,
                   uint8_t* target) {
  const hn::ScalableTag<float> df;
  const hn::Rebind<uint8_t, decltype(df)> d8;
  const U16For<decltype(df)> d16;
  const auto factor = hn::Set(df, scale), limit = hn::Set(df, largest);
  const auto infinity = hn::Set(df, std::numeric_limits<float>::infinity());
  auto* to = reinterpret_cast<typename Out::Lane*>(target);
  auto value_of = [&](hn::Vec<decltype(d8)> code) HWY_ATTR {
    const auto value = hn::Mul(FromFp8(df, format, hn::PromoteTo(d16, code)), factor);
    const auto magnitude = hn::Abs(value);
    const auto beyond = hn::And(hn::Gt(magnitude, limit), hn::Lt(magnitude, infinity));
    return hn::IfThenElse(beyond, hn::CopySign(limit, value), value);
  };
  ForVectors(count, hn::Lanes(df), [&](size_t at, size_t lanes) HWY_ATTR {
    if (HWY_LIKELY(lanes == hn::Lanes(df)))
      return StoreFromFloat(df, out, value_of(hn::LoadU(d8, codes + at)), to + at);
    alignas(64) uint8_t few[hn::MaxLanes(d8)] = {};
    std::memcpy(few, codes + at, lanes);
    StoreFewFromFloat(df, out, value_of(hn::LoadU(d8, few)), to + at, lanes);
  });
}

void DecodeCodesTarget(const uint8_t* codes, uint64_t count, bool e5m2, float scale, DType out, uint8_t* target) {
  WithFloatType(out, [&](auto type) HWY_ATTR {
    if (e5m2) return DecodeCodesAs(type, E5m2(), codes, count, scale, OutputLimit(out), target);
    DecodeCodesAs(type, E4m3(), codes, count, scale, OutputLimit(out), target);
  });
}

Survey SurveyFp8Target(const EncodeTile& tile) {
  Survey survey;
  WithFloatType(tile.in, [&](auto in) HWY_ATTR {
    using Lane = typename decltype(in)::Lane;
    const auto* from = reinterpret_cast<const Lane*>(tile.source);
    const float magnitude_max = MagnitudeMax(in, from, size_t{tile.tokens} * tile.width);
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
HWY_EXPORT(DecodeCodesTarget);
HWY_EXPORT(SurveyFp8Target);
namespace fp8 {
void Encode(const EncodeTile& tile) { HWY_DYNAMIC_DISPATCH(EncodeFp8Target)(tile); }
void DecodeCodes(const uint8_t* codes, uint64_t count, bool e5m2, float scale, DType out, uint8_t* target) {
  HWY_DYNAMIC_DISPATCH(DecodeCodesTarget)(codes, count, e5m2, scale, out, target);
}
void Decode(const DecodeTile& tile) {
  DecodeCodes(tile.run(RunKind::kWhole), uint64_t{tile.tokens} * tile.width, tile.coding->codec == CodecId::kFp8E5m2,
              LoadLe<float>(tile.run(RunKind::kMeta)), tile.out, tile.target);
}
Survey SurveyValues(const EncodeTile& tile) { return HWY_DYNAMIC_DISPATCH(SurveyFp8Target)(tile); }
}  // namespace fp8
}  // namespace firn
#endif
