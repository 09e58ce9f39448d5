// The Hadamard transform of rows in vectors: butterflies of strides 1, 2, 4, ..., each as the scalar reference does it.
//
// A per-target header: include it after hwy/foreach_target.h.

#if defined(FIRN_CODECS_NESTED_ROTATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FIRN_CODECS_NESTED_ROTATION_INL_H_
#undef FIRN_CODECS_NESTED_ROTATION_INL_H_
#else
#define FIRN_CODECS_NESTED_ROTATION_INL_H_
#endif

#include "codecs/numeric/vector_formats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {

// By stride 1 << row: 1 in the lanes that are the first of their pair, -1 in the second. Multiplying by them is exact,
// so adding the product to the swapped pair gives a + b and a - b, fused or not.
alignas(64) constexpr float kPairSigns[4][16] = {{1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1},
                                                 {1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1},
                                                 {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1},
                                                 {1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1}};

template <int kLog, class DF>
HWY_INLINE hn::Vec<DF> SwapPairs(DF df, hn::Vec<DF> v) {
  if constexpr (kLog == 0) return hn::Shuffle2301(v);
  if constexpr (kLog == 1) return hn::Shuffle1032(v);
#if HWY_MAX_BYTES >= 32
  if constexpr (kLog == 2) return hn::SwapAdjacentBlocks(v);
#endif
#if HWY_MAX_BYTES >= 64
  if constexpr (kLog == 3) return hn::ConcatLowerUpper(df, v, v);
#endif
  (void)df;
}

template <int kLog, class DF>
HWY_INLINE hn::Vec<DF> LaneButterfly(DF df, hn::Vec<DF> v) {
  return hn::MulAdd(v, hn::Load(df, kPairSigns[kLog]), SwapPairs<kLog>(df, v));
}

// Strides below `size`, which is a power of two and at most the vector.
template <class DF>
HWY_INLINE hn::Vec<DF> LaneButterflies(DF df, hn::Vec<DF> v, uint32_t size) {
  if (size > 1) v = LaneButterfly<0>(df, v);
  if (size > 2) v = LaneButterfly<1>(df, v);
  if constexpr (hn::MaxLanes(DF()) > 4) {
    if (size > 4) v = LaneButterfly<2>(df, v);
  }
  if constexpr (hn::MaxLanes(DF()) > 8) {
    if (size > 8) v = LaneButterfly<3>(df, v);
  }
  return v;
}

template <class V>
HWY_INLINE void Cross(V& a, V& b) {
  const V sum = hn::Add(a, b);
  b = hn::Sub(a, b);
  a = sum;
}

// Transforms kVectors whole vectors that stay in registers: load(i) gives and store(i, v) takes vector i.
template <int kVectors, class DF, class Load, class Store>
HWY_INLINE void RotateRegisters(DF df, const Load& load, const Store& store) {
  using V = hn::Vec<DF>;
  constexpr uint32_t kLanes = hn::MaxLanes(DF());
  auto get = [&](size_t i) HWY_ATTR { return LaneButterflies(df, load(i), kLanes); };
  V v0 = get(0);
  V v1 = v0, v2 = v0, v3 = v0, v4 = v0, v5 = v0, v6 = v0, v7 = v0;
  if constexpr (kVectors > 1) {
    v1 = get(1);
    Cross(v0, v1);
  }
  if constexpr (kVectors > 2) {
    v2 = get(2), v3 = get(3);
    Cross(v2, v3);
    Cross(v0, v2), Cross(v1, v3);
  }
  if constexpr (kVectors > 4) {
    v4 = get(4), v5 = get(5), v6 = get(6), v7 = get(7);
    Cross(v4, v5), Cross(v6, v7);
    Cross(v4, v6), Cross(v5, v7);
    Cross(v0, v4), Cross(v1, v5), Cross(v2, v6), Cross(v3, v7);
  }
  store(0, v0);
  if constexpr (kVectors > 1) store(1, v1);
  if constexpr (kVectors > 2) store(2, v2), store(3, v3);
  if constexpr (kVectors > 4) store(4, v4), store(5, v5), store(6, v6), store(7, v7);
}

// The strides from `first_stride` to `size` / 2 over a row in memory, each at least a vector.
HWY_INLINE void RotateMemory(float* row, uint32_t width, uint32_t size, uint32_t first_stride) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  for (size_t stride = first_stride; stride < size; stride *= 2) {
    for (size_t start = 0; start < width; start += 2 * stride) {
      for (size_t i = start; i < start + stride; i += lanes) {
        auto a = hn::Load(df, row + i), b = hn::Load(df, row + i + stride);
        Cross(a, b);
        hn::Store(a, df, row + i);
        hn::Store(b, df, row + i + stride);
      }
    }
  }
}

// How many vectors RotateRow keeps in registers at a time, for a rotation of `size` channels.
HWY_INLINE uint32_t RegisterVectors(uint32_t size) {
  const hn::ScalableTag<float> df;
  return HWY_MIN(8u, static_cast<uint32_t>(size / hn::Lanes(df)));
}

// Transforms a row of `width` channels in blocks of `size`. load(c) gives the vector of channels c...; store(c, v)
// takes what the strides within registers make of it, and is all there is to do where RegisterVectors(size) vectors
// hold `size` channels; otherwise the caller goes on with RotateMemory from the stride RegisterVectors(size) * lanes.
template <class DF, class Load, class Store>
HWY_INLINE void RotateRow(DF df, uint32_t width, uint32_t size, const Load& load, const Store& store) {
  const uint32_t lanes = static_cast<uint32_t>(hn::Lanes(df));
  const uint32_t vectors = RegisterVectors(size);
  auto at = [&](uint32_t start) HWY_ATTR { return [&, start](size_t i) HWY_ATTR { return load(start + i * lanes); }; };
  auto to = [&](uint32_t start)
                HWY_ATTR { return [&, start](size_t i, hn::Vec<DF> v) HWY_ATTR { store(start + i * lanes, v); }; };
  if (HWY_LIKELY(vectors == 8)) {
    for (uint32_t start = 0; start < width; start += 8 * lanes) RotateRegisters<8>(df, at(start), to(start));
  } else if (vectors == 4) {
    for (uint32_t start = 0; start < width; start += 4 * lanes) RotateRegisters<4>(df, at(start), to(start));
  } else if (vectors == 2) {
    for (uint32_t start = 0; start < width; start += 2 * lanes) RotateRegisters<2>(df, at(start), to(start));
  } else if (vectors == 1) {
    for (uint32_t start = 0; start < width; start += lanes) RotateRegisters<1>(df, at(start), to(start));
  } else {
    for (uint32_t start = 0; start < width; start += lanes) store(start, LaneButterflies(df, load(start), size));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#endif
