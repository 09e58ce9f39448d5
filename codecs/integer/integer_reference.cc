// The scalar reference: the definition that every other implementation of plain integers must match byte for byte.

#include <algorithm>
#include <cmath>
#include <vector>

#include "codecs/integer/integer_codec.h"
#include "codecs/integer/integer_format.h"
#include "codecs/numeric/bit_stream.h"
#include "codecs/numeric/float_rows.h"

namespace firn::integer {
namespace {

using nested::MetaValueBytes;

// Values of a layer differ from one another by no more than FP32 holds, whichever head they are in.
constexpr float kLayerValueMax = nested::kRangeMax / 2;

std::vector<float> SourceValues(const EncodeTile& tile) {
  std::vector<float> values(uint64_t{tile.heads} * tile.tokens * tile.width);
  LoadFloats(tile.source, tile.in, values.size(), values.data());
  return values;
}

bool AllFinite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

struct Range {
  float lowest, highest;
};

// Of every `stride`-th value. -0 counts as below +0, so that constants of either come back.
Range RangeOf(const float* values, uint64_t count, uint64_t stride) {
  int32_t lowest = TotalOrder(values[0]), highest = lowest;
  for (uint64_t i = 1; i < count; ++i) {
    int32_t order = TotalOrder(values[i * stride]);
    lowest = std::min(lowest, order);
    highest = std::max(highest, order);
  }
  return {FromTotalOrder(lowest), FromTotalOrder(highest)};
}

void WriteValue(uint8_t* bytes, float value, MetaType type) {
  if (type == MetaType::kFp32) return StoreLe<float>(bytes, value);
  StoreLe<uint16_t>(bytes, type == MetaType::kFp16 ? FloatToHalf(value) : FloatToBfloat(value));
}

// Where a group has its minimum and its step; the minimum is null where there is none.
struct MetaPlace {
  uint8_t *minimum, *step;
};
void WriteScale(const MetaPlace& place, const GroupScale& scale, MetaType type) {
  if (place.minimum != nullptr) WriteValue(place.minimum, scale.base, type);
  WriteValue(place.step, scale.step, type);
}

GroupScale ReadScale(const uint8_t* minimum, const uint8_t* step, MetaType type) {
  return {minimum != nullptr ? nested::ReadMeta(minimum, type) : kNoBase, nested::ReadMeta(step, type), 0};
}

// Writes one row of codes.
void PackRow(const float* row, uint32_t width, const std::vector<GroupScale>& scales, const PartCoding& coding,
             uint8_t* to) {
  std::vector<uint8_t> codes(width);
  for (uint32_t c = 0; c < width; ++c) codes[c] = CodeOf(row[c], scales[c], PositionsOf(coding));
  PackCodesReference(codes.data(), width, coding.bits, to);
}

// Reads one row of codes and writes its values.
void UnpackRow(const uint8_t* from, const std::vector<GroupScale>& scales, const DecodeTile& tile, uint64_t row) {
  std::vector<uint8_t> codes(tile.width);
  UnpackCodesReference(from, tile.width, tile.coding->bits, codes.data());
  std::vector<float> values(tile.width);
  for (uint32_t c = 0; c < tile.width; ++c) {
    float value = ValueOf(codes[c], scales[c], PositionsOf(*tile.coding));
    values[c] = nested::Saturated(value, OutputLimit(tile.out));
  }
  StoreFloats(values.data(), tile.width, tile.out, tile.target + row * tile.width * DTypeBytes(tile.out));
}

// All rows of a tile by one scale.
void PackRows(const EncodeTile& tile, const std::vector<float>& values, const GroupScale& scale) {
  std::vector<GroupScale> scales(tile.width, scale);
  uint64_t row_bytes = CodeRowBytes(tile.width, tile.coding->bits);
  for (uint64_t row = 0; row < uint64_t{tile.heads} * tile.tokens; ++row) {
    PackRow(values.data() + row * tile.width, tile.width, scales, *tile.coding,
            tile.run(RunKind::kWhole) + row * row_bytes);
  }
}
void UnpackRows(const DecodeTile& tile, const GroupScale& scale) {
  std::vector<GroupScale> scales(tile.width, scale);
  uint64_t row_bytes = CodeRowBytes(tile.width, tile.coding->bits);
  for (uint64_t row = 0; row < uint64_t{tile.heads} * tile.tokens; ++row) {
    UnpackRow(tile.run(RunKind::kWhole) + row * row_bytes, scales, tile, row);
  }
}

void Join(Survey* survey, const Survey& found) {
  if (survey != nullptr) survey->Join(found);
}

Survey FiniteSurvey(const std::vector<float>& values) { return Survey{.non_finite = !AllFinite(values)}; }

}  // namespace

void EncodeTokenReference(const EncodeTile& tile) {
  const PartCoding& coding = *tile.coding;
  std::vector<float> values = SourceValues(tile);
  Join(tile.survey, FiniteSurvey(values));
  if (IsCalibrated(coding)) return PackRows(tile, values, CalibratedScale(tile.model.scale));
  uint32_t width = tile.width, value_bytes = MetaValueBytes(coding.meta_type);
  std::vector<GroupScale> scales(width);
  uint8_t* meta = tile.run(RunKind::kMeta);
  for (uint32_t t = 0; t < tile.tokens; ++t) {
    const float* row = values.data() + uint64_t{t} * width;
    for (uint32_t first = 0; first < width; first += coding.group) {
      uint32_t count = std::min<uint32_t>(coding.group, width - first);
      Range range = RangeOf(row + first, count, 1);
      Join(tile.survey, SurveyGroup(range.lowest, range.highest, coding, nested::kRangeMax));
      GroupScale scale = ScaleOf(range.lowest, range.highest, coding);
      uint8_t* minimum = IsSymmetric(coding) ? nullptr : meta;
      WriteScale({minimum, IsSymmetric(coding) ? meta : meta + value_bytes}, scale, coding.meta_type);
      meta += uint64_t{ValuesAGroup(coding)} * value_bytes;
      std::fill_n(scales.begin() + first, count, scale);
    }
    PackRow(row, width, scales, coding, tile.run(RunKind::kWhole) + t * CodeRowBytes(width, coding.bits));
  }
}

void DecodeTokenReference(const DecodeTile& tile) {
  const PartCoding& coding = *tile.coding;
  if (IsCalibrated(coding)) return UnpackRows(tile, CalibratedScale(tile.model.scale));
  uint32_t width = tile.width, value_bytes = MetaValueBytes(coding.meta_type);
  std::vector<GroupScale> scales(width);
  const uint8_t* meta = tile.run(RunKind::kMeta);
  for (uint32_t t = 0; t < tile.tokens; ++t) {
    for (uint32_t first = 0; first < width; first += coding.group) {
      uint32_t count = std::min<uint32_t>(coding.group, width - first);
      const uint8_t* minimum = IsSymmetric(coding) ? nullptr : meta;
      GroupScale scale = ReadScale(minimum, minimum == nullptr ? meta : meta + value_bytes, coding.meta_type);
      meta += uint64_t{ValuesAGroup(coding)} * value_bytes;
      std::fill_n(scales.begin() + first, count, scale);
    }
    UnpackRow(tile.run(RunKind::kWhole) + t * CodeRowBytes(width, coding.bits), scales, tile, t);
  }
}

void EncodeChannelReference(const EncodeTile& tile) {
  const PartCoding& coding = *tile.coding;
  std::vector<float> values = SourceValues(tile);
  Join(tile.survey, FiniteSurvey(values));
  uint32_t width = tile.width;
  uint64_t row_bytes = uint64_t{width} * MetaValueBytes(coding.meta_type);
  std::vector<GroupScale> scales(width);
  uint8_t* meta = tile.run(RunKind::kMeta);
  for (uint32_t first = 0; first < tile.tokens; first += coding.group) {
    uint32_t count = std::min<uint32_t>(coding.group, tile.tokens - first);
    for (uint32_t c = 0; c < width; ++c) {
      Range range = RangeOf(values.data() + uint64_t{first} * width + c, count, width);
      Join(tile.survey, SurveyGroup(range.lowest, range.highest, coding, nested::kRangeMax));
      scales[c] = ScaleOf(range.lowest, range.highest, coding);
      uint8_t* at = meta + uint64_t{c} * MetaValueBytes(coding.meta_type);
      WriteScale({IsSymmetric(coding) ? nullptr : at, IsSymmetric(coding) ? at : at + row_bytes}, scales[c],
                 coding.meta_type);
    }
    meta += row_bytes * ValuesAGroup(coding);
    for (uint32_t t = first; t < first + count; ++t) {
      PackRow(values.data() + uint64_t{t} * width, width, scales, coding,
              tile.run(RunKind::kWhole) + t * CodeRowBytes(width, coding.bits));
    }
  }
}

void DecodeChannelReference(const DecodeTile& tile) {
  const PartCoding& coding = *tile.coding;
  uint32_t width = tile.width;
  uint64_t row_bytes = uint64_t{width} * MetaValueBytes(coding.meta_type);
  std::vector<GroupScale> scales(width);
  for (uint32_t t = 0; t < tile.tokens; ++t) {
    const uint8_t* meta = tile.run(RunKind::kMeta) + uint64_t{t / coding.group} * row_bytes * ValuesAGroup(coding);
    for (uint32_t c = 0; c < width; ++c) {
      const uint8_t* at = meta + uint64_t{c} * MetaValueBytes(coding.meta_type);
      scales[c] =
          ReadScale(IsSymmetric(coding) ? nullptr : at, IsSymmetric(coding) ? at : at + row_bytes, coding.meta_type);
    }
    UnpackRow(tile.run(RunKind::kWhole) + t * CodeRowBytes(width, coding.bits), scales, tile, t);
  }
}

void EncodeTensorReference(const EncodeTile& tile) {
  const PartCoding& coding = *tile.coding;
  std::vector<float> values = SourceValues(tile);
  Join(tile.survey, FiniteSurvey(values));
  if (IsCalibrated(coding)) return PackRows(tile, values, CalibratedScale(tile.model.scale));
  Range range = RangeOf(values.data(), values.size(), 1);
  Join(tile.survey, SurveyGroup(range.lowest, range.highest, coding, kLayerValueMax));
  GroupScale scale = ScaleOf(range.lowest, range.highest, coding);
  uint8_t* meta = tile.run(RunKind::kMeta);
  WriteScale(
      {IsSymmetric(coding) ? nullptr : meta, IsSymmetric(coding) ? meta : meta + MetaValueBytes(coding.meta_type)},
      scale, coding.meta_type);
  PackRows(tile, values, scale);
}

void DecodeTensorReference(const DecodeTile& tile) {
  const PartCoding& coding = *tile.coding;
  if (IsCalibrated(coding)) return UnpackRows(tile, CalibratedScale(tile.model.scale));
  const uint8_t* meta = tile.run(RunKind::kMeta);
  const uint8_t* minimum = IsSymmetric(coding) ? nullptr : meta;
  UnpackRows(tile,
             ReadScale(minimum, minimum == nullptr ? meta : meta + MetaValueBytes(coding.meta_type), coding.meta_type));
}

// Values are looked at again only where a first encoding has found some that do not fit: rarely.
Survey SurveyToken(const EncodeTile& tile) {
  std::vector<float> values = SourceValues(tile);
  Survey survey = FiniteSurvey(values);
  for (uint32_t t = 0; t < tile.tokens && tile.coding->group > 0; ++t) {
    for (uint32_t first = 0; first < tile.width; first += tile.coding->group) {
      uint32_t count = std::min<uint32_t>(tile.coding->group, tile.width - first);
      Range range = RangeOf(values.data() + uint64_t{t} * tile.width + first, count, 1);
      survey.Join(SurveyGroup(range.lowest, range.highest, *tile.coding, nested::kRangeMax));
    }
  }
  return survey;
}

Survey SurveyChannel(const EncodeTile& tile) {
  std::vector<float> values = SourceValues(tile);
  Survey survey = FiniteSurvey(values);
  for (uint32_t first = 0; first < tile.tokens; first += tile.coding->group) {
    uint32_t count = std::min<uint32_t>(tile.coding->group, tile.tokens - first);
    for (uint32_t c = 0; c < tile.width; ++c) {
      Range range = RangeOf(values.data() + uint64_t{first} * tile.width + c, count, tile.width);
      survey.Join(SurveyGroup(range.lowest, range.highest, *tile.coding, nested::kRangeMax));
    }
  }
  return survey;
}

Survey SurveyTensor(const EncodeTile& tile) {
  std::vector<float> values = SourceValues(tile);
  Survey survey = FiniteSurvey(values);
  Range range = RangeOf(values.data(), values.size(), 1);
  survey.Join(SurveyGroup(range.lowest, range.highest, *tile.coding, kLayerValueMax));
  return survey;
}

}  // namespace firn::integer
