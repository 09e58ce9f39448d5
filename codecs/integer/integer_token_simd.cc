#include <algorithm>
#include <limits>

#include "codecs/integer/integer_codec.h"
#include "codecs/integer/integer_format.h"
#include "codecs/numeric/float_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codecs/integer/integer_token_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR
#include "codecs/integer/groups-inl.h"
#include "codecs/numeric/magnitude-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void EncodeIntTokenTarget(const EncodeTile& tile) { integer::EncodeTokenReference(tile); }
void DecodeIntTokenTarget(const DecodeTile& tile) { integer::DecodeTokenReference(tile); }
void EncodeIntTensorTarget(const EncodeTile& tile) { integer::EncodeTensorReference(tile); }
void DecodeIntTensorTarget(const DecodeTile& tile) { integer::DecodeTensorReference(tile); }

#else

HWY_INLINE uint32_t ShortestGroup(uint32_t width, uint32_t group) { return width % group == 0 ? group : width % group; }

// Writes the values stored of `count` groups: (base, step) pairs, or steps.
template <class Meta>
HWY_INLINE void WriteScales(Meta meta, const float* base, const float* step, uint32_t count, bool symmetric,
                            float* pairs, uint8_t* to) {
  if (symmetric) return WriteMetaRow(meta, step, count, to);
  const hn::ScalableTag<float> df;
  for (size_t i = 0; i < count; i += hn::Lanes(df)) {
    hn::StoreInterleaved2(hn::LoadU(df, base + i), hn::LoadU(df, step + i), df, pairs + 2 * i);
  }
  WriteMetaRow(meta, pairs, 2 * count, to);
}

// Values that are coded between two requests for memory.
constexpr size_t kSpan = 256;

// Codes of all rows of a tile by one scale.
template <class In>
void EncodeByOneScale(In in, const EncodeTile& tile, const integer::GroupScale& scale) {
  const hn::ScalableTag<float> df;
  const integer::Positions positions = integer::PositionsOf(*tile.coding);
  const auto* source = reinterpret_cast<const typename In::Lane*>(tile.source);
  const uint32_t width = tile.width, bits = tile.coding->bits;
  const uint64_t rows = uint64_t{tile.heads} * tile.tokens, batch = RowsTogether(width);
  InlineBuffer<uint8_t, kInlineBatch> codes(width * batch);
  const bool in_place = CodesInPlace(bits, width);
  uint8_t* to = tile.run(RunKind::kWhole);
  const size_t tile_bytes = rows * width * sizeof(*source);
  for (uint64_t first = 0; first < rows; first += batch) {
    const auto count = static_cast<uint32_t>(std::min(batch, rows - first));
    uint8_t* batch_codes = in_place ? to : codes.data();
    const size_t values = size_t{width} * count;
    for (size_t span = 0, at = 0; at < values; at += span) {
      // The last one takes what is left: spans shorter than a vector are only those of a batch that is.
      span = values - at < 2 * kSpan ? values - at : kSpan;
      // What the next scale is for: memory works while codes are computed.
      for (size_t line = 0; line < span * sizeof(*source); line += 64) PrefetchAhead(source + at, line + tile_bytes);
      QuantizeSpan(
          in, source + at, span, [&](size_t) HWY_ATTR { return hn::Set(df, scale.base); },
          [&](size_t) HWY_ATTR { return hn::Set(df, scale.inverse); }, positions, batch_codes + at);
    }
    if (!in_place) PackCodeRows(codes.data(), width, count, bits, to);
    source += size_t{width} * count;
    to += CodeRowBytes(width, bits) * count;
  }
}

