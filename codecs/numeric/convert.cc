#include "codecs/numeric/convert.h"

#include <cmath>
#include <limits>

#include "codecs/numeric/float_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codecs/numeric/convert.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR
#include "codecs/numeric/vector_formats-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void ConvertTarget(const uint8_t* from, DType in, uint64_t count, DType out, uint8_t* target) {
  ConvertValuesReference(from, in, count, out, target);
}

#else

template <class In, class Out>
void ConvertAs(In in, Out out, const uint8_t* from, size_t count, float largest, uint8_t* target) {
  const hn::ScalableTag<float> df;
  const auto infinity = hn::Set(df, std::numeric_limits<float>::infinity());
  const auto quiet = hn::Set(df, std::numeric_limits<float>::quiet_NaN());
  const auto limit = hn::Set(df, largest);
  const auto* source = reinterpret_cast<const typename In::Lane*>(from);
  auto* to = reinterpret_cast<typename Out::Lane*>(target);
  ForVectors(count, hn::Lanes(df), [&](size_t at, size_t lanes) HWY_ATTR {
    const bool whole = lanes == hn::Lanes(df);
    const auto value =
        HWY_LIKELY(whole) ? LoadAsFloat(df, in, source + at) : LoadFewAsFloat(df, in, source + at, lanes);
    const auto magnitude = hn::Abs(value);
    auto kept = hn::IfThenElse(hn::And(hn::Gt(magnitude, limit), hn::Lt(magnitude, infinity)), limit, magnitude);
    kept = hn::CopySign(hn::IfThenElse(hn::Le(magnitude, infinity), kept, quiet), value);
    if (HWY_LIKELY(whole)) return StoreFromFloat(df, out, kept, to + at);
    StoreFewFromFloat(df, out, kept, to + at, lanes);
  });
}

void ConvertTarget(const uint8_t* from, DType in, uint64_t count, DType out, uint8_t* target) {
  WithFloatType(in, [&](auto in_type) HWY_ATTR {
    WithFloatType(out,
                  [&](auto out_type) HWY_ATTR { ConvertAs(in_type, out_type, from, count, OutputLimit(out), target); });
  });
}

#endif
}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace firn {

HWY_EXPORT(ConvertTarget);

void ConvertValues(const uint8_t* from, DType in, uint64_t count, DType out, uint8_t* target) {
  HWY_DYNAMIC_DISPATCH(ConvertTarget)(from, in, count, out, target);
}

void ConvertValuesReference(const uint8_t* from, DType in, uint64_t count, DType out, uint8_t* target) {
  float limit = OutputLimit(out);
  for (uint64_t i = 0; i < count; ++i) {
    float value = LoadFloat(from, in, i);
    value = std::isnan(value) ? std::copysign(std::numeric_limits<float>::quiet_NaN(), value)
                              : SaturateFinite(value, limit);
    StoreFloats(&value, 1, out, target + i * DTypeBytes(out));
  }
}

}  // namespace firn
#endif
