// Rows of the codes "gain" and "trellis" in vectors: from source values to steps, and from scaled levels to values.
//
// A per-target header: include it after hwy/foreach_target.h. Rows are multiples of 64 values, so all vectors are whole.

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

template <class In>
HWY_INLINE void SteppedTransform(In in, const typename In::Lane* source, uint32_t width, uint32_t rotation,
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

// Halves added until one lane is left.
template <class DF>
HWY_INLINE float FoldedSum(DF df, hn::Vec<DF> v) {
  if constexpr (hn::MaxLanes(DF()) > 4) {
    const hn::Half<DF> dh;
    return FoldedSum(dh, hn::Add(hn::LowerHalf(dh, v), hn::UpperHalf(dh, v)));
  } else {
    v = hn::Add(v, hn::Shuffle1032(v));
    return hn::GetLane(hn::Add(v, hn::Shuffle2301(v)));
  }
}

// As ladder::SquareSumReference and MagnitudeMaxReference.
HWY_INLINE void MeasureRow(const float* row, uint32_t width, float* square_sum, float* magnitude_max) {
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
  *square_sum = FoldedSum(df, sums[0]);
  *magnitude_max = hn::GetLane(hn::BitCast(df, hn::MaxOfLanes(di, most)));
}

// The scale of a rotated row, which FP32 scales prescale in place.
HWY_INLINE ladder::RowScale ScaleRow(MetaType type, const ladder::RowLimits& limits, uint32_t width, float square_sum,
                                     float magnitude_max, float* row) {
  if (HWY_LIKELY(type != MetaType::kFp32)) return ladder::ByteScale(square_sum, magnitude_max, width, limits);
  const hn::ScalableTag<float> df;
  const int32_t exponent = ladder::PrescaleExponent(magnitude_max);
  const auto factor = hn::Set(df, ladder::PowerOfTwo(-exponent));
  for (uint32_t c = 0; c < width; c += static_cast<uint32_t>(hn::Lanes(df))) {
    hn::Store(hn::Mul(hn::Load(df, row + c), factor), df, row + c);
  }
  MeasureRow(row, width, &square_sum, &magnitude_max);
  return ladder::FloatScale(square_sum, magnitude_max, exponent, width, limits);
}

// Adding a number whose unit is 1 rounds to the nearest integer, ties to even, and leaves it in the low half.
HWY_INLINE void StepsOfRow(const float* row, uint32_t width, float inverse, const ladder::RowLimits& limits,
                           int16_t* steps) {
  const hn::ScalableTag<float> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const hn::Rebind<uint16_t, decltype(df)> du16;
  const auto factor = hn::Set(df, inverse), unit_one = hn::Set(df, 0x1.8p23f);
  const auto most = hn::Set(df, limits.steps_max), least = hn::Set(df, -limits.steps_max);
  for (uint32_t c = 0; c < width; c += static_cast<uint32_t>(hn::Lanes(df))) {
    const auto position = hn::Min(hn::Max(hn::Mul(hn::Load(df, row + c), factor), least), most);
    const auto bits = hn::BitCast(du, hn::Add(position, unit_one));
    hn::StoreU(hn::TruncateTo(du16, bits), du16, reinterpret_cast<uint16_t*>(steps + c));
  }
}

// Sums of products of 16-bit integers, exact: 32-bit sums are emptied into a 64-bit one before they can overflow.
class ProductSum {
 public:
  using D16 = hn::ScalableTag<int16_t>;
  using D32 = hn::Repartition<int32_t, D16>;
  // At most this many calls of Add between two of Flush, with factors of at most 7373.
  static constexpr uint32_t kAddsMax = 16;

  HWY_INLINE ProductSum()
      : sum_(hn::Zero(D32())), high_(hn::Zero(D32())), total_(hn::Zero(hn::Repartition<int64_t, D16>())) {}
  HWY_INLINE void Add(hn::Vec<D16> a, hn::Vec<D16> b) { sum_ = hn::ReorderWidenMulAccumulate(D32(), a, b, sum_, high_); }
  HWY_INLINE void Flush() {
    const hn::Repartition<int64_t, D16> d64;
    const hn::Half<D32> half;
    sum_ = hn::Add(sum_, high_);
    total_ = hn::Add(total_, hn::Add(hn::PromoteTo(d64, hn::LowerHalf(half, sum_)),
                                     hn::PromoteTo(d64, hn::UpperHalf(half, sum_))));
    sum_ = high_ = hn::Zero(D32());
  }
  HWY_INLINE int64_t Total() const {
    const hn::Repartition<int64_t, D16> d64;
    return hn::GetLane(hn::SumOfLanes(d64, total_));
  }

 private:
  hn::Vec<D32> sum_, high_;
  hn::Vec<hn::Repartition<int64_t, D16>> total_;
};

// Calls body(c) for the vectors of 16-bit integers of a row, and flushes the sums of products as often as they need it.
template <class Body, class... Sums>
HWY_INLINE void ForStepVectors(uint32_t width, const Body& body, Sums&... sums) {
  const uint32_t lanes = static_cast<uint32_t>(hn::Lanes(ProductSum::D16()));
  for (uint32_t first = 0; first < width; first += ProductSum::kAddsMax * lanes) {
    const uint32_t end = HWY_MIN(width, first + ProductSum::kAddsMax * lanes);
    for (uint32_t c = first; c < end; c += lanes) body(c);
    (sums.Flush(), ...);
  }
}

// Entry `index` of eight 16-bit integers, index 0 to 7 in 16-bit lanes.
template <class D16>
HWY_INLINE hn::Vec<D16> ByteIndices(D16 d16, hn::Vec<D16> index) {
  return hn::Or(hn::Mul(index, hn::Set(d16, 0x0202)), hn::Set(d16, 0x0100));
}
template <class D16, class T>
HWY_INLINE hn::Vec<D16> EntryOf8(D16 d16, const T* table, hn::Vec<D16> byte_indices) {
  return hn::TableLookupBytes(hn::LoadDup128(d16, reinterpret_cast<const hn::TFromD<D16>*>(table)), byte_indices);
}

// Encodes a tile, `group` rows together. code_rows(steps, rows, codes, sums, starts) makes codes of rows of steps, each
// row `width` values behind the one before.
template <class In, class CodeRows>
HWY_INLINE void EncodeLadderRows(In in, const EncodeTile& tile, const ladder::RowLimits& limits, uint32_t group,
                                 const CodeRows& code_rows) {
  constexpr uint32_t kGroupMax = 64;
  const uint32_t width = tile.width, rotation = nested::RotationSize(width);
  const uint32_t batch = std::clamp<uint32_t>(kLadderInlineBatch / width, 1, kLadderBatch);
  const MetaType type = tile.coding->meta_type;
  const SignedChannels channels(tile.transform, tile.transform.encode_scale, width);
  InlineBuffer<float, kLadderInlineBatch> rows(size_t{batch} * width);
  InlineBuffer<int16_t, kGroupMax * 128> steps(size_t{group} * width);
  InlineBuffer<uint8_t, kGroupMax * 128> codes(size_t{group} * width);
  ladder::RowScale scales[kGroupMax];
  ladder::RowSums sums[kGroupMax];
  uint8_t starts[kGroupMax] = {};
  float square_sums[kLadderBatch], magnitudes[kLadderBatch];
  PlaneRows<uint8_t> planes{tile.run(RunKind::kP2), tile.run(RunKind::kP4), tile.run(RunKind::kP8)};
  uint8_t* meta = tile.run(RunKind::kMeta);
  const auto* source = reinterpret_cast<const typename In::Lane*>(tile.source);
  for (uint32_t first = 0; first < tile.tokens; first += group) {
    const uint32_t count = HWY_MIN(group, tile.tokens - first);
    for (uint32_t begun = 0; begun < count; begun += batch) {
      const uint32_t together = HWY_MIN(batch, count - begun);
      for (uint32_t r = 0; r < together; ++r, source += width) {
        for (size_t line = 0; line < width * sizeof(*source); line += 64) PrefetchAhead(source, line + kPrefetchBytes);
        float* row = rows.data() + size_t{r} * width;
        SteppedTransform(in, source, width, rotation, channels, row);
        MeasureRow(row, width, &square_sums[r], &magnitudes[r]);
      }
      if (tile.survey != nullptr) {
        const auto* values = source - size_t{together} * width;
        const float most = MagnitudeMax(in, values, size_t{together} * width);
        tile.survey->non_finite |= !(most < std::numeric_limits<float>::infinity());
      }
      for (uint32_t r = 0; r < together; ++r) {
        float* row = rows.data() + size_t{r} * width;
        if (tile.survey != nullptr) {
          tile.survey->Join(ladder::SurveyRow(square_sums[r], magnitudes[r], width, type, limits));
        }
        ladder::RowScale& scale = scales[begun + r];
        scale = ScaleRow(type, limits, width, square_sums[r], magnitudes[r], row);
        StepsOfRow(row, width, scale.inverse, limits, steps.data() + size_t{begun + r} * width);
      }
    }
    code_rows(steps.data(), count, codes.data(), sums, starts);
    for (uint32_t r = 0; r < count; ++r) {
      meta = ladder::WriteMeta(meta, type, scales[r], sums[r], ladder::GainPart(tile.part), starts[r]);
    }
    PackRows(codes.data(), width, count, width, planes);
    planes.Skip(width, count);
  }
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
    SteppedTransform(in, source, width, rotation, channels, row.data());
    float square_sum, magnitude_max;
    MeasureRow(row.data(), width, &square_sum, &magnitude_max);
    survey.Join(ladder::SurveyRow(square_sum, magnitude_max, width, tile.coding->meta_type, limits));
  }
  return survey;
}

