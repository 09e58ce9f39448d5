#include <type_traits>

#include "codecs/ladder/gain/gain_format.h"
#include "codecs/ladder/ladder_codec.h"
#include "codecs/numeric/float_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codecs/ladder/gain/gain_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR
#include "codecs/ladder/decode_rows-inl.h"
#include "codecs/ladder/products-inl.h"
#include "codecs/ladder/rows-inl.h"
#endif

#ifndef FIRN_CODECS_LADDER_GAIN_TABLES_
#define FIRN_CODECS_LADDER_GAIN_TABLES_
namespace firn::ladder::gain {

// The cell of a magnitude a: (a / 16 % 32 + entry a / 512) / 32. No 512 magnitudes hold the beginning of two cells.
constexpr std::array<uint8_t, 16> MakeCellFinder() {
  std::array<uint8_t, 16> finder{};
  for (int32_t block = 0; block < 16; ++block) {
    int32_t first = block * 512, cell = 0, inside = 0;
    while (cell < 7 && kCellStart[cell + 1] <= first) ++cell;
    if (cell < 7 && kCellStart[cell + 1] < first + 512) inside = 32 - (kCellStart[cell + 1] - first) / 16;
    finder[static_cast<size_t>(block)] = static_cast<uint8_t>(32 * cell + inside);
  }
  return finder;
}
alignas(16) inline constexpr std::array<uint8_t, 16> kCellFinder = MakeCellFinder();

// x / width = (x * (2^19 / width, rounded upwards)) >> 19 for all x that occur.
struct CellTables {
  alignas(64) uint16_t start[32], reciprocal[32], four[32], two[32];
};
constexpr CellTables MakeCellTables() {
  CellTables tables{};
  for (int i = 0; i < 8; ++i) {
    tables.start[i] = static_cast<uint16_t>(kCellStart[i]);
    tables.reciprocal[i] = static_cast<uint16_t>(((1 << 19) + kPartWidth[i] - 1) / kPartWidth[i]);
    tables.four[i] = static_cast<uint16_t>(kFourBitLevel[i]);
    tables.two[i] = static_cast<uint16_t>(kTwoBitLevel[i / 4]);
  }
  return tables;
}
inline constexpr CellTables kCells = MakeCellTables();
constexpr bool CellsDivideExactly() {
  for (int32_t magnitude = 0; magnitude <= static_cast<int32_t>(kLimits.steps_max); ++magnitude) {
    int32_t cell = (magnitude / 16 % 32 + kCellFinder[static_cast<size_t>(magnitude / 512)]) / 32;
    int32_t x = magnitude - kCellStart[cell];
    if (x < 0 || (cell < 7 && magnitude >= kCellStart[cell + 1])) return false;
    if ((x * kCells.reciprocal[cell]) >> 19 != x / kPartWidth[cell] || x / kPartWidth[cell] > 15) return false;
  }
  return true;
}
static_assert(CellsDivideExactly());

struct LevelTables {
  alignas(64) float two[16], four[16], eight[256];
  // Of the sign and the cell: the middle of the first part, and the width of a part.
  alignas(64) float first[16], width[16];
};
constexpr LevelTables MakeLevelTables() {
  LevelTables tables{};
  for (uint32_t i = 0; i < 16; ++i) {
    tables.two[i] = TwoBitLevelOf(i % 4);
    tables.four[i] = FourBitLevelOf(i);
    tables.first[i] = EightBitLevelOf(i << 4);
    tables.width[i] = EightBitLevelOf(i << 4 | 1u) - tables.first[i];
  }
  for (uint32_t i = 0; i < 256; ++i) tables.eight[i] = EightBitLevelOf(i);
  return tables;
}
inline constexpr LevelTables kLevels = MakeLevelTables();

}  // namespace firn::ladder::gain
#endif

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void EncodeGainTarget(const EncodeTile& tile) { ladder::EncodeGainReference(tile); }
void DecodeGainTarget(const DecodeTile& tile) { ladder::DecodeGainReference(tile); }
Survey SurveyGainTarget(const EncodeTile& tile) { return ladder::SurveyGainReference(tile); }

#else

