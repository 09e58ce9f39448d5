// Scales of many groups at once, codes and values of spans, on every target equal to codecs/integer/integer_format.h.
//
// A per-target header: include it after hwy/foreach_target.h. Arrays of scales and of codes may be read and written up
// to the next whole vector.

#if defined(FIRN_CODECS_INTEGER_GROUPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FIRN_CODECS_INTEGER_GROUPS_INL_H_
#undef FIRN_CODECS_INTEGER_GROUPS_INL_H_
#else
#define FIRN_CODECS_INTEGER_GROUPS_INL_H_
#endif

#include "codecs/integer/integer_format.h"
#include "codecs/nested/scales-inl.h"
#include "codecs/numeric/bit_stream-inl.h"
#include "codecs/numeric/group_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {

// Values of a batch of rows whose codes stay in the first-level cache.
constexpr size_t kInlineBatch = 16 * 256;
constexpr uint32_t kBatchRows = 16;
HWY_INLINE uint32_t RowsTogether(uint32_t width) {
  return std::clamp<uint32_t>(static_cast<uint32_t>(kInlineBatch / width), 1, kBatchRows);
}

// On entry the ranges of `count` groups; on return `lowest` holds bases and `highest` steps, as stored.
template <class Meta>
HWY_INLINE void IntegerScales(Meta meta, const PartCoding& coding, size_t count, float* HWY_RESTRICT lowest,
                              float* HWY_RESTRICT highest, float* HWY_RESTRICT inverse) {
  const hn::ScalableTag<float> df;
  const auto zero = hn::Zero(df), one = hn::Set(df, 1.0f);
  const auto step_min = hn::Set(df, nested::StepMin(coding.meta_type));
  const auto steps = hn::Set(df, integer::PositionsOf(coding).steps);
  const bool symmetric = integer::IsSymmetric(coding);
  for (size_t i = 0; i < count; i += hn::Lanes(df)) {
    const auto low = hn::LoadU(df, lowest + i), high = hn::LoadU(df, highest + i);
    const auto constant = hn::Eq(low, high);
    const auto magnitude = hn::Max(hn::Abs(low), hn::Abs(high));
    const auto spread = symmetric ? magnitude : hn::Sub(high, low);
    const auto step = hn::Max(StoredNearest(df, meta, hn::Div(spread, steps)), step_min);
    const auto nearest = StoredNearest(df, meta, low);
    auto base = hn::Set(df, integer::kNoBase), constant_step = hn::CopySign(zero, nearest), constant_inverse = zero;
    if (symmetric) {
      const auto tiny = hn::Lt(magnitude, hn::Set(df, kFloatMinNormal));
      constant_step = hn::IfThenElse(tiny, hn::CopySign(zero, low), nearest);
      constant_inverse = hn::IfThenElse(tiny, zero, hn::Div(one, low));
    } else {
      base = nearest;
    }
    hn::StoreU(base, df, lowest + i);
    hn::StoreU(hn::IfThenElse(constant, constant_step, step), df, highest + i);
    hn::StoreU(hn::IfThenElse(constant, constant_inverse, hn::Div(one, step)), df, inverse + i);
  }
}

