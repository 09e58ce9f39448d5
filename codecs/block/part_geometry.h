// Where everything of one part of a record lies: the arithmetic of layers, heads and tokens over its runs.
//
// Threads: immutable. A run holds its layers one after another; a layer its heads; a head its tokens. In front of a
// layer's metadata stand, for FP8 sources whose own codes the record keeps, one FP32 scale a head. Where heads differ
// in precision, a run holds those that have it.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "codecs/codec_table.h"
#include "codecs/encoded_block.h"
#include "codecs/record.h"

namespace firn {

inline bool IsFp8(DType dtype) { return dtype == DType::kFp8E4m3 || dtype == DType::kFp8E5m2; }

class PartGeometry {
 public:
  // InvalidArgument for codings that do not fit; the part's width is not 0.
  static absl::StatusOr<PartGeometry> Of(const RecordHeader& header, Part part);

  const CodecRow& row() const { return *row_; }
  const PartCoding& coding() const { return coding_; }
  const PartShape& shape() const { return shape_; }
  Part part() const { return part_; }
  DType stored() const { return stored_; }
  uint32_t exact_tokens() const { return exact_tokens_; }
  uint32_t coded_tokens() const { return shape_.tokens - exact_tokens_; }
  // The exact tokens are the leading ones; where they are not, `positions` says where which are.
  bool leading() const { return positions_.exact.empty(); }
  const TokenPositions& positions() const { return positions_; }
  uint32_t tile_tokens() const { return tile_tokens_; }
  // One tile holds a layer's heads together.
  bool layer_scope() const { return row_->scope == TileScope::kLayer; }
  bool is_source() const { return family_ == CodecFamily::kSource; }
  bool has_source_scales() const { return has_source_scales_; }
  bool mixed() const { return !ceilings_.empty(); }

  // The coding of one head: with its own bits where heads differ in them.
  const PartCoding& CodingAt(uint32_t layer, uint32_t head) const;
  // The finest class that one head was encoded at; kExact where all are alike.
  PrecisionClass CeilingAt(uint32_t layer, uint32_t head) const;
  // Whether a head has bytes in a run of this kind.
  bool HeadHas(RunKind kind, uint32_t layer, uint32_t head) const { return HeadBytes(kind, layer, head) > 0; }
  // Of one head; of all of a layer where the scope is a layer, but for kExact.
  uint64_t HeadBytes(RunKind kind, uint32_t layer, uint32_t head) const;
  uint64_t RunBytes(RunKind kind) const;
  // Where the bytes of coded token `token`, the first of a tile, begin. Head and token are 0 where the scope is a
  // layer.
  uint64_t Offset(RunKind kind, uint32_t layer, uint32_t head, uint32_t token) const;
  // Of a tile of so many tokens of one head, which has the run.
  uint64_t TileBytes(RunKind kind, uint32_t tokens, uint32_t layer, uint32_t head) const;
  // In front of a layer's metadata.
  uint64_t SourceScaleOffset(uint32_t layer, uint32_t head) const;
  uint64_t ExactBytes() const { return head_bytes_[static_cast<size_t>(RunKind::kExact)]; }
  uint64_t ExactOffset(uint32_t layer, uint32_t head) const { return HeadIndex(layer, head) * ExactBytes(); }

  // All runs that this coding can have, and the lengths of some.
  RunMask PossibleRuns() const;
  void AddLengths(RunMask runs, RecordLayout* layout) const;

 private:
  static constexpr size_t kBitsMax = 8;
  uint64_t HeadIndex(uint32_t layer, uint32_t head) const { return uint64_t{layer} * shape_.heads + head; }
  uint64_t UniformTileBytes(RunKind kind, const PartCoding& coding, uint32_t tokens) const;
  void PlaceMixedHeads();

  const CodecRow* row_ = nullptr;
  PartCoding coding_;
  CodecFamily family_ = CodecFamily::kUnknown;
  PartShape shape_;
  Part part_ = Part::kK;
  DType stored_ = DType::kFp16;
  uint32_t exact_tokens_ = 0, tile_tokens_ = 0;
  TokenPositions positions_;
  bool has_source_scales_ = false;
  std::array<uint64_t, kRunKinds> head_bytes_{};  // Of one unit: a head, or a layer's heads where the scope is a layer.
  std::array<uint64_t, kRunKinds> layer_bytes_{};        // Where heads are alike.
  ClassMap ceilings_;                                    // Empty where heads are alike.
  std::array<PartCoding, kBitsMax + 1> coding_of_bits_;  // By bits, where heads differ in them.
  // By kind, where they are not: the start of each head's bytes, and the run's end.
  std::array<std::vector<uint64_t>, kRunKinds> starts_;
};

// CheckHeader's rules, and that every run of the record has the length its coding says; DataLoss otherwise.
absl::Status CheckRunLengths(const RecordHeader& header);

}  // namespace firn
