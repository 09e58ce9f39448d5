// Conversions between FP32 vectors and stored types, on every Highway target equal to codecs/numeric/float_formats.h.
//
// A per-target header: include it after hwy/foreach_target.h. Highway's own conversions are used only where the
// instruction set has them; its emulations round differently.

#if defined(FIRN_CODECS_VECTOR_FORMATS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FIRN_CODECS_VECTOR_FORMATS_INL_H_
#undef FIRN_CODECS_VECTOR_FORMATS_INL_H_
#else
#define FIRN_CODECS_VECTOR_FORMATS_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "codecs/numeric/float_formats.h"
#include "codecs/types.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#undef FIRN_HAS_HALF_CONVERSIONS
#if HWY_TARGET <= HWY_AVX2
#define FIRN_HAS_HALF_CONVERSIONS 1
#else
#define FIRN_HAS_HALF_CONVERSIONS 0
#endif

// Stored types as template arguments; Lane is how they lie in memory.
struct Half {
  using Lane = uint16_t;
};
struct Bfloat {
  using Lane = uint16_t;
};
struct Float {
  using Lane = float;
};

template <class DF>
using U16For = hn::Rebind<uint16_t, DF>;

// Bits of halves in FP32's lanes to FP32.
template <class DF>
HWY_INLINE hn::Vec<DF> FromHalfBits(DF df, hn::Vec<U16For<DF>> bits) {
#if FIRN_HAS_HALF_CONVERSIONS
  return hn::PromoteTo(df, hn::BitCast(hn::Rebind<hwy::float16_t, DF>(), bits));
#else
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  const auto wide = hn::PromoteTo(du, bits);
  const auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(du, 0x8000u)));
  const auto magnitude = hn::And(wide, hn::Set(du, 0x7FFFu));
  const auto signed_magnitude = hn::BitCast(di, magnitude);
  const auto shifted = hn::ShiftLeft<13>(magnitude);
  const auto normal = hn::Add(shifted, hn::Set(du, 112u << 23));
  const auto special = hn::Add(shifted, hn::Set(du, 224u << 23));
  const auto small = hn::BitCast(du, hn::Mul(hn::ConvertTo(df, signed_magnitude), hn::Set(df, 0x1p-24f)));
  const auto is_small = hn::RebindMask(du, hn::Lt(signed_magnitude, hn::Set(di, 0x400)));
  const auto is_special = hn::RebindMask(du, hn::Gt(signed_magnitude, hn::Set(di, 0x7BFF)));
  const auto value = hn::IfThenElse(is_special, special, hn::IfThenElse(is_small, small, normal));
  return hn::BitCast(df, hn::Or(value, sign));
#endif
}

// FP32 to the bits of halves, ties to even; overflow gives Inf.
template <class DF>
HWY_INLINE hn::Vec<U16For<DF>> ToHalfBits(DF df, hn::Vec<DF> value) {
  const U16For<DF> du16;
#if FIRN_HAS_HALF_CONVERSIONS
  (void)df;
  return hn::BitCast(du16, hn::DemoteTo(hn::Rebind<hwy::float16_t, DF>(), value));
#else
  const hn::RebindToSigned<DF> di;
  const auto bits = hn::BitCast(di, value);
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(di, 0x8000));
  const auto magnitude = hn::And(bits, hn::Set(di, 0x7FFFFFFF));
  const auto small =
      hn::Sub(hn::BitCast(di, hn::Add(hn::BitCast(df, magnitude), hn::Set(df, 0.5f))), hn::Set(di, 0x3F000000));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(di, 1));
  const auto rounded = hn::Add(hn::Add(magnitude, hn::Set(di, 0xFFF)), odd);
  const auto normal = hn::ShiftRight<13>(hn::Sub(rounded, hn::Set(di, 112 << 23)));
  const auto is_small = hn::Lt(magnitude, hn::Set(di, 0x38800000));
  const auto is_infinite = hn::Gt(magnitude, hn::Set(di, 0x477FFFFF));
  const auto is_nan = hn::Gt(magnitude, hn::Set(di, 0x7F800000));
  auto half = hn::IfThenElse(is_small, small, normal);
  half = hn::IfThenElse(is_infinite, hn::Set(di, 0x7C00), half);
  const auto payload = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(di, 0x1FF));
  half = hn::IfThenElse(is_nan, hn::Or(payload, hn::Set(di, 0x7E00)), half);
  return hn::DemoteTo(du16, hn::Or(half, sign));
