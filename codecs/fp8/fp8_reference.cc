#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "codecs/fp8/fp8_codec.h"
#include "codecs/numeric/float_rows.h"

namespace firn::fp8 {
namespace {

bool IsE5m2(const PartCoding& coding) { return coding.codec == CodecId::kFp8E5m2; }

}  // namespace

float ScaleFor(float magnitude_max, bool e5m2) {
  if (magnitude_max == 0) return 1.0f;
  return std::max(magnitude_max / (e5m2 ? kE5m2Max : kE4m3Max), kFloatMinNormal);
}

void EncodeReference(const EncodeTile& tile) {
  bool e5m2 = IsE5m2(*tile.coding);
  uint64_t count = uint64_t{tile.tokens} * tile.width;
  float magnitude_max = 0;
  bool finite = true;
  for (uint64_t i = 0; i < count; ++i) {
    float magnitude = std::fabs(LoadFloat(tile.source, tile.in, i));
    magnitude_max = std::max(magnitude_max, magnitude);
    finite &= std::isfinite(magnitude);
  }
  if (tile.survey != nullptr) tile.survey->non_finite |= !finite;
  float scale = ScaleFor(magnitude_max, e5m2), inverse = 1.0f / scale;
  StoreLe<float>(tile.run(RunKind::kMeta), scale);
  uint8_t* codes = tile.run(RunKind::kWhole);
  for (uint64_t i = 0; i < count; ++i) {
    float value = LoadFloat(tile.source, tile.in, i) * inverse;
    codes[i] = e5m2 ? FloatToE5m2(value) : FloatToE4m3(value);
  }
}

void DecodeCodesReference(const uint8_t* codes, uint64_t count, bool e5m2, float scale, DType out, uint8_t* target) {
  float limit = OutputLimit(out);
  for (uint64_t i = 0; i < count; ++i) {
    float value = (e5m2 ? E5m2ToFloat(codes[i]) : E4m3ToFloat(codes[i])) * scale;
    value = SaturateFinite(value, limit);
    StoreFloats(&value, 1, out, target + i * DTypeBytes(out));
  }
}

void DecodeReference(const DecodeTile& tile) {
  DecodeCodesReference(tile.run(RunKind::kWhole), uint64_t{tile.tokens} * tile.width, IsE5m2(*tile.coding),
                       LoadLe<float>(tile.run(RunKind::kMeta)), tile.out, tile.target);
}

uint64_t RunBytes(const RunShape& shape, RunKind kind) {
  if (kind == RunKind::kMeta) return sizeof(float);
  return kind == RunKind::kWhole ? uint64_t{shape.tokens} * shape.width : 0;
}

uint64_t MetaOffset(const PartCoding&, uint32_t, uint32_t) { return 0; }

uint32_t TileTokens(const PartCoding&, uint32_t, uint32_t tokens) { return tokens; }

absl::Status Validate(const PartCoding& coding, DType stored, uint32_t) {
  if (coding.flags != 0 || coding.meta_type != MetaType::kFp32 || !coding.artifact.IsZero()) {
    return InvalidArgument("FP8 codes with flags {:#x} and metadata type {}; FP32 scales and no flags expected",
                           coding.flags, static_cast<int>(coding.meta_type));
  }
  if (stored != DType::kFp16 && stored != DType::kBf16) {
    return InvalidArgument("FP8 codes made from values of type {}", DTypeName(stored));
  }
  return absl::OkStatus();
}

}  // namespace firn::fp8
