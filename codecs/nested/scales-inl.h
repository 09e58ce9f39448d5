// Minima and steps of many groups at once, on every target equal to nested::ScaleOf and nested::SurveyGroup.
//
// A per-target header: include it after hwy/foreach_target.h. All arrays may be read and written up to the next whole
// vector.

#if defined(FIRN_CODECS_NESTED_SCALES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FIRN_CODECS_NESTED_SCALES_INL_H_
#undef FIRN_CODECS_NESTED_SCALES_INL_H_
#else
#define FIRN_CODECS_NESTED_SCALES_INL_H_
#endif

#include "codecs/nested/nested_format.h"
#include "codecs/numeric/vector_formats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {

template <class DF>
using Unsigned = hn::Vec<hn::RebindToUnsigned<DF>>;

template <class DF>
HWY_INLINE Unsigned<DF> StoredBits(DF df, Half, hn::Vec<DF> value) {
  return hn::PromoteTo(hn::RebindToUnsigned<DF>(), ToHalfBits(df, value));
}
template <class DF>
HWY_INLINE Unsigned<DF> StoredBits(DF df, Bfloat, hn::Vec<DF> value) {
  return hn::PromoteTo(hn::RebindToUnsigned<DF>(), ToBfloatBits(df, value));
}
template <class DF>
HWY_INLINE hn::Vec<DF> FromStoredBits(DF df, Half, Unsigned<DF> bits) {
  return FromHalfBits(df, hn::DemoteTo(U16For<DF>(), hn::BitCast(hn::RebindToSigned<DF>(), bits)));
}
template <class DF>
HWY_INLINE hn::Vec<DF> FromStoredBits(DF df, Bfloat, Unsigned<DF> bits) {
  return hn::BitCast(df, hn::ShiftLeft<16>(bits));
}

template <class DF, class Meta>
HWY_INLINE hn::Vec<DF> StoredNearest(DF df, Meta meta, hn::Vec<DF> value) {
  return FromStoredBits(df, meta, StoredBits(df, meta, value));
}
template <class DF>
HWY_INLINE hn::Vec<DF> StoredNearest(DF, Float, hn::Vec<DF> value) {
  return value;
}

template <class DF, class Meta>
HWY_INLINE hn::Vec<DF> StoredDown(DF df, Meta meta, hn::Vec<DF> value) {
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  const auto bits = StoredBits(df, meta, value);
  const auto above = hn::RebindMask(du, hn::Gt(FromStoredBits(df, meta, bits), value));
  const auto negative = hn::RebindMask(du, hn::Gt(hn::BitCast(di, bits), hn::Set(di, 0x7FFF)));
  const auto next = hn::IfThenElse(negative, hn::Add(bits, hn::Set(du, 1u)), hn::Sub(bits, hn::Set(du, 1u)));
  return FromStoredBits(df, meta, hn::IfThenElse(above, next, bits));
}
template <class DF>
HWY_INLINE hn::Vec<DF> StoredDown(DF, Float, hn::Vec<DF> value) {
  return value;
}

template <class DF, class Meta>
HWY_INLINE hn::Vec<DF> StoredUp(DF df, Meta meta, hn::Vec<DF> value) {
  const hn::RebindToUnsigned<DF> du;
  const auto bits = StoredBits(df, meta, value);
  const auto below = hn::RebindMask(du, hn::Lt(FromStoredBits(df, meta, bits), value));
  return FromStoredBits(df, meta, hn::IfThenElse(below, hn::Add(bits, hn::Set(du, 1u)), bits));
}
template <class DF>
HWY_INLINE hn::Vec<DF> StoredUp(DF, Float, hn::Vec<DF> value) {
  return value;
}

// Codes of positions 0..240 within their groups. Adding a number whose unit is 1 rounds to the nearest integer, ties to
// even, and leaves it in the low byte. Positions need no clamp: steps are rounded so that none rounds to more than 240.
template <class DF>
HWY_INLINE void StoreCodes(DF df, hn::Vec<DF> position, uint8_t* codes) {
  const hn::RebindToUnsigned<DF> du;
  const hn::Rebind<uint8_t, DF> d8;
  constexpr float kUnitOne = 0x1.8p23f;
  const auto sum = hn::Add(position, hn::Set(df, kUnitOne + static_cast<float>(nested::kCodeOffset)));
  hn::StoreU(hn::TruncateTo(d8, hn::BitCast(du, sum)), d8, codes);
}

