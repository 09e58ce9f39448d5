// Looks for NaN and Inf in a run of values that comes in pieces: values whose exponent bits are all set.
//
// SIMD; the answer does not depend on the target. Not thread-safe; nothing is kept of a piece but the bytes of a value
// that it cuts.
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.h"

namespace firn {

class SpecialScan {
 public:
  // `value_bytes` is 1, 2 or 4; `exponent` has the bits that are all set in a NaN or Inf, and in them alone.
  SpecialScan(uint32_t value_bytes, uint32_t exponent) : value_bytes_(value_bytes), exponent_(exponent) {}
  void Feed(ByteSpan piece);
  bool found() const { return found_; }

 private:
  uint32_t value_bytes_;
  uint32_t exponent_;
  bool found_ = false;
  uint32_t carried_bytes_ = 0;
  std::array<uint8_t, 4> carried_{};  // The start of a value whose end has not come.
};

}  // namespace firn
