// Blocks of 4-bit floating-point numbers, E2M1: NVFP4 and MXFP4 (docs/formats/fp4.md).
//
// Two rows of the codec table: NVFP4 has one FP32 scale a layer and an E4M3 scale for each 16 channels of a token,
// MXFP4 a power of two for each 32. Reference functions are the definition; the others run on the best SIMD target and
// give the same bytes. Threads: pure.
#pragma once

#include "absl/status/status.h"
#include "codecs/tile.h"

namespace firn::fp4 {

void EncodeNvReference(const EncodeTile& tile);
void DecodeNvReference(const DecodeTile& tile);
void EncodeMxReference(const EncodeTile& tile);
void DecodeMxReference(const DecodeTile& tile);

void EncodeNv(const EncodeTile& tile);
void DecodeNv(const DecodeTile& tile);
void EncodeMx(const EncodeTile& tile);
void DecodeMx(const DecodeTile& tile);

// Looks for NaN and Inf: any finite values can be coded.
Survey SurveyValues(const EncodeTile& tile);

uint64_t NvRunBytes(const RunShape& shape, RunKind kind);
uint64_t MxRunBytes(const RunShape& shape, RunKind kind);
uint64_t NvMetaOffset(const PartCoding& coding, uint32_t width, uint32_t token);
uint64_t MxMetaOffset(const PartCoding& coding, uint32_t width, uint32_t token);
uint32_t NvTileTokens(const PartCoding& coding, uint32_t width, uint32_t tokens);
uint32_t MxTileTokens(const PartCoding& coding, uint32_t width, uint32_t tokens);
absl::Status Validate(const PartCoding& coding, DType stored, uint32_t width);

}  // namespace firn::fp4
