#include <algorithm>

#include "codecs/numeric/float_rows.h"
#include "codecs/nuq/nuq_codec.h"
#include "codecs/nuq/nuq_format.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codecs/nuq/nuq_token_simd.cc"
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

void EncodeNuqTokenTarget(const EncodeTile& tile) { nuq::EncodeTokenReference(tile); }
void DecodeNuqTokenTarget(const DecodeTile& tile) { nuq::DecodeTokenReference(tile); }

#else

// One token of all heads, and what is chosen from it.
class TokenVector {
 public:
  TokenVector(const EncodeTile& tile, uint32_t outliers)
      : tile_(tile),
        size_(tile.heads * tile.width),
        outliers_(outliers),
        values_(size_),
        keys_(size_),
        taken_(outliers) {}

  template <class In>
  HWY_INLINE void Gather(In in, uint32_t token) {
    const hn::ScalableTag<float> df;
    const auto* from = reinterpret_cast<const typename In::Lane*>(tile_.source) + size_t{token} * tile_.width;
    for (uint32_t head = 0; head < tile_.heads; ++head, from += size_t{tile_.tokens} * tile_.width) {
      float* to = values_.data() + size_t{head} * tile_.width;
      ForVectors(tile_.width, hn::Lanes(df), [&](size_t at, size_t lanes) HWY_ATTR {
        const bool whole = lanes == hn::Lanes(df);
        hn::StoreU(whole ? LoadAsFloat(df, in, from + at) : LoadFewAsFloat(df, in, from + at, lanes), df, to + at);
      });
    }
  }

  // The largest values, then the smallest of the others; afterwards the extremes of what is left.
  HWY_INLINE void Choose() {
    const hn::ScalableTag<float> df;
    const hn::RebindToUnsigned<decltype(df)> du;
    for (uint32_t i = 0; i < size_; i += hn::Lanes(df)) {
      hn::Store(HighKeys(df, hn::Load(df, values_.data() + i)), du, keys_.data() + i);
    }
    EndKeys(keys_.data(), size_);
    const uint32_t high = nuq::HighCount(outliers_);
    TakeLargestKeys(keys_.data(), size_, high, taken_.data());
    lowest_ = highest_ = 0;
    const uint32_t last = FirstLargest(keys_.data(), size_);
    const bool any = outliers_ < size_;
    if (any) highest_ = values_[last];
    // The complement orders the other way round; what is taken stays 0.
    for (uint32_t i = 0; i < size_; i += hn::Lanes(df)) {
      const auto key = hn::Load(du, keys_.data() + i);
      const auto low_key = hn::Add(hn::Not(hn::Sub(key, hn::Set(du, 1u))), hn::Set(du, 1u));
      hn::Store(hn::IfThenZeroElse(hn::Eq(key, hn::Zero(du)), low_key), du, keys_.data() + i);
    }
    TakeLargestKeys(keys_.data(), size_, outliers_ - high, taken_.data() + high);
    if (any) lowest_ = values_[FirstLargest(keys_.data(), size_)];
    std::sort(taken_.data(), taken_.data() + outliers_);
  }

  // Codes of all heads, one after another.
  HWY_INLINE void Code(const nuq::Range& range, const nuq::Thresholds& thresholds, uint8_t* codes) const {
    const hn::ScalableTag<float> df;
    const auto centre = hn::Set(df, range.centre), inverse = hn::Set(df, range.inverse);
    float* values = const_cast<TokenVector*>(this)->values_.data();
    for (uint32_t i = 0; i < size_; i += hn::Lanes(df)) {
      StoreNearest(df, hn::Mul(hn::Sub(hn::Load(df, values + i), centre), inverse), thresholds, codes + i);
    }
  }

  float value(uint32_t i) { return values_[i]; }
  const uint32_t* taken() { return taken_.data(); }
  float lowest() const { return lowest_; }
  float highest() const { return highest_; }

 private:
  const EncodeTile& tile_;
  const uint32_t size_, outliers_;
  InlineBuffer<float, kInlineVector> values_;
  InlineBuffer<uint32_t, kInlineVector> keys_, taken_;
  float lowest_ = 0, highest_ = 0;
};