template <class Out>
void DecodeByOneScale(Out out, const DecodeTile& tile, const integer::GroupScale& scale) {
  const hn::ScalableTag<float> df;
  const float offset = integer::PositionsOf(*tile.coding).offset, largest = OutputLimit(tile.out);
  auto* target = reinterpret_cast<typename Out::Lane*>(tile.target);
  const uint32_t width = tile.width, bits = tile.coding->bits;
  const uint64_t rows = uint64_t{tile.heads} * tile.tokens, batch = RowsTogether(width);
  InlineBuffer<uint8_t, kInlineBatch> codes(width * batch);
  const bool in_place = CodesInPlace(bits, width);
  const uint8_t* from = tile.run(RunKind::kWhole);
  for (uint64_t first = 0; first < rows; first += batch) {
    const auto count = static_cast<uint32_t>(std::min(batch, rows - first));
    if (!in_place) UnpackCodeRows(from, width, count, bits, codes.data());
    DequantizeSpan(
        out, in_place ? from : codes.data(), size_t{width} * count,
        [&](size_t) HWY_ATTR { return hn::Set(df, scale.base); },
        [&](size_t) HWY_ATTR { return hn::Set(df, scale.step); }, offset, largest, target);
    from += CodeRowBytes(width, bits) * count;
    target += size_t{width} * count;
  }
}

// The ranges of the groups of `rows` rows, as floats.
template <class In>
HWY_INLINE void RangesOfRows(In in, const typename In::Lane* rows, uint32_t count, uint32_t width, uint32_t group,
                             typename In::Lane* low_bits, typename In::Lane* high_bits, float* lowest, float* highest) {
  size_t at = 0;
  for (uint32_t r = 0; r < count; ++r, rows += width) {
    for (uint32_t start = 0; start < width; start += group, ++at) {
      RangeOfGroup(rows + start, std::min(group, width - start), low_bits + at, high_bits + at);
    }
  }
  const hn::ScalableTag<float> df;
  for (size_t i = 0; i < at; i += hn::Lanes(df)) {
    hn::StoreU(LoadAsFloat(df, in, low_bits + i), df, lowest + i);
    hn::StoreU(LoadAsFloat(df, in, high_bits + i), df, highest + i);
  }
}

template <class In>
void EncodeIntTokenFrom(In in, const EncodeTile& tile) {
  const PartCoding& coding = *tile.coding;
  const uint32_t width = tile.width, group = std::min<uint32_t>(coding.group, width);
  const uint32_t groups = (width + group - 1) / group, batch = RowsTogether(width);
  const integer::Positions positions = integer::PositionsOf(coding);
  const hn::ScalableTag<float> df;
  const size_t scales = size_t{groups} * batch, batch_bytes = size_t{width} * batch * sizeof(typename In::Lane);
  InlineBuffer<typename In::Lane, 256> low_bits(scales), high_bits(scales);
  InlineBuffer<float, 256> base(scales), step(scales), inverse(scales);
  InlineBuffer<float, 512> pairs(2 * scales);
  InlineBuffer<uint8_t, kInlineBatch> codes(size_t{width} * batch);
  const bool in_place = CodesInPlace(coding.bits, ShortestGroup(width, group));
  const auto* source = reinterpret_cast<const typename In::Lane*>(tile.source);
  uint8_t* to = tile.run(RunKind::kWhole);
  uint8_t* meta_out = tile.run(RunKind::kMeta);
  for (uint32_t first = 0; first < tile.tokens; first += batch) {
    const uint32_t count = std::min(batch, tile.tokens - first), used = count * groups;
    RangesOfRows(in, source, count, width, group, low_bits.data(), high_bits.data(), base.data(), step.data());
    if (tile.survey != nullptr) {
      SurveyIntegers(coding, nested::kRangeMax, used, base.data(), step.data(), tile.survey);
    }
    WithMetaType(coding.meta_type, [&](auto meta) HWY_ATTR {
      IntegerScales(meta, coding, used, base.data(), step.data(), inverse.data());
      WriteScales(meta, base.data(), step.data(), used, integer::IsSymmetric(coding), pairs.data(), meta_out);
    });
    meta_out += integer::TokenMetaOffset(coding, width, count);
    uint8_t* row_codes = in_place ? to : codes.data();
    size_t at = 0;
    for (uint32_t r = 0; r < count; ++r) {
      // The same row of the next batch: memory works while codes are computed.
      const auto* row = source + size_t{r} * width;
      for (size_t line = 0; line < width * sizeof(*row); line += 64) PrefetchAhead(row, line + batch_bytes);
      for (uint32_t start = 0; start < width; start += group, ++at) {
        const auto low = hn::Set(df, base[at]), factor = hn::Set(df, inverse[at]);
        const size_t where = size_t{r} * width + start;
        QuantizeSpan(
            in, source + where, std::min(group, width - start), [&](size_t) HWY_ATTR { return low; },
            [&](size_t) HWY_ATTR { return factor; }, positions, row_codes + where);
      }
    }
    if (!in_place) PackCodeRows(codes.data(), width, count, coding.bits, to);
    source += size_t{width} * count;
    to += CodeRowBytes(width, coding.bits) * count;
  }
}

