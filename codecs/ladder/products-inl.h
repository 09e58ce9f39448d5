// Exact sums of products of steps and levels, and small tables looked up by steps.
//
// A per-target header: include it after hwy/foreach_target.h.

#if defined(FIRN_CODECS_LADDER_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FIRN_CODECS_LADDER_PRODUCTS_INL_H_
#undef FIRN_CODECS_LADDER_PRODUCTS_INL_H_
#else
#define FIRN_CODECS_LADDER_PRODUCTS_INL_H_
#endif

#include "codecs/numeric/vector_formats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {

// Sums of products of 16-bit integers, exact: 32-bit sums are emptied into 64-bit ones before they can overflow. With
// factors of at most 7373 that is after kProductsMax calls of AddProducts, which add two products to a lane.
constexpr uint32_t kProductsMax = 4;
using StepTag = hn::ScalableTag<int16_t>;
using ProductTag = hn::Repartition<int32_t, StepTag>;

HWY_INLINE hn::Vec<ProductTag> AddProducts(hn::Vec<ProductTag> sum, hn::Vec<StepTag> a, hn::Vec<StepTag> b) {
  auto high = hn::Zero(ProductTag());
  sum = hn::ReorderWidenMulAccumulate(ProductTag(), a, b, sum, high);
  return hn::Add(sum, high);
}

// Adds the lanes of each block of four to four totals.
template <class D>
HWY_INLINE void AddBlocks(D d, hn::Vec<D> v, int64_t* totals) {
  if constexpr (hn::MaxLanes(D()) > 8) {
    const hn::Half<D> half;
    const hn::Rebind<int64_t, hn::Half<D>> d64;
    const auto sum = hn::Add(hn::PromoteTo(d64, hn::LowerHalf(half, v)), hn::PromoteTo(d64, hn::UpperHalf(half, v)));
    const hn::Half<decltype(d64)> d4;
    const auto four = hn::Add(hn::LowerHalf(d4, sum), hn::UpperHalf(d4, sum));
    hn::StoreU(hn::Add(four, hn::LoadU(d4, totals)), d4, totals);
  } else {
    alignas(64) int32_t lanes[hn::MaxLanes(D())];
    hn::Store(v, d, lanes);
    for (size_t i = 0; i < hn::MaxLanes(D()); ++i) totals[i % 4] += lanes[i];
  }
}

// Adds the lanes of three sums to the first three of four totals.
HWY_INLINE void AddToTotals(hn::Vec<ProductTag> a, hn::Vec<ProductTag> b, hn::Vec<ProductTag> c, int64_t* totals) {
  const ProductTag d32;
  const hn::Repartition<int64_t, ProductTag> d64;
  const auto zero = hn::Zero(d32);
  const auto ab = hn::BitCast(d64, hn::Add(hn::InterleaveLower(d32, a, b), hn::InterleaveUpper(d32, a, b)));
  const auto c0 = hn::BitCast(d64, hn::Add(hn::InterleaveLower(d32, c, zero), hn::InterleaveUpper(d32, c, zero)));
  const auto low = hn::BitCast(d32, hn::InterleaveLower(d64, ab, c0));
  const auto high = hn::BitCast(d32, hn::InterleaveUpper(d64, ab, c0));
  AddBlocks(d32, hn::Add(low, high), totals);
}

// Entry 8 * row + column of a table, row 0 to 3, column 0 to 7; `row_bits` is 8 * row and perhaps bits above 31.
template <class D16>
HWY_INLINE hn::Vec<D16> EntryOf32(D16 d16, const uint16_t* table, hn::Vec<D16> row_bits, hn::Vec<D16> column) {
#if HWY_TARGET <= HWY_AVX3
  return hn::Vec<D16>{_mm512_permutexvar_epi16(hn::Or(row_bits, column).raw, hn::Load(d16, table).raw)};
#else
  const auto row = hn::And(row_bits, hn::Set(d16, 24));
  const auto at = hn::Or(hn::Mul(column, hn::Set(d16, 0x0202)), hn::Set(d16, 0x0100));
  auto value = hn::TableLookupBytes(hn::LoadDup128(d16, table), at);
  for (uint16_t other = 8; other < 32; other += 8) {
    const auto entry = hn::TableLookupBytes(hn::LoadDup128(d16, table + other), at);
    value = hn::IfThenElse(hn::Eq(row, hn::Set(d16, other)), entry, value);
  }
  return value;
#endif
}
// Entry `column`, 0 to 7, of a table of which only row 0 counts.
template <class D16>
HWY_INLINE hn::Vec<D16> EntryOf8(D16 d16, const uint16_t* table, hn::Vec<D16> column) {
#if HWY_TARGET <= HWY_AVX3
  return EntryOf32(d16, table, column, column);
#else
  const auto at = hn::Or(hn::Mul(column, hn::Set(d16, 0x0202)), hn::Set(d16, 0x0100));
  return hn::TableLookupBytes(hn::LoadDup128(d16, table), at);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#endif
