// Decodes one part of a record head by head, from the runs that are to be used.
//
// Not thread-safe; the block must outlive the decoder. Errors of Create: DataLoss where the runs decode to no class or
// have wrong lengths, FailedPrecondition where the artifact is missing.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "codecs/artifact.h"
#include "codecs/block/conditioner.h"
#include "codecs/block/head_transform.h"
#include "codecs/block/part_geometry.h"
#include "codecs/block/run_cursor.h"

namespace firn {

class HeadDecoder {
 public:
  static absl::StatusOr<HeadDecoder> Create(const EncodedBlock& block, Part part, RunMask use,
                                            const ArtifactSource& artifacts);

  const PartGeometry& geometry() const { return geometry_; }
  PrecisionClass precision() const { return precision_; }
  // Writes [token][channel] of all tokens. `out` is FP16, BF16 or FP32, or the stored type where the coding is the
  // source's.
  void DecodeHead(uint32_t layer, uint32_t head, DType out, uint8_t* target);
  // The same of all heads of a layer, where that is one step; false, and nothing done, where it is not.
  bool DecodeLayer(uint32_t layer, DType out, uint8_t* target);
  // The rows as stored, of source codings: no arithmetic, in place where they lie together.
  const uint8_t* StoredRows(uint32_t layer, uint32_t head, uint32_t coded_token, uint32_t tokens);
  // The same of all coded tokens of a layer's heads, one head after another.
  const uint8_t* StoredLayer(uint32_t layer);
  const uint8_t* ExactRows(uint32_t layer, uint32_t head);
  // The FP32 scales of a layer's heads; the geometry has them.
  const uint8_t* SourceScales(uint32_t layer);

 private:
  HeadDecoder(PartGeometry geometry, HeadTransform transform, Conditioner conditioner, PrecisionClass precision,
              PrecisionClass finest, std::array<ReadCursor, kRunKinds> cursors)
      : geometry_(geometry),
        transform_(std::move(transform)),
        conditioner_(std::move(conditioner)),
        precision_(precision),
        finest_(finest),
        cursors_(std::move(cursors)) {}
  ReadCursor& cursor(RunKind kind) { return cursors_[static_cast<size_t>(kind)]; }
  float SourceScale(uint32_t layer, uint32_t head);
  void DecodeExact(uint32_t layer, uint32_t head, DType out, uint8_t* target);
  // [token][channel] of the coded tokens alone.
  void DecodeCoded(uint32_t layer, uint32_t head, DType out, uint8_t* target);
  // Brings a head's coded rows, which lie at the end of `target`, and its exact ones to their places.
  void PlaceRows(const uint8_t* exact_rows, uint64_t row_bytes, uint8_t* target) const;
  // What is the same for all tiles of a head; tokens, runs, target and type of output are not.
  DecodeTile TileOf(uint32_t layer, uint32_t head, const ChannelTransform& transform);
  // The bytes of the tile that begins with `token`, whose tokens are set.
  void ReadRuns(uint32_t layer, uint32_t head, uint32_t token, DecodeTile* tile);
  // A layer that is decoded together, without what is done to rows outside the codec.
  void DecodeLayerTile(uint32_t layer, DType type, uint8_t* target);
  // All coded tokens of a head out of such a layer, of type LayerType(out).
  const uint8_t* LayerRows(uint32_t layer, uint32_t head, DType out);
  DType LayerType(DType out) const { return conditioner_.active() ? DType::kFp32 : out; }

  PartGeometry geometry_;
  HeadTransform transform_;
  Conditioner conditioner_;
  PrecisionClass precision_;  // What the part ranks by.
  PrecisionClass finest_;     // What the finest of its heads has.
  std::array<ReadCursor, kRunKinds> cursors_;
  std::vector<float> floats_;                        // One tile.
  std::vector<uint8_t> exact_rows_;                  // One head's.
  std::optional<std::pair<uint32_t, DType>> layer_;  // What layer_rows_ holds: the layer, and as which type.
  std::vector<uint8_t> layer_rows_;                  // [head][coded token][channel]
};

// The class of `part` in a pair.
inline PrecisionClass ClassOfPart(const ClassPair& pair, Part part) { return part == Part::kK ? pair.k : pair.v; }

}  // namespace firn
