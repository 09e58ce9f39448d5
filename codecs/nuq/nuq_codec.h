// Codebook codes of 4, 3 or 2 bits with exact outliers: KVQuant (docs/formats/nuq.md).
//
// Two rows of the codec table: keys with a calibrated centre and reach of each channel, values with a centre and a
// reach of each token over all heads. Levels come with the tile, from an artifact (codecs/nuq/nuq_calibrator.h).
// Reference functions are the definition; the others run on the best SIMD target and give the same bytes. Threads:
// pure. Source: KVQuant, arXiv 2401.18079.
#pragma once

#include "absl/status/status.h"
#include "codecs/tile.h"

namespace firn::nuq {

void EncodeChannelReference(const EncodeTile& tile);
void DecodeChannelReference(const DecodeTile& tile);
void EncodeTokenReference(const EncodeTile& tile);
void DecodeTokenReference(const DecodeTile& tile);

void EncodeChannel(const EncodeTile& tile);
void DecodeChannel(const DecodeTile& tile);
void EncodeToken(const EncodeTile& tile);
void DecodeToken(const DecodeTile& tile);

// What encoding would join to a survey; no runs are needed.
Survey SurveyChannel(const EncodeTile& tile);
Survey SurveyToken(const EncodeTile& tile);

uint64_t ChannelRunBytes(const RunShape& shape, RunKind kind);
uint64_t TokenRunBytes(const RunShape& shape, RunKind kind);
uint64_t ChannelMetaOffset(const PartCoding& coding, uint32_t width, uint32_t token);
uint64_t TokenMetaOffset(const PartCoding& coding, uint32_t width, uint32_t token);
uint32_t ChannelTileTokens(const PartCoding& coding, uint32_t width, uint32_t tokens);
uint32_t TokenTileTokens(const PartCoding& coding, uint32_t width, uint32_t tokens);
absl::Status ValidateChannel(const PartCoding& coding, DType stored, uint32_t width);
absl::Status ValidateToken(const PartCoding& coding, DType stored, uint32_t width);

}  // namespace firn::nuq
