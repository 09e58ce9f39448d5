// The scalar reference: the definition that every other implementation of the nested code must match byte for byte.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "codecs/nested/nested_codec.h"
#include "codecs/nested/nested_format.h"
#include "codecs/nested/planes_reference.h"
#include "codecs/nested/rotation_reference.h"
#include "codecs/numeric/float_rows.h"

namespace firn::nested {
namespace {

void WriteMeta(uint8_t* bytes, float value, MetaType type) {
  if (type == MetaType::kFp32) return StoreLe<float>(bytes, value);
  StoreLe<uint16_t>(bytes, type == MetaType::kFp16 ? FloatToHalf(value) : FloatToBfloat(value));
}

// Rows of planes, moved on token by token; absent planes stay null.
struct PlaneRows {
  uint8_t *p2, *p4, *p8;
  void Pack(const uint8_t* codes, uint32_t width) {
    PackRowReference(codes, width, p2, p4, p8);
    if (p2 != nullptr) p2 += TwoBitRowBytes(width);
    if (p4 != nullptr) p4 += TwoBitRowBytes(width);
    if (p8 != nullptr) p8 += FourBitRowBytes(width);
  }
};

uint32_t Rotation(const EncodeTile& tile) {
  return (tile.coding->flags & PartCoding::kRotated) != 0 ? RotationSize(tile.width) : 1;
}

void TransformRow(const EncodeTile& tile, float* row) {
  const ChannelTransform& transform = tile.transform;
  for (uint32_t c = 0; c < tile.width; ++c) {
    float centred = transform.mean != nullptr ? row[c] - transform.mean[c] : row[c];
    row[c] = centred * (transform.encode_scale != nullptr ? transform.encode_scale[c] : transform.uniform_scale);
  }
  if ((tile.coding->flags & PartCoding::kRotated) != 0) RotateReference(row, tile.width, RotationSize(tile.width));
}

struct Range {
  float lowest, highest;
};

// A zero minimum counts as +0 here, whichever zeros there are.
Range RangeAlongRow(const float* values, uint32_t count) {
  Range range{values[0], values[0]};
  for (uint32_t i = 1; i < count; ++i) {
    range.lowest = std::min(range.lowest, values[i]);
    range.highest = std::max(range.highest, values[i]);
  }
  return {range.lowest + 0.0f, range.highest + 0.0f};
}

// -0 counts as below +0, so that constants of either come back.
Range RangeAlongTokens(const float* values, uint32_t width, uint32_t tokens) {
  int32_t lowest = TotalOrder(values[0]), highest = lowest;
  for (uint32_t t = 1; t < tokens; ++t) {
    int32_t order = TotalOrder(values[uint64_t{t} * width]);
    lowest = std::min(lowest, order);
    highest = std::max(highest, order);
  }
  return {FromTotalOrder(lowest), FromTotalOrder(highest)};
}

// Row `token` of a plane, or null where the tile has none.
const uint8_t* PlaneRow(const DecodeTile& tile, RunKind kind, uint64_t row_bytes, uint32_t token) {
  return tile.run(kind) != nullptr ? tile.run(kind) + token * row_bytes : nullptr;
}

void UnpackTileRow(const DecodeTile& tile, uint32_t token, uint8_t* levels) {
  uint64_t pair_bytes = TwoBitRowBytes(tile.width), nibble_bytes = FourBitRowBytes(tile.width);
  UnpackRowReference(PlaneRow(tile, RunKind::kP2, pair_bytes, token), PlaneRow(tile, RunKind::kP4, pair_bytes, token),
                     PlaneRow(tile, RunKind::kP8, nibble_bytes, token), tile.width, tile.precision, levels);
}

bool AllFinite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

std::vector<float> SourceValues(const EncodeTile& tile) {
  std::vector<float> values(uint64_t{tile.tokens} * tile.width);
  LoadFloats(tile.source, tile.in, values.size(), values.data());
  return values;
}

}  // namespace

void EncodeChannelReference(const EncodeTile& tile) {
  MetaType type = tile.coding->meta_type;
  uint32_t width = tile.width, meta_bytes = MetaValueBytes(type);
  std::vector<float> values = SourceValues(tile);
  if (tile.survey != nullptr) tile.survey->non_finite |= !AllFinite(values);
  std::vector<GroupScale> scales(width);
  std::vector<uint8_t> codes(width);
  PlaneRows planes{tile.run(RunKind::kP2), tile.run(RunKind::kP4), tile.run(RunKind::kP8)};
  uint8_t* meta = tile.run(RunKind::kMeta);
  for (uint32_t first = 0; first < tile.tokens; first += tile.coding->group) {
    uint32_t count = std::min<uint32_t>(tile.coding->group, tile.tokens - first);
    const float* rows = values.data() + uint64_t{first} * width;
    for (uint32_t c = 0; c < width; ++c) {
      Range range = RangeAlongTokens(rows + c, width, count);
      if (tile.survey != nullptr) tile.survey->Join(SurveyGroup(range.lowest, range.highest, type));
      scales[c] = ScaleOf(range.lowest, range.highest, type);
      WriteMeta(meta + uint64_t{c} * meta_bytes, scales[c].minimum, type);
      WriteMeta(meta + (uint64_t{width} + c) * meta_bytes, scales[c].step, type);
    }
    meta += uint64_t{2} * width * meta_bytes;
    for (uint32_t t = 0; t < count; ++t) {
      for (uint32_t c = 0; c < width; ++c) codes[c] = CodeOf(rows[uint64_t{t} * width + c], scales[c]);
      planes.Pack(codes.data(), width);
    }
  }
}

void EncodeTokenReference(const EncodeTile& tile) {
  MetaType type = tile.coding->meta_type;
  uint32_t width = tile.width, meta_bytes = MetaValueBytes(type);
  float range_max = RangeMaxOf(Rotation(tile));
  std::vector<float> values = SourceValues(tile);
  const bool finite = AllFinite(values);
  if (tile.survey != nullptr) tile.survey->non_finite |= !finite;
  std::vector<uint8_t> codes(width);
  PlaneRows planes{tile.run(RunKind::kP2), tile.run(RunKind::kP4), tile.run(RunKind::kP8)};
  uint8_t* meta = tile.run(RunKind::kMeta);
  for (uint32_t t = 0; t < tile.tokens; ++t) {
    float* row = values.data() + uint64_t{t} * width;
    TransformRow(tile, row);
    if (finite && tile.survey != nullptr) tile.survey->out_of_range |= !WithinRange(row, width, Rotation(tile));
    for (uint32_t first = 0; first < width; first += tile.coding->group) {
      uint32_t count = std::min<uint32_t>(tile.coding->group, width - first);
      Range range = RangeAlongRow(row + first, count);
      if (tile.survey != nullptr) tile.survey->Join(SurveyGroup(range.lowest, range.highest, type, range_max));
      GroupScale scale = ScaleOf(range.lowest, range.highest, type);
      WriteMeta(meta, scale.minimum, type);
      WriteMeta(meta + meta_bytes, scale.step, type);
      meta += 2 * meta_bytes;
      for (uint32_t c = first; c < first + count; ++c) codes[c] = CodeOf(row[c], scale);
    }
    planes.Pack(codes.data(), width);
  }
}

void DecodeChannelReference(const DecodeTile& tile) {
  MetaType type = tile.coding->meta_type;
  uint32_t width = tile.width, meta_bytes = MetaValueBytes(type);
  float limit = OutputLimit(tile.out);
  std::vector<uint8_t> levels(width);
  std::vector<float> row(width);
  for (uint32_t t = 0; t < tile.tokens; ++t) {
    const uint8_t* meta = tile.run(RunKind::kMeta) + uint64_t{t / tile.coding->group} * 2 * width * meta_bytes;
    UnpackTileRow(tile, t, levels.data());
    for (uint32_t c = 0; c < width; ++c) {
      float minimum = ReadMeta(meta + uint64_t{c} * meta_bytes, type);
      float step = ReadMeta(meta + (uint64_t{width} + c) * meta_bytes, type);
      row[c] = Saturated(minimum + step * static_cast<float>(levels[c]), limit);
    }
    StoreFloats(row.data(), width, tile.out, tile.target + uint64_t{t} * width * DTypeBytes(tile.out));
  }
}

void DecodeTokenReference(const DecodeTile& tile) {
  MetaType type = tile.coding->meta_type;
  uint32_t width = tile.width, meta_bytes = MetaValueBytes(type);
  float limit = OutputLimit(tile.out);
  const ChannelTransform& transform = tile.transform;
  std::vector<uint8_t> levels(width);
  std::vector<float> row(width);
  const uint8_t* meta = tile.run(RunKind::kMeta);
  for (uint32_t t = 0; t < tile.tokens; ++t) {
    UnpackTileRow(tile, t, levels.data());
    for (uint32_t first = 0; first < width; first += tile.coding->group) {
      uint32_t count = std::min<uint32_t>(tile.coding->group, width - first);
      float minimum = ReadMeta(meta, type), step = ReadMeta(meta + meta_bytes, type);
      meta += 2 * meta_bytes;
      for (uint32_t c = first; c < first + count; ++c) row[c] = minimum + step * static_cast<float>(levels[c]);
    }
    if ((tile.coding->flags & PartCoding::kRotated) != 0) RotateReference(row.data(), width, RotationSize(width));
    for (uint32_t c = 0; c < width; ++c) {
      float scaled = row[c] * (transform.decode_scale != nullptr ? transform.decode_scale[c] : transform.uniform_scale);
      row[c] = Saturated(transform.mean != nullptr ? scaled + transform.mean[c] : scaled, limit);
    }
    StoreFloats(row.data(), width, tile.out, tile.target + uint64_t{t} * width * DTypeBytes(tile.out));
  }
}

Survey SurveyChannelReference(const EncodeTile& tile) {
  std::vector<float> values = SourceValues(tile);
  Survey survey;
  survey.non_finite = !AllFinite(values);
  if (survey.non_finite) return survey;
  for (uint32_t first = 0; first < tile.tokens; first += tile.coding->group) {
    uint32_t count = std::min<uint32_t>(tile.coding->group, tile.tokens - first);
    for (uint32_t c = 0; c < tile.width; ++c) {
      Range range = RangeAlongTokens(values.data() + uint64_t{first} * tile.width + c, tile.width, count);
      survey.Join(SurveyGroup(range.lowest, range.highest, tile.coding->meta_type));
    }
  }
  return survey;
}

Survey SurveyTokenReference(const EncodeTile& tile) {
  std::vector<float> values = SourceValues(tile);
  Survey survey;
  survey.non_finite = !AllFinite(values);
  if (survey.non_finite) return survey;
  uint32_t rotation = Rotation(tile);
  RowScreen screen(tile.transform, tile.width, rotation, tile.coding->meta_type);
  for (uint32_t t = 0; t < tile.tokens; ++t) {
    float* row = values.data() + uint64_t{t} * tile.width;
    float magnitude_max = 0;
    for (uint32_t c = 0; c < tile.width; ++c) magnitude_max = std::max(magnitude_max, std::fabs(row[c]));
    if (!screen.Suspicious(magnitude_max)) continue;
    TransformRow(tile, row);
    survey.out_of_range |= !WithinRange(row, tile.width, rotation);
    for (uint32_t first = 0; first < tile.width; first += tile.coding->group) {
      uint32_t count = std::min<uint32_t>(tile.coding->group, tile.width - first);
      Range range = RangeAlongRow(row + first, count);
      survey.Join(SurveyGroup(range.lowest, range.highest, tile.coding->meta_type, RangeMaxOf(rotation)));
    }
  }
  return survey;
}

}  // namespace firn::nested