// integer::SurveyGroup of `count` groups, joined. NaN orders beyond Inf, so it shows in an extreme.
HWY_INLINE void SurveyIntegers(const PartCoding& coding, float value_max, size_t count, const float* lowest,
                               const float* highest, Survey* survey) {
  const hn::ScalableTag<float> df;
  const auto range_max = hn::Set(df, nested::kRangeMax), largest = hn::Set(df, value_max);
  const auto infinity = hn::Set(df, std::numeric_limits<float>::infinity());
  const auto half_max = hn::Set(df, coding.meta_type == MetaType::kFp16 ? kHalfMax : value_max);
  const auto steps = hn::Set(df, integer::PositionsOf(coding).steps);
  // A step is below 0 nowhere, so nothing is too small for FP32.
  const auto small = hn::Set(df, coding.meta_type == MetaType::kFp32 ? 0.0f : nested::StepMin(coding.meta_type));
  for (size_t i = 0; i < count; i += hn::Lanes(df)) {
    const auto in = hn::FirstN(df, count - i);
    const auto low = hn::LoadU(df, lowest + i), high = hn::LoadU(df, highest + i);
    const auto range = hn::Sub(high, low), magnitude = hn::Max(hn::Abs(low), hn::Abs(high));
    const auto finite = hn::And(hn::Lt(hn::Abs(low), infinity), hn::Lt(hn::Abs(high), infinity));
    const auto holds = hn::And(hn::Le(range, range_max), hn::Le(magnitude, largest));
    const auto spread = integer::IsSymmetric(coding) ? magnitude : range;
    const auto narrow = hn::And(hn::Gt(range, hn::Zero(df)), hn::Lt(hn::Div(spread, steps), small));
    const auto wide = hn::And(hn::Or(hn::Gt(magnitude, half_max), narrow), holds);
    survey->non_finite |= !hn::AllFalse(df, hn::AndNot(finite, in));
    survey->out_of_range |= !hn::AllFalse(df, hn::AndNot(holds, in));
    survey->needs_float |= !hn::AllFalse(df, hn::And(wide, in));
  }
}

// An integer that orders all values and the two zeros as TotalOrder does; its own inverse.
template <class DI>
HWY_INLINE hn::Vec<DI> OrderOf(DI di, hn::Vec<DI> bits) {
  using T = hn::TFromD<DI>;
  return hn::Xor(bits, hn::And(hn::BroadcastSignBit(bits), hn::Set(di, std::numeric_limits<T>::max())));
}

template <typename T>
HWY_INLINE T FromOrder(T order) {
  return static_cast<T>(order ^ ((order >> (8 * sizeof(T) - 1)) & std::numeric_limits<T>::max()));
}

// The least lane of each half of a vector, in the first lane of the half.
template <class DI>
HWY_INLINE hn::Vec<DI> MinOfHalves(DI di, hn::Vec<DI> v) {
  const hn::Repartition<uint32_t, DI> d32;
#if HWY_MAX_BYTES >= 64
  v = hn::Min(v, hn::BitCast(di, hn::SwapAdjacentBlocks(hn::BitCast(d32, v))));
#endif
#if HWY_MAX_BYTES >= 32
  v = hn::Min(v, hn::BitCast(di, hn::Shuffle1032(hn::BitCast(d32, v))));
#endif
  v = hn::Min(v, hn::BitCast(di, hn::Shuffle2301(hn::BitCast(d32, v))));
  if constexpr (sizeof(hn::TFromD<DI>) == 2) {
    v = hn::Min(v, hn::BitCast(di, hn::RotateRight<16>(hn::BitCast(d32, v))));
  }
  return v;
}

