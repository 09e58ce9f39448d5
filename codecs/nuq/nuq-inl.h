// Nearest levels and outliers in vectors, on every target equal to codecs/nuq/nuq_format.h.
//
// A per-target header: include it after hwy/foreach_target.h.

#if defined(FIRN_CODECS_NUQ_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FIRN_CODECS_NUQ_INL_H_
#undef FIRN_CODECS_NUQ_INL_H_
#else
#define FIRN_CODECS_NUQ_INL_H_
#endif

#include <algorithm>

#include "codecs/numeric/bit_stream-inl.h"
#include "codecs/numeric/inline_buffer.h"
#include "codecs/numeric/table16-inl.h"
#include "codecs/numeric/vector_formats-inl.h"
#include "codecs/nuq/nuq_format.h"

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {

constexpr size_t kInlineVector = 1024;

// The codes of a vector of values, a byte each.
template <class DF>
HWY_INLINE void StoreNearest(DF df, hn::Vec<DF> value, const nuq::Thresholds& thresholds, uint8_t* codes) {
  const hn::RebindToSigned<DF> di;
  const hn::RebindToUnsigned<DF> du;
  auto code = hn::Zero(di);
  for (uint32_t i = 0; i < thresholds.count; ++i) {
    // A mask counts as -1.
    const auto above = hn::RebindMask(di, hn::Gt(value, hn::Set(df, thresholds.at[i])));
    code = hn::Sub(code, hn::VecFromMask(di, above));
  }
  hn::StoreU(hn::TruncateTo(hn::Rebind<uint8_t, DF>(), hn::BitCast(du, code)), hn::Rebind<uint8_t, DF>(), codes);
}

template <class DF>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> MagnitudeKeys(DF, hn::Vec<DF> value) {
  const hn::RebindToUnsigned<DF> du;
  return hn::Add(hn::And(hn::BitCast(du, value), hn::Set(du, 0x7FFFFFFFu)), hn::Set(du, 1u));
}
template <class DF>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<DF>> HighKeys(DF, hn::Vec<DF> value) {
  const hn::RebindToSigned<DF> di;
  const hn::RebindToUnsigned<DF> du;
  const auto bits = hn::BitCast(di, value);
  const auto order = hn::Xor(bits, hn::And(hn::BroadcastSignBit(bits), hn::Set(di, 0x7FFFFFFF)));
  return hn::Add(hn::Xor(hn::BitCast(du, order), hn::Set(du, 0x80000000u)), hn::Set(du, 1u));
}

// The first of the largest of `size` keys, whose array has whole vectors, zeros behind the end.
HWY_INLINE uint32_t FirstLargest(const uint32_t* keys, uint32_t size) {
  const hn::ScalableTag<uint32_t> du;
  const uint32_t lanes = static_cast<uint32_t>(hn::Lanes(du));
  auto most = hn::Zero(du);
  for (uint32_t i = 0; i < size; i += lanes) most = hn::Max(most, hn::Load(du, keys + i));
  most = hn::MaxOfLanes(du, most);
  for (uint32_t i = 0; i < size; i += lanes) {
    const intptr_t lane = hn::FindFirstTrue(du, hn::Eq(hn::Load(du, keys + i), most));
    if (lane >= 0) return i + static_cast<uint32_t>(lane);
  }
  return 0;
}

// nuq::TakeLargest; walks through the keys once for each taken where that is soonest done.
HWY_INLINE void TakeLargestKeys(uint32_t* keys, uint32_t size, uint32_t count, uint32_t* taken) {
  constexpr uint32_t kWalksMax = 64;
  if (count > kWalksMax) return nuq::TakeLargest(keys, size, count, taken);
  for (uint32_t i = 0; i < count; ++i) {
    taken[i] = FirstLargest(keys, size);
    keys[taken[i]] = 0;
  }
}

// How many keys are above `limit`; the array is as FirstLargest's.
HWY_INLINE uint32_t KeysAbove(const uint32_t* keys, uint32_t size, uint32_t limit) {
  const hn::ScalableTag<uint32_t> du;
  const uint32_t lanes = static_cast<uint32_t>(hn::Lanes(du));
  const auto limits = hn::Set(du, limit);
  auto count = hn::Zero(du);  // A mask counts as -1.
  for (uint32_t i = 0; i < size; i += lanes) {
    count = hn::Sub(count, hn::VecFromMask(du, hn::Gt(hn::Load(du, keys + i), limits)));
  }
  return hn::GetLane(hn::SumOfLanes(du, count));
}

// The places of the `count` largest keys, of equal ones the first, ascending: by the least key taken, bit by bit.
// `places` are those of the keys, or null where they are 0, 1, 2, ...
HWY_INLINE void TakeBits(const uint32_t* keys, const uint32_t* places, uint32_t size, uint32_t count, uint32_t* taken) {
  uint32_t least = 0;
  for (uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
    if (KeysAbove(keys, size, (least | bit) - 1) >= count) least |= bit;
  }
  uint32_t equal = count - KeysAbove(keys, size, least);  // Of those with the least key.
  for (uint32_t i = 0, at = 0; at < count; ++i) {
    if (keys[i] < least || (keys[i] == least && equal == 0)) continue;
    equal -= keys[i] == least ? 1 : 0;
    taken[at++] = places != nullptr ? places[i] : i;
  }
}

// Zeros behind `size`, up to the next whole vector.
HWY_INLINE void EndKeys(uint32_t* keys, uint32_t size) {
  std::fill_n(keys + size, kVectorAlignment / sizeof(uint32_t), 0u);
}

// As TakeLargestKeys, of keys of magnitudes, ascending by place.
HWY_INLINE void TakeLargestInOrder(uint32_t* keys, uint32_t size, uint32_t count, uint32_t* taken) {
  constexpr uint32_t kWalksMax = 8, kInlineCandidates = 2048;
  if (count <= kWalksMax) {
    TakeLargestKeys(keys, size, count, taken);
    return std::sort(taken, taken + count);
  }
  // What is near the end of its range or beyond is little, and where it is enough the others need no second look.
  const uint32_t near_end = nuq::MagnitudeKey(0.75f);
  const uint32_t candidates = KeysAbove(keys, size, near_end);
  if (candidates < count || candidates > size / 4) return TakeBits(keys, nullptr, size, count, taken);
  const hn::ScalableTag<uint32_t> du;
  const uint32_t lanes = static_cast<uint32_t>(hn::Lanes(du));
  InlineBuffer<uint32_t, kInlineCandidates> near_keys(candidates), places(candidates);
  const auto limits = hn::Set(du, near_end);
  uint32_t found = 0;
  for (uint32_t i = 0; i < size; i += lanes) {
    const auto key = hn::Load(du, keys + i);
    const auto above = hn::Gt(key, limits);
    if (hn::AllFalse(du, above)) continue;
    hn::CompressStore(hn::Iota(du, i), above, du, places.data() + found);
    found += static_cast<uint32_t>(hn::CompressStore(key, above, du, near_keys.data() + found));
  }
  EndKeys(near_keys.data(), candidates);
  TakeBits(near_keys.data(), places.data(), candidates, count, taken);
}

}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#endif
