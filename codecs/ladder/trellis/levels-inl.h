// The levels of rows of trellis codes in vectors: parallel over a row, since a level depends on no more than the two
// symbols before it.
//
// A per-target header: include it after hwy/foreach_target.h.

#if defined(FIRN_CODECS_LADDER_TRELLIS_LEVELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FIRN_CODECS_LADDER_TRELLIS_LEVELS_INL_H_
#undef FIRN_CODECS_LADDER_TRELLIS_LEVELS_INL_H_
#else
#define FIRN_CODECS_LADDER_TRELLIS_LEVELS_INL_H_
#endif

#include "codecs/ladder/decode_rows-inl.h"
#include "codecs/ladder/trellis/trellis_tables.h"

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {

// What the symbols of some values and of their neighbours say: p in bit 7, b ^ b[-2] in bit 6, b[-1] in bit 5. The
// neighbours' bits come from unaligned loads.
template <class D8>
HWY_INLINE hn::Vec<D8> TrellisTops(D8 d8, const uint8_t* codes) {
  const auto code = hn::LoadU(d8, codes), before = hn::LoadU(d8, codes - 1), two_before = hn::LoadU(d8, codes - 2);
  const auto mixed = hn::And(hn::Xor(code, two_before), hn::Set(d8, 0x40));
  return hn::Or(hn::And(code, hn::Set(d8, 0x80)), hn::Or(mixed, BitsRight<1>(d8, before, 0x20)));
}

// What DecodeLadderRows asks for: at 2 and 4 bits the number of a level.
template <PrecisionClass kPrecision>
class TrellisLevels {
 public:
  using DF = hn::ScalableTag<float>;
  static constexpr bool kTwoBytes = false;
  HWY_INLINE TrellisLevels() {}

  static HWY_INLINE void Prepare(uint8_t* codes, uint8_t start, uint32_t width) {
    const hn::ScalableTag<uint8_t> d8;
    codes[-1] = static_cast<uint8_t>(start << 6);
    codes[-2] = static_cast<uint8_t>(start << 5);
    // From the end, so that neighbours are still what they were.
    for (size_t end = width; end > 0; end -= hn::Lanes(d8)) {
      uint8_t* at = codes + end - hn::Lanes(d8);
      const auto top = TrellisTops(d8, at);
      if constexpr (kPrecision == PrecisionClass::k2Bit) {
        hn::StoreU(BitsRight<5>(d8, top, 0x07), d8, at);
      } else {
        hn::StoreU(hn::Or(BitsRight<3>(d8, top, 0x1C), BitsRight<4>(d8, hn::LoadU(d8, at), 0x03)), d8, at);
      }
    }
  }
  HWY_INLINE void Begin(const uint8_t* codes, uint32_t, float factor) {
    namespace trellis = ladder::trellis;
    codes_ = codes;
    table_.Set(kPrecision == PrecisionClass::k2Bit ? trellis::kLevels.two : trellis::kLevels.four, factor);
  }
  HWY_INLINE hn::Vec<DF> At(size_t c) const {
    return table_.At(hn::PromoteTo(hn::RebindToSigned<DF>(), hn::LoadU(hn::Rebind<uint8_t, DF>(), codes_ + c)));
  }

 private:
  const uint8_t* codes_ = nullptr;
  LevelTable<kPrecision == PrecisionClass::k2Bit ? 8 : 32> table_;
};

// At 8 bits two bytes a value. Where tables of 64 bytes are at hand: the stretch of parts, in rows of eight by upper
// level, with bit 7 where the level is a lower one; and which of its parts. Otherwise j and the code.
template <>
class TrellisLevels<PrecisionClass::k8Bit> {
 public:
  using DF = hn::ScalableTag<float>;
  using DI = hn::RebindToSigned<DF>;
  static constexpr bool kTwoBytes = true;
  HWY_INLINE TrellisLevels() : factor_(hn::Zero(DF())) {}

  static HWY_INLINE void Prepare(uint8_t* codes, uint8_t start, uint32_t width) {
    const hn::ScalableTag<uint8_t> d8;
    codes[-1] = static_cast<uint8_t>(start << 6);
    codes[-2] = static_cast<uint8_t>(start << 5);
    for (size_t end = width; end > 0; end -= hn::Lanes(d8)) {
      uint8_t* at = codes + end - hn::Lanes(d8);
      const auto top = TrellisTops(d8, at), code = hn::LoadU(d8, at);
#if HWY_TARGET <= HWY_AVX3_DL
      // Lower levels mirror the upper ones: all bits of level and residual turn.
      const hn::RebindToSigned<decltype(d8)> di8;
      const auto upper = hn::RebindMask(d8, hn::Lt(hn::BitCast(di8, top), hn::Zero(di8)));
      const auto turn = hn::IfThenZeroElse(upper, hn::Set(d8, 0xFF));
      const auto residual = hn::And(hn::Xor(code, turn), hn::Set(d8, 0x3F));
      const auto row = hn::And(BitsRight<2>(d8, hn::Xor(top, turn), 0x18), hn::Set(d8, 0x18));
      const auto* tables = &ladder::trellis::kParting;
      const auto stretch =
          hn::Vec<decltype(d8)>{_mm512_permutexvar_epi8(residual.raw, hn::LoadU(d8, tables->stretch).raw)};
      const auto part = hn::Vec<decltype(d8)>{_mm512_permutexvar_epi8(residual.raw, hn::LoadU(d8, tables->part).raw)};
      hn::StoreU(hn::Or(hn::Or(row, stretch), hn::And(turn, hn::Set(d8, 0x80))), d8, at);
      hn::StoreU(part, d8, at + width);
#else
      hn::StoreU(BitsRight<5>(d8, top, 0x07), d8, at);
      hn::StoreU(code, d8, at + width);
#endif
    }
  }
  HWY_INLINE void Begin(const uint8_t* codes, uint32_t width, float factor) {
    first_ = codes, second_ = codes + width;
    factor_ = hn::Set(DF(), factor);
#if HWY_TARGET <= HWY_AVX3_DL
    start_.Set(ladder::trellis::kParting.start, 1.0f);
    width_.Set(ladder::trellis::kParting.width, 1.0f);
#endif
  }
  HWY_INLINE hn::Vec<DF> At(size_t c) const {
    const DF df;
    const DI di;
    const auto first = hn::PromoteTo(di, hn::LoadU(hn::Rebind<uint8_t, DF>(), first_ + c));
    const auto second = hn::PromoteTo(di, hn::LoadU(hn::Rebind<uint8_t, DF>(), second_ + c));
#if HWY_TARGET <= HWY_AVX3_DL
    const auto level = hn::MulAdd(hn::ConvertTo(df, second), width_.At(first), start_.At(first));  // Exact.
    const auto sign = hn::And(hn::BitCast(df, hn::ShiftLeft<24>(first)), hn::SignBit(df));
    return hn::Mul(hn::Xor(level, sign), factor_);
#else
    const auto index = hn::Or(hn::ShiftLeft<6>(first), hn::And(second, hn::Set(di, 0x3F)));
    return hn::Mul(hn::GatherIndex(df, ladder::trellis::kLevels.eight, index), factor_);
#endif
  }

 private:
  const uint8_t *first_ = nullptr, *second_ = nullptr;
  hn::Vec<DF> factor_;
#if HWY_TARGET <= HWY_AVX3_DL
  LevelTable<32> start_, width_;
#endif
};

}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#endif