// A row's table of up to 32 levels times a factor, in registers where the machine can look them up there.
template <size_t kEntries>
class LevelTable {
 public:
  using DF = hn::ScalableTag<float>;
  using DI = hn::RebindToSigned<DF>;
  static constexpr size_t kLanes = hn::MaxLanes(DF());
  static constexpr size_t kVectors = (kEntries + kLanes - 1) / kLanes;
#if HWY_TARGET <= HWY_AVX3
  static constexpr bool kInRegisters = kVectors <= 2;
#else
  static constexpr bool kInRegisters = kVectors == 1 && kLanes >= kEntries;
#endif

  HWY_INLINE LevelTable() : low_(hn::Zero(DF())), high_(hn::Zero(DF())) {}
  // `levels` has whole vectors.
  HWY_INLINE void Set(const float* levels, float factor) {
    const DF df;
    const auto by = hn::Set(df, factor);
    if constexpr (kInRegisters) {
      low_ = hn::Mul(hn::LoadU(df, levels), by);
      high_ = kVectors > 1 ? hn::Mul(hn::LoadU(df, levels + kLanes), by) : low_;
    } else {
      for (size_t i = 0; i < kEntries; i += kLanes) hn::Store(hn::Mul(hn::LoadU(df, levels + i), by), df, memory_ + i);
    }
  }
  HWY_INLINE hn::Vec<DF> At(hn::Vec<DI> index) const {
    const DF df;
    if constexpr (!kInRegisters) return hn::GatherIndex(df, memory_, index);
#if HWY_TARGET <= HWY_AVX3
    if constexpr (kVectors == 2) {
      return hn::Vec<DF>{_mm512_permutex2var_ps(low_.raw, index.raw, high_.raw)};
    }
#endif
    return hn::TableLookupLanes(low_, hn::IndicesFromVec(df, index));
  }

