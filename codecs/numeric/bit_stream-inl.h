// Streams of codes in vectors; the bit order is that of codecs/numeric/bit_stream.h.
//
// A per-target header: include it after hwy/foreach_target.h. Nothing is read or written beyond the codes and bytes
// named.

#if defined(FIRN_CODECS_BIT_STREAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FIRN_CODECS_BIT_STREAM_INL_H_
#undef FIRN_CODECS_BIT_STREAM_INL_H_
#else
#define FIRN_CODECS_BIT_STREAM_INL_H_
#endif

#include <cstring>

#include "base/bytes.h"
#include "codecs/numeric/bit_stream.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Each returns how many codes it dealt with, a multiple of 8; the reference does the rest.

HWY_INLINE uint64_t PackNibbles(const uint8_t* HWY_RESTRICT codes, uint64_t count, uint8_t* HWY_RESTRICT to) {
  const hn::ScalableTag<uint16_t> d16;
  const hn::Rebind<uint8_t, decltype(d16)> d8;
  const hn::Repartition<uint8_t, decltype(d16)> dcodes;
  const uint64_t step = hn::Lanes(dcodes);
  uint64_t at = 0;
  for (; at + step <= count; at += step) {
    const auto pairs = hn::BitCast(d16, hn::LoadU(dcodes, codes + at));
    const auto bytes = hn::And(hn::Or(pairs, hn::ShiftRight<4>(pairs)), hn::Set(d16, uint16_t{0xFF}));
    hn::StoreU(hn::TruncateTo(d8, bytes), d8, to + at / 2);
  }
  return at;
}

HWY_INLINE uint64_t PackCrumbs(const uint8_t* HWY_RESTRICT codes, uint64_t count, uint8_t* HWY_RESTRICT to) {
  const hn::ScalableTag<uint32_t> d32;
  const hn::Rebind<uint8_t, decltype(d32)> d8;
  const hn::Repartition<uint8_t, decltype(d32)> dcodes;
  const uint64_t step = hn::Lanes(dcodes);
  uint64_t at = 0;
  if (step < 8) return 0;
  for (; at + step <= count; at += step) {
    const auto fours = hn::BitCast(d32, hn::LoadU(dcodes, codes + at));
    const auto twos = hn::Or(fours, hn::ShiftRight<6>(fours));
    hn::StoreU(hn::TruncateTo(d8, hn::Or(twos, hn::ShiftRight<12>(twos))), d8, to + at / 4);
  }
  return at;
}

// Eight codes of 3 bits in each lane of 64 bits become its low 24 bits, and back.
template <class D64>
HWY_INLINE hn::Vec<D64> JoinTriples(D64 d64, hn::Vec<D64> x) {
  x = hn::And(hn::Or(x, hn::ShiftRight<5>(x)), hn::Set(d64, 0x003F003F003F003Full));
  x = hn::And(hn::Or(x, hn::ShiftRight<10>(x)), hn::Set(d64, 0x00000FFF00000FFFull));
  return hn::Or(x, hn::ShiftRight<20>(x));
}
template <class D64>
HWY_INLINE hn::Vec<D64> SplitTriples(D64 d64, hn::Vec<D64> x) {
  x = hn::And(x, hn::Set(d64, 0xFFFFFFull));
  x = hn::And(hn::Or(x, hn::ShiftLeft<20>(x)), hn::Set(d64, 0x00000FFF00000FFFull));
  x = hn::And(hn::Or(x, hn::ShiftLeft<10>(x)), hn::Set(d64, 0x003F003F003F003Full));
  return hn::And(hn::Or(x, hn::ShiftLeft<5>(x)), hn::Set(d64, 0x0707070707070707ull));
}

