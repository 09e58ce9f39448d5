#include <algorithm>

#include "base/check.h"
#include "codecs/nested/nested_codec.h"
#include "codecs/nested/nested_format.h"
#include "codecs/numeric/float_rows.h"
#include "codecs/numeric/inline_buffer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codecs/nested/nested_token_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR
#include "codecs/nested/planes-inl.h"
#include "codecs/nested/rotation-inl.h"
#include "codecs/nested/scales-inl.h"
#include "codecs/numeric/magnitude-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void EncodeTokenTarget(const EncodeTile& tile) { nested::EncodeTokenReference(tile); }
void DecodeTokenTarget(const DecodeTile& tile) { nested::DecodeTokenReference(tile); }
Survey SurveyTokenTarget(const EncodeTile& tile) { return nested::SurveyTokenReference(tile); }

#else

constexpr size_t kInlineWidth = 1024;
constexpr uint32_t kBatchRows = 16;  // Rows whose scales are computed together.
constexpr size_t kInlineBatch = 16 * 256;

// What is the same for all rows of a tile.
struct RowShape {
  RowShape(const PartCoding& coding, uint32_t row_width)
      : width(row_width),
        padded((row_width + 15) / 16 * 16),
        group(std::min<uint32_t>(coding.group, row_width)),
        groups((row_width + coding.group - 1) / coding.group),
        rotation((coding.flags & PartCoding::kRotated) != 0 ? nested::RotationSize(row_width) : 1),
        batch(std::clamp<uint32_t>(kInlineBatch / padded, 1, kBatchRows)) {}
  uint32_t width, padded, group, groups, rotation, batch;
};

// Centres, scales and rotates one row into `row`, which has whole vectors.
template <class In>
HWY_INLINE void TransformRow(In in, const typename In::Lane* source, const RowShape& shape,
                             const ChannelTransform& transform, float* row) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  const uint32_t width = shape.width;
  auto store = [&](size_t c, hn::Vec<decltype(df)> v) HWY_ATTR { hn::Store(v, df, row + c); };
  if (transform.mean != nullptr) {
    auto load = [&](size_t c) HWY_ATTR {
      if (HWY_LIKELY(c + lanes <= width)) {
        const auto centred = hn::Sub(LoadAsFloat(df, in, source + c), hn::LoadU(df, transform.mean + c));
        return hn::Mul(centred, hn::LoadU(df, transform.encode_scale + c));
      }
      const size_t count = width - c;
      const auto mean = LoadFewAsFloat(df, Float(), transform.mean + c, count);
      const auto scale = LoadFewAsFloat(df, Float(), transform.encode_scale + c, count);
      return hn::Mul(hn::Sub(LoadFewAsFloat(df, in, source + c, count), mean), scale);
    };
    RotateRow(df, width, shape.rotation, load, store);
  } else {
    const auto scale = hn::Set(df, transform.uniform_scale);
    auto load = [&](size_t c) HWY_ATTR {
      if (HWY_LIKELY(c + lanes <= width)) return hn::Mul(LoadAsFloat(df, in, source + c), scale);
      return hn::Mul(LoadFewAsFloat(df, in, source + c, width - c), scale);
    };
    RotateRow(df, width, shape.rotation, load, store);
  }
  const uint32_t stride = static_cast<uint32_t>(RegisterVectors(shape.rotation) * lanes);
  if (stride > 0) RotateMemory(row, width, shape.rotation, stride);
}

