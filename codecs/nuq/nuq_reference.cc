// The scalar reference: the definition that every other implementation of codebook codes must match byte for byte.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "codecs/numeric/bit_stream.h"
#include "codecs/numeric/float_rows.h"
#include "codecs/nuq/nuq_codec.h"
#include "codecs/nuq/nuq_format.h"

namespace firn::nuq {
namespace {

// The largest magnitude of all values; not a number where there is one.
float MagnitudeMax(const EncodeTile& tile) {
  float most = 0;
  for (uint64_t i = 0; i < uint64_t{tile.heads} * tile.tokens * tile.width; ++i) {
    float magnitude = std::fabs(LoadFloat(tile.source, tile.in, i));
    if (!(magnitude <= most)) most = magnitude;
    if (std::isnan(most)) return most;
  }
  return most;
}

// Takes the `count` first of the largest keys.
void TakeReference(std::vector<uint32_t>* keys, uint32_t count, std::vector<uint32_t>* taken) {
  std::vector<uint32_t> order(keys->size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return (*keys)[a] > (*keys)[b]; });
  for (uint32_t i = 0; i < count; ++i) {
    taken->push_back(order[i]);
    (*keys)[order[i]] = 0;
  }
}

void PackRow(const std::vector<float>& normalised, const Thresholds& thresholds, uint32_t bits, uint32_t first,
             uint32_t width, uint8_t* to) {
  std::vector<uint8_t> codes(width);
  for (uint32_t c = 0; c < width; ++c) codes[c] = CodeOf(normalised[first + c], thresholds);
  PackCodesReference(codes.data(), width, bits, to);
}

std::vector<uint8_t> UnpackRow(const DecodeTile& tile, uint64_t row) {
  std::vector<uint8_t> codes(tile.width);
  const uint8_t* from = tile.run(RunKind::kWhole) + row * CodeRowBytes(tile.width, tile.coding->bits);
  UnpackCodesReference(from, tile.width, tile.coding->bits, codes.data());
  return codes;
}

// The largest values of a token, the smallest of the others, and the range of what they leave.
struct TokenChoice {
  std::vector<uint32_t> taken;
  float lowest = 0, highest = 0;
};
TokenChoice ChooseOutliers(const std::vector<float>& row, const PartCoding& coding) {
  TokenChoice choice;
  uint32_t count = OutlierCount(coding, row.size()), high = HighCount(count);
  std::vector<uint32_t> keys(row.size());
  std::transform(row.begin(), row.end(), keys.begin(), HighKey);
  TakeReference(&keys, high, &choice.taken);
  for (size_t i = 0; i < row.size(); ++i) keys[i] = keys[i] == 0 ? 0 : LowKey(row[i]);
  TakeReference(&keys, count - high, &choice.taken);
  bool any = false;
  int32_t lowest = 0, highest = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    if (keys[i] == 0) continue;
    int32_t order = TotalOrder(row[i]);
    lowest = any ? std::min(lowest, order) : order;
    highest = any ? std::max(highest, order) : order;
    any = true;
  }
  choice.lowest = FromTotalOrder(lowest);
  choice.highest = FromTotalOrder(highest);
  std::sort(choice.taken.begin(), choice.taken.end());
  return choice;
}

std::vector<float> TokenRow(const EncodeTile& tile, uint32_t token) {
  std::vector<float> row;
  for (uint32_t head = 0; head < tile.heads; ++head) {
    for (uint32_t c = 0; c < tile.width; ++c) {
      row.push_back(LoadFloat(tile.source, tile.in, (uint64_t{head} * tile.tokens + token) * tile.width + c));
    }
  }
  return row;
}

}  // namespace

void EncodeChannelReference(const EncodeTile& tile) {
  const PartCoding& coding = *tile.coding;
  const ChannelTransform& transform = tile.transform;
  if (tile.survey != nullptr) tile.survey->Join(SurveyChannel(tile));
  Thresholds thresholds(tile.model, coding);
  uint8_t* meta = tile.run(RunKind::kMeta);
  uint8_t* codes = tile.run(RunKind::kWhole);
  const uint64_t code_bytes = CodeRowBytes(tile.width, coding.bits);
  uint32_t tokens = 0;
  for (uint32_t first = 0; first < tile.tokens; first += tokens) {
    tokens = std::min(GroupTokens(coding), tile.tokens - first);
    const uint32_t size = tokens * tile.width;
    std::vector<float> x(size), normalised(size);
    LoadFloats(tile.source + uint64_t{first} * tile.width * DTypeBytes(tile.in), tile.in, size, x.data());
    std::vector<uint32_t> keys(size), taken;
    for (uint32_t i = 0; i < size; ++i) {
      const uint32_t c = i % tile.width;
      float centred = transform.mean != nullptr ? x[i] - transform.mean[c] : x[i];
      normalised[i] =
          centred * (transform.encode_scale != nullptr ? transform.encode_scale[c] : transform.uniform_scale);
      keys[i] = MagnitudeKey(normalised[i]);
    }
    TakeReference(&keys, OutlierCount(coding, size), &taken);
    std::sort(taken.begin(), taken.end());
    meta = OutlierEntries(coding, size)
               .Write(
                   taken.data(), [&](uint32_t i) { return x[i]; }, meta);
    for (uint32_t t = 0; t < tokens; ++t, codes += code_bytes) {
      PackRow(normalised, thresholds, coding.bits, t * tile.width, tile.width, codes);
    }
  }
}