template <class Out>
void DecodeIntTokenTo(Out out, const DecodeTile& tile) {
  const PartCoding& coding = *tile.coding;
  const uint32_t width = tile.width, group = std::min<uint32_t>(coding.group, width);
  const uint32_t groups = (width + group - 1) / group, batch = RowsTogether(width);
  const uint32_t values = integer::ValuesAGroup(coding);
  const float offset = integer::PositionsOf(coding).offset, largest = OutputLimit(tile.out);
  const hn::ScalableTag<float> df;
  InlineBuffer<float, 512> stored(size_t{2} * groups * batch);
  InlineBuffer<uint8_t, kInlineBatch> codes(size_t{width} * batch);
  const bool in_place = CodesInPlace(coding.bits, ShortestGroup(width, group));
  auto* target = reinterpret_cast<typename Out::Lane*>(tile.target);
  const uint8_t* from = tile.run(RunKind::kWhole);
  const uint8_t* meta_in = tile.run(RunKind::kMeta);
  for (uint32_t first = 0; first < tile.tokens; first += batch) {
    const uint32_t count = std::min(batch, tile.tokens - first);
    if (!in_place) UnpackCodeRows(from, width, count, coding.bits, codes.data());
    const uint8_t* row_codes = in_place ? from : codes.data();
    WithMetaType(coding.meta_type,
                 [&](auto meta) HWY_ATTR { ReadMetaRow(meta, meta_in, values * groups * count, stored.data()); });
    meta_in += integer::TokenMetaOffset(coding, width, count);
    const float* scale = stored.data();
    for (uint32_t r = 0; r < count; ++r) {
      for (uint32_t start = 0; start < width; start += group, scale += values) {
        const auto base = hn::Set(df, values == 2 ? scale[0] : integer::kNoBase);
        const auto step = hn::Set(df, scale[values - 1]);
        const size_t where = size_t{r} * width + start;
        DequantizeSpan(
            out, row_codes + where, std::min(group, width - start), [&](size_t) HWY_ATTR { return base; },
            [&](size_t) HWY_ATTR { return step; }, offset, largest, target + where);
      }
    }
    from += CodeRowBytes(width, coding.bits) * count;
    target += size_t{width} * count;
  }
}

template <class In>
void EncodeCalibratedFrom(In in, const EncodeTile& tile) {
  if (tile.survey != nullptr) {
    const auto* source = reinterpret_cast<const typename In::Lane*>(tile.source);
    const float most = MagnitudeMax(in, source, size_t{tile.heads} * tile.tokens * tile.width);
    tile.survey->non_finite |= !(most < std::numeric_limits<float>::infinity());
  }
  EncodeByOneScale(in, tile, integer::CalibratedScale(tile.model.scale));
}