// The extremes of `count` values; a zero counts as +0.
HWY_INLINE void RangeAlongRow(const float* values, uint32_t count, float* lowest, float* highest) {
  const hn::ScalableTag<float> df;
  if (count < hn::Lanes(df)) {
    float low = values[0], high = values[0];
    for (uint32_t i = 1; i < count; ++i) low = std::min(low, values[i]), high = std::max(high, values[i]);
    *lowest = low + 0.0f;
    *highest = high + 0.0f;
    return;
  }
  const size_t lanes = hn::Lanes(df);
  auto low = hn::LoadU(df, values), high = low;
  auto other_low = hn::LoadU(df, values + count - lanes), other_high = other_low;
  for (size_t at = 0; at + 2 * lanes <= count; at += 2 * lanes) {
    const auto a = hn::LoadU(df, values + at), b = hn::LoadU(df, values + at + lanes);
    low = hn::Min(low, a), high = hn::Max(high, a);
    other_low = hn::Min(other_low, b), other_high = hn::Max(other_high, b);
  }
  if (count / lanes % 2 == 1) {
    const auto a = hn::LoadU(df, values + count / lanes * lanes - lanes);
    low = hn::Min(low, a), high = hn::Max(high, a);
  }
  low = hn::Min(low, other_low);
  high = hn::Max(high, other_high);
  *lowest = hn::GetLane(hn::MinOfLanes(df, low)) + 0.0f;
  *highest = hn::GetLane(hn::MaxOfLanes(df, high)) + 0.0f;
}

// Writes (minimum, step) pairs.
template <class Meta>
HWY_INLINE uint8_t* WriteMetaPairs(Meta meta, const float* minimum, const float* step, size_t count, uint8_t* to) {
  const hn::ScalableTag<float> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  if constexpr (sizeof(typename Meta::Lane) == 4) {
    for (size_t i = 0; i < count; ++i) {
      StoreLe<float>(to + 8 * i, minimum[i]);
      StoreLe<float>(to + 8 * i + 4, step[i]);
    }
    return to + 8 * count;
  } else {
    alignas(64) uint32_t pairs[hn::MaxLanes(du)];
    for (size_t i = 0; i < count; i += hn::Lanes(df)) {
      const auto low = StoredBits(df, meta, hn::LoadU(df, minimum + i));
      const auto high = StoredBits(df, meta, hn::LoadU(df, step + i));
      hn::Store(hn::Or(low, hn::ShiftLeft<16>(high)), du, pairs);
      std::memcpy(to + 4 * i, pairs, 4 * std::min(count - i, hn::Lanes(df)));
    }
    return to + 4 * count;
  }
}

template <class Meta>
HWY_INLINE const uint8_t* ReadMetaPairs(Meta meta, const uint8_t* from, size_t count, float* minimum, float* step) {
  const hn::ScalableTag<float> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  if constexpr (sizeof(typename Meta::Lane) == 4) {
    for (size_t i = 0; i < count; ++i) {
      minimum[i] = LoadLe<float>(from + 8 * i);
      step[i] = LoadLe<float>(from + 8 * i + 4);
    }
    return from + 8 * count;
  } else {
    alignas(64) uint32_t pairs[hn::MaxLanes(du)] = {};
    for (size_t i = 0; i < count; i += hn::Lanes(df)) {
      std::memcpy(pairs, from + 4 * i, 4 * std::min(count - i, hn::Lanes(df)));
      const auto both = hn::Load(du, pairs);
      hn::StoreU(FromStoredBits(df, meta, hn::And(both, hn::Set(du, 0xFFFFu))), df, minimum + i);
      hn::StoreU(FromStoredBits(df, meta, hn::ShiftRight<16>(both)), df, step + i);
    }
    return from + 4 * count;
  }
}

HWY_INLINE void QuantizeGroup(const float* HWY_RESTRICT values, uint32_t count, float minimum, float inverse,
                              uint8_t* HWY_RESTRICT codes) {
  const hn::ScalableTag<float> df;
  const auto low = hn::Set(df, minimum), factor = hn::Set(df, inverse);
  // Codes behind the group are overwritten by the next one; behind the row lies slack.
  for (uint32_t c = 0; c < count; c += static_cast<uint32_t>(hn::Lanes(df))) {
    StoreCodes(df, hn::Mul(hn::Sub(hn::LoadU(df, values + c), low), factor), codes + c);
  }
}

