// Tables of up to 16 floats, looked up by whole vectors of codes.
//
// A per-target header: include it after hwy/foreach_target.h.

#if defined(FIRN_CODECS_TABLE16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FIRN_CODECS_TABLE16_INL_H_
#undef FIRN_CODECS_TABLE16_INL_H_
#else
#define FIRN_CODECS_TABLE16_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class Table16 {
 public:
  using DF = hn::ScalableTag<float>;
  using DI = hn::RebindToSigned<DF>;

  Table16(const float* values, size_t count) { std::copy_n(values, count, values_); }

  // The values of as many codes as a vector of floats has, by the low four bits of each byte.
  HWY_INLINE hn::Vec<DF> Of(const uint8_t* codes) const {
    const DF df;
    const DI di;
    const auto index = hn::And(hn::PromoteTo(di, hn::LoadU(hn::Rebind<uint8_t, DF>(), codes)), hn::Set(di, 15));
#if HWY_MAX_BYTES >= 64
    return hn::TableLookupLanes(hn::Load(df, values_), hn::IndicesFromVec(df, index));
#elif HWY_MAX_BYTES >= 32
    const auto lane = hn::IndicesFromVec(df, hn::And(index, hn::Set(di, 7)));
    const auto low = hn::TableLookupLanes(hn::Load(df, values_), lane);
    const auto high = hn::TableLookupLanes(hn::Load(df, values_ + 8), lane);
    return hn::IfThenElse(hn::RebindMask(df, hn::Gt(index, hn::Set(di, 7))), high, low);
#else
    return hn::GatherIndex(df, values_, index);
#endif
  }

 private:
  alignas(64) float values_[16] = {};
};

}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#endif
