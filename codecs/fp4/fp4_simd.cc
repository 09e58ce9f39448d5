#include <algorithm>
#include <limits>

#include "codecs/fp4/fp4_codec.h"
#include "codecs/fp4/fp4_format.h"
#include "codecs/numeric/float_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codecs/fp4/fp4_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR
#include "codecs/numeric/bit_stream-inl.h"
#include "codecs/numeric/inline_buffer.h"
#include "codecs/numeric/magnitude-inl.h"
#include "codecs/numeric/table16-inl.h"
#include "codecs/numeric/vector_formats-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void EncodeNvTarget(const EncodeTile& tile) { fp4::EncodeNvReference(tile); }
void DecodeNvTarget(const DecodeTile& tile) { fp4::DecodeNvReference(tile); }
void EncodeMxTarget(const EncodeTile& tile) { fp4::EncodeMxReference(tile); }
void DecodeMxTarget(const DecodeTile& tile) { fp4::DecodeMxReference(tile); }

#else

constexpr size_t kInlineCodes = 4096;

// See FloatToE2m1 for the arithmetic.
template <class DF>
HWY_INLINE void StoreE2m1(DF df, hn::Vec<DF> value, uint8_t* codes) {
  const hn::RebindToSigned<DF> di;
  const hn::RebindToUnsigned<DF> du;
  const auto bits = hn::BitCast(di, value);
  const auto clamped = hn::Min(hn::And(bits, hn::Set(di, 0x7FFFFFFF)), hn::Set(di, 0x40C00000));
  const auto odd = hn::And(hn::ShiftRight<22>(clamped), hn::Set(di, 1));
  const auto normal = hn::ShiftRight<22>(hn::Add(hn::Add(clamped, hn::Set(di, 0x1FFFFF - (126 << 23))), odd));
  const auto align = hn::Set(df, 0x1p22f);
  const auto small = hn::Sub(hn::BitCast(di, hn::Add(hn::BitCast(df, clamped), align)), hn::BitCast(di, align));
  const auto magnitude = hn::IfThenElse(hn::Lt(clamped, hn::Set(di, 0x3F800000)), small, normal);
  const auto sign = hn::And(hn::ShiftRight<28>(bits), hn::Set(di, 8));
  const hn::Rebind<uint8_t, DF> d8;
  hn::StoreU(hn::TruncateTo(d8, hn::BitCast(du, hn::Or(magnitude, sign))), d8, codes);
}

HWY_INLINE uint32_t BatchRows(uint32_t width) {
  return static_cast<uint32_t>(std::clamp<size_t>(kInlineCodes / width, 1, 16));
}

template <class In, class ScaleOf>
HWY_INLINE void EncodeBlocks(In in, const EncodeTile& tile, uint32_t block, const ScaleOf& scale_of, uint8_t* scales) {
  const hn::ScalableTag<float> df;
  const uint32_t width = tile.width, batch = BatchRows(width);
  const auto* source = reinterpret_cast<const typename In::Lane*>(tile.source);
  InlineBuffer<uint8_t, kInlineCodes> codes(size_t{width} * batch);
  uint8_t* to = tile.run(RunKind::kWhole);
  for (uint64_t row = 0, rows = uint64_t{tile.heads} * tile.tokens; row < rows; row += batch) {
    const auto count = static_cast<uint32_t>(std::min<uint64_t>(batch, rows - row));
    for (uint32_t r = 0; r < count; ++r, source += width) {
      for (uint32_t first = 0; first < width; first += block) {
        const uint32_t values = std::min(block, width - first);
        const fp4::BlockScale scale = scale_of(MagnitudeMax(in, source + first, values));
        *scales++ = scale.stored;
        const auto inverse = hn::Set(df, scale.inverse);
        uint8_t* block_codes = codes.data() + size_t{r} * width + first;
        ForVectors(values, hn::Lanes(df), [&](size_t at, size_t lanes) HWY_ATTR {
          const auto x = HWY_LIKELY(lanes == hn::Lanes(df)) ? LoadAsFloat(df, in, source + first + at)
                                                            : LoadFewAsFloat(df, in, source + first + at, lanes);
          StoreE2m1(df, hn::Mul(x, inverse), block_codes + at);
        });
      }
    }
    PackCodeRows(codes.data(), width, count, 4, to);
    to += CodeRowBytes(width, 4) * count;
  }
}