 private:
  hn::Vec<DF> low_, high_;
  alignas(64) float memory_[kInRegisters ? 1 : (kEntries + 15) / 16 * 16];
};

constexpr size_t kCodeSlack = 64;  // Bytes in front of a row of codes that decoding may write.

// Decodes a tile. prepare(codes, start) is called for every row of some, then levels.Begin(codes, factor) and
// levels.At(c), scaled levels, for each; `codes` has kCodeSlack bytes in front.
template <class Out, class Prepare, class Levels>
HWY_INLINE void DecodeLadderRows(Out, const DecodeTile& tile, const Prepare& prepare, Levels& levels) {
  const hn::ScalableTag<float> df;
  const uint32_t width = tile.width, rotation = nested::RotationSize(width);
  const uint32_t batch = std::clamp<uint32_t>(kLadderInlineBatch / width, 1, kLadderBatch);
  const uint32_t stride_in_memory = FirstStrideInMemory(rotation);
  const size_t code_stride = width + kCodeSlack;
  const MetaType type = tile.coding->meta_type;
  const uint32_t meta_bytes = ladder::MetaRowBytes(type);
  const SignedChannels channels(tile.transform, tile.transform.decode_scale, width);
  const float *means = channels.means(), *scales = channels.scales();
  InlineBuffer<uint8_t, kLadderBatch*(128 + kCodeSlack)> codes(batch * code_stride);
  InlineBuffer<float, kLadderInlineWidth> scratch(stride_in_memory > 0 ? width : 0);
  ladder::RowFactor factors[kLadderBatch];
  PlaneRows<const uint8_t> planes{tile.run(RunKind::kP2), tile.run(RunKind::kP4), tile.run(RunKind::kP8)};
  const uint8_t* meta = tile.run(RunKind::kMeta);
  auto* target = reinterpret_cast<typename Out::Lane*>(tile.target);
  const float largest = OutputLimit(tile.out);
  const auto limit = hn::Set(df, largest), lower_limit = hn::Set(df, -largest);
  auto finish = [&](size_t c, hn::Vec<decltype(df)> v) HWY_ATTR {
    v = hn::Add(hn::Mul(v, hn::Load(df, scales + c)), hn::Load(df, means + c));
    StoreFromFloat(df, Out(), hn::Min(hn::Max(v, lower_limit), limit), target + c);
  };
  for (uint32_t first = 0; first < tile.tokens; first += batch) {
    const uint32_t together = HWY_MIN(batch, tile.tokens - first);
    UnpackRows<Unpacked::kCodes>(planes, together, width, tile.precision, code_stride, codes.data() + kCodeSlack);
    planes.Skip(width, together);
    for (uint32_t r = 0; r < together; ++r, meta += meta_bytes) {
      factors[r] = ladder::ReadMeta(meta, type, tile.precision);
      prepare(codes.data() + r * code_stride + kCodeSlack, factors[r].start);
    }
    for (uint32_t r = 0; r < together; ++r, target += width) {
      levels.Begin(codes.data() + r * code_stride + kCodeSlack, factors[r].factor);
      auto load = [&](size_t c) HWY_ATTR { return levels.At(c); };
      if (HWY_LIKELY(stride_in_memory == 0)) {
        RotateRow(df, width, rotation, load, finish);
        continue;
      }
      float* row = scratch.data();
      RotateRow(df, width, rotation, load,
                [&](size_t c, hn::Vec<decltype(df)> v) HWY_ATTR { hn::Store(v, df, row + c); });
      RotateMemory(row, width, rotation, stride_in_memory);
      for (uint32_t c = 0; c < width; c += static_cast<uint32_t>(hn::Lanes(df))) finish(c, hn::Load(df, row + c));
    }
  }
}

// Calls body.template operator()<precision>() for the class of a tile.
template <class Body>
HWY_INLINE void WithPrecision(PrecisionClass precision, const Body& body) {
  if (precision == PrecisionClass::k8Bit) return body(std::integral_constant<PrecisionClass, PrecisionClass::k8Bit>());
  if (precision == PrecisionClass::k4Bit) return body(std::integral_constant<PrecisionClass, PrecisionClass::k4Bit>());
  body(std::integral_constant<PrecisionClass, PrecisionClass::k2Bit>());
}

}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#endif