// Levels to FP32.
template <class DF>
HWY_INLINE hn::Vec<DF> LoadLevels(DF df, const uint8_t* levels) {
  const hn::RebindToSigned<DF> di;
  return hn::ConvertTo(df, hn::PromoteTo(di, hn::LoadU(hn::Rebind<uint8_t, DF>(), levels)));
}

// On entry the ranges of `count` groups; on return `lowest` holds minima and `highest` steps, as stored.
template <class Meta>
HWY_INLINE void ScalesOf(Meta meta, MetaType type, size_t count, float* HWY_RESTRICT lowest,
                         float* HWY_RESTRICT highest, float* HWY_RESTRICT inverse) {
  const hn::ScalableTag<float> df;
  const auto zero = hn::Zero(df);
  const auto step_min = hn::Set(df, nested::StepMin(type));
  const auto steps = hn::Set(df, nested::kSteps);
  for (size_t i = 0; i < count; i += hn::Lanes(df)) {
    const auto low = hn::Load(df, lowest + i), high = hn::Load(df, highest + i);
    const auto constant = hn::Eq(low, high);
    const auto minimum = hn::IfThenElse(constant, StoredNearest(df, meta, low), StoredDown(df, meta, low));
    auto step = hn::Max(StoredUp(df, meta, hn::Div(hn::Sub(high, minimum), steps)), step_min);
    const auto reciprocal = hn::Div(hn::Set(df, 1.0f), step);
    step = hn::IfThenElse(constant, hn::CopySign(zero, minimum), step);
    hn::Store(minimum, df, lowest + i);
    hn::Store(step, df, highest + i);
    hn::Store(hn::IfThenElse(constant, zero, reciprocal), df, inverse + i);
  }
}

// nested::SurveyGroup of `count` groups, joined, after a check that all are finite.
HWY_INLINE Survey SurveyRanges(MetaType type, size_t count, const float* lowest, const float* highest,
                               float largest = nested::kRangeMax) {
  Survey survey;
  const hn::ScalableTag<float> df;
  const auto range_max = hn::Set(df, largest);
  const auto small = hn::Set(df, nested::StepMin(type));
  const auto steps = hn::Set(df, nested::kSteps);
  const float half_max = type == MetaType::kFp16 ? kHalfMax : std::numeric_limits<float>::infinity();
  const auto limit = hn::Set(df, half_max);
  ForVectors(count, hn::Lanes(df), [&](size_t at, size_t lanes) HWY_ATTR {
    const auto in = hn::FirstN(df, lanes);
    const auto low = hn::LoadU(df, lowest + at), high = hn::LoadU(df, highest + at);
    const auto range = hn::Sub(high, low);
    const auto infinity = hn::Set(df, std::numeric_limits<float>::infinity());
    const auto finite = hn::And(hn::Lt(hn::Abs(low), infinity), hn::Lt(hn::Abs(high), infinity));
    survey.non_finite |= !hn::AllFalse(df, hn::AndNot(finite, in));
    const auto holds =
        hn::And(hn::Le(range, range_max), hn::And(hn::Le(hn::Abs(low), range_max), hn::Le(hn::Abs(high), range_max)));
    survey.out_of_range |= !hn::AllFalse(df, hn::AndNot(holds, in));
    auto wide = hn::Or(hn::Gt(high, limit), hn::Lt(low, hn::Neg(limit)));
    if (type != MetaType::kFp32) {
      wide = hn::Or(wide, hn::And(hn::Gt(range, hn::Zero(df)), hn::Lt(hn::Div(range, steps), small)));
    }
    survey.needs_float |= !hn::AllFalse(df, hn::And(hn::And(wide, holds), in));
  });
  return survey;
}

}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#endif