// Codes and sums of one row of steps.
HWY_INLINE void GainRow(const int16_t* steps, uint32_t width, uint8_t* codes, int64_t* totals) {
  namespace gain = ladder::gain;
  const hn::ScalableTag<int16_t> d16;
  const hn::RebindToUnsigned<decltype(d16)> du16;
  const hn::Rebind<uint8_t, decltype(d16)> d8;
  const hn::Repartition<uint8_t, decltype(d16)> d_bytes;
  const auto finder = hn::BitCast(du16, hn::LoadDup128(d_bytes, gain::kCellFinder.data()));
  const uint32_t lanes = static_cast<uint32_t>(hn::Lanes(d16));
  std::fill_n(totals, 4, 0);
  for (uint32_t first = 0; first < width; first += kProductsMax * lanes) {
    const uint32_t end = HWY_MIN(width, first + kProductsMax * lanes);
    auto squares = hn::Zero(ProductTag()), twos = squares, fours = squares;
    for (uint32_t c = first; c < end; c += lanes) {
      const auto z = hn::Load(d16, steps + c);
      const auto magnitude = hn::Abs(z);
      const auto a = hn::BitCast(du16, magnitude);
      const auto inside = hn::And(hn::ShiftRight<4>(a), hn::Set(du16, 31));
      const auto cell = hn::ShiftRight<5>(hn::Add(inside, hn::TableLookupBytes(finder, hn::ShiftRight<9>(a))));
      const auto x = hn::Sub(a, EntryOf8(du16, gain::kCells.start, cell));
      const auto part = hn::ShiftRight<3>(hn::MulHigh(x, EntryOf8(du16, gain::kCells.reciprocal, cell)));
      squares = AddProducts(squares, magnitude, magnitude);
      twos = AddProducts(twos, magnitude, hn::BitCast(d16, EntryOf8(du16, gain::kCells.two, cell)));
      fours = AddProducts(fours, magnitude, hn::BitCast(d16, EntryOf8(du16, gain::kCells.four, cell)));
      const auto sign = hn::And(hn::ShiftRight<8>(hn::BitCast(du16, z)), hn::Set(du16, 0x80));
      const auto code = hn::Or(hn::Or(sign, hn::ShiftLeft<4>(cell)), part);
      hn::StoreU(hn::TruncateTo(d8, code), d8, codes + c);
    }
    AddToTotals(squares, twos, fours, totals);
  }
}

template <PrecisionClass kPrecision>
class GainLevels {
 public:
  using DF = hn::ScalableTag<float>;
  HWY_INLINE GainLevels() : factor_(hn::Zero(DF())) {}
  static constexpr bool kTwoBytes = false;
  static HWY_INLINE void Prepare(uint8_t*, uint8_t, uint32_t) {}

  HWY_INLINE void Begin(const uint8_t* codes, uint32_t, float factor) {
    codes_ = codes;
    if constexpr (kPrecision == PrecisionClass::k2Bit) table_.Set(ladder::gain::kLevels.two, factor);
    if constexpr (kPrecision == PrecisionClass::k4Bit) table_.Set(ladder::gain::kLevels.four, factor);
    factor_ = hn::Set(DF(), factor);
  }
  HWY_INLINE hn::Vec<DF> At(size_t c) const {
    const DF df;
    const hn::RebindToSigned<DF> di;
    const auto code = hn::PromoteTo(di, hn::LoadU(hn::Rebind<uint8_t, DF>(), codes_ + c));
    if constexpr (kPrecision == PrecisionClass::k2Bit) return table_.At(hn::ShiftRight<6>(code));
    if constexpr (kPrecision == PrecisionClass::k4Bit) return table_.At(hn::ShiftRight<4>(code));
    if constexpr (hn::MaxLanes(DF()) == 16) {
      const auto cell = hn::IndicesFromVec(df, hn::ShiftRight<4>(code));
      const auto first = hn::TableLookupLanes(hn::Load(df, ladder::gain::kLevels.first), cell);
      const auto width = hn::TableLookupLanes(hn::Load(df, ladder::gain::kLevels.width), cell);
      const auto part = hn::ConvertTo(df, hn::And(code, hn::Set(di, 15)));
      return hn::Mul(hn::Add(hn::Mul(part, width), first), factor_);
    } else {
      return hn::Mul(hn::GatherIndex(df, ladder::gain::kLevels.eight, code), factor_);
    }
  }

 private:
  const uint8_t* codes_ = nullptr;
  hn::Vec<DF> factor_;
  LevelTable<kPrecision == PrecisionClass::k2Bit ? 4 : 16> table_;
};

void EncodeGainTarget(const EncodeTile& tile) {
  WithFloatType(tile.in, [&](auto in) HWY_ATTR {
    EncodeLadderRows(in, tile, ladder::gain::kLimits, kLadderBatch,
                     [&](const int16_t* steps, uint32_t count, uint8_t* codes, RowBatch& rows) HWY_ATTR {
                       for (uint32_t r = 0; r < count; ++r, steps += tile.width, codes += tile.width) {
                         GainRow(steps, tile.width, codes, rows.sums[r]);
                       }
                     });
  });
}

void DecodeGainTarget(const DecodeTile& tile) {
  WithFloatType(tile.out, [&](auto out) HWY_ATTR {
    WithPrecision(tile.precision, [&](auto precision) HWY_ATTR {
      GainLevels<decltype(precision)::value> levels;
      DecodeLadderRows(out, tile, levels);
    });
  });
}

Survey SurveyGainTarget(const EncodeTile& tile) {
  Survey survey;
  WithFloatType(tile.in, [&](auto in) HWY_ATTR { survey = SurveyLadderRows(in, tile, ladder::gain::kLimits); });
  return survey;
}

#endif
}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace firn {
HWY_EXPORT(EncodeGainTarget);
HWY_EXPORT(DecodeGainTarget);
HWY_EXPORT(SurveyGainTarget);
namespace ladder {
void EncodeGain(const EncodeTile& tile) { HWY_DYNAMIC_DISPATCH(EncodeGainTarget)(tile); }
void DecodeGain(const DecodeTile& tile) { HWY_DYNAMIC_DISPATCH(DecodeGainTarget)(tile); }
Survey SurveyGain(const EncodeTile& tile) { return HWY_DYNAMIC_DISPATCH(SurveyGainTarget)(tile); }
}  // namespace ladder
}  // namespace firn
#endif
