#include <cmath>
#include <cstring>
#include <limits>

#include "codecs/block/conditioner.h"
#include "codecs/nested/nested_format.h"
#include "codecs/numeric/inline_buffer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codecs/block/conditioning_simd.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR
#include "codecs/nested/rotation-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace firn {
namespace HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR

void ConditionTarget(const Conditioning& c, uint32_t first, uint32_t tokens, float* rows) {
  ConditionRowsReference(c, first, tokens, rows);
}
void RestoreTarget(const Conditioning& c, uint32_t first, uint32_t tokens, float* rows) {
  RestoreRowsReference(c, first, tokens, rows);
}

bool WithinTarget(const float* rows, uint64_t count, float limit) {
  bool fits = true;
  for (uint64_t i = 0; i < count; ++i) fits &= std::fabs(rows[i]) <= limit;
  return fits;
}

#else

// Turns the pairs (i, i + pairs) of a row by its angles, or back by them.
HWY_INLINE void TurnHalves(const float* cosines, const float* sines, uint32_t pairs, bool back, float* row) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  size_t i = 0;
  for (; i + lanes <= pairs; i += lanes) {
    const auto a = hn::LoadU(df, row + i), b = hn::LoadU(df, row + pairs + i);
    const auto c = hn::LoadU(df, cosines + i), sine = hn::LoadU(df, sines + i);
    const auto s = back ? hn::Neg(sine) : sine;
    hn::StoreU(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), df, row + i);
    hn::StoreU(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), df, row + pairs + i);
  }
  for (; i < pairs; ++i) {
    const float a = row[i], b = row[pairs + i], c = cosines[i], s = back ? -sines[i] : sines[i];
    row[i] = a * c - b * s;
    row[pairs + i] = b * c + a * s;
  }
}

// Turns the pairs (2i, 2i + 1).
HWY_INLINE void TurnNeighbours(const float* cosines, const float* sines, uint32_t pairs, bool back, float* row) {
  for (size_t i = 0; i < pairs; ++i) {
    const float a = row[2 * i], b = row[2 * i + 1], c = cosines[i], s = back ? -sines[i] : sines[i];
    row[2 * i] = a * c - b * s;
    row[2 * i + 1] = b * c + a * s;
  }
}

HWY_INLINE void Turn(const RopeTable& rope, uint32_t token, bool back, float* row) {
  auto turn = rope.interleaved() ? TurnNeighbours : TurnHalves;
  turn(rope.Cosines(token), rope.Sines(token), rope.pairs(), back, row);
}

// Rotates what load(c) gives, in vectors, into `row`, which has room for whole ones.
template <class Load>
HWY_INLINE void RotateInto(uint32_t width, uint32_t size, const Load& load, float* row) {
  const hn::ScalableTag<float> df;
  RotateRow(df, width, size, load, [&](size_t c, hn::Vec<decltype(df)> v) HWY_ATTR { hn::Store(v, df, row + c); });
  const uint32_t stride = static_cast<uint32_t>(RegisterVectors(size) * hn::Lanes(df));
  if (stride > 0) RotateMemory(row, width, size, stride);
}

template <class DF>
HWY_INLINE hn::Vec<DF> Saturated(DF df, hn::Vec<DF> value) {
  const auto largest = hn::Set(df, std::numeric_limits<float>::max());
  return hn::IfThenElse(hn::Gt(hn::Abs(value), largest), hn::CopySign(largest, value), value);
}
HWY_INLINE void SaturateRow(uint32_t width, float* row) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  size_t c = 0;
  for (; c + lanes <= width; c += lanes) hn::StoreU(Saturated(df, hn::LoadU(df, row + c)), df, row + c);
  for (; c < width; ++c) row[c] = nested::Saturated(row[c], std::numeric_limits<float>::max());
}

constexpr size_t kInlineWidth = 1024;