template <class In>
void EncodeIntTensorFrom(In in, const EncodeTile& tile) {
  using Lane = typename In::Lane;
  const PartCoding& coding = *tile.coding;
  const auto* source = reinterpret_cast<const Lane*>(tile.source);
  InlineBuffer<Lane, 64> low_bits(1), high_bits(1);
  InlineBuffer<float, 64> lowest(1), highest(1);
  const hn::ScalableTag<float> df;
  RangeOfGroup(source, size_t{tile.heads} * tile.tokens * tile.width, low_bits.data(), high_bits.data());
  hn::StoreU(LoadFewAsFloat(df, in, low_bits.data(), 1), df, lowest.data());
  hn::StoreU(LoadFewAsFloat(df, in, high_bits.data(), 1), df, highest.data());
  if (tile.survey != nullptr) {
    SurveyIntegers(coding, nested::kRangeMax / 2, 1, lowest.data(), highest.data(), tile.survey);
  }
  const integer::GroupScale scale = integer::ScaleOf(lowest[0], highest[0], coding);
  WithMetaType(coding.meta_type, [&](auto meta) HWY_ATTR {
    const float pair[] = {scale.base, scale.step};
    const bool symmetric = integer::IsSymmetric(coding);
    InlineBuffer<float, 64> stored(2);
    std::copy_n(symmetric ? pair + 1 : pair, symmetric ? 1 : 2, stored.data());
    WriteMetaRow(meta, stored.data(), symmetric ? 1 : 2, tile.run(RunKind::kMeta));
  });
  EncodeByOneScale(in, tile, scale);
}

void EncodeIntTokenTarget(const EncodeTile& tile) {
  WithFloatType(tile.in, [&](auto in) HWY_ATTR {
    if (integer::IsCalibrated(*tile.coding)) return EncodeCalibratedFrom(in, tile);
    EncodeIntTokenFrom(in, tile);
  });
}
void DecodeIntTokenTarget(const DecodeTile& tile) {
  WithFloatType(tile.out, [&](auto out) HWY_ATTR {
    if (integer::IsCalibrated(*tile.coding)) {
      return DecodeByOneScale(out, tile, integer::CalibratedScale(tile.model.scale));
    }
    DecodeIntTokenTo(out, tile);
  });
}

void EncodeIntTensorTarget(const EncodeTile& tile) {
  WithFloatType(tile.in, [&](auto in) HWY_ATTR {
    if (integer::IsCalibrated(*tile.coding)) return EncodeCalibratedFrom(in, tile);
    EncodeIntTensorFrom(in, tile);
  });
}

void DecodeIntTensorTarget(const DecodeTile& tile) {
  const PartCoding& coding = *tile.coding;
  integer::GroupScale scale = integer::CalibratedScale(tile.model.scale);
  if (!integer::IsCalibrated(coding)) {
    const uint8_t* meta = tile.run(RunKind::kMeta);
    const uint32_t value_bytes = nested::MetaValueBytes(coding.meta_type);
    scale = integer::IsSymmetric(coding)
                ? integer::GroupScale{integer::kNoBase, nested::ReadMeta(meta, coding.meta_type)}
                : integer::GroupScale{nested::ReadMeta(meta, coding.meta_type),
                                      nested::ReadMeta(meta + value_bytes, coding.meta_type)};
  }
  WithFloatType(tile.out, [&](auto out) HWY_ATTR { DecodeByOneScale(out, tile, scale); });
}

#endif
}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace firn {
HWY_EXPORT(EncodeIntTokenTarget);
HWY_EXPORT(DecodeIntTokenTarget);
HWY_EXPORT(EncodeIntTensorTarget);
HWY_EXPORT(DecodeIntTensorTarget);
namespace integer {
void EncodeToken(const EncodeTile& tile) { HWY_DYNAMIC_DISPATCH(EncodeIntTokenTarget)(tile); }
void DecodeToken(const DecodeTile& tile) { HWY_DYNAMIC_DISPATCH(DecodeIntTokenTarget)(tile); }
void EncodeTensor(const EncodeTile& tile) { HWY_DYNAMIC_DISPATCH(EncodeIntTensorTarget)(tile); }
void DecodeTensor(const DecodeTile& tile) { HWY_DYNAMIC_DISPATCH(DecodeIntTensorTarget)(tile); }
}  // namespace integer
}  // namespace firn
#endif
