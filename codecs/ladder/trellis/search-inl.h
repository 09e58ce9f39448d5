// The trellis search with a row in each byte lane, equal to the scalar reference's.
//
// A per-target header: include it after hwy/foreach_target.h.

#if defined(FIRN_CODECS_LADDER_TRELLIS_SEARCH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FIRN_CODECS_LADDER_TRELLIS_SEARCH_INL_H_
#undef FIRN_CODECS_LADDER_TRELLIS_SEARCH_INL_H_
#else
#define FIRN_CODECS_LADDER_TRELLIS_SEARCH_INL_H_
#endif

#include "codecs/ladder/trellis/trellis_format.h"
#include "codecs/numeric/vector_formats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {

// Rows that are searched together.
constexpr uint32_t kSearchRows = hn::MaxLanes(hn::ScalableTag<uint8_t>());

// Stores the 16-byte blocks of a vector, `stride` bytes apart.
template <class D8>
HWY_INLINE void StoreBlocks(D8 d8, hn::Vec<D8> v, uint8_t* to, size_t stride) {
  if constexpr (hn::MaxLanes(D8()) == 16) {
    hn::StoreU(v, d8, to);
  } else {
    const hn::Half<D8> dh;
    StoreBlocks(dh, hn::LowerHalf(dh, v), to, stride);
    StoreBlocks(dh, hn::UpperHalf(dh, v), to + hn::MaxLanes(dh) / 16 * stride, stride);
  }
}

// Transposes 16 rows of whole vectors of bytes: `columns` rows of 16 bytes come out.
template <class D8>
HWY_INLINE void Transpose16(D8 d8, const uint8_t* from, size_t from_stride, uint8_t* to, size_t to_stride) {
  hn::Vec<D8> rows[16], next[16];
  HWY_UNROLL(16)
  for (size_t i = 0; i < 16; ++i) rows[i] = hn::LoadU(d8, from + i * from_stride);
  HWY_UNROLL(4)
  for (int stage = 0; stage < 4; ++stage) {
    HWY_UNROLL(8)
    for (size_t i = 0; i < 8; ++i) {
      next[2 * i] = hn::InterleaveLower(d8, rows[i], rows[i + 8]);
      next[2 * i + 1] = hn::InterleaveUpper(d8, rows[i], rows[i + 8]);
    }
    HWY_UNROLL(16)
    for (size_t i = 0; i < 16; ++i) rows[i] = next[i];
  }
  HWY_UNROLL(16)
  for (size_t i = 0; i < 16; ++i) StoreBlocks(d8, rows[i], to + i * to_stride, 16 * to_stride);
}