// Adds what the ranges of `count` rows say; NaN is looked for in the source, since sums and extremes may swallow it.
template <class In>
HWY_INLINE void JoinSurvey(In in, const typename In::Lane* source, uint32_t count, const RowShape& shape,
                           const float* rows, const float* lowest, const float* highest, const EncodeTile& tile) {
  const float magnitude_max = MagnitudeMax(in, source, size_t{count} * shape.width);
  Survey survey = SurveyRanges(tile.coding->meta_type, size_t{count} * shape.groups, lowest, highest,
                               nested::RangeMaxOf(shape.rotation));
  survey.out_of_range |= survey.non_finite;
  survey.non_finite = !(magnitude_max < std::numeric_limits<float>::infinity());
  if (HWY_UNLIKELY(magnitude_max > nested::kRangeSafe && !survey.non_finite)) {
    for (uint32_t r = 0; r < count; ++r) {
      survey.out_of_range |= !nested::WithinRange(rows + size_t{r} * shape.padded, shape.width, shape.rotation);
    }
  }
  tile.survey->Join(survey);
}

template <class In>
void EncodeTokenFrom(In in, const EncodeTile& tile) {
  const PartCoding& coding = *tile.coding;
  const RowShape shape(coding, tile.width);
  const auto* source = reinterpret_cast<const typename In::Lane*>(tile.source);
  InlineBuffer<float, kInlineBatch> rows(size_t{shape.padded} * shape.batch);
  const size_t scales = size_t{shape.groups} * shape.batch;
  InlineBuffer<float, 256> minimum(scales), step(scales), inverse(scales);
  InlineBuffer<uint8_t, kInlineBatch> codes(size_t{shape.padded} * shape.batch);
  PlaneRows<uint8_t> planes{tile.run(RunKind::kP2), tile.run(RunKind::kP4), tile.run(RunKind::kP8)};
  uint8_t* meta_out = tile.run(RunKind::kMeta);
  for (uint32_t first = 0; first < tile.tokens; first += shape.batch) {
    const uint32_t count = std::min(shape.batch, tile.tokens - first);
    for (uint32_t r = 0; r < count; ++r, source += shape.width) {
      for (size_t line = 0; line < shape.width * sizeof(*source); line += 64) {
        PrefetchAhead(source, line + kPrefetchBytes);
      }
      TransformRow(in, source, shape, tile.transform, rows.data() + size_t{r} * shape.padded);
    }
    for (uint32_t r = 0; r < count; ++r) {
      const float* row = rows.data() + size_t{r} * shape.padded;
      for (uint32_t g = 0; g < shape.groups; ++g) {
        const uint32_t start = g * shape.group, at = r * shape.groups + g;
        RangeAlongRow(row + start, std::min(shape.group, shape.width - start), &minimum[at], &step[at]);
      }
    }
    const size_t used = size_t{count} * shape.groups;
    if (tile.survey != nullptr)
      JoinSurvey(in, source - size_t{count} * shape.width, count, shape, rows.data(), minimum.data(), step.data(),
                 tile);
    WithMetaType(coding.meta_type, [&](auto meta) HWY_ATTR {
      ScalesOf(meta, coding.meta_type, used, minimum.data(), step.data(), inverse.data());
      meta_out = WriteMetaPairs(meta, minimum.data(), step.data(), used, meta_out);
    });
    for (uint32_t r = 0; r < count; ++r) {
      const float* row = rows.data() + size_t{r} * shape.padded;
      uint8_t* row_codes = codes.data() + size_t{r} * shape.padded;
      for (uint32_t g = 0; g < shape.groups; ++g) {
        const uint32_t start = g * shape.group, at = r * shape.groups + g;
        QuantizeGroup(row + start, std::min(shape.group, shape.width - start), minimum[at], inverse[at],
                      row_codes + start);
      }
    }
    PackRows(codes.data(), shape.padded, count, shape.width, planes);
    planes.Skip(shape.width, count);
  }
}

// Undoes scaling and centring and writes one row.
template <class Out>
class RowFinisher {
 public:
  using DF = hn::ScalableTag<float>;
  RowFinisher(const ChannelTransform& transform, float largest) : transform_(transform), largest_(largest) {}

