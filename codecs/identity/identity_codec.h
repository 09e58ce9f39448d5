// Identity: values as they came, FP16, BF16, FP8 with its scales, or opaque bytes.
//
// FP8's scales are the record's, not this row's: the block driver keeps them in front of the metadata. Threads: pure.
#pragma once

#include "absl/status/status.h"
#include "codecs/tile.h"

namespace firn::identity {

void Encode(const EncodeTile& tile);
void Decode(const DecodeTile& tile);  // Converts where `out` is not the stored type.
void DecodeReference(const DecodeTile& tile);
Survey SurveyNothing(const EncodeTile& tile);
uint64_t RunBytes(const RunShape& shape, RunKind kind);
uint64_t MetaOffset(const PartCoding& coding, uint32_t width, uint32_t token);
uint32_t TileTokens(const PartCoding& coding, uint32_t width, uint32_t tokens);
absl::Status Validate(const PartCoding& coding, DType stored, uint32_t width);

}  // namespace firn::identity