// `rows` and `columns` are multiples of 16 and of a vector.
HWY_INLINE void TransposeBytes(const uint8_t* from, size_t from_stride, size_t rows, size_t columns, uint8_t* to,
                               size_t to_stride) {
  const hn::ScalableTag<uint8_t> d8;
  for (size_t r = 0; r < rows; r += 16) {
    for (size_t c = 0; c < columns; c += hn::Lanes(d8)) {
      Transpose16(d8, from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
    }
  }
}

// The 64 metrics; At takes indices from 0 to 63.
class MetricTable {
 public:
  using D8 = hn::ScalableTag<uint8_t>;
#if HWY_TARGET <= HWY_AVX3_DL
  HWY_INLINE MetricTable() : all_(hn::LoadU(D8(), ladder::trellis::kMetric.data())) {}
  HWY_INLINE hn::Vec<D8> At(hn::Vec<D8> index) const {
    return hn::Vec<D8>{_mm512_permutexvar_epi8(index.raw, all_.raw)};
  }

 private:
  hn::Vec<D8> all_;
#else
  HWY_INLINE MetricTable() {}
  HWY_INLINE hn::Vec<D8> At(hn::Vec<D8> index) const {
    const D8 d8;
    const hn::RebindToSigned<D8> di8;
    const uint8_t* metric = ladder::trellis::kMetric.data();
    auto value = hn::TableLookupBytes(hn::LoadDup128(d8, metric), index);
    for (int8_t part = 1; part < 4; ++part) {
      const auto beyond = hn::Gt(hn::BitCast(di8, index), hn::Set(di8, static_cast<int8_t>(16 * part - 1)));
      const auto entry = hn::TableLookupBytes(hn::LoadDup128(d8, metric + 16 * part), index);
      value = hn::IfThenElse(hn::RebindMask(d8, beyond), entry, value);
    }
    return value;
  }
#endif
};

// For each lane a bit.
template <class D8>
HWY_INLINE uint64_t BitsOf(D8 d8, hn::Mask<D8> mask) {
  uint64_t bits = 0;
  hn::StoreMaskBits(d8, mask, reinterpret_cast<uint8_t*>(&bits));
  return bits;
}
template <class D8>
HWY_INLINE hn::Mask<D8> LanesOf(D8 d8, uint64_t bits) {
  return hn::LoadMaskBits(d8, reinterpret_cast<const uint8_t*>(&bits));
}

// What the search remembers of a position, a bit a row: by state whether it came from its lower predecessor, and by
// pair of levels whether the upper one is nearer.
struct SearchStep {
  uint64_t from_lower[4], upper[4];
};

// Which of four words' bits the two bits of each lane choose.
HWY_INLINE uint64_t ChosenBits(uint64_t high, uint64_t low, const uint64_t* words) {
  const uint64_t lower = (words[0] & ~low) | (words[1] & low), upper = (words[2] & ~low) | (words[3] & low);
  return (lower & ~high) | (upper & high);
}

// Goes forward through `width` positions, kSearchRows bytes each, and returns the lowest of the cheapest states as two
// words of bits: state / 2, state % 2.
HWY_INLINE void SearchForward(const uint8_t* positions, uint32_t width, SearchStep* steps, uint64_t* high,
                              uint64_t* low) {
  namespace trellis = ladder::trellis;
  using trellis::kPairs;
  const hn::ScalableTag<uint8_t> d8;
  const hn::ScalableTag<int8_t> di8;
  using V = hn::Vec<decltype(d8)>;
  const auto far = hn::Set(d8, static_cast<uint8_t>(trellis::kDistanceMax));
  const MetricTable metric;
  V m0 = hn::Zero(d8), m1 = m0, m2 = m0, m3 = m0;
  for (uint32_t q = 0; q < width; ++q) {
    SearchStep& step = steps[q];
    const auto z = hn::BitCast(di8, hn::Load(d8, positions + size_t{q} * kSearchRows));
    auto cost = [&](size_t k) HWY_ATTR __attribute__((always_inline)) {
      const auto upper = hn::Gt(z, hn::Set(di8, static_cast<int8_t>(kPairs[k].middle)));
      const auto level = hn::IfThenElse(upper, hn::Set(di8, static_cast<int8_t>(kPairs[k].upper)),
                                        hn::Set(di8, static_cast<int8_t>(kPairs[k].lower)));
      step.upper[k] = BitsOf(di8, upper);
      const auto distance = hn::BitCast(d8, hn::Abs(hn::SaturatedSub(z, level)));
      return metric.At(hn::Min(distance, far));
    };
    const V c0 = cost(0), c1 = cost(1), c2 = cost(2), c3 = cost(3);
    auto choose = [&](size_t state, V lower, V upper) HWY_ATTR __attribute__((always_inline)) {
      const auto best = hn::Min(lower, upper);
      step.from_lower[state] = BitsOf(d8, hn::Eq(best, lower));
      return best;
    };
    const V x0 = choose(0, hn::SaturatedAdd(m0, c0), hn::SaturatedAdd(m2, c2));
    const V x1 = choose(1, hn::SaturatedAdd(m0, c2), hn::SaturatedAdd(m2, c0));
    const V x2 = choose(2, hn::SaturatedAdd(m1, c1), hn::SaturatedAdd(m3, c3));
    const V x3 = choose(3, hn::SaturatedAdd(m1, c3), hn::SaturatedAdd(m3, c1));
    const V least = hn::Min(hn::Min(x0, x1), hn::Min(x2, x3));
    m0 = hn::Sub(x0, least), m1 = hn::Sub(x1, least), m2 = hn::Sub(x2, least), m3 = hn::Sub(x3, least);
  }
  const V zero = hn::Zero(d8);
  const uint64_t best0 = BitsOf(d8, hn::Eq(m0, zero)), best1 = BitsOf(d8, hn::Eq(m1, zero));
  const uint64_t best2 = BitsOf(d8, hn::Eq(m2, zero));
  *high = ~(best0 | best1);
  *low = (~best0 & best1) | (*high & ~best2);
}

// Goes back from those states. `marks` gets, for each position, a byte a row: the symbol in the top two bits, in the
// next two j - 4 of the level, or of the one that mirrors it (3 - j). Returns the start states as the words that
// SearchForward returns.
HWY_INLINE void SearchBackward(const SearchStep* steps, uint32_t width, uint64_t* high, uint64_t* low, uint8_t* marks) {
  const hn::ScalableTag<uint8_t> d8;
  uint64_t before = *high, bit = *low;  // b[-1] and b of each row.
  for (uint32_t q = width; q-- > 0;) {
    const uint64_t two_before = ~ChosenBits(before, bit, steps[q].from_lower);
    const uint64_t mixed = bit ^ two_before;
    const uint64_t upper = ChosenBits(mixed, before, steps[q].upper);
    auto mark = [&](uint64_t bits, uint8_t value)
                    HWY_ATTR { return hn::IfThenElseZero(LanesOf(d8, bits), hn::Set(d8, value)); };
    const auto symbol = hn::Or(mark(upper, 0x80), mark(bit, 0x40));
    hn::Store(hn::Or(symbol, hn::Or(mark(~(mixed ^ upper), 0x20), mark(~(before ^ upper), 0x10))), d8,
              marks + size_t{q} * kSearchRows);
    bit = before;
    before = two_before;
  }
  *high = before;
  *low = bit;
}

}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#endif