template <class In>
void EncodeNuqTokenFrom(In in, const EncodeTile& tile) {
  const PartCoding& coding = *tile.coding;
  const uint32_t size = tile.heads * tile.width, value_bytes = nested::MetaValueBytes(coding.meta_type);
  const nuq::Thresholds thresholds(tile.model, coding);
  const nuq::OutlierEntries entries(coding, size);
  TokenVector vector(tile, nuq::OutlierCount(coding, size));
  InlineBuffer<uint8_t, kInlineVector> codes(size);
  Survey survey;
  if (tile.survey != nullptr) {
    const auto* source = reinterpret_cast<const typename In::Lane*>(tile.source);
    survey = nuq::SurveyMagnitude(MagnitudeMax(in, source, size_t{size} * tile.tokens), coding.meta_type);
  }
  const bool fits = !survey.non_finite && !survey.out_of_range;
  const uint64_t row_bytes = CodeRowBytes(tile.width, coding.bits);
  uint8_t* meta = tile.run(RunKind::kMeta);
  for (uint32_t t = 0; t < tile.tokens; ++t) {
    vector.Gather(in, t);
    vector.Choose();
    survey.needs_float |= fits && nuq::ReachNeedsFloat(vector.lowest(), vector.highest(), coding.meta_type);
    const nuq::Range range = nuq::RangeOf(vector.lowest(), vector.highest(), coding.meta_type);
    nuq::WriteValue(meta, range.centre, coding.meta_type);
    nuq::WriteValue(meta + value_bytes, range.reach, coding.meta_type);
    meta = entries.Write(
        vector.taken(), [&](uint32_t i) { return vector.value(i); }, meta + 2 * value_bytes);
    vector.Code(range, thresholds, codes.data());
    for (uint32_t head = 0; head < tile.heads; ++head) {
      PackCodes(codes.data() + size_t{head} * tile.width, tile.width, coding.bits,
                tile.run(RunKind::kWhole) + (uint64_t{head} * tile.tokens + t) * row_bytes);
    }
  }
  if (tile.survey != nullptr) tile.survey->Join(survey);
}

template <class Out>
void DecodeNuqTokenTo(Out out, const DecodeTile& tile) {
  const PartCoding& coding = *tile.coding;
  const uint32_t width = tile.width, levels = nuq::LevelCount(coding);
  const uint32_t value_bytes = nested::MetaValueBytes(coding.meta_type);
  const float largest = OutputLimit(tile.out);
  const nuq::OutlierEntries entries(coding, uint64_t{tile.heads} * width);
  const hn::ScalableTag<float> df;
  const uint64_t row_bytes = CodeRowBytes(width, coding.bits);
  InlineBuffer<uint8_t, kInlineVector> codes(width);
  auto* target = reinterpret_cast<typename Out::Lane*>(tile.target);
  const uint8_t* meta = tile.run(RunKind::kMeta);
  for (uint32_t t = 0; t < tile.tokens; ++t) {
    // What each code stands for is the same all over a token.
    const float centre = nested::ReadMeta(meta, coding.meta_type);
    const float reach = nested::ReadMeta(meta + value_bytes, coding.meta_type);
    float values[nuq::kLevelsMax];
    for (uint32_t i = 0; i < levels; ++i) {
      values[i] = nested::Saturated(nuq::ValueOf(tile.model.decoded[i], centre, reach), largest);
    }
    const Table16 table(values, levels);
    for (uint32_t head = 0; head < tile.heads; ++head) {
      const uint64_t row = uint64_t{head} * tile.tokens + t;
      auto* to = target + row * width;
      UnpackCodes(tile.run(RunKind::kWhole) + row * row_bytes, width, coding.bits, codes.data());
      ForVectors(width, hn::Lanes(df), [&](size_t at, size_t lanes) HWY_ATTR {
        const auto value = table.Of(codes.data() + at);
        if (HWY_LIKELY(lanes == hn::Lanes(df))) return StoreFromFloat(df, out, value, to + at);
        StoreFewFromFloat(df, out, value, to + at, lanes);
      });
    }
    meta = entries.Read(meta + 2 * value_bytes, [&](uint64_t i, float value) {
      value = nested::Saturated(value, largest);
      auto* to = target + (i / width * tile.tokens + t) * width + i % width;
      StoreFloats(&value, 1, tile.out, reinterpret_cast<uint8_t*>(to));
    });
  }
}

void EncodeNuqTokenTarget(const EncodeTile& tile) {
  WithFloatType(tile.in, [&](auto in) HWY_ATTR { EncodeNuqTokenFrom(in, tile); });
}
void DecodeNuqTokenTarget(const DecodeTile& tile) {
  WithFloatType(tile.out, [&](auto out) HWY_ATTR { DecodeNuqTokenTo(out, tile); });
}

#endif
}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace firn {
HWY_EXPORT(EncodeNuqTokenTarget);
HWY_EXPORT(DecodeNuqTokenTarget);
namespace nuq {
void EncodeToken(const EncodeTile& tile) { HWY_DYNAMIC_DISPATCH(EncodeNuqTokenTarget)(tile); }
void DecodeToken(const DecodeTile& tile) { HWY_DYNAMIC_DISPATCH(DecodeNuqTokenTarget)(tile); }
}  // namespace nuq
}  // namespace firn
#endif
