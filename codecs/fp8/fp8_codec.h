// FP8: E4M3 and E5M2, re-coded from FP16 or BF16, and as callers bring it (docs/formats/fp8.md).
//
// Four rows of the codec table. Scales are FP32: one a (layer, head), one for each G channels of a token where the
// coding has groups, the artifact's where it is calibrated, or one a layer.
//
// Reference functions are the definition; the others run on the best SIMD target and give the same bytes. Threads:
// pure.
#pragma once

#include "absl/status/status.h"
#include "codecs/tile.h"

namespace firn::fp8 {

// Row functions of all four. Without groups a tile is all coded tokens of one head, or of a layer.
void EncodeReference(const EncodeTile& tile);
void DecodeReference(const DecodeTile& tile);
void Encode(const EncodeTile& tile);
void Decode(const DecodeTile& tile);
Survey SurveyValues(const EncodeTile& tile);
uint64_t RunBytes(const RunShape& shape, RunKind kind);
uint64_t MetaOffset(const PartCoding& coding, uint32_t width, uint32_t token);
uint32_t TileTokens(const PartCoding& coding, uint32_t width, uint32_t tokens);
absl::Status Validate(const PartCoding& coding, DType stored, uint32_t width);

inline bool IsE5m2(const PartCoding& coding) {
  return coding.codec == CodecId::kFp8E5m2 || coding.codec == CodecId::kFp8E5m2Tensor;
}
inline bool IsTensor(const PartCoding& coding) {
  return coding.codec == CodecId::kFp8E4m3Tensor || coding.codec == CodecId::kFp8E5m2Tensor;
}
inline bool IsCalibrated(const PartCoding& coding) { return (coding.flags & PartCoding::kCalibrated) != 0; }
// Calls body(first value, values) for each run of values of a tile that has a scale of its own, in order.
template <typename Tile, typename Body>
void ForEachScale(const Tile& tile, const Body& body) {
  const uint64_t group = tile.coding->group, rows = uint64_t{tile.heads} * tile.tokens;
  if (group == 0) return body(uint64_t{0}, rows * tile.width);
  for (uint64_t row = 0; row < rows; ++row) {
    for (uint64_t first = 0; first < tile.width; first += group) {
      body(row * tile.width + first, group < tile.width - first ? group : tile.width - first);
    }
  }
}

// `count` FP8 codes times `scale` as FP16, BF16 or FP32. Finite products beyond the type saturate; NaN and Inf stay.
void DecodeCodes(const uint8_t* codes, uint64_t count, bool e5m2, float scale, DType out, uint8_t* target);
void DecodeCodesReference(const uint8_t* codes, uint64_t count, bool e5m2, float scale, DType out, uint8_t* target);

// The scale that puts `magnitude_max` on the format's largest value; 1 where all values are zero, never subnormal.
float ScaleFor(float magnitude_max, bool e5m2);

}  // namespace firn::fp8
