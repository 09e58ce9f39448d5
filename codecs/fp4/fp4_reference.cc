// The scalar reference: the definition that every other implementation of E2M1 blocks must match byte for byte.

#include <algorithm>
#include <cmath>
#include <vector>

#include "codecs/fp4/fp4_codec.h"
#include "codecs/fp4/fp4_format.h"
#include "codecs/nested/nested_format.h"
#include "codecs/numeric/bit_stream.h"
#include "codecs/numeric/float_rows.h"

namespace firn::fp4 {
namespace {

float MagnitudeMax(const float* values, uint64_t count) {
  float most = 0;
  for (uint64_t i = 0; i < count; ++i) most = std::max(most, std::fabs(values[i]));
  return most;
}

std::vector<float> SourceValues(const EncodeTile& tile) {
  std::vector<float> values(uint64_t{tile.heads} * tile.tokens * tile.width);
  LoadFloats(tile.source, tile.in, values.size(), values.data());
  if (tile.survey != nullptr) {
    tile.survey->non_finite |=
        !std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
  }
  return values;
}

// scale_of(largest magnitude) gives each block its BlockScale, which goes to `scales`.
template <typename ScaleOf>
void EncodeRows(const EncodeTile& tile, const std::vector<float>& values, uint32_t block, const ScaleOf& scale_of,
                uint8_t* scales) {
  uint8_t* to = tile.run(RunKind::kWhole);
  std::vector<uint8_t> codes(tile.width);
  for (uint64_t row = 0; row < uint64_t{tile.heads} * tile.tokens; ++row) {
    const float* from = values.data() + row * tile.width;
    for (uint32_t first = 0; first < tile.width; first += block) {
      uint32_t count = std::min(block, tile.width - first);
      BlockScale scale = scale_of(MagnitudeMax(from + first, count));
      *scales++ = scale.stored;
      for (uint32_t c = first; c < first + count; ++c) codes[c] = FloatToE2m1(from[c] * scale.inverse);
    }
    PackCodesReference(codes.data(), tile.width, 4, to);
    to += CodeRowBytes(tile.width, 4);
  }
}

template <typename ScaleOf>
void DecodeRows(const DecodeTile& tile, uint32_t block, const ScaleOf& scale_of, const uint8_t* scales) {
  const uint8_t* from = tile.run(RunKind::kWhole);
  float limit = OutputLimit(tile.out);
  std::vector<uint8_t> codes(tile.width);
  std::vector<float> values(tile.width);
  for (uint64_t row = 0; row < uint64_t{tile.heads} * tile.tokens; ++row) {
    UnpackCodesReference(from, tile.width, 4, codes.data());
    from += CodeRowBytes(tile.width, 4);
    for (uint32_t first = 0; first < tile.width; first += block) {
      float scale = scale_of(*scales++);
      for (uint32_t c = first; c < std::min(first + block, tile.width); ++c) {
        values[c] = nested::Saturated(kE2m1Values[codes[c]] * scale, limit);
      }
    }
    StoreFloats(values.data(), tile.width, tile.out, tile.target + row * tile.width * DTypeBytes(tile.out));
  }
}

}  // namespace

void EncodeNvReference(const EncodeTile& tile) {
  std::vector<float> values = SourceValues(tile);
  float layer_scale = LayerScale(MagnitudeMax(values.data(), values.size()));
  uint8_t* meta = tile.run(RunKind::kMeta);
  StoreLe<float>(meta, layer_scale);
  auto scale_of = [&](float most) { return NvBlockScale(most / (kE2m1Max * layer_scale), layer_scale); };
  EncodeRows(tile, values, kNvBlock, scale_of, meta + sizeof(float));
}

void DecodeNvReference(const DecodeTile& tile) {
  const uint8_t* meta = tile.run(RunKind::kMeta);
  float layer_scale = LoadLe<float>(meta);
  auto scale_of = [&](uint8_t stored) { return NvScale(stored, layer_scale); };
  DecodeRows(tile, kNvBlock, scale_of, meta + sizeof(float));
}

void EncodeMxReference(const EncodeTile& tile) {
  EncodeRows(tile, SourceValues(tile), kMxBlock, MxBlockScale, tile.run(RunKind::kMeta));
}

void DecodeMxReference(const DecodeTile& tile) { DecodeRows(tile, kMxBlock, MxScale, tile.run(RunKind::kMeta)); }

}  // namespace firn::fp4
