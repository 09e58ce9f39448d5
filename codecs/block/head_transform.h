// The channel arrays of a (layer, head), made from a coding's flags and its artifact.
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
  // FailedPrecondition where the artifact is missing, InvalidArgument where it has another shape.
  static absl::StatusOr<HeadTransform> Create(const PartCoding& coding, const PartShape& shape,
                                              std::shared_ptr<const KeyBalance> balance);
  // Valid until the next call.
  ChannelTransform For(uint32_t layer, uint32_t head);

 private:
  std::shared_ptr<const KeyBalance> balance_;  // Null where the coding uses none.
  uint8_t flags_ = 0;
  float uniform_scale_ = 1.0f;
  std::vector<float> mean_, encode_scale_, decode_scale_;
};

// Finds a coding's artifact: null where it needs none, FailedPrecondition where it is not to be had.
absl::StatusOr<std::shared_ptr<const KeyBalance>> FindBalance(const PartCoding& coding,
                                                              const ArtifactSource& artifacts);

}  // namespace firn