template <class Out, class ScaleOf>
HWY_INLINE void DecodeBlocks(Out out, const DecodeTile& tile, uint32_t block, const ScaleOf& scale_of,
                             const uint8_t* scales) {
  const hn::ScalableTag<float> df;
  const uint32_t width = tile.width, batch = BatchRows(width);
  const float largest = OutputLimit(tile.out);
  const auto limit = hn::Set(df, largest), lower_limit = hn::Set(df, -largest);
  const Table16 table(kE2m1Values, 16);
  auto* target = reinterpret_cast<typename Out::Lane*>(tile.target);
  InlineBuffer<uint8_t, kInlineCodes> codes(size_t{width} * batch);
  const uint8_t* from = tile.run(RunKind::kWhole);
  for (uint64_t row = 0, rows = uint64_t{tile.heads} * tile.tokens; row < rows; row += batch) {
    const auto count = static_cast<uint32_t>(std::min<uint64_t>(batch, rows - row));
    UnpackCodeRows(from, width, count, 4, codes.data());
    from += CodeRowBytes(width, 4) * count;
    for (uint32_t r = 0; r < count; ++r, target += width) {
      for (uint32_t first = 0; first < width; first += block) {
        const auto scale = hn::Set(df, scale_of(*scales++));
        const uint8_t* block_codes = codes.data() + size_t{r} * width + first;
        ForVectors(std::min(block, width - first), hn::Lanes(df), [&](size_t at, size_t lanes) HWY_ATTR {
          const auto value = hn::Mul(table.Of(block_codes + at), scale);
          const auto saturated = hn::Min(hn::Max(value, lower_limit), limit);
          if (HWY_LIKELY(lanes == hn::Lanes(df))) return StoreFromFloat(df, out, saturated, target + first + at);
          StoreFewFromFloat(df, out, saturated, target + first + at, lanes);
        });
      }
    }
  }
}

// The largest magnitude of a tile, looked at for NaN and Inf.
template <class In>
HWY_INLINE float SurveyedMagnitude(In in, const EncodeTile& tile) {
  const auto* source = reinterpret_cast<const typename In::Lane*>(tile.source);
  const float most = MagnitudeMax(in, source, size_t{tile.heads} * tile.tokens * tile.width);
  if (tile.survey != nullptr) tile.survey->non_finite |= !(most < std::numeric_limits<float>::infinity());
  return most;
}

void EncodeNvTarget(const EncodeTile& tile) {
  WithFloatType(tile.in, [&](auto in) HWY_ATTR {
    const float layer_scale = fp4::LayerScale(SurveyedMagnitude(in, tile));
    uint8_t* meta = tile.run(RunKind::kMeta);
    StoreLe<float>(meta, layer_scale);
    const float divisor = kE2m1Max * layer_scale;
    EncodeBlocks(
        in, tile, fp4::kNvBlock, [&](float most) { return fp4::NvBlockScale(most / divisor, layer_scale); },
        meta + sizeof(float));
  });
}

void DecodeNvTarget(const DecodeTile& tile) {
  const uint8_t* meta = tile.run(RunKind::kMeta);
  const float layer_scale = LoadLe<float>(meta);
  WithFloatType(tile.out, [&](auto out) HWY_ATTR {
    DecodeBlocks(
        out, tile, fp4::kNvBlock, [&](uint8_t stored) { return fp4::NvScale(stored, layer_scale); },
        meta + sizeof(float));
  });
}

void EncodeMxTarget(const EncodeTile& tile) {
  WithFloatType(tile.in, [&](auto in) HWY_ATTR {
    if (tile.survey != nullptr) SurveyedMagnitude(in, tile);
    EncodeBlocks(in, tile, fp4::kMxBlock, fp4::MxBlockScale, tile.run(RunKind::kMeta));
  });
}

void DecodeMxTarget(const DecodeTile& tile) {
  WithFloatType(tile.out, [&](auto out) HWY_ATTR {
    DecodeBlocks(out, tile, fp4::kMxBlock, fp4::MxScale, tile.run(RunKind::kMeta));
  });
}

#endif
}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace firn {
HWY_EXPORT(EncodeNvTarget);
HWY_EXPORT(DecodeNvTarget);
HWY_EXPORT(EncodeMxTarget);
HWY_EXPORT(DecodeMxTarget);
namespace fp4 {
void EncodeNv(const EncodeTile& tile) { HWY_DYNAMIC_DISPATCH(EncodeNvTarget)(tile); }
void DecodeNv(const DecodeTile& tile) { HWY_DYNAMIC_DISPATCH(DecodeNvTarget)(tile); }
void EncodeMx(const EncodeTile& tile) { HWY_DYNAMIC_DISPATCH(EncodeMxTarget)(tile); }
void DecodeMx(const DecodeTile& tile) { HWY_DYNAMIC_DISPATCH(DecodeMxTarget)(tile); }
}  // namespace fp4
}  // namespace firn
#endif
