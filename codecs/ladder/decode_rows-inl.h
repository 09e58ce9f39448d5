// Rows of the codes "gain" and "trellis" in vectors, from scaled levels to values.
//
// A per-target header: include it after hwy/foreach_target.h.

#if defined(FIRN_CODECS_LADDER_DECODE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FIRN_CODECS_LADDER_DECODE_ROWS_INL_H_
#undef FIRN_CODECS_LADDER_DECODE_ROWS_INL_H_
#else
#define FIRN_CODECS_LADDER_DECODE_ROWS_INL_H_
#endif

#include "codecs/ladder/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {

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
  // Of two vectors of entries only the bits of `index` that count are looked at.
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

// Decodes a tile. Levels::Prepare(codes, start, width) is called for every row of some, then levels.Begin(codes, width,
// factor) and levels.At(c), scaled levels, for each. `codes` has kCodeSlack bytes in front and, where Levels::kTwoBytes
// says so, a second byte of each value behind the row.
template <class Out, class Levels>
HWY_INLINE void DecodeLadderRows(Out, const DecodeTile& tile, Levels& levels) {
  const hn::ScalableTag<float> df;
  const uint32_t width = tile.width, rotation = nested::RotationSize(width);
  const uint32_t batch = std::clamp<uint32_t>(kLadderInlineBatch / width, 1, kLadderBatch);
  const uint32_t stride_in_memory = FirstStrideInMemory(rotation);
  const size_t code_stride = size_t{width} * (Levels::kTwoBytes ? 2 : 1) + kCodeSlack;
  const MetaType type = tile.coding->meta_type;
  const uint32_t meta_bytes = ladder::MetaRowBytes(type);
  const SignedChannels channels(tile.transform, tile.transform.decode_scale, width);
  const float *means = channels.means(), *scales = channels.scales();
  InlineBuffer<uint8_t, kLadderBatch*(256 + kCodeSlack)> codes(batch * code_stride);
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
      Levels::Prepare(codes.data() + r * code_stride + kCodeSlack, factors[r].start, width);
    }
    for (uint32_t r = 0; r < together; ++r, target += width) {
      levels.Begin(codes.data() + r * code_stride + kCodeSlack, width, factors[r].factor);
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
