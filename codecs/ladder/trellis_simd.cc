#include <type_traits>

#include "codecs/ladder/ladder_codec.h"
#include "codecs/ladder/trellis_tables.h"
#include "codecs/numeric/float_rows.h"

// The search wants tables of 64 bytes.
#define HWY_WANT_AVX3_DL

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codecs/ladder/trellis_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR
#include "codecs/ladder/rows-inl.h"
#include "codecs/ladder/search-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void EncodeTrellisTarget(const EncodeTile& tile) { ladder::EncodeTrellisReference(tile); }
void DecodeTrellisTarget(const DecodeTile& tile) { ladder::DecodeTrellisReference(tile); }
Survey SurveyTrellisTarget(const EncodeTile& tile) { return ladder::SurveyTrellisReference(tile); }

#else

namespace trellis = ladder::trellis;

// Codes and sums of one row, from its steps and what the search marked.
HWY_INLINE void ResidualRow(const int16_t* steps, const uint8_t* marks, uint32_t width, uint8_t* codes,
                            int64_t* totals) {
  const hn::ScalableTag<int16_t> di16;
  const hn::RebindToUnsigned<decltype(di16)> d16;
  const hn::Rebind<uint8_t, decltype(di16)> d8;
  const auto& tables = trellis::kSteps;
  constexpr int16_t kOver = 32767 - (trellis::kBlocksEnd - 1);
  const uint32_t lanes = static_cast<uint32_t>(hn::Lanes(di16));
  std::fill_n(totals, 4, 0);
  for (uint32_t first = 0; first < width; first += kProductsMax * lanes) {
    const uint32_t end = HWY_MIN(width, first + kProductsMax * lanes);
    auto squares = hn::Zero(ProductTag()), twos = squares, fours = squares;
    for (uint32_t c = first; c < end; c += lanes) {
      const auto z = hn::Load(di16, steps + c);
      const auto mark = hn::PromoteTo(d16, hn::LoadU(d8, marks + c));
      const auto row = hn::ShiftRight<1>(mark);  // Eight times the upper level, below the symbol.
      // All ones where p is 0: those levels mirror the upper ones.
      const auto mirror = hn::Sub(hn::ShiftRight<7>(mark), hn::Set(d16, 1));
      const auto x = hn::Xor(z, hn::BitCast(di16, mirror));
      const auto level = hn::BitCast(di16, EntryOf32(d16, tables.two, row, hn::Zero(d16)));
      const auto relative = hn::Sub(x, level);
      // Within the blocks, by saturating at either end.
      const auto capped = hn::BitCast(d16, hn::SaturatedAdd(relative, hn::Set(di16, kOver)));
      const auto within = hn::SaturatedSub(capped, hn::Set(d16, static_cast<uint16_t>(kOver + trellis::kBlocksBegin)));
      const auto finder = EntryOf32(d16, tables.finder, row, hn::ShiftRight<9>(within));
      const auto stretch = hn::ShiftRight<9>(hn::Add(hn::And(within, hn::Set(d16, 511)), finder));
      const auto start = hn::BitCast(di16, EntryOf32(d16, tables.start, row, stretch));
      const auto from_start = hn::BitCast(d16, hn::Max(hn::Sub(relative, start), hn::Zero(di16)));
      const auto parts = hn::MulHigh(from_start, EntryOf32(d16, tables.reciprocal, row, stretch));
      const auto residual =
          hn::Min(hn::ShiftRight<3>(hn::Add(parts, EntryOf32(d16, tables.first_part, row, stretch))), hn::Set(d16, 63));
      const auto four = hn::BitCast(di16, EntryOf32(d16, tables.four, row, hn::ShiftRight<4>(residual)));
      const auto upright = hn::Sub(x, hn::BitCast(di16, mirror));  // z, or -z where mirrored.
      squares = AddProducts(squares, z, z);
      twos = AddProducts(twos, upright, level);
      fours = AddProducts(fours, upright, four);
      const auto turned = hn::And(hn::Xor(residual, mirror), hn::Set(d16, 63));
      hn::StoreU(hn::TruncateTo(d8, hn::Or(hn::And(mark, hn::Set(d16, 0xC0)), turned)), d8, codes + c);
    }
    AddToTotals(squares, twos, fours, totals);
  }
}