  HWY_INLINE void Store(size_t c, hn::Vec<DF> v, size_t width, typename Out::Lane* target) const {
    const DF df;
    const size_t lanes = hn::Lanes(df);
    const auto limit = hn::Set(df, largest_), lower_limit = hn::Set(df, -largest_);
    if (HWY_LIKELY(c + lanes <= width)) {
      if (transform_.mean != nullptr) {
        v = hn::Add(hn::Mul(v, hn::LoadU(df, transform_.decode_scale + c)), hn::LoadU(df, transform_.mean + c));
      } else {
        v = hn::Mul(v, hn::Set(df, transform_.uniform_scale));
      }
      return StoreFromFloat(df, Out(), hn::Min(hn::Max(v, lower_limit), limit), target + c);
    }
    const size_t count = width - c;
    if (transform_.mean != nullptr) {
      const auto mean = LoadFewAsFloat(df, Float(), transform_.mean + c, count);
      v = hn::Add(hn::Mul(v, LoadFewAsFloat(df, Float(), transform_.decode_scale + c, count)), mean);
    } else {
      v = hn::Mul(v, hn::Set(df, transform_.uniform_scale));
    }
    StoreFewFromFloat(df, Out(), hn::Min(hn::Max(v, lower_limit), limit), target + c, count);
  }

 private:
  const ChannelTransform transform_;
  const float largest_;
};

// Rotates back what load(c) gives, through `scratch` where a rotation does not fit the registers, and finishes the row.
template <class Load, class Out>
HWY_INLINE void RestoreRow(const RowShape& shape, const Load& load, const RowFinisher<Out>& finisher, float* scratch,
                           typename Out::Lane* target) {
  const hn::ScalableTag<float> df;
  const uint32_t lanes = static_cast<uint32_t>(hn::Lanes(df));
  const uint32_t in_registers = RegisterVectors(shape.rotation) * lanes;
  if (HWY_LIKELY(in_registers == 0 || in_registers == shape.rotation)) {
    RotateRow(df, shape.width, shape.rotation, load,
              [&](size_t c, hn::Vec<decltype(df)> v) HWY_ATTR { finisher.Store(c, v, shape.width, target); });
    return;
  }
  RotateRow(df, shape.width, shape.rotation, load,
            [&](size_t c, hn::Vec<decltype(df)> v) HWY_ATTR { hn::Store(v, df, scratch + c); });
  RotateMemory(scratch, shape.width, shape.rotation, in_registers);
  for (uint32_t c = 0; c < shape.width; c += lanes) finisher.Store(c, hn::Load(df, scratch + c), shape.width, target);
}

template <class Out>
void DecodeTokenTo(Out, const DecodeTile& tile) {
  const PartCoding& coding = *tile.coding;
  const RowShape shape(coding, tile.width);
  const hn::ScalableTag<float> df;
  const size_t scales = size_t{shape.groups} * shape.batch;
  InlineBuffer<float, 256> minima(scales), steps(scales);
  const size_t spread = shape.groups > 1 ? shape.padded : 0;
  InlineBuffer<float, kInlineWidth> scratch(shape.padded), spread_minimum(spread), spread_step(spread);
  InlineBuffer<uint8_t, kInlineBatch> levels(size_t{shape.padded} * shape.batch);
  const RowFinisher<Out> finisher(tile.transform, OutputLimit(tile.out));
  PlaneRows<const uint8_t> planes{tile.run(RunKind::kP2), tile.run(RunKind::kP4), tile.run(RunKind::kP8)};
  auto* target = reinterpret_cast<typename Out::Lane*>(tile.target);
  const uint8_t* meta_in = tile.run(RunKind::kMeta);
  const uint8_t* level_row = nullptr;
  auto level = [&](size_t c) HWY_ATTR { return LoadLevels(df, level_row + c); };
  for (uint32_t t = 0; t < tile.tokens; ++t, target += shape.width) {
    const uint32_t r = t % shape.batch;
    if (r == 0) {
      const uint32_t together = std::min(shape.batch, tile.tokens - t);
      const size_t used = size_t{together} * shape.groups;
      UnpackRows<Unpacked::kLevels>(planes, together, shape.width, tile.precision, shape.padded, levels.data());
      planes.Skip(shape.width, together);
      WithMetaType(coding.meta_type, [&](auto meta) HWY_ATTR {
        meta_in = ReadMetaPairs(meta, meta_in, used, minima.data(), steps.data());
      });
    }
    level_row = levels.data() + size_t{r} * shape.padded;
    if (HWY_LIKELY(shape.groups == 1)) {
      const auto minimum = hn::Set(df, minima[r]), step = hn::Set(df, steps[r]);
      RestoreRow(
          shape, [&](size_t c) HWY_ATTR { return hn::Add(minimum, hn::Mul(step, level(c))); }, finisher, scratch.data(),
          target);
      continue;
    }
    for (uint32_t g = 0; g < shape.groups; ++g) {
      const uint32_t start = g * shape.group, count = std::min(shape.group, shape.width - start);
      std::fill_n(spread_minimum.data() + start, count, minima[r * shape.groups + g]);
      std::fill_n(spread_step.data() + start, count, steps[r * shape.groups + g]);
    }
    RestoreRow(
        shape,
        [&](size_t c) HWY_ATTR {
          const auto minimum = hn::Load(df, spread_minimum.data() + c);
          return hn::Add(minimum, hn::Mul(hn::Load(df, spread_step.data() + c), level(c)));
        },
        finisher, scratch.data(), target);
  }
}

