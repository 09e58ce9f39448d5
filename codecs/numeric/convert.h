// FP16, BF16 and FP32 values as another of them.
//
// Rounds to nearest, ties to even; finite values beyond the type saturate; Inf stays; NaN stays, quiet, with its sign.
// Threads: pure. The SIMD path gives the reference's bytes.
#pragma once

#include <cstdint>

#include "codecs/types.h"

namespace firn {

void ConvertValues(const uint8_t* from, DType in, uint64_t count, DType out, uint8_t* target);
void ConvertValuesReference(const uint8_t* from, DType in, uint64_t count, DType out, uint8_t* target);

}  // namespace firn