// Memory of the search, for rows of some width.
class TrellisCoder {
 public:
  explicit TrellisCoder(uint32_t width)
      : width_(width), rows_(size_t{width} * kSearchRows), turned_(size_t{width} * kSearchRows), path_(width) {}

  // As EncodeLadderRows asks; at most kSearchRows rows.
  HWY_INLINE void Code(const int16_t* steps, uint32_t count, uint8_t* codes, RowBatch& rows) {
    Positions(steps, count);
    TransposeBytes(rows_.data(), width_, kSearchRows, width_, turned_.data(), kSearchRows);
    uint64_t high, low;
    SearchForward(turned_.data(), width_, path_.data(), &high, &low);
    SearchBackward(path_.data(), width_, &high, &low, turned_.data());
    TransposeBytes(turned_.data(), kSearchRows, width_, kSearchRows, rows_.data(), width_);
    for (uint32_t r = 0; r < count; ++r) {
      rows.starts[r] = static_cast<uint8_t>((high >> r & 1u) << 1 | (low >> r & 1u));
      ResidualRow(steps + size_t{r} * width_, rows_.data() + size_t{r} * width_, width_, codes + size_t{r} * width_,
                  rows.sums[r]);
    }
  }

 private:
  // Steps as the search counts them; rows that are not there are zeros.
  HWY_INLINE void Positions(const int16_t* steps, uint32_t rows) {
    const hn::ScalableTag<int16_t> d16;
    const hn::Rebind<int8_t, decltype(d16)> d8;
    const size_t values = size_t{rows} * width_;
    auto* to = reinterpret_cast<int8_t*>(rows_.data());
    for (size_t i = 0; i < values; i += hn::Lanes(d16)) {
      const auto rounded = hn::Add(hn::Load(d16, steps + i), hn::Set(d16, 1 << (trellis::kSearchShift - 1)));
      hn::StoreU(hn::DemoteTo(d8, hn::ShiftRight<trellis::kSearchShift>(rounded)), d8, to + i);
    }
    std::memset(to + values, 0, size_t{kSearchRows} * width_ - values);
  }

  const uint32_t width_;
  InlineBuffer<uint8_t, size_t{kSearchRows} * 128> rows_, turned_;
  InlineBuffer<SearchStep, 128> path_;
};

template <PrecisionClass kPrecision>
class TrellisLevels {
 public:
  using DF = hn::ScalableTag<float>;
  HWY_INLINE TrellisLevels() : factor_(hn::Zero(DF())) {}

  // Turns the top bits of a row of codes into what At looks up. The neighbours' bits come from unaligned loads.
  static HWY_INLINE void Prepare(uint8_t* codes, uint8_t start, uint32_t width) {
    const hn::ScalableTag<uint8_t> d8;
    codes[-1] = static_cast<uint8_t>(start << 6);
    codes[-2] = static_cast<uint8_t>(start << 5);
    if constexpr (kPrecision == PrecisionClass::k8Bit) return;  // At finds the neighbours' bits itself.
    // From the end, so that neighbours are still what they were.
    for (size_t end = width; end > 0; end -= hn::Lanes(d8)) {
      uint8_t* at = codes + end - hn::Lanes(d8);
      const auto code = hn::LoadU(d8, at), before = hn::LoadU(d8, at - 1), two_before = hn::LoadU(d8, at - 2);
      const auto mixed = hn::And(hn::Xor(code, two_before), hn::Set(d8, 0x40));
      const auto top = hn::Or(hn::And(code, hn::Set(d8, 0x80)), hn::Or(mixed, BitsRight<1>(d8, before, 0x20)));
      if constexpr (kPrecision == PrecisionClass::k2Bit) {
        hn::StoreU(BitsRight<5>(d8, top, 0x07), d8, at);
      } else {
        hn::StoreU(hn::Or(BitsRight<3>(d8, top, 0x1C), BitsRight<4>(d8, code, 0x03)), d8, at);
      }
    }
  }

