// Rows of the codes "gain" and "trellis" one value at a time, up to the steps that they code and from the levels that
// they decode: the definition.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "codecs/ladder/row_format.h"
#include "codecs/nested/nested_format.h"
#include "codecs/nested/planes_reference.h"
#include "codecs/nested/rotation_reference.h"
#include "codecs/numeric/float_rows.h"

namespace firn::ladder {

// From source values to rotated ones; returns whether all were finite.
inline bool TransformRowReference(const EncodeTile& tile, uint32_t token, float* row) {
  const ChannelTransform& transform = tile.transform;
  LoadFloats(tile.source + uint64_t{token} * tile.width * DTypeBytes(tile.in), tile.in, tile.width, row);
  bool finite = true;
  for (uint32_t c = 0; c < tile.width; ++c) {
    finite &= std::isfinite(row[c]);
    float centred = row[c] - (transform.mean != nullptr ? transform.mean[c] : 0.0f);
    float scale = transform.encode_scale != nullptr ? transform.encode_scale[c] : transform.uniform_scale;
    row[c] = centred * (IsNegated(c) ? -scale : scale);
  }
  nested::RotateReference(row, tile.width, nested::RotationSize(tile.width));
  return finite;
}

inline float MagnitudeMaxReference(const float* row, uint32_t width) {
  uint32_t most = 0;
  for (uint32_t c = 0; c < width; ++c) most = std::max(most, FloatBits(row[c]) & 0x7FFFFFFFu);
  return BitsFloat(most);
}

// In 16 sums, value i in sum i mod 16, added in halves.
inline float SquareSumReference(const float* row, uint32_t width) {
  float sums[16] = {};
  for (uint32_t c = 0; c < width; ++c) sums[c % 16] = sums[c % 16] + row[c] * row[c];
  for (uint32_t half = 8; half > 0; half /= 2) {
    for (uint32_t i = 0; i < half; ++i) sums[i] = sums[i] + sums[i + half];
  }
  return sums[0];
}

inline RowScale ScaleRowReference(MetaType type, const RowLimits& limits, uint32_t width, float* row) {
  float magnitude_max = MagnitudeMaxReference(row, width);
  if (type != MetaType::kFp32) return ByteScale(SquareSumReference(row, width), magnitude_max, width, limits);
  int32_t exponent = PrescaleExponent(magnitude_max);
  float factor = PowerOfTwo(-exponent);
  for (uint32_t c = 0; c < width; ++c) row[c] *= factor;
  return FloatScale(SquareSumReference(row, width), MagnitudeMaxReference(row, width), exponent, width, limits);
}

inline int32_t StepsOf(float value, float inverse, const RowLimits& limits) {
  float position = value * inverse;
  if (!(position > -limits.steps_max)) return -static_cast<int32_t>(limits.steps_max);  // NaN too.
  return static_cast<int32_t>(std::nearbyintf(std::min(position, limits.steps_max)));
}

// Calls code_row(steps, codes, &sums), which fills a row of codes and returns its start state.
template <class CodeRow>
void EncodeRowsReference(const EncodeTile& tile, const RowLimits& limits, const CodeRow& code_row) {
  uint32_t width = tile.width;
  MetaType type = tile.coding->meta_type;
  std::vector<float> row(width);
  std::vector<int32_t> steps(width);
  std::vector<uint8_t> codes(width);
  uint8_t* meta = tile.run(RunKind::kMeta);
  for (uint32_t t = 0; t < tile.tokens; ++t) {
    bool finite = TransformRowReference(tile, t, row.data());
    if (tile.survey != nullptr) {
      tile.survey->non_finite |= !finite;
      tile.survey->Join(SurveyRow(SquareSumReference(row.data(), width), MagnitudeMaxReference(row.data(), width),
                                  width, type, limits));
    }
    RowScale scale = ScaleRowReference(type, limits, width, row.data());
    for (uint32_t c = 0; c < width; ++c) steps[c] = StepsOf(row[c], scale.inverse, limits);
    RowSums sums;
    for (int32_t z : steps) sums.squares += int64_t{z} * z;
    uint8_t start = code_row(steps.data(), codes.data(), &sums);
    meta = WriteMeta(meta, type, scale, sums, GainPart(tile.part), start);
    auto plane = [&](RunKind kind, uint64_t row_bytes) {
      return tile.run(kind) != nullptr ? tile.run(kind) + t * row_bytes : nullptr;
    };
    uint64_t pair_bytes = nested::TwoBitRowBytes(width);
    nested::PackRowReference(codes.data(), width, plane(RunKind::kP2, pair_bytes), plane(RunKind::kP4, pair_bytes),
                             plane(RunKind::kP8, nested::FourBitRowBytes(width)));
  }
}

// Calls levels_of(codes, start, levels), which fills a row of levels.
template <class LevelsOf>
void DecodeRowsReference(const DecodeTile& tile, const LevelsOf& levels_of) {
  uint32_t width = tile.width;
  MetaType type = tile.coding->meta_type;
  const ChannelTransform& transform = tile.transform;
  float limit = OutputLimit(tile.out);
  std::vector<float> row(width);
  std::vector<uint8_t> codes(width);
  for (uint32_t t = 0; t < tile.tokens; ++t) {
    auto plane = [&](RunKind kind, uint64_t row_bytes) {
      return tile.run(kind) != nullptr ? tile.run(kind) + t * row_bytes : nullptr;
    };
    uint64_t pair_bytes = nested::TwoBitRowBytes(width);
    nested::UnpackCodesReference(plane(RunKind::kP2, pair_bytes), plane(RunKind::kP4, pair_bytes),
                                 plane(RunKind::kP8, nested::FourBitRowBytes(width)), width, tile.precision,
                                 codes.data());
    RowFactor of_row = ReadMeta(tile.run(RunKind::kMeta) + t * MetaRowBytes(type), type, tile.precision);
    levels_of(codes.data(), of_row.start, row.data());
    for (uint32_t c = 0; c < width; ++c) row[c] = row[c] * of_row.factor;
    nested::RotateReference(row.data(), width, nested::RotationSize(width));
    for (uint32_t c = 0; c < width; ++c) {
      float scale = transform.decode_scale != nullptr ? transform.decode_scale[c] : transform.uniform_scale;
      float scaled = row[c] * (IsNegated(c) ? -scale : scale);
      row[c] = nested::Saturated(scaled + (transform.mean != nullptr ? transform.mean[c] : 0.0f), limit);
    }
    StoreFloats(row.data(), width, tile.out, tile.target + uint64_t{t} * width * DTypeBytes(tile.out));
  }
}

inline Survey SurveyRowsReference(const EncodeTile& tile, const RowLimits& limits) {
  std::vector<float> row(tile.width);
  Survey survey;
  for (uint32_t t = 0; t < tile.tokens; ++t) {
    if (!TransformRowReference(tile, t, row.data())) return Survey{.non_finite = true};
    survey.Join(SurveyRow(SquareSumReference(row.data(), tile.width), MagnitudeMaxReference(row.data(), tile.width),
                          tile.width, tile.coding->meta_type, limits));
  }
  return survey;
}

}  // namespace firn::ladder
