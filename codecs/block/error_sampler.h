// The relative error of every class of a part, measured on a fixed sample of its rows while they are being encoded.
//
// Each sampled row is decoded again at every class and compared with its source. The sample depends only on the part's
// shape: every row of small parts, every n-th (n odd) of larger ones. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "codecs/block/part_geometry.h"
#include "codecs/block/squared_error.h"

namespace firn {

class ErrorSampler {
 public:
  // Measures the classes of the row that are not finer than `finest`.
  ErrorSampler(const PartGeometry& geometry, PrecisionClass finest);

  // `tile`, just encoded, begins with row `first_row` of the part, counted over all layers and heads.
  void Observe(const EncodeTile& tile, uint64_t first_row);
  // NaN for classes that were not measured. `before` is the error that the source values had already.
  PartErrors Errors(float before) const;

 private:
  void ObserveRow(const EncodeTile& tile, uint32_t token);

  static constexpr uint64_t kRowsWanted = 64;
  static constexpr uint64_t kStrideMax = 255;

  const PartGeometry& geometry_;
  std::vector<PrecisionClass> classes_;
  std::vector<SquaredError> sums_;
  uint64_t stride_, next_row_ = 0;
  std::vector<float> source_, decoded_;
};

}  // namespace firn