  HWY_INLINE void Begin(const uint8_t* codes, float factor) {
    codes_ = codes;
    if constexpr (kPrecision == PrecisionClass::k2Bit) table_.Set(trellis::kLevels.two, factor);
    if constexpr (kPrecision == PrecisionClass::k4Bit) table_.Set(trellis::kLevels.four, factor);
    factor_ = hn::Set(DF(), factor);
  }
  HWY_INLINE hn::Vec<DF> At(size_t c) const {
    const DF df;
    const hn::RebindToSigned<DF> di;
    const hn::Rebind<uint8_t, DF> d8;
    const auto code = hn::PromoteTo(di, hn::LoadU(d8, codes_ + c));
    if constexpr (kPrecision != PrecisionClass::k8Bit) return table_.At(code);
    const auto before = hn::PromoteTo(di, hn::LoadU(d8, codes_ + c - 1));
    const auto two_before = hn::PromoteTo(di, hn::LoadU(d8, codes_ + c - 2));
    // Bit 6 of the neighbours to bits 7 and 6, below bit 8 for p.
    const auto p = hn::ShiftLeft<1>(hn::And(code, hn::Set(di, 0x80)));
    const auto mixed = hn::ShiftLeft<1>(hn::And(hn::Xor(code, two_before), hn::Set(di, 0x40)));
    const auto low = hn::Or(hn::And(before, hn::Set(di, 0x40)), hn::And(code, hn::Set(di, 0x3F)));
    return hn::Mul(hn::GatherIndex(df, trellis::kLevels.eight, hn::Or(hn::Or(p, mixed), low)), factor_);
  }

 private:
  const uint8_t* codes_ = nullptr;
  hn::Vec<DF> factor_;
  LevelTable<kPrecision == PrecisionClass::k2Bit ? 8 : 32> table_;
};

void EncodeTrellisTarget(const EncodeTile& tile) {
  TrellisCoder coder(tile.width);
  WithFloatType(tile.in, [&](auto in) HWY_ATTR {
    EncodeLadderRows(in, tile, trellis::kLimits, kSearchRows,
                     [&](const int16_t* steps, uint32_t count, uint8_t* codes, RowBatch& rows)
                         HWY_ATTR { coder.Code(steps, count, codes, rows); });
  });
}

void DecodeTrellisTarget(const DecodeTile& tile) {
  WithFloatType(tile.out, [&](auto out) HWY_ATTR {
    WithPrecision(tile.precision, [&](auto precision) HWY_ATTR {
      using Levels = TrellisLevels<decltype(precision)::value>;
      Levels levels;
      DecodeLadderRows(
          out, tile, [&](uint8_t* codes, uint8_t start) HWY_ATTR { Levels::Prepare(codes, start, tile.width); },
          levels);
    });
  });
}

Survey SurveyTrellisTarget(const EncodeTile& tile) {
  Survey survey;
  WithFloatType(tile.in, [&](auto in) HWY_ATTR { survey = SurveyLadderRows(in, tile, trellis::kLimits); });
  return survey;
}

#endif
}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace firn {
HWY_EXPORT(EncodeTrellisTarget);
HWY_EXPORT(DecodeTrellisTarget);
HWY_EXPORT(SurveyTrellisTarget);
namespace ladder {
void EncodeTrellis(const EncodeTile& tile) { HWY_DYNAMIC_DISPATCH(EncodeTrellisTarget)(tile); }
void DecodeTrellis(const DecodeTile& tile) { HWY_DYNAMIC_DISPATCH(DecodeTrellisTarget)(tile); }
Survey SurveyTrellis(const EncodeTile& tile) { return HWY_DYNAMIC_DISPATCH(SurveyTrellisTarget)(tile); }
}  // namespace ladder
}  // namespace firn
#endif
