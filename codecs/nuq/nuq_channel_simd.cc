#include <algorithm>

#include "codecs/numeric/float_rows.h"
#include "codecs/nuq/nuq_codec.h"
#include "codecs/nuq/nuq_format.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codecs/nuq/nuq_channel_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR
#include "codecs/numeric/magnitude-inl.h"
#include "codecs/nuq/nuq-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void EncodeNuqChannelTarget(const EncodeTile& tile) { nuq::EncodeChannelReference(tile); }
void DecodeNuqChannelTarget(const DecodeTile& tile) { nuq::DecodeChannelReference(tile); }

#else

// Calls `body` with functions that give the vectors of means and of scales that start at a channel; `nothing` stands
// for means that are not there.
template <class Body>
HWY_INLINE void WithChannels(const float* means, const float* scales, float uniform_scale, float nothing,
                             uint32_t width, const Body& body) {
  const hn::ScalableTag<float> df;
  const bool few = width < hn::Lanes(df);
  auto load = [&](const float* from, size_t at)
                  HWY_ATTR { return few ? LoadFewAsFloat(df, Float(), from, width) : hn::LoadU(df, from + at); };
  if (means != nullptr) {
    return body([&](size_t at) HWY_ATTR { return load(means, at); },
                [&](size_t at) HWY_ATTR { return load(scales, at); });
  }
  const auto mean = hn::Set(df, nothing), scale = hn::Set(df, uniform_scale);
  body([=](size_t) HWY_ATTR { return mean; }, [=](size_t) HWY_ATTR { return scale; });
}

template <class In>
void EncodeNuqChannelFrom(In in, const EncodeTile& tile) {
  const PartCoding& coding = *tile.coding;
  const uint32_t width = tile.width, group = std::min(nuq::GroupTokens(coding), tile.tokens);
  const nuq::Thresholds thresholds(tile.model, coding);
  const hn::ScalableTag<float> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const auto* row = reinterpret_cast<const typename In::Lane*>(tile.source);
  if (tile.survey != nullptr) {
    Survey survey = nuq::SurveyMagnitude(MagnitudeMax(in, row, size_t{tile.tokens} * width), coding.meta_type);
    survey.needs_float &= coding.outliers > 0;
    tile.survey->Join(survey);
  }
  InlineBuffer<uint32_t, kInlineVector> keys(size_t{group} * width),
      taken(nuq::OutlierCount(coding, size_t{group} * width));
  InlineBuffer<uint8_t, kInlineVector> codes(width);
  uint8_t* to = tile.run(RunKind::kWhole);
  uint8_t* meta = tile.run(RunKind::kMeta);
  const ChannelTransform& transform = tile.transform;
  // Less +0 is what it was, and so below is what -0 is added to.
  WithChannels(
      transform.mean, transform.encode_scale, transform.uniform_scale, 0.0f, width,
      [&](const auto& mean, const auto& scale) HWY_ATTR {
        for (uint32_t first = 0; first < tile.tokens; first += group) {
          const uint32_t tokens = std::min(group, tile.tokens - first), size = tokens * width;
          const auto* vector = row;
          for (uint32_t t = 0; t < tokens; ++t, row += width) {
            uint32_t* row_keys = keys.data() + size_t{t} * width;
            ForVectors(width, hn::Lanes(df), [&](size_t at, size_t lanes) HWY_ATTR {
              const bool whole = lanes == hn::Lanes(df);
              const auto x = whole ? LoadAsFloat(df, in, row + at) : LoadFewAsFloat(df, in, row + at, lanes);
              const auto normalised = hn::Mul(hn::Sub(x, mean(at)), scale(at));
              hn::StoreU(MagnitudeKeys(df, normalised), du, row_keys + at);
              StoreNearest(df, normalised, thresholds, codes.data() + at);
            });
            PackCodes(codes.data(), width, coding.bits, to);
            to += CodeRowBytes(width, coding.bits);
          }
          EndKeys(keys.data(), size);
          const uint32_t outliers = nuq::OutlierCount(coding, size);
          TakeLargestInOrder(keys.data(), size, outliers, taken.data());
          meta = nuq::OutlierEntries(coding, size)
                     .Write(
                         taken.data(),
                         [&](uint32_t i) { return LoadFloat(reinterpret_cast<const uint8_t*>(vector), tile.in, i); },
                         meta);
        }
      });
}

template <class Out>
void DecodeNuqChannelTo(Out out, const DecodeTile& tile) {
  const PartCoding& coding = *tile.coding;
  const uint32_t width = tile.width, batch = std::clamp<uint32_t>(kInlineVector / width, 1, 16);
  const float largest = OutputLimit(tile.out);
  const Table16 table(tile.model.decoded, nuq::LevelCount(coding));
  const hn::ScalableTag<float> df;
  const auto limit = hn::Set(df, largest), lower_limit = hn::Set(df, -largest);
  InlineBuffer<uint8_t, kInlineVector> codes(size_t{width} * batch);
  auto* target = reinterpret_cast<typename Out::Lane*>(tile.target);
  const uint8_t* from = tile.run(RunKind::kWhole);
  const ChannelTransform& transform = tile.transform;
  WithChannels(transform.mean, transform.decode_scale, transform.uniform_scale, -0.0f, width,
               [&](const auto& mean, const auto& scale) HWY_ATTR {
                 for (uint32_t t = 0; t < tile.tokens; ++t, target += width) {
                   if (t % batch == 0) {
                     const uint32_t together = std::min(batch, tile.tokens - t);
                     UnpackCodeRows(from, width, together, coding.bits, codes.data());
                     from += CodeRowBytes(width, coding.bits) * together;
                   }
                   const uint8_t* row = codes.data() + size_t{t % batch} * width;
                   ForVectors(width, hn::Lanes(df), [&](size_t at, size_t lanes) HWY_ATTR {
                     const auto value = hn::Add(hn::Mul(table.Of(row + at), scale(at)), mean(at));
                     const auto saturated = hn::Min(hn::Max(value, lower_limit), limit);
                     if (HWY_LIKELY(lanes == hn::Lanes(df))) return StoreFromFloat(df, out, saturated, target + at);
                     StoreFewFromFloat(df, out, saturated, target + at, lanes);
                   });
                 }
               });
  nuq::ForChannelOutliers(tile, [&](uint64_t i, float value) {
    value = nested::Saturated(value, largest);
    StoreFloats(&value, 1, tile.out, tile.target + i * DTypeBytes(tile.out));
  });
}

void EncodeNuqChannelTarget(const EncodeTile& tile) {
  WithFloatType(tile.in, [&](auto in) HWY_ATTR { EncodeNuqChannelFrom(in, tile); });
}
void DecodeNuqChannelTarget(const DecodeTile& tile) {
  WithFloatType(tile.out, [&](auto out) HWY_ATTR { DecodeNuqChannelTo(out, tile); });
}

#endif
}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace firn {
HWY_EXPORT(EncodeNuqChannelTarget);
HWY_EXPORT(DecodeNuqChannelTarget);
namespace nuq {
void EncodeChannel(const EncodeTile& tile) { HWY_DYNAMIC_DISPATCH(EncodeNuqChannelTarget)(tile); }
void DecodeChannel(const DecodeTile& tile) { HWY_DYNAMIC_DISPATCH(DecodeNuqChannelTarget)(tile); }
}  // namespace nuq
}  // namespace firn
#endif
