// Rows of the codes "gain" and "trellis" in vectors: from source values to steps, and the metadata.
//
// A per-target header: include it after hwy/foreach_target.h. Rows are multiples of 64 values, so all vectors are
// whole.

#if defined(FIRN_CODECS_LADDER_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FIRN_CODECS_LADDER_ROWS_INL_H_
#undef FIRN_CODECS_LADDER_ROWS_INL_H_
#else
#define FIRN_CODECS_LADDER_ROWS_INL_H_
#endif

#include "codecs/ladder/row_format.h"
#include "codecs/nested/nested_format.h"
#include "codecs/nested/planes-inl.h"
#include "codecs/nested/rotation-inl.h"
#include "codecs/numeric/inline_buffer.h"
#include "codecs/numeric/magnitude-inl.h"

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {

constexpr size_t kLadderInlineWidth = 512;
constexpr uint32_t kLadderBatch = 16;  // Rows that are rotated before the first is measured.
constexpr size_t kLadderInlineBatch = kLadderBatch * 128;

// The transform of each channel, with its sign.
class SignedChannels {
 public:
  // `scale` of each channel, or null for the uniform one.
  SignedChannels(const ChannelTransform& transform, const float* scale, uint32_t width) : mean_(width), scale_(width) {
    const hn::ScalableTag<float> df;
    const hn::RebindToUnsigned<decltype(df)> du;
    FIRN_CHECK((transform.mean == nullptr) == (scale == nullptr));
    for (uint32_t c = 0; c < width; c += static_cast<uint32_t>(hn::Lanes(df))) {
      const auto mean = scale != nullptr ? hn::LoadU(df, transform.mean + c) : hn::Zero(df);
      const auto factor = scale != nullptr ? hn::LoadU(df, scale + c) : hn::Set(df, transform.uniform_scale);
      const auto sign = hn::Load(du, ladder::kSignBits.data() + c % ladder::kSignPeriod);
      hn::Store(mean, df, mean_.data() + c);
      hn::Store(hn::Xor(factor, hn::BitCast(df, sign)), df, scale_.data() + c);
    }
    means_ = mean_.data(), scales_ = scale_.data();
  }
  const float* means() const { return means_; }
  const float* scales() const { return scales_; }

 private:
  InlineBuffer<float, kLadderInlineWidth> mean_, scale_;
  const float *means_, *scales_;
};

// The strides that RotateRow leaves undone, from the first one; 0 where it does them all.
HWY_INLINE uint32_t FirstStrideInMemory(uint32_t rotation) {
  const hn::ScalableTag<float> df;
  const uint32_t in_registers = RegisterVectors(rotation) * static_cast<uint32_t>(hn::Lanes(df));
  return in_registers < rotation ? in_registers : 0;
}

// Halves added, or the greater of their lanes, until four lanes are left.
using Quarter = hn::Full128<float>;
using QuarterInt = hn::Full128<int32_t>;
template <class DF>
HWY_INLINE hn::Vec<Quarter> AddedHalves(DF, hn::Vec<DF> v) {
  if constexpr (hn::MaxLanes(DF()) > 4) {
    const hn::Half<DF> dh;
    return AddedHalves(dh, hn::Add(hn::LowerHalf(dh, v), hn::UpperHalf(dh, v)));
  } else {
    return v;
  }
}
template <class DI>
HWY_INLINE hn::Vec<QuarterInt> GreaterHalves(DI, hn::Vec<DI> v) {
  if constexpr (hn::MaxLanes(DI()) > 4) {
    const hn::Half<DI> dh;
    return GreaterHalves(dh, hn::Max(hn::LowerHalf(dh, v), hn::UpperHalf(dh, v)));
  } else {
    return v;
  }
}

// The sums of squares, folded to four lanes, and the largest magnitudes of one row.
HWY_INLINE void FoldRow(const float* row, uint32_t width, hn::Vec<Quarter>* squares, hn::Vec<QuarterInt>* magnitudes) {
  const hn::ScalableTag<float> df;
  const hn::RebindToSigned<decltype(df)> di;
  constexpr size_t kLanes = hn::MaxLanes(df), kSums = 16 / kLanes;
  static_assert(kLanes <= 16);
  hn::Vec<decltype(df)> sums[kSums];
  for (auto& sum : sums) sum = hn::Zero(df);
  const auto magnitude = hn::Set(di, 0x7FFFFFFF);
  auto most = hn::Zero(di);
  for (uint32_t c = 0; c < width; c += 16) {
    for (size_t i = 0; i < kSums; ++i) {
      const auto v = hn::Load(df, row + c + i * kLanes);
      sums[i] = hn::Add(sums[i], hn::Mul(v, v));
      most = hn::Max(most, hn::And(hn::BitCast(di, v), magnitude));
    }
  }
  if constexpr (kSums == 4) sums[0] = hn::Add(sums[0], sums[2]), sums[1] = hn::Add(sums[1], sums[3]);
  if constexpr (kSums > 1) sums[0] = hn::Add(sums[0], sums[1]);
  *squares = AddedHalves(df, sums[0]);
  *magnitudes = GreaterHalves(di, most);
}

// As ladder::SquareSumReference and MagnitudeMaxReference, of `count` rows; four of each array may be written for the
// last ones.
HWY_INLINE void MeasureRows(const float* rows, uint32_t width, uint32_t count, float* square_sums,
                            float* magnitude_maxima) {
  const Quarter df;
  const QuarterInt di;
  for (uint32_t r = 0; r < count; r += 4) {
    hn::Vec<Quarter> s[4];
    hn::Vec<QuarterInt> m[4];
    // What is left of the last four is measured again in place of rows that are not there.
    for (uint32_t i = 0; i < 4; ++i) {
      FoldRow(rows + size_t{HWY_MIN(r + i, count - 1)} * width, width, &s[i], &m[i]);
    }
    // Lanes 0 and 2, 1 and 3, of four rows side by side, and then those two.
    const auto s01 = hn::Add(hn::InterleaveLower(df, s[0], s[1]), hn::InterleaveUpper(df, s[0], s[1]));
    const auto s23 = hn::Add(hn::InterleaveLower(df, s[2], s[3]), hn::InterleaveUpper(df, s[2], s[3]));
    const auto m01 = hn::Max(hn::InterleaveLower(di, m[0], m[1]), hn::InterleaveUpper(di, m[0], m[1]));
    const auto m23 = hn::Max(hn::InterleaveLower(di, m[2], m[3]), hn::InterleaveUpper(di, m[2], m[3]));
    hn::StoreU(hn::Add(hn::ConcatLowerLower(df, s23, s01), hn::ConcatUpperUpper(df, s23, s01)), df, square_sums + r);
    const auto most = hn::Max(hn::ConcatLowerLower(di, m23, m01), hn::ConcatUpperUpper(di, m23, m01));
    hn::StoreU(hn::BitCast(df, most), df, magnitude_maxima + r);
  }
}
HWY_INLINE void MeasureRow(const float* row, uint32_t width, float* square_sum, float* magnitude_max) {
  float sums[4], maxima[4];
  MeasureRows(row, width, 1, sums, maxima);
  *square_sum = sums[0], *magnitude_max = maxima[0];
}

template <class In>
HWY_INLINE void SignAndRotate(In in, const typename In::Lane* source, uint32_t width, uint32_t rotation,
                              const SignedChannels& channels, float* row) {
  const hn::ScalableTag<float> df;
  const float *means = channels.means(), *scales = channels.scales();
  RotateRow(
      df, width, rotation,
      [&](size_t c) HWY_ATTR {
        return hn::Mul(hn::Sub(LoadAsFloat(df, in, source + c), hn::Load(df, means + c)), hn::Load(df, scales + c));
      },
      [&](size_t c, hn::Vec<decltype(df)> v) HWY_ATTR { hn::Store(v, df, row + c); });
  const uint32_t stride = FirstStrideInMemory(rotation);
  if (stride > 0) RotateMemory(row, width, rotation, stride);
}

// What is known of some rows; whole vectors of it may be written.
constexpr size_t kRowsSlack = 16;
struct RowBatch {
  static constexpr size_t kRows = 64 + kRowsSlack;
  float square_sums[kRows], magnitudes[kRows], stored[kRows], inverses[kRows];
  int32_t codes[kRows];
  int64_t sums[kRows][4];  // As ladder::RowSums: squares, products of 2 and of 4 bits, and nothing.
  uint8_t starts[kRows] = {};
};

// ladder::ByteScale and ladder::SurveyRow of `count` rows from `first`.
HWY_INLINE void ByteScales(RowBatch& rows, uint32_t first, uint32_t count, uint32_t width,
                           const ladder::RowLimits& limits, Survey* survey) {
  const hn::ScalableTag<float> df;
  const hn::RebindToSigned<decltype(df)> di;
  const uint32_t lanes = static_cast<uint32_t>(hn::Lanes(df));
  const auto zero = hn::Zero(df);
  for (uint32_t r = first; r < first + count; r += lanes) {
    const auto most = hn::LoadU(df, rows.magnitudes + r);
    const auto rms = hn::Sqrt(hn::Div(hn::LoadU(df, rows.square_sums + r), hn::Set(df, static_cast<float>(width))));
    const auto wanted =
        hn::Max(hn::Mul(rms, hn::Set(df, ladder::kRmsPart)), hn::Mul(most, hn::Set(df, limits.inverse_reach)));
    const auto rounded = hn::ShiftRight<20>(hn::Add(hn::BitCast(di, wanted), hn::Set(di, 0xFFFFF)));
    const auto code = hn::Sub(rounded, hn::Set(di, 112 << 3));
    const auto byte = hn::Min(hn::Max(code, hn::Set(di, 1)), hn::Set(di, ladder::kScaleCodeMax));
    const auto is_zero = hn::Eq(most, zero);
    const auto bits = hn::ShiftLeft<20>(hn::Add(byte, hn::Set(di, 112 << 3)));
    const auto stored = hn::BitCast(df, bits);
    const auto inverse = hn::Div(hn::Set(df, static_cast<float>(ladder::kUnit)), stored);
    const auto fits_byte = hn::RebindMask(df, hn::Lt(code, hn::Set(di, ladder::kScaleCodeMax + 1)));
    hn::StoreU(hn::IfThenElseZero(hn::AndNot(is_zero, fits_byte), inverse), df, rows.inverses + r);
    hn::StoreU(hn::IfThenZeroElse(hn::RebindMask(di, is_zero), byte), di, rows.codes + r);
    if (survey == nullptr) continue;
    const auto in = hn::FirstN(df, first + count - r);
    const auto fits = hn::Le(most, hn::Set(df, ladder::kMagnitudeMax));
    const auto held = hn::Or(is_zero, hn::RebindMask(df, hn::Eq(code, byte)));
    survey->out_of_range |= !hn::AllFalse(df, hn::AndNot(fits, in));
    survey->needs_float |= !hn::AllFalse(df, hn::And(hn::AndNot(held, fits), in));
  }
}

// The scales of rows that prescale: one at a time, in place.
HWY_INLINE void FloatScales(RowBatch& rows, uint32_t first, uint32_t count, uint32_t width,
                            const ladder::RowLimits& limits, Survey* survey, float* values) {
  const hn::ScalableTag<float> df;
  for (uint32_t r = first; r < first + count; ++r, values += width) {
    float square_sum = rows.square_sums[r], magnitude_max = rows.magnitudes[r];
    if (survey != nullptr) {
      survey->Join(ladder::SurveyRow(square_sum, magnitude_max, width, MetaType::kFp32, limits));
    }
    const int32_t exponent = ladder::PrescaleExponent(magnitude_max);
    const auto factor = hn::Set(df, ladder::PowerOfTwo(-exponent));
    for (uint32_t c = 0; c < width; c += static_cast<uint32_t>(hn::Lanes(df))) {
      hn::Store(hn::Mul(hn::Load(df, values + c), factor), df, values + c);
    }
    MeasureRow(values, width, &square_sum, &magnitude_max);
    const ladder::RowScale scale = ladder::FloatScale(square_sum, magnitude_max, exponent, width, limits);
    rows.stored[r] = scale.stored, rows.inverses[r] = scale.inverse;
  }
}

// ladder::RoundedWithin.
template <class DF>
HWY_INLINE hn::Vec<hn::RebindToSigned<DF>> RoundedWithin(DF df, hn::Vec<DF> value, float most) {
  const auto within = hn::Min(hn::Max(value, hn::Zero(df)), hn::Set(df, most));
  const auto bits = hn::BitCast(hn::RebindToSigned<DF>(), hn::Add(within, hn::Set(df, 0x1.8p23f)));
  return hn::And(bits, hn::Set(hn::RebindToSigned<DF>(), 0xFF));
}

// ladder::WriteMeta of `count` rows; returns the end.
HWY_INLINE uint8_t* WriteMetaRows(const RowBatch& rows, uint32_t count, MetaType type, float gain_part, uint8_t* to) {
  const hn::ScalableTag<float> df;
  const hn::RebindToSigned<decltype(df)> di;
  alignas(64) float squares[16], two[16], four[16];
  alignas(64) int32_t two_codes[16], four_codes[16];
  for (uint32_t first = 0; first < count; first += 16) {
    for (uint32_t i = 0; i < 16; ++i) {
      const int64_t* sums = rows.sums[first + i];
      squares[i] = static_cast<float>(sums[0]);
      two[i] = static_cast<float>(std::max<int64_t>(sums[1], 1));
      four[i] = static_cast<float>(std::max<int64_t>(sums[2], 1));
    }
    for (uint32_t i = 0; i < 16; i += static_cast<uint32_t>(hn::Lanes(df))) {
      const auto square = hn::Load(df, squares + i);
      const auto two_gain = hn::Div(hn::Mul(square, hn::Set(df, gain_part)), hn::Load(df, two + i));
      const auto four_gain = hn::Div(square, hn::Load(df, four + i));
      const auto two_steps = hn::Mul(hn::Sub(two_gain, hn::Set(df, 0.70f)), hn::Set(df, 50.0f));
      const auto four_steps = hn::Mul(hn::Sub(four_gain, hn::Set(df, 0.875f)), hn::Set(df, 1024.0f));
      hn::Store(hn::ShiftLeft<2>(RoundedWithin(df, two_steps, 63.0f)), di, two_codes + i);
      hn::Store(RoundedWithin(df, four_steps, 255.0f), di, four_codes + i);
    }
    for (uint32_t i = 0; i < HWY_MIN(16u, count - first); ++i) {
      if (HWY_LIKELY(type != MetaType::kFp32)) {
        *to++ = static_cast<uint8_t>(rows.codes[first + i]);
      } else {
        StoreLe<float>(to, rows.stored[first + i]);
        to += 4;
      }
      *to++ = static_cast<uint8_t>(two_codes[i] | rows.starts[first + i]);
      *to++ = static_cast<uint8_t>(four_codes[i]);
    }
  }
  return to;
}

// Adding a number whose unit is 1 rounds to the nearest integer, ties to even, and leaves it in the low half. No row
// that fits its scale has more than 7373 steps.
HWY_INLINE void StepsOfRow(const float* row, uint32_t width, float inverse, int16_t* steps) {
  const hn::ScalableTag<float> df;
  const hn::Repartition<uint16_t, decltype(df)> du16;
  const auto factor = hn::Set(df, inverse), unit_one = hn::Set(df, 0x1.8p23f);
  const uint32_t lanes = static_cast<uint32_t>(hn::Lanes(df));
  auto bits = [&](uint32_t c)
                  HWY_ATTR { return hn::BitCast(du16, hn::Add(hn::Mul(hn::Load(df, row + c), factor), unit_one)); };
  for (uint32_t c = 0; c < width; c += 2 * lanes) {
    hn::Store(hn::ConcatEven(du16, bits(c + lanes), bits(c)), du16, reinterpret_cast<uint16_t*>(steps + c));
  }
}

// Encodes a tile, `group` rows together, at most 64. code_rows(steps, count, codes, rows) makes codes, sums and starts
// of rows of steps, each row `width` values behind the one before.
template <class In, class CodeRows>
HWY_INLINE void EncodeLadderRows(In in, const EncodeTile& tile, const ladder::RowLimits& limits, uint32_t group,
                                 const CodeRows& code_rows) {
  constexpr uint32_t kGroupMax = 64;
  const uint32_t width = tile.width, rotation = nested::RotationSize(width);
  const uint32_t batch = std::clamp<uint32_t>(kLadderInlineBatch / width, 1, kLadderBatch);
  const MetaType type = tile.coding->meta_type;
  const SignedChannels channels(tile.transform, tile.transform.encode_scale, width);
  InlineBuffer<float, kLadderInlineBatch> values(size_t{batch} * width);
  InlineBuffer<int16_t, kGroupMax * 128> steps(size_t{group} * width);
  InlineBuffer<uint8_t, kGroupMax * 128> codes(size_t{group} * width);
  RowBatch rows{};
  PlaneRows<uint8_t> planes{tile.run(RunKind::kP2), tile.run(RunKind::kP4), tile.run(RunKind::kP8)};
  uint8_t* meta = tile.run(RunKind::kMeta);
  const auto* source = reinterpret_cast<const typename In::Lane*>(tile.source);
  Survey survey;
  Survey* const wanted_survey = tile.survey != nullptr ? &survey : nullptr;
  for (uint32_t first = 0; first < tile.tokens; first += group) {
    const uint32_t count = HWY_MIN(group, tile.tokens - first);
    for (uint32_t begun = 0; begun < count; begun += batch) {
      const uint32_t together = HWY_MIN(batch, count - begun);
      for (uint32_t r = 0; r < together; ++r, source += width) {
        for (size_t line = 0; line < width * sizeof(*source); line += 64) PrefetchAhead(source, line + kPrefetchBytes);
        SignAndRotate(in, source, width, rotation, channels, values.data() + size_t{r} * width);
      }
      MeasureRows(values.data(), width, together, rows.square_sums + begun, rows.magnitudes + begun);
      if (tile.survey != nullptr) {
        const float most = MagnitudeMax(in, source - size_t{together} * width, size_t{together} * width);
        survey.non_finite |= !(most < std::numeric_limits<float>::infinity());
      }
      if (HWY_LIKELY(type != MetaType::kFp32)) {
        ByteScales(rows, begun, together, width, limits, wanted_survey);
      } else {
        FloatScales(rows, begun, together, width, limits, wanted_survey, values.data());
      }
      for (uint32_t r = 0; r < together; ++r) {
        StepsOfRow(values.data() + size_t{r} * width, width, rows.inverses[begun + r],
                   steps.data() + size_t{begun + r} * width);
      }
    }
    code_rows(steps.data(), count, codes.data(), rows);
    meta = WriteMetaRows(rows, count, type, ladder::GainPart(tile.part), meta);
    PackRows(codes.data(), width, count, width, planes);
    planes.Skip(width, count);
  }
  if (tile.survey != nullptr) tile.survey->Join(survey);
}

template <class In>
Survey SurveyLadderRows(In in, const EncodeTile& tile, const ladder::RowLimits& limits) {
  const uint32_t width = tile.width, rotation = nested::RotationSize(width);
  const SignedChannels channels(tile.transform, tile.transform.encode_scale, width);
  InlineBuffer<float, kLadderInlineWidth> row(width);
  const auto* source = reinterpret_cast<const typename In::Lane*>(tile.source);
  Survey survey;
  for (uint32_t t = 0; t < tile.tokens; ++t, source += width) {
    const float most = MagnitudeMax(in, source, width);
    if (!(most < std::numeric_limits<float>::infinity())) return Survey{.non_finite = true};
    float square_sum, magnitude_max;
    SignAndRotate(in, source, width, rotation, channels, row.data());
    MeasureRow(row.data(), width, &square_sum, &magnitude_max);
    survey.Join(ladder::SurveyRow(square_sum, magnitude_max, width, tile.coding->meta_type, limits));
  }
  return survey;
}

}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#endif
