// Rows of codes to rows of planes and back in vectors; the bit order is that of codecs/nested/planes_reference.h.
//
// A per-target header: include it after hwy/foreach_target.h.

#if defined(FIRN_CODECS_NESTED_PLANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FIRN_CODECS_NESTED_PLANES_INL_H_
#undef FIRN_CODECS_NESTED_PLANES_INL_H_
#else
#define FIRN_CODECS_NESTED_PLANES_INL_H_
#endif

#include "codecs/nested/planes_reference.h"
#include "codecs/numeric/vector_formats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {

// Rows are packed and unpacked several at a time: a row's codes are then long in the cache when they are read again in
// other pieces than they were written in, which the processor cannot forward from its store buffer.
constexpr uint32_t kRowsTogether = 8;

// Pointers to the rows of one token, moved on by Skip.
template <typename Byte>
struct PlaneRows {
  Byte *p2, *p4, *p8;
  HWY_INLINE void Skip(uint32_t width, uint32_t rows) {
    if (p2 != nullptr) p2 += rows * nested::TwoBitRowBytes(width);
    if (p4 != nullptr) p4 += rows * nested::TwoBitRowBytes(width);
    if (p8 != nullptr) p8 += rows * nested::FourBitRowBytes(width);
  }
};

// Shifts within bytes are shifts of 16-bit lanes whose strays the masks remove.
template <int kBits, class D8>
HWY_INLINE hn::Vec<D8> BitsRight(D8 d8, hn::Vec<D8> v, uint8_t mask) {
  const hn::Repartition<uint16_t, D8> d16;
  return hn::And(hn::BitCast(d8, hn::ShiftRight<kBits>(hn::BitCast(d16, v))), hn::Set(d8, mask));
}
template <int kBits, class D8>
HWY_INLINE hn::Vec<D8> BitsLeft(D8 d8, hn::Vec<D8> v, uint8_t mask) {
  const hn::Repartition<uint16_t, D8> d16;
  return hn::And(hn::BitCast(d8, hn::ShiftLeft<kBits>(hn::BitCast(d16, v))), hn::Set(d8, mask));
}

// The three planes of quarters of codes.
template <class D8>
HWY_INLINE hn::Vec<D8> TopPairs(D8 d8, hn::Vec<D8> q0, hn::Vec<D8> q1, hn::Vec<D8> q2, hn::Vec<D8> q3) {
  const auto low = hn::Or(BitsRight<6>(d8, q0, 0x03), BitsRight<4>(d8, q1, 0x0C));
  return hn::Or(low, hn::Or(BitsRight<2>(d8, q2, 0x30), hn::And(q3, hn::Set(d8, 0xC0))));
}
template <class D8>
HWY_INLINE hn::Vec<D8> NextPairs(D8 d8, hn::Vec<D8> q0, hn::Vec<D8> q1, hn::Vec<D8> q2, hn::Vec<D8> q3) {
  const auto low = hn::Or(BitsRight<4>(d8, q0, 0x03), BitsRight<2>(d8, q1, 0x0C));
  return hn::Or(low, hn::Or(hn::And(q2, hn::Set(d8, 0x30)), BitsLeft<2>(d8, q3, 0xC0)));
}
template <class D8>
HWY_INLINE hn::Vec<D8> Nibbles(D8 d8, hn::Vec<D8> low, hn::Vec<D8> high) {
  return hn::Or(hn::And(low, hn::Set(d8, 0x0F)), BitsLeft<4>(d8, high, 0xF0));
}

