// Who has what. A warp attends to 16 tokens at a time. Lane (g, t) = (lane / 4, lane % 4).
//
// Scores are keys (rows: tokens) times queries (columns: heads), so a lane has those of tokens KeyToken() and 8 more
// and of heads 2t and 2t + 1. Outputs are values (rows: channels) times weights (columns: heads): the same heads, so
// nothing that belongs to a head ever changes lanes. Only weights do, transposed once: tokens ValueToken(i) are then
// lane t's. Tokens are in such an order that lanes read rows from different banks of shared memory.
//
// Which channels a lane multiplies together is free, as long as queries and outputs agree: lane t takes the keys' bytes
// as they lie, a quarter of each row, lane g of the values an eighth.
#pragma once

#include "kernels/attention/codes.cuh"

namespace firn::kernels {

struct Lane {
  uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

  __device__ __forceinline__ uint32_t KeyToken() const { return (g & 1) == 0 ? g / 2 : (g / 2 ^ 2) + 4; }
  __device__ __forceinline__ uint32_t ValueToken(int i) const {
    return ((i & 1) == 0 ? t : (t ^ 2) + 4) + static_cast<uint32_t>(i / 2 * 8);
  }
};

// Where a channel of a query is among the operands of the products, in halves.
template <Code kCode, uint32_t kWidth>
__device__ __forceinline__ uint32_t QueryPlace(uint32_t channel) {
  uint32_t product, odd, t, half;
  if constexpr (kCode == Code::kRows) {
    product = channel / 32 * 2 + channel % 8 / 4, odd = channel % 4 / 2, t = channel % 32 / 8, half = channel % 2;
  } else {
    constexpr uint32_t kPiece = CodeTraits<kCode>::kNested ? kWidth / 16 : kWidth / 4;  // Bytes of a lane.
    uint32_t quarter = CodeTraits<kCode>::kNested ? channel / (kWidth / 4) : 0;
    uint32_t byte = channel % (kWidth / 4) % kPiece;
    t = channel % (CodeTraits<kCode>::kNested ? kWidth / 4 : kWidth) / kPiece;
    product = byte / 4 * CodeTraits<kCode>::kQuarters + quarter, odd = byte % 2, half = byte % 4 / 2;
  }
  return ((product * 2 + odd) * 4 + t) * 2 + half;
}

// The first of two neighbouring channels whose outputs are product `m`'s with lane g.
template <Code kCode, uint32_t kWidth>
__device__ __forceinline__ uint32_t OutputChannel(uint32_t m, uint32_t g) {
  if constexpr (kCode == Code::kRows) return m / 4 * 64 + g * 8 + m % 4 * 2;
  if constexpr (kCode == Code::kFp8) return g * (kWidth / 8) + m * 2;
  return m % 4 * (kWidth / 4) + g * (kWidth / 32) + m / 4 * 2;
}

}  // namespace firn::kernels
