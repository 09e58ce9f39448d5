
// The largest magnitude of many values, found on their bit patterns.
//
// A per-target header: include it after hwy/foreach_target.h.

#if defined(FIRN_CODECS_MAGNITUDE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FIRN_CODECS_MAGNITUDE_INL_H_
#undef FIRN_CODECS_MAGNITUDE_INL_H_
#else
#define FIRN_CODECS_MAGNITUDE_INL_H_
#endif

#include <algorithm>

#include "base/bytes.h"
#include "codecs/numeric/vector_formats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {

// The largest magnitude of `width` values; Inf or NaN where there is one.
template <class In>
HWY_INLINE float MagnitudeMax(In, const typename In::Lane* row, size_t width) {
  if constexpr (sizeof(typename In::Lane) == 4) {
    const hn::ScalableTag<uint32_t> du;
    const auto* bits = reinterpret_cast<const uint32_t*>(row);
    if (width < hn::Lanes(du)) {
      uint32_t most = 0;
      for (size_t c = 0; c < width; ++c) {
        most = std::max(most, LoadLe<uint32_t>(reinterpret_cast<const uint8_t*>(bits + c)) & 0x7FFFFFFFu);
      }
      return BitsFloat(most);
    }
    auto most = hn::Zero(du);
    ForVectors(width, hn::Lanes(du), [&](size_t at, size_t) HWY_ATTR {
      most = hn::Max(most, hn::And(hn::LoadU(du, bits + at), hn::Set(du, 0x7FFFFFFFu)));
    });
    return BitsFloat(hn::GetLane(hn::MaxOfLanes(du, most)));
  } else {
    const hn::ScalableTag<uint16_t> du;
    const hn::Repartition<uint32_t, decltype(du)> du32;
    uint32_t magnitude = 0;
    if (width < hn::Lanes(du)) {
      for (size_t c = 0; c < width; ++c) {
        magnitude = std::max(magnitude, LoadLe<uint16_t>(reinterpret_cast<const uint8_t*>(row + c)) & 0x7FFFu);
      }
    } else {
      auto most = hn::Zero(du);
      ForVectors(width, hn::Lanes(du), [&](size_t at, size_t) HWY_ATTR {
        PrefetchAhead(row + at, kPrefetchBytes);
        most = hn::Max(most, hn::And(hn::LoadU(du, row + at), hn::Set(du, static_cast<uint16_t>(0x7FFF))));
      });
      const auto pairs = hn::BitCast(du32, most);
      const auto low = hn::And(pairs, hn::Set(du32, 0xFFFFu));
      magnitude = hn::GetLane(hn::MaxOfLanes(du32, hn::Max(low, hn::ShiftRight<16>(pairs))));
    }
    if constexpr (std::is_same_v<In, Half>) return HalfToFloat(static_cast<uint16_t>(magnitude));
    return BfloatToFloat(static_cast<uint16_t>(magnitude));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#endif
