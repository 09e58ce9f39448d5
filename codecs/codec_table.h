// The codec table: one row a format, and the only place that knows formats by their ids.
//
// Adding a codec touches its own files, its row and its golden file; record families (codecs/types.h) say which runs it
// has. Rows work on tiles (codecs/tile.h). The reference functions define the bytes; the others give the same bytes on
// every SIMD target. Threads: the table is constant; its functions are pure.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "codecs/tile.h"

namespace firn {

// How much of a layer a codec must see at once.
enum class TileScope : uint8_t {
  kHead,   // Tiles of one head.
  kLayer,  // One tile a layer: scales or outliers are shared by heads.
};

struct CodecRow {
  CodecId id;
  std::string_view name;
  TileScope scope;
  // Whether it applies the channel transform and the rotation itself; the block driver does it for the others.
  bool applies_transform;
  // The classes that the codec's runs can be narrowed to, or that its codes can have, finest first. Empty for identity,
  // whose class is the source's.
  std::span<const PrecisionClass> classes;
  // The largest relative error ||x - x^|| / ||x|| of normally distributed values of width 64 or more, by entry of
  // `classes`.
  std::span<const float> tolerance;

  // Bytes of one run for `tokens` tokens of `heads` heads: of one where the scope is a head, of all where it is a
  // layer.
  uint64_t (*run_bytes)(const RunShape& shape, RunKind kind);
  // Where, in the metadata of a tile or of a head, that of `token` begins; planes and whole codes lie evenly, row after
  // row.
  uint64_t (*meta_offset)(const PartCoding& coding, uint32_t width, uint32_t token);
  // A head's tokens are coded in tiles of this many (the last one shorter); runs of consecutive tiles simply follow
  // each other.
  uint32_t (*tile_tokens)(const PartCoding& coding, uint32_t width, uint32_t tokens);
  // InvalidArgument for parameters that mean nothing.
  absl::Status (*validate)(const PartCoding& coding, DType stored, uint32_t width);

  Survey (*survey)(const EncodeTile& tile);
  void (*encode_reference)(const EncodeTile& tile);
  void (*decode_reference)(const DecodeTile& tile);
  void (*encode)(const EncodeTile& tile);
  void (*decode)(const DecodeTile& tile);
};

// Null for ids without a row; kNone has none.
const CodecRow* FindCodec(CodecId id);
std::span<const CodecRow> AllCodecs();

}  // namespace firn