#if HWY_MAX_BYTES >= 64
// Two rows of 128 values at a time; returns how many of `rows` it packed.
HWY_INLINE uint32_t PackPairsOf128(const uint8_t* HWY_RESTRICT codes, size_t stride, uint32_t rows,
                                   PlaneRows<uint8_t> to) {
  const hn::CappedTag<uint8_t, 64> d8;
  const hn::Half<decltype(d8)> dh;
  uint32_t row = 0;
  for (; row + 2 <= rows; row += 2, codes += 2 * stride, to.Skip(128, 2)) {
    auto quarter = [&](size_t i) HWY_ATTR {
      return hn::Combine(d8, hn::LoadU(dh, codes + stride + 32 * i), hn::LoadU(dh, codes + 32 * i));
    };
    const auto q0 = quarter(0), q1 = quarter(1), q2 = quarter(2), q3 = quarter(3);
    if (to.p2 != nullptr) hn::StoreU(TopPairs(d8, q0, q1, q2, q3), d8, to.p2);
    if (to.p4 != nullptr) hn::StoreU(NextPairs(d8, q0, q1, q2, q3), d8, to.p4);
    if (to.p8 != nullptr) {
      const auto first = Nibbles(d8, q0, q2), second = Nibbles(d8, q1, q3);
      hn::StoreU(hn::ConcatLowerLower(d8, second, first), d8, to.p8);
      hn::StoreU(hn::ConcatUpperUpper(d8, second, first), d8, to.p8 + 64);
    }
  }
  return row;
}
#else
HWY_INLINE uint32_t PackPairsOf128(const uint8_t*, size_t, uint32_t, PlaneRows<uint8_t>) { return 0; }
#endif

// Packs `rows` rows, `stride` bytes apart, whose quarters are covered by whole vectors (the last one overlapping).
template <class D8>
HWY_INLINE void PackQuarters(D8 d8, const uint8_t* HWY_RESTRICT codes, size_t stride, uint32_t rows, size_t quarter,
                             PlaneRows<uint8_t> to) {
  for (uint32_t row = 0; row < rows; ++row, codes += stride, to.Skip(static_cast<uint32_t>(4 * quarter), 1)) {
    ForVectors(quarter, hn::Lanes(d8), [&](size_t at, size_t) HWY_ATTR {
      const auto q0 = hn::LoadU(d8, codes + at);
      const auto q1 = hn::LoadU(d8, codes + quarter + at);
      const auto q2 = hn::LoadU(d8, codes + 2 * quarter + at);
      const auto q3 = hn::LoadU(d8, codes + 3 * quarter + at);
      if (to.p2 != nullptr) hn::StoreU(TopPairs(d8, q0, q1, q2, q3), d8, to.p2 + at);
      if (to.p4 != nullptr) hn::StoreU(NextPairs(d8, q0, q1, q2, q3), d8, to.p4 + at);
      if (to.p8 != nullptr) {
        hn::StoreU(Nibbles(d8, q0, q2), d8, to.p8 + at);
        hn::StoreU(Nibbles(d8, q1, q3), d8, to.p8 + quarter + at);
      }
    });
  }
}

// What is unpacked: codes as they are, with zeros for bits of planes not asked for, or levels of the offset code.
enum class Unpacked { kCodes, kLevels };

template <PrecisionClass kPrecision, Unpacked kWhat, class D8>
HWY_INLINE void UnpackQuarters(D8 d8, PlaneRows<const uint8_t> from, uint32_t rows, size_t quarter, size_t stride,
                               uint8_t* HWY_RESTRICT levels) {
  const auto offset =
      hn::Set(d8, kPrecision == PrecisionClass::k2Bit ? 24 : static_cast<uint8_t>(256 - nested::kCodeOffset));
  for (uint32_t row = 0; row < rows; ++row, levels += stride, from.Skip(static_cast<uint32_t>(4 * quarter), 1)) {
    ForVectors(quarter, hn::Lanes(d8), [&](size_t at, size_t) HWY_ATTR {
      const auto a = hn::LoadU(d8, from.p2 + at);
      auto q0 = BitsLeft<6>(d8, a, 0xC0), q1 = BitsLeft<4>(d8, a, 0xC0), q2 = BitsLeft<2>(d8, a, 0xC0);
      auto q3 = hn::And(a, hn::Set(d8, 0xC0));
      if constexpr (kPrecision >= PrecisionClass::k4Bit) {
        const auto b = hn::LoadU(d8, from.p4 + at);
        q0 = hn::Or(q0, BitsLeft<4>(d8, b, 0x30));
        q1 = hn::Or(q1, BitsLeft<2>(d8, b, 0x30));
        q2 = hn::Or(q2, hn::And(b, hn::Set(d8, 0x30)));
        q3 = hn::Or(q3, BitsRight<2>(d8, b, 0x30));
      }
      if constexpr (kPrecision >= PrecisionClass::k8Bit) {
        const auto nibble = hn::Set(d8, 0x0F);
        const auto low = hn::LoadU(d8, from.p8 + at), high = hn::LoadU(d8, from.p8 + quarter + at);
        q0 = hn::Or(q0, hn::And(low, nibble));
        q1 = hn::Or(q1, hn::And(high, nibble));
        q2 = hn::Or(q2, BitsRight<4>(d8, low, 0x0F));
        q3 = hn::Or(q3, BitsRight<4>(d8, high, 0x0F));
      }
      if constexpr (kWhat == Unpacked::kLevels && kPrecision != PrecisionClass::k4Bit) {
        q0 = hn::Add(q0, offset), q1 = hn::Add(q1, offset), q2 = hn::Add(q2, offset), q3 = hn::Add(q3, offset);
      }
      hn::StoreU(q0, d8, levels + at);
      hn::StoreU(q1, d8, levels + quarter + at);
      hn::StoreU(q2, d8, levels + 2 * quarter + at);
      hn::StoreU(q3, d8, levels + 3 * quarter + at);
    });
  }
}

