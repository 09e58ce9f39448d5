#include "codecs/identity/identity_codec.h"

#include <cstring>

#include "base/status.h"
#include "codecs/fp8/fp8_codec.h"
#include "codecs/numeric/convert.h"

namespace firn::identity {
namespace {

void DecodeWith(const DecodeTile& tile, decltype(fp8::DecodeCodes)* decode_codes, decltype(ConvertValues)* convert) {
  const uint8_t* from = tile.run(RunKind::kWhole);
  uint64_t count = uint64_t{tile.tokens} * tile.width;
  if (tile.out == tile.stored) {
    std::memcpy(tile.target, from, count * DTypeBytes(tile.stored));
  } else if (tile.stored == DType::kFp8E4m3 || tile.stored == DType::kFp8E5m2) {
    decode_codes(from, count, tile.stored == DType::kFp8E5m2, tile.source_scale, tile.out, tile.target);
  } else {
    convert(from, tile.stored, count, tile.out, tile.target);
  }
}

}  // namespace

void Encode(const EncodeTile& tile) {
  std::memcpy(tile.run(RunKind::kWhole), tile.source, uint64_t{tile.tokens} * tile.width * DTypeBytes(tile.in));
}

void Decode(const DecodeTile& tile) { DecodeWith(tile, fp8::DecodeCodes, ConvertValues); }
void DecodeReference(const DecodeTile& tile) { DecodeWith(tile, fp8::DecodeCodesReference, ConvertValuesReference); }

Survey SurveyNothing(const EncodeTile&) { return {}; }

uint64_t RunBytes(const RunShape& shape, RunKind kind) {
  return kind == RunKind::kWhole ? uint64_t{shape.tokens} * shape.width * DTypeBytes(shape.stored) : 0;
}

uint64_t MetaOffset(const PartCoding&, uint32_t, uint32_t) { return 0; }

uint32_t TileTokens(const PartCoding&, uint32_t, uint32_t tokens) { return tokens; }

absl::Status Validate(const PartCoding& coding, DType, uint32_t) {
  if (coding.flags != 0 || !coding.artifact.IsZero()) {
    return InvalidArgument("identity coding with flags {:#x} or an artifact, which it does not have", coding.flags);
  }
  return absl::OkStatus();
}

}  // namespace firn::identity
