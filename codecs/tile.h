// Tiles: what one call of a codec sees, consecutive tokens of one head of one layer, as plain contiguous memory.
//
// The block driver (codecs/block/) resolves pages, layers, heads and artifacts; codecs only compute. Nothing here owns
// memory. Shapes: values are [token][channel]; the bytes of each run are those that this codec's row says for so many
// tokens. Codecs of layer scope see all coded tokens of all heads of a layer at once: [head][token][channel].
#pragma once

#include <array>
#include <cstdint>

#include "codecs/record.h"
#include "codecs/types.h"

namespace firn {

// Per channel, for one (layer, head). Encoding computes (x - mean) * encode_scale, decoding x * decode_scale + mean.
// Null arrays (all three or none) stand for 0 and for `uniform_scale`. Rotation's 1/sqrt(size) is part of both scales.
// Rows that do not say `applies_transform` get values that have been through it, and the identity here.
struct ChannelTransform {
  const float* mean = nullptr;
  const float* encode_scale = nullptr;
  const float* decode_scale = nullptr;
  float uniform_scale = 1.0f;
};

// What the artifact says of one (layer, head) beyond its channels; nothing where the coding asks for nothing.
struct ModelData {
  const float* levels = nullptr;   // The codebook: 2^bits values, ascending, of which the nearest is the code.
  const float* decoded = nullptr;  // What each code stands for.
  float scale = 0;                 // Calibrated; 0 where scales are the block's own.
};

// What a look at source values says about coding them.
struct Survey {
  bool non_finite = false;    // NaN or Inf among the values.
  bool out_of_range = false;  // A range that FP32 arithmetic cannot hold.
  bool needs_float = false;   // Scales or minima that the coding's metadata type cannot hold well.
  void Join(const Survey& other) {
    non_finite |= other.non_finite;
    out_of_range |= other.out_of_range;
    needs_float |= other.needs_float;
  }
};

// What the length of a run depends on.
struct RunShape {
  const PartCoding& coding;
  DType stored;
  uint32_t width, tokens;
  uint32_t heads = 1;
};

struct EncodeTile {
  const PartCoding* coding = nullptr;
  uint32_t width = 0;
  uint32_t tokens = 0;
  uint32_t heads = 1;       // More than 1 only where the codec has layer scope.
  DType in = DType::kFp16;  // kFp16, kBf16 or kFp32; identity takes any.
  const uint8_t* source = nullptr;
  DType stored = DType::kFp16;  // The record's dtype: what exact values are kept as.
  Part part = Part::kV;         // Keys and values may want different trade-offs of one code.
  ChannelTransform transform;
  ModelData model{};
  std::array<uint8_t*, kRunKinds> runs{};  // By RunKind; null where the record has no such run.
  // Where not null, encoding joins to it what it finds; codes of values that turn out not to fit mean nothing.
  Survey* survey = nullptr;

  uint8_t* run(RunKind kind) const { return runs[static_cast<size_t>(kind)]; }
};

struct DecodeTile {
  const PartCoding* coding = nullptr;
  uint32_t width = 0;
  uint32_t tokens = 0;
  uint32_t heads = 1;
  // Where these tokens are some of those of a tile as it was encoded: the first of them in it, and how many it has (0:
  // these). Metadata then is the tile's, where tokens share it.
  uint32_t first_token = 0, encoded_tokens = 0;
  DType stored = DType::kFp16;  // The record's dtype: what identity's bytes are.
  DType out = DType::kFp16;     // kFp16, kBf16 or kFp32; identity also gives its own.
  uint8_t* target = nullptr;
  PrecisionClass precision = PrecisionClass::kNone;  // One of the codec's classes; finer runs are not read.
  float source_scale = 1.0f;                         // Of FP8 values as they came.
  ChannelTransform transform;
  ModelData model{};
  std::array<const uint8_t*, kRunKinds> runs{};

  const uint8_t* run(RunKind kind) const { return runs[static_cast<size_t>(kind)]; }
};

}  // namespace firn
