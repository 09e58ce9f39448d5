// FP8: E4M3 and E5M2, re-coded from FP16 or BF16 with one FP32 scale a (layer, head), and as callers bring it
// (docs/formats/fp8.md).
//
// Reference functions are the definition; the others run on the best SIMD target and give the same bytes. Threads:
// pure.
#pragma once

#include "absl/status/status.h"
#include "codecs/tile.h"

namespace firn::fp8 {

// Row functions of kFp8E4m3 and kFp8E5m2; a tile is all coded tokens of one head.
void EncodeReference(const EncodeTile& tile);
void DecodeReference(const DecodeTile& tile);
void Encode(const EncodeTile& tile);
void Decode(const DecodeTile& tile);
Survey SurveyValues(const EncodeTile& tile);
uint64_t RunBytes(const RunShape& shape, RunKind kind);
uint64_t MetaOffset(const PartCoding& coding, uint32_t width, uint32_t token);
uint32_t TileTokens(const PartCoding& coding, uint32_t width, uint32_t tokens);
absl::Status Validate(const PartCoding& coding, DType stored, uint32_t width);

// `count` FP8 codes times `scale` as FP16, BF16 or FP32. Finite products beyond the type saturate; NaN and Inf stay.
void DecodeCodes(const uint8_t* codes, uint64_t count, bool e5m2, float scale, DType out, uint8_t* target);
void DecodeCodesReference(const uint8_t* codes, uint64_t count, bool e5m2, float scale, DType out, uint8_t* target);

// The scale that puts `magnitude_max` on the format's largest value; 1 where all values are zero, never subnormal.
float ScaleFor(float magnitude_max, bool e5m2);

}  // namespace firn::fp8
