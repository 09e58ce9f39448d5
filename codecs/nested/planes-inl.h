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

// Pointers to the rows of one token, moved on by Next.
template <typename Byte>
struct PlaneRows {
  Byte *p2, *p4, *p8;
  void Next(uint32_t width) {
    if (p2 != nullptr) p2 += nested::TwoBitRowBytes(width);
    if (p4 != nullptr) p4 += nested::TwoBitRowBytes(width);
    if (p8 != nullptr) p8 += nested::FourBitRowBytes(width);
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

// Widths that four quarters of whole vectors (the last overlapping) cover.
template <class D8>
HWY_INLINE void PackQuarters(D8 d8, const uint8_t* codes, size_t quarter, const PlaneRows<uint8_t>& to) {
  ForVectors(quarter, hn::Lanes(d8), [&](size_t at, size_t) HWY_ATTR {
    const auto q0 = hn::LoadU(d8, codes + at);
    const auto q1 = hn::LoadU(d8, codes + quarter + at);
    const auto q2 = hn::LoadU(d8, codes + 2 * quarter + at);
    const auto q3 = hn::LoadU(d8, codes + 3 * quarter + at);
    if (to.p2 != nullptr) {
      const auto low = hn::Or(BitsRight<6>(d8, q0, 0x03), BitsRight<4>(d8, q1, 0x0C));
      const auto high = hn::Or(BitsRight<2>(d8, q2, 0x30), hn::And(q3, hn::Set(d8, 0xC0)));
      hn::StoreU(hn::Or(low, high), d8, to.p2 + at);
    }
    if (to.p4 != nullptr) {
      const auto low = hn::Or(BitsRight<4>(d8, q0, 0x03), BitsRight<2>(d8, q1, 0x0C));
      const auto high = hn::Or(hn::And(q2, hn::Set(d8, 0x30)), BitsLeft<2>(d8, q3, 0xC0));
      hn::StoreU(hn::Or(low, high), d8, to.p4 + at);
    }
    if (to.p8 != nullptr) {
      const auto nibble = hn::Set(d8, 0x0F);
      hn::StoreU(hn::Or(hn::And(q0, nibble), BitsLeft<4>(d8, q2, 0xF0)), d8, to.p8 + at);
      hn::StoreU(hn::Or(hn::And(q1, nibble), BitsLeft<4>(d8, q3, 0xF0)), d8, to.p8 + quarter + at);
    }
  });
}

template <class D8>
HWY_INLINE void UnpackQuarters(D8 d8, const PlaneRows<const uint8_t>& from, size_t quarter, PrecisionClass precision,
                               uint8_t* levels) {
  const auto top = hn::Set(d8, 0xC0);
  const auto next = hn::Set(d8, 0x30);
  const auto offset =
      hn::Set(d8, precision == PrecisionClass::k2Bit ? 24 : static_cast<uint8_t>(256 - nested::kCodeOffset));
  ForVectors(quarter, hn::Lanes(d8), [&](size_t at, size_t) HWY_ATTR {
    const auto a = hn::LoadU(d8, from.p2 + at);
    auto q0 = BitsLeft<6>(d8, a, 0xC0), q1 = BitsLeft<4>(d8, a, 0xC0), q2 = BitsLeft<2>(d8, a, 0xC0);
    auto q3 = hn::And(a, top);
    if (precision >= PrecisionClass::k4Bit) {
      const auto b = hn::LoadU(d8, from.p4 + at);
      q0 = hn::Or(q0, BitsLeft<4>(d8, b, 0x30));
      q1 = hn::Or(q1, BitsLeft<2>(d8, b, 0x30));
      q2 = hn::Or(q2, hn::And(b, next));
      q3 = hn::Or(q3, BitsRight<2>(d8, b, 0x30));
    }
    if (precision >= PrecisionClass::k8Bit) {
      const auto nibble = hn::Set(d8, 0x0F);
      const auto low = hn::LoadU(d8, from.p8 + at), high = hn::LoadU(d8, from.p8 + quarter + at);
      q0 = hn::Or(q0, hn::And(low, nibble));
      q1 = hn::Or(q1, hn::And(high, nibble));
      q2 = hn::Or(q2, BitsRight<4>(d8, low, 0x0F));
      q3 = hn::Or(q3, BitsRight<4>(d8, high, 0x0F));
    }
    if (precision != PrecisionClass::k4Bit) {
      q0 = hn::Add(q0, offset), q1 = hn::Add(q1, offset), q2 = hn::Add(q2, offset), q3 = hn::Add(q3, offset);
    }
    hn::StoreU(q0, d8, levels + at);
    hn::StoreU(q1, d8, levels + quarter + at);
    hn::StoreU(q2, d8, levels + 2 * quarter + at);
    hn::StoreU(q3, d8, levels + 3 * quarter + at);
  });
}

// Vectors of no more than 32 bytes: a quarter of the common 128-value row.
HWY_INLINE void PackRow(const uint8_t* codes, uint32_t width, const PlaneRows<uint8_t>& to) {
  const size_t quarter = width / 4;
  const hn::CappedTag<uint8_t, 32> d32;
  const hn::CappedTag<uint8_t, 16> d16;
  const hn::CappedTag<uint8_t, 8> d8;
  if (width % 4 != 0 || quarter < hn::Lanes(d8)) {
    nested::PackRowReference(codes, width, to.p2, to.p4, to.p8);
  } else if (quarter >= hn::Lanes(d32)) {
    PackQuarters(d32, codes, quarter, to);
  } else if (quarter >= hn::Lanes(d16)) {
    PackQuarters(d16, codes, quarter, to);
  } else {
    PackQuarters(d8, codes, quarter, to);
  }
}

HWY_INLINE void UnpackRow(const PlaneRows<const uint8_t>& from, uint32_t width, PrecisionClass precision,
                          uint8_t* levels) {
  const size_t quarter = width / 4;
  const hn::CappedTag<uint8_t, 32> d32;
  const hn::CappedTag<uint8_t, 16> d16;
  const hn::CappedTag<uint8_t, 8> d8;
  if (width % 4 != 0 || quarter < hn::Lanes(d8)) {
    nested::UnpackRowReference(from.p2, from.p4, from.p8, width, precision, levels);
  } else if (quarter >= hn::Lanes(d32)) {
    UnpackQuarters(d32, from, quarter, precision, levels);
  } else if (quarter >= hn::Lanes(d16)) {
    UnpackQuarters(d16, from, quarter, precision, levels);
  } else {
    UnpackQuarters(d8, from, quarter, precision, levels);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#endif
