#include <algorithm>

#include "codecs/integer/integer_codec.h"
#include "codecs/integer/integer_format.h"
#include "codecs/numeric/float_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codecs/integer/integer_channel_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR
#include "codecs/integer/groups-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void EncodeIntChannelTarget(const EncodeTile& tile) { integer::EncodeChannelReference(tile); }
void DecodeIntChannelTarget(const DecodeTile& tile) { integer::DecodeChannelReference(tile); }

#else

using FloatRow = InlineBuffer<float, kInlineWidth>;

template <class In>
void EncodeIntChannelFrom(In in, const EncodeTile& tile) {
  const PartCoding& coding = *tile.coding;
  const uint32_t width = tile.width, batch = RowsTogether(width);
  const bool symmetric = integer::IsSymmetric(coding);
  const size_t meta_bytes = size_t{width} * nested::MetaValueBytes(coding.meta_type);
  const integer::Positions positions = integer::PositionsOf(coding);
  const hn::ScalableTag<float> df;
  const auto* rows = reinterpret_cast<const typename In::Lane*>(tile.source);
  FloatRow base(width), step(width), inverse(width);
  InlineBuffer<uint8_t, kInlineBatch> codes(size_t{width} * batch);
  const bool in_place = CodesInPlace(coding.bits, width);
  uint8_t* to = tile.run(RunKind::kWhole);
  uint8_t* meta_out = tile.run(RunKind::kMeta);
  for (uint32_t first = 0; first < tile.tokens; first += coding.group) {
    const uint32_t count = std::min<uint32_t>(coding.group, tile.tokens - first);
    RangesAlongTokens(in, rows, width, count, base.data(), step.data());
    if (tile.survey != nullptr) {
      SurveyIntegers(coding, nested::kRangeMax, width, base.data(), step.data(), tile.survey);
    }
    WithMetaType(coding.meta_type, [&](auto meta) HWY_ATTR {
      IntegerScales(meta, coding, width, base.data(), step.data(), inverse.data());
      if (!symmetric) WriteMetaRow(meta, base.data(), width, meta_out);
      WriteMetaRow(meta, step.data(), width, meta_out + (symmetric ? 0 : meta_bytes));
    });
    meta_out += meta_bytes * (symmetric ? 1 : 2);
    for (uint32_t t = 0; t < count; t += batch) {
      const uint32_t together = std::min(batch, count - t);
      uint8_t* row_codes = in_place ? to : codes.data();
      for (uint32_t r = 0; r < together; ++r, rows += width) {
        QuantizeSpan(
            in, rows, width, [&](size_t at) HWY_ATTR { return hn::LoadU(df, base.data() + at); },
            [&](size_t at) HWY_ATTR { return hn::LoadU(df, inverse.data() + at); }, positions,
            row_codes + size_t{r} * width);
      }
      if (!in_place) PackCodeRows(codes.data(), width, together, coding.bits, to);
      to += CodeRowBytes(width, coding.bits) * together;
    }
  }
}

template <class Out>
void DecodeIntChannelTo(Out out, const DecodeTile& tile) {
  const PartCoding& coding = *tile.coding;
  const uint32_t width = tile.width, batch = RowsTogether(width);
  const bool symmetric = integer::IsSymmetric(coding);
  const size_t meta_bytes = size_t{width} * nested::MetaValueBytes(coding.meta_type);
  const float offset = integer::PositionsOf(coding).offset, largest = OutputLimit(tile.out);
  const hn::ScalableTag<float> df;
  auto* target = reinterpret_cast<typename Out::Lane*>(tile.target);
  FloatRow base(width), step(width);
  InlineBuffer<uint8_t, kInlineBatch> codes(size_t{width} * batch);
  const bool in_place = CodesInPlace(coding.bits, width);
  const uint8_t* from = tile.run(RunKind::kWhole);
  const uint8_t* meta_in = tile.run(RunKind::kMeta);
  std::fill_n(base.data(), width, integer::kNoBase);
  for (uint32_t first = 0; first < tile.tokens; first += coding.group) {
    const uint32_t count = std::min<uint32_t>(coding.group, tile.tokens - first);
    WithMetaType(coding.meta_type, [&](auto meta) HWY_ATTR {
      if (!symmetric) ReadMetaRow(meta, meta_in, width, base.data());
      ReadMetaRow(meta, meta_in + (symmetric ? 0 : meta_bytes), width, step.data());
    });
    meta_in += meta_bytes * (symmetric ? 1 : 2);
    for (uint32_t t = 0; t < count; t += batch) {
      const uint32_t together = std::min(batch, count - t);
      if (!in_place) UnpackCodeRows(from, width, together, coding.bits, codes.data());
      const uint8_t* row_codes = in_place ? from : codes.data();
      from += CodeRowBytes(width, coding.bits) * together;
      for (uint32_t r = 0; r < together; ++r, target += width) {
        DequantizeSpan(
            out, row_codes + size_t{r} * width, width,
            [&](size_t at) HWY_ATTR { return hn::LoadU(df, base.data() + at); },
            [&](size_t at) HWY_ATTR { return hn::LoadU(df, step.data() + at); }, offset, largest, target);
      }
    }
  }
}

void EncodeIntChannelTarget(const EncodeTile& tile) {
  WithFloatType(tile.in, [&](auto in) HWY_ATTR { EncodeIntChannelFrom(in, tile); });
}
void DecodeIntChannelTarget(const DecodeTile& tile) {
  WithFloatType(tile.out, [&](auto out) HWY_ATTR { DecodeIntChannelTo(out, tile); });
}

#endif
}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace firn {
HWY_EXPORT(EncodeIntChannelTarget);
HWY_EXPORT(DecodeIntChannelTarget);
namespace integer {
void EncodeChannel(const EncodeTile& tile) { HWY_DYNAMIC_DISPATCH(EncodeIntChannelTarget)(tile); }
void DecodeChannel(const DecodeTile& tile) { HWY_DYNAMIC_DISPATCH(DecodeIntChannelTarget)(tile); }
}  // namespace integer
}  // namespace firn
#endif