// The extremes of `count` values, as the bits of their type. Both are reduced at once: the largest is the complement of
// the least complement.
template <class Lane>
HWY_INLINE void RangeOfGroup(const Lane* from, size_t count, Lane* low_bits, Lane* high_bits) {
  using T = std::conditional_t<sizeof(Lane) == 2, int16_t, int32_t>;
  const hn::ScalableTag<T> di;
  const auto* bits = reinterpret_cast<const T*>(from);
  T low, high;
  if (HWY_LIKELY(count >= hn::Lanes(di))) {
    auto least = OrderOf(di, hn::LoadU(di, bits)), most = least;
    ForVectors(count, hn::Lanes(di), [&](size_t at, size_t) HWY_ATTR {
      const auto order = OrderOf(di, hn::LoadU(di, bits + at));
      least = hn::Min(least, order);
      most = hn::Max(most, order);
    });
    const hn::Half<decltype(di)> dh;
    const auto rest = hn::Not(most);
    const auto both = hn::Combine(di, hn::Min(hn::LowerHalf(dh, rest), hn::UpperHalf(dh, rest)),
                                  hn::Min(hn::LowerHalf(dh, least), hn::UpperHalf(dh, least)));
    const auto reduced = MinOfHalves(di, both);
    low = FromOrder(hn::GetLane(reduced));
    high = FromOrder(static_cast<T>(~hn::GetLane(hn::UpperHalf(dh, reduced))));
  } else {
    // As many values as there are, again and again: repeated ones change no extreme.
    alignas(64) T few[hn::MaxLanes(di)];
    for (size_t i = 0; i < hn::Lanes(di); i += count) {
      std::memcpy(few + i, bits, std::min(count, hn::Lanes(di) - i) * sizeof(T));
    }
    const auto order = OrderOf(di, hn::Load(di, few));
    low = hn::GetLane(OrderOf(di, hn::MinOfLanes(di, order)));
    high = hn::GetLane(OrderOf(di, hn::MaxOfLanes(di, order)));
  }
  std::memcpy(low_bits, &low, sizeof(T));
  std::memcpy(high_bits, &high, sizeof(T));
}

// Whether codes may lie where they are stored: spans of a vector or more, of whole bytes, touch nothing beyond them.
HWY_INLINE bool CodesInPlace(uint32_t bits, size_t span_min) {
  return bits == 8 && span_min >= hn::Lanes(hn::ScalableTag<float>());
}

// Codes of `count` values; base(at) and inverse(at) give the scales of the vector that starts there.
template <class In, class Base, class Inverse>
HWY_INLINE void QuantizeSpan(In in, const typename In::Lane* HWY_RESTRICT from, size_t count, const Base& base,
                             const Inverse& inverse, const integer::Positions& positions, uint8_t* HWY_RESTRICT codes) {
  const hn::ScalableTag<float> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const hn::Rebind<uint8_t, decltype(df)> d8;
  const auto lowest = hn::Set(df, positions.lowest), highest = hn::Set(df, positions.highest);
  // Adding a number whose unit is 1 rounds to the nearest integer, ties to even, and leaves it in the low byte.
  const auto rounding = hn::Set(df, 0x1.8p23f + positions.offset);
  ForVectors(count, hn::Lanes(df), [&](size_t at, size_t lanes) HWY_ATTR {
    const auto x =
        HWY_LIKELY(lanes == hn::Lanes(df)) ? LoadAsFloat(df, in, from + at) : LoadFewAsFloat(df, in, from + at, lanes);
    const auto position = hn::Mul(hn::Sub(x, base(at)), inverse(at));
    const auto sum = hn::Add(hn::Min(hn::Max(position, lowest), highest), rounding);
    hn::StoreU(hn::TruncateTo(d8, hn::BitCast(du, sum)), d8, codes + at);
  });
}

// Values of `count` codes.
template <class Out, class Base, class Step>
HWY_INLINE void DequantizeSpan(Out out, const uint8_t* HWY_RESTRICT codes, size_t count, const Base& base,
                               const Step& step, float offset, float largest, typename Out::Lane* HWY_RESTRICT target) {
  const hn::ScalableTag<float> df;
  const auto zero_code = hn::Set(df, offset), limit = hn::Set(df, largest), lower_limit = hn::Set(df, -largest);
  ForVectors(count, hn::Lanes(df), [&](size_t at, size_t lanes) HWY_ATTR {
    const auto level = hn::Sub(LoadLevels(df, codes + at), zero_code);
    const auto value = hn::Add(base(at), hn::Mul(step(at), level));
    const auto saturated = hn::Min(hn::Max(value, lower_limit), limit);
    if (HWY_LIKELY(lanes == hn::Lanes(df))) return StoreFromFloat(df, out, saturated, target + at);
    StoreFewFromFloat(df, out, saturated, target + at, lanes);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#endif
