#include <type_traits>

#include "codecs/ladder/ladder_codec.h"
#include "codecs/ladder/trellis/trellis_tables.h"
#include "codecs/numeric/float_rows.h"

// The search wants tables of 64 bytes.
#define HWY_WANT_AVX3_DL

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codecs/ladder/trellis/trellis_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR
#include "codecs/ladder/decode_rows-inl.h"
#include "codecs/ladder/products-inl.h"
#include "codecs/ladder/rows-inl.h"
#include "codecs/ladder/trellis/levels-inl.h"
#include "codecs/ladder/trellis/search-inl.h"
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
      TrellisLevels<decltype(precision)::value> levels;
      DecodeLadderRows(out, tile, levels);
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