// Calls body(tag) with the widest vector, of 32 bytes at most (a quarter of the common 128-value row), that a quarter
// of the row fills; returns false where there is none.
template <class Body>
HWY_INLINE bool WithQuarterVector(uint32_t width, const Body& body) {
  const hn::CappedTag<uint8_t, 32> d32;
  const hn::CappedTag<uint8_t, 16> d16;
  const hn::CappedTag<uint8_t, 8> d8;
  const size_t quarter = width / 4;
  if (width % 4 != 0 || quarter < hn::Lanes(d8)) return false;
  if (quarter >= hn::Lanes(d32)) {
    body(d32);
  } else if (quarter >= hn::Lanes(d16)) {
    body(d16);
  } else {
    body(d8);
  }
  return true;
}

// Packs `rows` rows of codes, `stride` bytes apart.
inline void PackRows(const uint8_t* codes, size_t stride, uint32_t rows, uint32_t width, PlaneRows<uint8_t> to) {
  if (HWY_LIKELY(width == 128)) {
    const uint32_t done = PackPairsOf128(codes, stride, rows, to);
    codes += done * stride, rows -= done, to.Skip(width, done);
    if (rows == 0) return;
  }
  const bool packed =
      WithQuarterVector(width, [&](auto tag) HWY_ATTR { PackQuarters(tag, codes, stride, rows, width / 4, to); });
  for (uint32_t row = 0; !packed && row < rows; ++row, codes += stride, to.Skip(width, 1)) {
    nested::PackRowReference(codes, width, to.p2, to.p4, to.p8);
  }
}

// Unpacks `rows` rows to codes or levels, `stride` bytes apart.
template <Unpacked kWhat>
HWY_INLINE void UnpackRows(PlaneRows<const uint8_t> from, uint32_t rows, uint32_t width, PrecisionClass precision,
                           size_t stride, uint8_t* levels) {
  const bool unpacked = WithQuarterVector(width, [&](auto tag) HWY_ATTR {
    if (precision == PrecisionClass::k8Bit) {
      UnpackQuarters<PrecisionClass::k8Bit, kWhat>(tag, from, rows, width / 4, stride, levels);
    } else if (precision == PrecisionClass::k4Bit) {
      UnpackQuarters<PrecisionClass::k4Bit, kWhat>(tag, from, rows, width / 4, stride, levels);
    } else {
      UnpackQuarters<PrecisionClass::k2Bit, kWhat>(tag, from, rows, width / 4, stride, levels);
    }
  });
  for (uint32_t row = 0; !unpacked && row < rows; ++row, levels += stride, from.Skip(width, 1)) {
    if constexpr (kWhat == Unpacked::kLevels) {
      nested::UnpackRowReference(from.p2, from.p4, from.p8, width, precision, levels);
    } else {
      nested::UnpackCodesReference(from.p2, from.p4, from.p8, width, precision, levels);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#endif