void ConditionTarget(const Conditioning& conditioning, uint32_t first_token, uint32_t tokens, float* rows) {
  const hn::ScalableTag<float> df;
  const uint32_t width = conditioning.width;
  const ChannelTransform* transform = conditioning.transform;
  InlineBuffer<float, kInlineWidth> source(width), scratch(width);
  std::memset(source.data() + width / hn::Lanes(df) * hn::Lanes(df), 0, hn::Lanes(df) * sizeof(float));
  for (uint32_t t = 0; t < tokens; ++t, rows += width) {
    if (conditioning.rope != nullptr) Turn(*conditioning.rope, first_token + t, true, rows);
    if (transform == nullptr) continue;
    std::memcpy(source.data(), rows, width * sizeof(float));
    if (transform->mean != nullptr) {
      auto load = [&](size_t c) HWY_ATTR {
        const auto centred = hn::Sub(hn::Load(df, source.data() + c), hn::LoadU(df, transform->mean + c));
        return hn::Mul(centred, hn::LoadU(df, transform->encode_scale + c));
      };
      RotateInto(width, conditioning.rotation, load, scratch.data());
    } else {
      const auto scale = hn::Set(df, transform->uniform_scale);
      auto load = [&](size_t c) HWY_ATTR { return hn::Mul(hn::Load(df, source.data() + c), scale); };
      RotateInto(width, conditioning.rotation, load, scratch.data());
    }
    std::memcpy(rows, scratch.data(), width * sizeof(float));
  }
}

void RestoreTarget(const Conditioning& conditioning, uint32_t first_token, uint32_t tokens, float* rows) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  const uint32_t width = conditioning.width;
  const ChannelTransform* transform = conditioning.transform;
  InlineBuffer<float, kInlineWidth> source(width), scratch(width);
  std::memset(source.data() + width / lanes * lanes, 0, lanes * sizeof(float));
  for (uint32_t t = 0; t < tokens; ++t, rows += width) {
    if (transform != nullptr) {
      std::memcpy(source.data(), rows, width * sizeof(float));
      auto load = [&](size_t c) HWY_ATTR { return hn::Load(df, source.data() + c); };
      RotateInto(width, conditioning.rotation, load, scratch.data());
      for (size_t c = 0; c < width; c += lanes) {
        const bool channels = transform->mean != nullptr;
        const auto scale =
            channels ? hn::LoadU(df, transform->decode_scale + c) : hn::Set(df, transform->uniform_scale);
        const auto scaled = hn::Mul(hn::Load(df, scratch.data() + c), scale);
        const auto moved = channels ? hn::Add(scaled, hn::LoadU(df, transform->mean + c)) : scaled;
        hn::Store(Saturated(df, moved), df, scratch.data() + c);
      }
      std::memcpy(rows, scratch.data(), width * sizeof(float));
    }
    if (conditioning.rope == nullptr) continue;
    Turn(*conditioning.rope, first_token + t, false, rows);
    SaturateRow(width, rows);
  }
}

bool WithinTarget(const float* rows, uint64_t count, float limit) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  const auto largest = hn::Set(df, limit);
  auto outside = hn::Lt(largest, largest);  // Nothing.
  uint64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    // NaN is within nothing.
    outside = hn::Or(outside, hn::Not(hn::Le(hn::Abs(hn::LoadU(df, rows + i)), largest)));
  }
  bool fits = hn::AllFalse(df, outside);
  for (; i < count; ++i) fits &= std::fabs(rows[i]) <= limit;
  return fits;
}

#endif
}  // namespace HWY_NAMESPACE
}  // namespace firn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace firn {

HWY_EXPORT(ConditionTarget);
HWY_EXPORT(RestoreTarget);
HWY_EXPORT(WithinTarget);

void ConditionRows(const Conditioning& conditioning, uint32_t first_token, uint32_t tokens, float* rows) {
  HWY_DYNAMIC_DISPATCH(ConditionTarget)(conditioning, first_token, tokens, rows);
}
bool RowsWithin(const float* rows, uint64_t count, float limit) {
  return HWY_DYNAMIC_DISPATCH(WithinTarget)(rows, count, limit);
}
void RestoreRows(const Conditioning& conditioning, uint32_t first_token, uint32_t tokens, float* rows) {
  HWY_DYNAMIC_DISPATCH(RestoreTarget)(conditioning, first_token, tokens, rows);
}

}  // namespace firn
#endif
