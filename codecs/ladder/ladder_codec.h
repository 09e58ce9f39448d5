// The nested codes of rotated rows with one scale a row and a gain a class (docs/formats/nested_gain.md and
// nested_trellis.md).
//
// Two rows of the codec table. The reference functions are the definition; the others run on the best SIMD target of
// the machine and give the same bytes. Limits: widths with a rotation of at least 64 channels, up to 32,768.
#pragma once

#include "absl/status/status.h"
#include "codecs/tile.h"

namespace firn::ladder {

void EncodeGainReference(const EncodeTile& tile);
void DecodeGainReference(const DecodeTile& tile);
Survey SurveyGainReference(const EncodeTile& tile);
void EncodeGain(const EncodeTile& tile);
void DecodeGain(const DecodeTile& tile);
Survey SurveyGain(const EncodeTile& tile);

void EncodeTrellisReference(const EncodeTile& tile);
void DecodeTrellisReference(const DecodeTile& tile);
Survey SurveyTrellisReference(const EncodeTile& tile);
void EncodeTrellis(const EncodeTile& tile);
void DecodeTrellis(const DecodeTile& tile);
Survey SurveyTrellis(const EncodeTile& tile);

// Whether a width is one that these codes take.
bool TakesWidth(uint32_t width);

uint64_t RunBytes(const RunShape& shape, RunKind kind);
uint64_t MetaOffset(const PartCoding& coding, uint32_t width, uint32_t token);
uint32_t GainTileTokens(const PartCoding& coding, uint32_t width, uint32_t tokens);
uint32_t TrellisTileTokens(const PartCoding& coding, uint32_t width, uint32_t tokens);
absl::Status Validate(const PartCoding& coding, DType stored, uint32_t width);

}  // namespace firn::ladder