HWY_INLINE uint64_t PackTriples(const uint8_t* HWY_RESTRICT codes, uint64_t count, uint8_t* HWY_RESTRICT to) {
  // The six bytes of each block of 16, at its start and, in every other block, two bytes behind it; then words of two
  // blocks at a time, of which the middle one has halves of both. Words 2 and 3 of a block are zero.
  constexpr uint8_t kNone = 0x80;
  alignas(64) static constexpr uint8_t kBytes[64] = {
      0,     1,     2, 8, 9, 10, kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone,
      kNone, kNone, 0, 1, 2, 8,  9,     10,    kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone,
      0,     1,     2, 8, 9, 10, kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone,
      kNone, kNone, 0, 1, 2, 8,  9,     10,    kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone};
#if HWY_MAX_BYTES >= 64
  alignas(64) static constexpr int32_t kFirst[16] = {0, 1, 5, 8, 9, 13, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2};
  alignas(64) static constexpr int32_t kSecond[16] = {2, 4, 2, 2, 12, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2};
#else
  // Two blocks, or one whose words stay where they are.
  alignas(64) static constexpr int32_t kFirst[8] = {0, 1, HWY_MAX_BYTES >= 32 ? 5 : 2, 2, 2, 2, 2, 2};
  alignas(64) static constexpr int32_t kSecond[8] = {2, HWY_MAX_BYTES >= 32 ? 4 : 2, 2, 2, 2, 2, 2, 2};
#endif
  const hn::ScalableTag<uint64_t> d64;
  const hn::Repartition<uint8_t, decltype(d64)> d8;
  const hn::Repartition<uint32_t, decltype(d64)> d32;
  const hn::Half<decltype(d8)> d8_half;
  const uint64_t step = hn::Lanes(d8);
  const auto bytes = hn::Load(d8, kBytes);
  const auto first = hn::SetTableIndices(d32, kFirst), second = hn::SetTableIndices(d32, kSecond);
  uint64_t at = 0;
  for (; at + step + 24 <= count; at += step) {  // Up to eight bytes more are written, before what belongs there.
    const auto joined = hn::BitCast(d8, JoinTriples(d64, hn::BitCast(d64, hn::LoadU(d8, codes + at))));
    const auto words = hn::BitCast(d32, hn::TableLookupBytesOr0(joined, bytes));
    const auto packed = hn::Or(hn::TableLookupLanes(words, first), hn::TableLookupLanes(words, second));
    hn::StoreU(hn::LowerHalf(d8_half, hn::BitCast(d8, packed)), d8_half, to + at / 8 * 3);
  }
  for (; at + 8 <= count; at += 8) {
    uint64_t x = LoadLe<uint64_t>(codes + at);
    x = (x | x >> 5) & 0x003F003F003F003Full;
    x = (x | x >> 10) & 0x00000FFF00000FFFull;
    x |= x >> 20;
    std::memcpy(to + at / 8 * 3, &x, 3);
  }
  return at;
}

HWY_INLINE uint64_t UnpackNibbles(const uint8_t* HWY_RESTRICT from, uint64_t count, uint8_t* HWY_RESTRICT codes) {
  const hn::ScalableTag<uint16_t> d16;
  const hn::Rebind<uint8_t, decltype(d16)> d8;
  const hn::Repartition<uint8_t, decltype(d16)> dcodes;
  const uint64_t step = hn::Lanes(dcodes);
  uint64_t at = 0;
  for (; at + step <= count; at += step) {
    const auto bytes = hn::PromoteTo(d16, hn::LoadU(d8, from + at / 2));
    const auto pairs = hn::And(hn::Or(bytes, hn::ShiftLeft<4>(bytes)), hn::Set(d16, uint16_t{0x0F0F}));
    hn::StoreU(hn::BitCast(dcodes, pairs), dcodes, codes + at);
  }
  return at;
}

HWY_INLINE uint64_t UnpackCrumbs(const uint8_t* HWY_RESTRICT from, uint64_t count, uint8_t* HWY_RESTRICT codes) {
  const hn::ScalableTag<uint32_t> d32;
  const hn::Rebind<uint8_t, decltype(d32)> d8;
  const hn::Repartition<uint8_t, decltype(d32)> dcodes;
  const uint64_t step = hn::Lanes(dcodes);
  uint64_t at = 0;
  if (step < 8) return 0;
  for (; at + step <= count; at += step) {
    const auto bytes = hn::PromoteTo(d32, hn::LoadU(d8, from + at / 4));
    const auto twos = hn::Or(bytes, hn::ShiftLeft<12>(bytes));
    const auto fours = hn::And(hn::Or(twos, hn::ShiftLeft<6>(twos)), hn::Set(d32, 0x03030303u));
    hn::StoreU(hn::BitCast(dcodes, fours), dcodes, codes + at);
  }
  return at;
}

