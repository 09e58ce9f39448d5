// The Hadamard transform of a row, one value at a time: the definition of its order.
#pragma once

#include <cstdint>

namespace firn::nested {

// Transforms each block of `size` channels, without the 1/sqrt(size): butterflies of strides 1, 2, 4, ...
inline void RotateReference(float* row, uint32_t width, uint32_t size) {
  for (uint32_t stride = 1; stride < size; stride *= 2) {
    for (uint32_t start = 0; start < width; start += 2 * stride) {
      for (uint32_t i = start; i < start + stride; ++i) {
        float a = row[i], b = row[i + stride];
        row[i] = a + b;
        row[i + stride] = a - b;
      }
    }
  }
}

}  // namespace firn::nested
