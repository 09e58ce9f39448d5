// Rows of codes bit by bit, for any width and any number of bits: the threads of a block share the bytes of a row.
#pragma once

#include "kernels/device/values.cuh"
#include "kernels/views.h"

namespace firn::kernels {

// `code(c)` is the code of channel c, below the width.
template <typename Code>
__device__ __forceinline__ void StoreCodeRow(const RunView& run, uint32_t block, uint64_t row, uint32_t width,
                                             uint32_t bits, const Code& code) {
  uint32_t row_bytes = (width * bits + 7) / 8;
  for (uint32_t i = threadIdx.x; i < row_bytes; i += blockDim.x) {
    uint32_t first = i * 8 / bits, byte = 0;
    for (uint32_t c = first; c * bits < i * 8 + 8 && c < width; ++c) {
      uint32_t value = code(c), at = c * bits;
      byte |= at < i * 8 ? value >> (i * 8 - at) : value << (at - i * 8);
    }
    *run.At(block, row * row_bytes + i) = static_cast<uint8_t>(byte);
  }
}

__device__ __forceinline__ uint32_t LoadCode(const RunView& run, uint32_t block, uint64_t row, uint32_t width,
                                             uint32_t bits, uint32_t c) {
  uint64_t byte = row * ((width * bits + 7) / 8) + c * bits / 8;
  uint32_t shift = c * bits % 8, word = *run.At(block, byte);
  if (shift + bits > 8) word |= uint32_t{*run.At(block, byte + 1)} << 8;
  return word >> shift & ((1u << bits) - 1);
}

// Single values of rows: FP16, BF16, and FP32 of rows that have been conditioned.
template <typename Value>
__device__ __forceinline__ float LoadRowValue(const Value* at) {
  if constexpr (sizeof(Value) == 4)
    return *at;
  else
    return ValueTraits<Value>::ToFloat(*at);
}
// Nearest, and at most the largest finite value.
template <typename Value>
__device__ __forceinline__ void StoreSaturated(Value* at, float value) {
  constexpr float kLargestFloat = 0x1.FFFFFEp127f;
  if constexpr (sizeof(Value) == 4) {
    *at = fminf(fmaxf(value, -kLargestFloat), kLargestFloat);
  } else {
    uint32_t pair = ValueTraits<Value>::ToSaturatedPair(value, 0.0f);
    *at = *reinterpret_cast<const Value*>(&pair);
  }
}

// A number that orders all finite values and the two zeros: -0 comes just before +0.
__device__ __forceinline__ int32_t OrderOf(float value) {
  int32_t bits = __float_as_int(value);
  return bits ^ static_cast<int32_t>(static_cast<uint32_t>(bits >> 31) >> 1);
}
__device__ __forceinline__ float FromOrder(int32_t order) {
  return __int_as_float(order ^ static_cast<int32_t>(static_cast<uint32_t>(order >> 31) >> 1));
}

// The extremes of values that are looked at one after another; NaN or Inf shows in `finite`.
struct OrderedRange {
  int32_t low = INT32_MAX, high = INT32_MIN;
  bool finite = true;

  __device__ __forceinline__ void Add(float value) {
    int32_t order = OrderOf(value);
    low = min(low, order), high = max(high, order);
    finite &= isfinite(value);
  }
  __device__ __forceinline__ float lowest() const { return FromOrder(low); }
  __device__ __forceinline__ float highest() const { return FromOrder(high); }
};

}  // namespace firn::kernels
