// The relative error of every class of a part, measured on a fixed sample of its rows while they are being encoded.
//
// Each sampled row is decoded again at every class and compared with its source. The sample depends only on the part's
// shape: every row of small parts, every n-th (n odd) of larger ones. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "codecs/block/conditioner.h"
#include "codecs/block/part_geometry.h"
#include "codecs/block/squared_error.h"

namespace firn {

class ErrorSampler {
 public:
  // Measures the classes of the row that are not finer than `finest`.
  ErrorSampler(const PartGeometry& geometry, PrecisionClass finest);

  // `tile`, just encoded, begins with row `first_row` of the part, counted over all layers and heads, and with the
  // coded token `first_token` of its head. `values` are its rows before conditioning, of type `type`;
  // `ceiling` is the finest class that the head has.
  void Observe(const EncodeTile& tile, uint64_t first_row, uint32_t first_token, const uint8_t* values, DType type,
               const Conditioner& conditioner, const ChannelTransform& transform, PrecisionClass ceiling);
  // The same for a tile of a layer's heads; rows of some layers are looked at, since each is decoded as a whole.
  void ObserveLayer(const EncodeTile& tile, uint32_t layer, const uint8_t* values, DType type,
                    const Conditioner& conditioner, HeadTransform* transform);
  // Every so many rows one is looked at, the first being row 0; of codecs of layers, of the rows of every so many
  // layers as if they were all.
  uint64_t stride() const { return stride_; }
  uint32_t layer_step() const { return layer_step_; }
  // NaN for classes that were not measured. `before` is the error that the source values had already.
  PartErrors Errors(float before) const;

 private:
  // What decodes `tokens` rows of what `tile` encoded; runs, target and class are the caller's.
  DecodeTile DecodeOf(const EncodeTile& tile, uint32_t tokens) const;

  static constexpr uint64_t kRowsWanted = 64;
  static constexpr uint64_t kStrideMax = 255;
  static constexpr uint32_t kLayersWanted = 4;

  const PartGeometry& geometry_;
  std::vector<PrecisionClass> classes_;
  std::vector<SquaredError> sums_;
  uint32_t layer_step_;  // Every layer, or every n-th where the scope is a layer.
  uint64_t stride_, next_row_ = 0;
  std::vector<float> source_, decoded_;
};

}  // namespace firn