HWY_INLINE uint64_t UnpackTriples(const uint8_t* HWY_RESTRICT from, uint64_t count, uint8_t* HWY_RESTRICT codes) {
  // Block b of 16 bytes needs bytes 6b to 6b + 5: first the words that hold them, then three bytes to each half.
  alignas(64) static constexpr int32_t kWords[16] = {0, 1, 1, 1, 1, 2, 2, 2, 3, 4, 4, 4, 4, 5, 5, 5};
  alignas(64) static constexpr uint8_t kBytes[64] = {0, 1, 2, 2, 2, 2, 2, 2, 3, 4, 5, 5, 5, 5, 5, 5, 2, 3, 4, 4, 4, 4,
                                                     4, 4, 5, 6, 7, 7, 7, 7, 7, 7, 0, 1, 2, 2, 2, 2, 2, 2, 3, 4, 5, 5,
                                                     5, 5, 5, 5, 2, 3, 4, 4, 4, 4, 4, 4, 5, 6, 7, 7, 7, 7, 7, 7};
  const hn::ScalableTag<uint64_t> d64;
  const hn::Repartition<uint8_t, decltype(d64)> d8;
  const hn::Repartition<uint32_t, decltype(d64)> d32;
  const hn::Half<decltype(d8)> d8_half;
  const uint64_t step = hn::Lanes(d8);
  const auto words = hn::SetTableIndices(d32, kWords);
  const auto bytes = hn::Load(d8, kBytes);
  uint64_t at = 0;
  for (; at + step + 24 <= count; at += step) {  // Up to eight bytes more are read than are used.
    const auto loaded = hn::ZeroExtendVector(d8, hn::LoadU(d8_half, from + at / 8 * 3));
    const auto spread = hn::BitCast(d8, hn::TableLookupLanes(hn::BitCast(d32, loaded), words));
    const auto split = SplitTriples(d64, hn::BitCast(d64, hn::TableLookupBytes(spread, bytes)));
    hn::StoreU(hn::BitCast(d8, split), d8, codes + at);
  }
  for (; at + 8 <= count; at += 8) {
    uint64_t x = 0;
    std::memcpy(&x, from + at / 8 * 3, 3);
    x = (x | x << 20) & 0x00000FFF00000FFFull;
    x = (x | x << 10) & 0x003F003F003F003Full;
    StoreLe<uint64_t>(codes + at, (x | x << 5) & 0x0707070707070707ull);
  }
  return at;
}

inline void PackCodes(const uint8_t* codes, uint64_t count, uint32_t bits, uint8_t* to) {
  if (bits == 8) return static_cast<void>(std::memcpy(to, codes, count));
  const uint64_t done = bits == 4   ? PackNibbles(codes, count, to)
                        : bits == 2 ? PackCrumbs(codes, count, to)
                                    : PackTriples(codes, count, to);
  if (done < count) PackCodesReference(codes + done, count - done, bits, to + done * bits / 8);
}

inline void UnpackCodes(const uint8_t* from, uint64_t count, uint32_t bits, uint8_t* codes) {
  if (bits == 8) return static_cast<void>(std::memcpy(codes, from, count));
  const uint64_t done = bits == 4   ? UnpackNibbles(from, count, codes)
                        : bits == 2 ? UnpackCrumbs(from, count, codes)
                                    : UnpackTriples(from, count, codes);
  if (done < count) UnpackCodesReference(from + done * bits / 8, count - done, bits, codes + done);
}

// `rows` rows of `width` codes that follow each other without gaps, each a stream of its own.
inline void PackCodeRows(const uint8_t* codes, uint32_t width, uint32_t rows, uint32_t bits, uint8_t* to) {
  if (uint64_t{width} * bits % 8 == 0) return PackCodes(codes, uint64_t{width} * rows, bits, to);
  for (uint32_t row = 0; row < rows; ++row, codes += width, to += CodeRowBytes(width, bits)) {
    PackCodes(codes, width, bits, to);
  }
}

inline void UnpackCodeRows(const uint8_t* from, uint32_t width, uint32_t rows, uint32_t bits, uint8_t* codes) {
  if (uint64_t{width} * bits % 8 == 0) return UnpackCodes(from, uint64_t{width} * rows, bits, codes);
  for (uint32_t row = 0; row < rows; ++row, codes += width, from += CodeRowBytes(width, bits)) {
    UnpackCodes(from, width, bits, codes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#endif
