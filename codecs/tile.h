// Tiles: what one call of a codec sees, consecutive tokens of one head of one layer, as plain contiguous memory.
//
// The block driver (codecs/block/) resolves pages, layers, heads and artifacts; codecs only compute. Nothing here owns
// memory. Shapes: values are [token][channel]; the bytes of each run are those that this codec's row says for so many
// tokens.
#pragma once

#include <array>
#include <cstdint>

#include "codecs/record.h"
#include "codecs/types.h"

namespace firn {

// Per channel, for one (layer, head). Encoding computes (x - mean) * encode_scale, decoding x * decode_scale + mean.
// Null arrays (all three or none) stand for 0 and for `uniform_scale`. Rotation's 1/sqrt(size) is part of both scales.
struct ChannelTransform {
  const float* mean = nullptr;
  const float* encode_scale = nullptr;
  const float* decode_scale = nullptr;
  float uniform_scale = 1.0f;
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

struct EncodeTile {
  const PartCoding* coding = nullptr;
  uint32_t width = 0;
  uint32_t tokens = 0;
  DType in = DType::kFp16;  // kFp16, kBf16 or kFp32; identity takes any.
  const uint8_t* source = nullptr;
  ChannelTransform transform;
  std::array<uint8_t*, kRunKinds> runs{};  // By RunKind; null where the record has no such run.
  // Where not null, encoding joins to it what it finds; codes of values that turn out not to fit mean nothing.
  Survey* survey = nullptr;

  uint8_t* run(RunKind kind) const { return runs[static_cast<size_t>(kind)]; }
};

struct DecodeTile {
  const PartCoding* coding = nullptr;
  uint32_t width = 0;
  uint32_t tokens = 0;
  DType stored = DType::kFp16;  // The record's dtype: what identity's bytes are.
  DType out = DType::kFp16;     // kFp16, kBf16 or kFp32; identity also gives its own.
  uint8_t* target = nullptr;
  PrecisionClass precision = PrecisionClass::kNone;  // One of the codec's classes; finer runs are not read.
  float source_scale = 1.0f;                         // Of FP8 values as they came.
  ChannelTransform transform;
  std::array<const uint8_t*, kRunKinds> runs{};

  const uint8_t* run(RunKind kind) const { return runs[static_cast<size_t>(kind)]; }
};

}  // namespace firn