#endif
}

template <class DF>
HWY_INLINE hn::Vec<DF> FromBfloatBits(DF df, hn::Vec<U16For<DF>> bits) {
  return hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<DF>(), bits)));
}

// `value` is no NaN, or a quiet one with no bits below the upper half.
template <class DF>
HWY_INLINE hn::Vec<U16For<DF>> ToBfloatBits(DF, hn::Vec<DF> value) {
  const hn::RebindToUnsigned<DF> du;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7FFFu)), odd));
  return hn::DemoteTo(U16For<DF>(), hn::BitCast(hn::RebindToSigned<DF>(), rounded));
}

template <class DF>
HWY_INLINE hn::Vec<DF> LoadAsFloat(DF df, Half, const uint16_t* from) {
  return FromHalfBits(df, hn::LoadU(U16For<DF>(), from));
}
template <class DF>
HWY_INLINE hn::Vec<DF> LoadAsFloat(DF df, Bfloat, const uint16_t* from) {
  return FromBfloatBits(df, hn::LoadU(U16For<DF>(), from));
}
template <class DF>
HWY_INLINE hn::Vec<DF> LoadAsFloat(DF df, Float, const float* from) {
  return hn::LoadU(df, from);
}

template <class DF>
HWY_INLINE void StoreFromFloat(DF df, Half, hn::Vec<DF> value, uint16_t* to) {
  hn::StoreU(ToHalfBits(df, value), U16For<DF>(), to);
}
template <class DF>
HWY_INLINE void StoreFromFloat(DF df, Bfloat, hn::Vec<DF> value, uint16_t* to) {
  hn::StoreU(ToBfloatBits(df, value), U16For<DF>(), to);
}
template <class DF>
HWY_INLINE void StoreFromFloat(DF df, Float, hn::Vec<DF> value, float* to) {
  hn::StoreU(value, df, to);
}

// The first `count` values, fewer than a vector holds; the other lanes are zero.
template <class DF, class Type>
HWY_INLINE hn::Vec<DF> LoadFewAsFloat(DF df, Type type, const typename Type::Lane* from, size_t count) {
  alignas(64) typename Type::Lane few[hn::MaxLanes(DF())] = {};
  std::memcpy(few, from, count * sizeof(few[0]));
  return LoadAsFloat(df, type, few);
}
template <class DF, class Type>
HWY_INLINE void StoreFewFromFloat(DF df, Type type, hn::Vec<DF> value, typename Type::Lane* to, size_t count) {
  alignas(64) typename Type::Lane few[hn::MaxLanes(DF())];
  StoreFromFloat(df, type, value, few);
  std::memcpy(to, few, count * sizeof(few[0]));
}

// Calls `body(Half())` and so on for the type's tag.
template <class Body>
HWY_INLINE void WithMetaType(MetaType type, const Body& body) {
  if (type == MetaType::kFp16) return body(Half());
  if (type == MetaType::kBf16) return body(Bfloat());
  FIRN_CHECK(type == MetaType::kFp32);
  body(Float());
}
template <class Body>
HWY_INLINE void WithFloatType(DType type, const Body& body) {
  if (type == DType::kFp16) return body(Half());
  if (type == DType::kBf16) return body(Bfloat());
  FIRN_CHECK(type == DType::kFp32);
  body(Float());
}

// How far ahead sources are asked for: some rows, less than a first-level cache.
constexpr uintptr_t kPrefetchBytes = 2048;

// Asks for the cache line `bytes` behind `from`, which need not exist. The processor's own prefetching stops at page
// ends.
HWY_INLINE void PrefetchAhead(const void* from, uintptr_t bytes) {
  hwy::Prefetch(reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(from) + bytes));
}

// Calls `body(at, count)` so that vectors of `lanes` cover [0, width): the last one overlaps its neighbour, and only
// where the width is below a vector is `count` less than `lanes`. The body must not mind seeing a value twice.
template <class Body>
HWY_INLINE void ForVectors(size_t width, size_t lanes, const Body& body) {
  if (width < lanes) return body(size_t{0}, width);
  size_t at = 0;
  for (; at + lanes <= width; at += lanes) body(at, lanes);
  if (at < width) body(width - lanes, lanes);
}

}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#endif