void DecodeChannelReference(const DecodeTile& tile) {
  const ChannelTransform& transform = tile.transform;
  float limit = OutputLimit(tile.out);
  const uint32_t value_bytes = DTypeBytes(tile.out);
  for (uint32_t t = 0; t < tile.tokens; ++t) {
    std::vector<uint8_t> codes = UnpackRow(tile, t);
    std::vector<float> row(tile.width);
    for (uint32_t c = 0; c < tile.width; ++c) {
      float scale = transform.decode_scale != nullptr ? transform.decode_scale[c] : transform.uniform_scale;
      float value = tile.model.decoded[codes[c]] * scale;
      row[c] = nested::Saturated(transform.mean != nullptr ? value + transform.mean[c] : value, limit);
    }
    StoreFloats(row.data(), tile.width, tile.out, tile.target + uint64_t{t} * tile.width * value_bytes);
  }
  ForChannelOutliers(tile, [&](uint64_t i, float value) {
    value = nested::Saturated(value, limit);
    StoreFloats(&value, 1, tile.out, tile.target + i * value_bytes);
  });
}

void EncodeTokenReference(const EncodeTile& tile) {
  const PartCoding& coding = *tile.coding;
  if (tile.survey != nullptr) tile.survey->Join(SurveyToken(tile));
  Thresholds thresholds(tile.model, coding);
  OutlierEntries entries(coding, uint64_t{tile.heads} * tile.width);
  uint8_t* meta = tile.run(RunKind::kMeta);
  uint64_t row_bytes = CodeRowBytes(tile.width, coding.bits);
  for (uint32_t t = 0; t < tile.tokens; ++t) {
    std::vector<float> row = TokenRow(tile, t);
    TokenChoice choice = ChooseOutliers(row, coding);
    Range range = RangeOf(choice.lowest, choice.highest, coding.meta_type);
    uint32_t value_bytes = nested::MetaValueBytes(coding.meta_type);
    WriteValue(meta, range.centre, coding.meta_type);
    WriteValue(meta + value_bytes, range.reach, coding.meta_type);
    meta = entries.Write(
        choice.taken.data(), [&](uint32_t i) { return row[i]; }, meta + 2 * value_bytes);
    for (float& value : row) value = (value - range.centre) * range.inverse;
    for (uint32_t head = 0; head < tile.heads; ++head) {
      PackRow(row, thresholds, coding.bits, head * tile.width, tile.width,
              tile.run(RunKind::kWhole) + (uint64_t{head} * tile.tokens + t) * row_bytes);
    }
  }
}

void DecodeTokenReference(const DecodeTile& tile) {
  const PartCoding& coding = *tile.coding;
  float limit = OutputLimit(tile.out);
  OutlierEntries entries(coding, uint64_t{tile.heads} * tile.width);
  uint32_t value_bytes = nested::MetaValueBytes(coding.meta_type), out_bytes = DTypeBytes(tile.out);
  const uint8_t* meta = tile.run(RunKind::kMeta);
  for (uint32_t t = 0; t < tile.tokens; ++t) {
    float centre = nested::ReadMeta(meta, coding.meta_type);
    float reach = nested::ReadMeta(meta + value_bytes, coding.meta_type);
    auto place = [&](uint64_t i) {
      return tile.target + ((i / tile.width * tile.tokens + t) * tile.width + i % tile.width) * out_bytes;
    };
    for (uint32_t head = 0; head < tile.heads; ++head) {
      std::vector<uint8_t> codes = UnpackRow(tile, uint64_t{head} * tile.tokens + t);
      for (uint32_t c = 0; c < tile.width; ++c) {
        float value = nested::Saturated(ValueOf(tile.model.decoded[codes[c]], centre, reach), limit);
        StoreFloats(&value, 1, tile.out, place(uint64_t{head} * tile.width + c));
      }
    }
    meta = entries.Read(meta + 2 * value_bytes, [&](uint64_t i, float value) {
      value = nested::Saturated(value, limit);
      StoreFloats(&value, 1, tile.out, place(i));
    });
  }
}

Survey SurveyChannel(const EncodeTile& tile) {
  Survey survey = SurveyMagnitude(MagnitudeMax(tile), tile.coding->meta_type);
  survey.needs_float &= tile.coding->outliers > 0;  // Nothing else is stored.
  return survey;
}

Survey SurveyToken(const EncodeTile& tile) {
  MetaType type = tile.coding->meta_type;
  Survey survey = SurveyMagnitude(MagnitudeMax(tile), type);
  if (survey.non_finite || survey.out_of_range || type == MetaType::kFp32) return survey;
  for (uint32_t t = 0; t < tile.tokens; ++t) {
    TokenChoice choice = ChooseOutliers(TokenRow(tile, t), *tile.coding);
    survey.needs_float |= ReachNeedsFloat(choice.lowest, choice.highest, type);
  }
  return survey;
}

}  // namespace firn::nuq
