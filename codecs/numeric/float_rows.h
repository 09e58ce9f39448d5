// Rows of values of any stored type to FP32 and back, one value at a time: for reference code and rare conversions.
#pragma once

#include <cstdint>
#include <limits>

#include "base/bytes.h"
#include "codecs/numeric/float_formats.h"
#include "codecs/types.h"

namespace firn {

// The largest finite value of FP16, BF16 or FP32.
inline float OutputLimit(DType out) {
  if (out == DType::kFp16) return kHalfMax;
  return out == DType::kBf16 ? kBfloatMax : std::numeric_limits<float>::max();
}

inline float LoadFloat(const uint8_t* bytes, DType type, uint64_t index) {
  switch (type) {
    case DType::kFp16:
      return HalfToFloat(LoadLe<uint16_t>(bytes + 2 * index));
    case DType::kBf16:
      return BfloatToFloat(LoadLe<uint16_t>(bytes + 2 * index));
    case DType::kFp32:
      return LoadLe<float>(bytes + 4 * index);
    case DType::kFp8E4m3:
      return E4m3ToFloat(bytes[index]);
    case DType::kFp8E5m2:
      return E5m2ToFloat(bytes[index]);
    case DType::kBytes:
      break;
  }
  return 0;
}

inline void LoadFloats(const uint8_t* bytes, DType type, uint64_t count, float* values) {
  for (uint64_t i = 0; i < count; ++i) values[i] = LoadFloat(bytes, type, i);
}

// `out` is FP16, BF16 or FP32; values beyond the type become Inf.
inline void StoreFloats(const float* values, uint64_t count, DType out, uint8_t* bytes) {
  for (uint64_t i = 0; i < count; ++i) {
    if (out == DType::kFp32) {
      StoreLe<float>(bytes + 4 * i, values[i]);
    } else {
      StoreLe<uint16_t>(bytes + 2 * i, out == DType::kFp16 ? FloatToHalf(values[i]) : FloatToBfloat(values[i]));
    }
  }
}

}  // namespace firn
