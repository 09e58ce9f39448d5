// Sums of squares for a record's error figures, the same to the bit on every target.
#pragma once

#include <cstddef>

namespace firn {

// How far decoded values are from their source, and how large the source is.
struct SquaredError {
  double difference = 0, norm = 0;
  // ||x - x^|| / ||x||; 0 where both are 0.
  float Relative() const;
};

// Adds `count` values. Eight double sums, value i to sum i mod 8, joined pairwise: so the order does not depend on the
// vectors.
void AddSquaredError(const float* source, const float* decoded, size_t count, SquaredError* total);

}  // namespace firn