template <class In>
Survey SurveyTokenFrom(In in, const EncodeTile& tile) {
  const RowShape shape(*tile.coding, tile.width);
  const MetaType type = tile.coding->meta_type;
  const auto* source = reinterpret_cast<const typename In::Lane*>(tile.source);
  const nested::RowScreen screen(tile.transform, tile.width, shape.rotation, type);
  InlineBuffer<float, kInlineWidth> row(shape.padded), lowest(shape.groups), highest(shape.groups);
  Survey survey;
  for (uint32_t t = 0; t < tile.tokens; ++t, source += shape.width) {
    const float magnitude_max = MagnitudeMax(in, source, shape.width);
    if (!(magnitude_max < std::numeric_limits<float>::infinity())) return Survey{.non_finite = true};
    if (HWY_LIKELY(!screen.Suspicious(magnitude_max))) continue;
    TransformRow(in, source, shape, tile.transform, row.data());
    for (uint32_t g = 0; g < shape.groups; ++g) {
      const uint32_t start = g * shape.group;
      RangeAlongRow(row.data() + start, std::min(shape.group, shape.width - start), &lowest[g], &highest[g]);
    }
    survey.out_of_range |=
        magnitude_max > nested::kRangeSafe && !nested::WithinRange(row.data(), shape.width, shape.rotation);
    Survey of_row = SurveyRanges(type, shape.groups, lowest.data(), highest.data(), nested::RangeMaxOf(shape.rotation));
    // Finite values whose sums are not: out of range, not NaN in the source.
    of_row.out_of_range |= of_row.non_finite;
    of_row.non_finite = false;
    survey.Join(of_row);
  }
  return survey;
}

void EncodeTokenTarget(const EncodeTile& tile) {
  FIRN_CHECK((tile.transform.mean == nullptr) == (tile.transform.encode_scale == nullptr));
  WithFloatType(tile.in, [&](auto in) HWY_ATTR { EncodeTokenFrom(in, tile); });
}
void DecodeTokenTarget(const DecodeTile& tile) {
  FIRN_CHECK((tile.transform.mean == nullptr) == (tile.transform.decode_scale == nullptr));
  WithFloatType(tile.out, [&](auto out) HWY_ATTR { DecodeTokenTo(out, tile); });
}
Survey SurveyTokenTarget(const EncodeTile& tile) {
  Survey survey;
  WithFloatType(tile.in, [&](auto in) HWY_ATTR { survey = SurveyTokenFrom(in, tile); });
  return survey;
}

#endif
}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace firn {
HWY_EXPORT(EncodeTokenTarget);
HWY_EXPORT(DecodeTokenTarget);
HWY_EXPORT(SurveyTokenTarget);
namespace nested {
void EncodeToken(const EncodeTile& tile) { HWY_DYNAMIC_DISPATCH(EncodeTokenTarget)(tile); }
void DecodeToken(const DecodeTile& tile) { HWY_DYNAMIC_DISPATCH(DecodeTokenTarget)(tile); }
Survey SurveyToken(const EncodeTile& tile) { return HWY_DYNAMIC_DISPATCH(SurveyTokenTarget)(tile); }
}  // namespace nested
}  // namespace firn
#endif
