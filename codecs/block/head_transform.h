// What an artifact says of one (layer, head): channel arrays, codebook, calibrated scale.
//
// Not thread-safe: one object a thread, moved from head to head; the artifact stays alive through it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "codecs/artifact.h"
#include "codecs/tile.h"

namespace firn {

class HeadTransform {
 public:
  // `artifact` is about this shard's heads, or about those of all shards one after another.
  // FailedPrecondition where the artifact or a section of it is missing, InvalidArgument where it has another shape.
  static absl::StatusOr<HeadTransform> Create(const PartCoding& coding, const PartShape& shape,
                                              std::shared_ptr<const Artifact> artifact, uint32_t shard);
  // Valid until the next call.
  ChannelTransform For(uint32_t layer, uint32_t head);
  // With the codebook for codes of `bits` bits, where the coding has one.
  ModelData ModelOf(uint32_t layer, uint32_t head, uint32_t bits) const;
  // Null where the coding keeps keys as they came.
  const Rope* rope() const;

 private:
  std::shared_ptr<const Artifact> artifact_;  // Null where the coding uses none.
  PartCoding coding_;
  uint32_t first_head_ = 0;  // Of this shard, in the artifact.
  float uniform_scale_ = 1.0f;
  std::vector<float> mean_, encode_scale_, decode_scale_;  // Empty where the channels are all alike.
};

// Finds a coding's artifact: null where it needs none, FailedPrecondition where it is not to be had.
absl::StatusOr<std::shared_ptr<const Artifact>> FindArtifact(const PartCoding& coding, const ArtifactSource& artifacts);

}  // namespace firn
