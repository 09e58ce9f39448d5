// Extremes of groups, and rows of stored scales, in vectors.
//
// A per-target header: include it after hwy/foreach_target.h. Extremes order -0 just below +0. Arrays of results may be
// written up to the next whole vector.

#if defined(FIRN_CODECS_GROUP_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FIRN_CODECS_GROUP_ROWS_INL_H_
#undef FIRN_CODECS_GROUP_ROWS_INL_H_
#else
#define FIRN_CODECS_GROUP_ROWS_INL_H_
#endif

#include "codecs/numeric/inline_buffer.h"
#include "codecs/numeric/vector_formats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {

constexpr size_t kInlineWidth = 1024;

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

}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#endif
