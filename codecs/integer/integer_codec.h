// Plain integers of 8, 4, 3 or 2 bits with a scale and a minimum, or a scale alone (docs/formats/integer.md).
//
// Three rows of the codec table: a scale for G channels of one token, for G tokens of one channel, for a whole layer of
// the part. Reference functions are the definition; the others run on the best SIMD target and give the same bytes.
// Threads: pure. Source: KIVI, arXiv 2402.02750, for the arithmetic with a minimum.
#pragma once

#include "absl/status/status.h"
#include "codecs/tile.h"

namespace firn::integer {

void EncodeTokenReference(const EncodeTile& tile);
void DecodeTokenReference(const DecodeTile& tile);
void EncodeChannelReference(const EncodeTile& tile);
void DecodeChannelReference(const DecodeTile& tile);
void EncodeTensorReference(const EncodeTile& tile);
void DecodeTensorReference(const DecodeTile& tile);

void EncodeToken(const EncodeTile& tile);
void DecodeToken(const DecodeTile& tile);
void EncodeChannel(const EncodeTile& tile);
void DecodeChannel(const DecodeTile& tile);
void EncodeTensor(const EncodeTile& tile);
void DecodeTensor(const DecodeTile& tile);

// What encoding would join to a survey; no runs are needed.
Survey SurveyToken(const EncodeTile& tile);
Survey SurveyChannel(const EncodeTile& tile);
Survey SurveyTensor(const EncodeTile& tile);

uint64_t TokenRunBytes(const RunShape& shape, RunKind kind);
uint64_t ChannelRunBytes(const RunShape& shape, RunKind kind);
uint64_t TensorRunBytes(const RunShape& shape, RunKind kind);
uint64_t TokenMetaOffset(const PartCoding& coding, uint32_t width, uint32_t token);
uint64_t ChannelMetaOffset(const PartCoding& coding, uint32_t width, uint32_t token);
uint64_t TensorMetaOffset(const PartCoding& coding, uint32_t width, uint32_t token);
uint32_t TokenTileTokens(const PartCoding& coding, uint32_t width, uint32_t tokens);
uint32_t ChannelTileTokens(const PartCoding& coding, uint32_t width, uint32_t tokens);
uint32_t TensorTileTokens(const PartCoding& coding, uint32_t width, uint32_t tokens);
absl::Status ValidateToken(const PartCoding& coding, DType stored, uint32_t width);
absl::Status ValidateChannel(const PartCoding& coding, DType stored, uint32_t width);
absl::Status ValidateTensor(const PartCoding& coding, DType stored, uint32_t width);

}  // namespace firn::integer
