#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "codecs/fp8/fp8_codec.h"
#include "codecs/numeric/float_rows.h"

namespace firn::fp8 {
namespace {

uint64_t GroupsOf(const PartCoding& coding, uint32_t width) {
  return coding.group == 0 ? 0 : (uint64_t{width} + coding.group - 1) / coding.group;
}

}  // namespace

float ScaleFor(float magnitude_max, bool e5m2) {
  if (magnitude_max == 0) return 1.0f;
  return std::max(magnitude_max / (e5m2 ? kE5m2Max : kE4m3Max), kFloatMinNormal);
}

void EncodeReference(const EncodeTile& tile) {
  bool e5m2 = IsE5m2(*tile.coding), calibrated = IsCalibrated(*tile.coding);
  uint8_t *codes = tile.run(RunKind::kWhole), *meta = tile.run(RunKind::kMeta);
  ForEachScale(tile, [&](uint64_t first, uint64_t count) {
    float magnitude_max = 0;
    bool finite = true;
    for (uint64_t i = first; i < first + count; ++i) {
      float magnitude = std::fabs(LoadFloat(tile.source, tile.in, i));
      magnitude_max = std::max(magnitude_max, magnitude);
      finite &= std::isfinite(magnitude);
    }
    if (tile.survey != nullptr) tile.survey->non_finite |= !finite;
    float scale = calibrated ? tile.model.scale : ScaleFor(magnitude_max, e5m2), inverse = 1.0f / scale;
    if (!calibrated) {
      StoreLe<float>(meta, scale);
      meta += sizeof(float);
    }
    for (uint64_t i = first; i < first + count; ++i) {
      float value = LoadFloat(tile.source, tile.in, i) * inverse;
      codes[i] = e5m2 ? FloatToE5m2(value) : FloatToE4m3(value);
    }
  });
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
  const uint8_t* meta = tile.run(RunKind::kMeta);
  bool calibrated = IsCalibrated(*tile.coding);
  ForEachScale(tile, [&](uint64_t first, uint64_t count) {
    float scale = calibrated ? tile.model.scale : LoadLe<float>(meta);
    if (!calibrated) meta += sizeof(float);
    DecodeCodesReference(tile.run(RunKind::kWhole) + first, count, IsE5m2(*tile.coding), scale, tile.out,
                         tile.target + first * DTypeBytes(tile.out));
  });
}

uint64_t RunBytes(const RunShape& shape, RunKind kind) {
  if (kind == RunKind::kWhole) return uint64_t{shape.tokens} * shape.width * shape.heads;
  if (kind != RunKind::kMeta || IsCalibrated(shape.coding)) return 0;
  return shape.coding.group == 0 ? sizeof(float) : MetaOffset(shape.coding, shape.width, shape.tokens);
}

uint64_t MetaOffset(const PartCoding& coding, uint32_t width, uint32_t token) {
  return GroupsOf(coding, width) * token * sizeof(float);
}

uint32_t TileTokens(const PartCoding& coding, uint32_t width, uint32_t tokens) {
  // With groups, a tile's values stay in the first-level cache.
  constexpr uint32_t kTileValues = 8192;
  return coding.group == 0 ? tokens : std::clamp(kTileValues / width, 1u, 64u);
}

absl::Status Validate(const PartCoding& coding, DType stored, uint32_t) {
  constexpr uint8_t kOutside = PartCoding::kRotated | PartCoding::kCentred | PartCoding::kBalanced |
                               PartCoding::kPreRope;  // Done to rows before they come here.
  if ((coding.flags & ~(kOutside | PartCoding::kCalibrated)) != 0 || coding.meta_type != MetaType::kFp32 ||
      coding.bits != 0 || coding.outliers != 0) {
    return InvalidArgument("FP8 codes with flags {:#x}, metadata type {}, {} bits, {} outliers; FP32 scales expected",
                           coding.flags, static_cast<int>(coding.meta_type), coding.bits, coding.outliers);
  }
  if (coding.group != 0 && (IsTensor(coding) || IsCalibrated(coding))) {
    return InvalidArgument("FP8 codes with groups of {} and one scale for all", coding.group);
  }
  if (IsTensor(coding) && IsCalibrated(coding)) return InvalidArgument("FP8 codes with a calibrated scale a layer");
  if (stored != DType::kFp16 && stored != DType::kBf16) {
    return InvalidArgument("FP8 codes made from values of type {}", DTypeName(stored));
  }
  return absl::OkStatus();
}

}  // namespace firn::fp8
