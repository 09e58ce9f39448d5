// The nested code: one 8-bit code whose top bits are the 4-bit and the 2-bit code (docs/formats/nested.md).
//
// Two rows of the codec table, grouped along tokens (per channel) and along channels (per token). The reference
// functions are the definition; the others run on the best SIMD target of the machine and give the same bytes.
#pragma once

#include "absl/status/status.h"
#include "codecs/tile.h"

namespace firn::nested {

inline constexpr uint32_t kChannelGroupTokens = 64;  // The default group along tokens.
inline constexpr uint32_t kTokenGroupMax = 32768;    // The default group along channels is the width, up to this.

void EncodeChannelReference(const EncodeTile& tile);
void EncodeTokenReference(const EncodeTile& tile);
void DecodeChannelReference(const DecodeTile& tile);
void DecodeTokenReference(const DecodeTile& tile);

void EncodeChannel(const EncodeTile& tile);
void EncodeToken(const EncodeTile& tile);
void DecodeChannel(const DecodeTile& tile);
void DecodeToken(const DecodeTile& tile);

// What the values of a tile ask of the metadata type in tile.coding; no runs are needed.
Survey SurveyChannel(const EncodeTile& tile);
Survey SurveyToken(const EncodeTile& tile);
Survey SurveyChannelReference(const EncodeTile& tile);
Survey SurveyTokenReference(const EncodeTile& tile);

// Bytes of one run for `tokens` tokens of one head.
uint64_t ChannelRunBytes(const RunShape& shape, RunKind kind);
uint64_t TokenRunBytes(const RunShape& shape, RunKind kind);

uint64_t ChannelMetaOffset(const PartCoding& coding, uint32_t width, uint32_t token);
uint64_t TokenMetaOffset(const PartCoding& coding, uint32_t width, uint32_t token);

// Tokens that a tile may start and end at.
uint32_t ChannelTileTokens(const PartCoding& coding, uint32_t width, uint32_t tokens);
uint32_t TokenTileTokens(const PartCoding& coding, uint32_t width, uint32_t tokens);

absl::Status ValidateChannel(const PartCoding& coding, DType stored, uint32_t width);
absl::Status ValidateToken(const PartCoding& coding, DType stored, uint32_t width);

}  // namespace firn::nested
