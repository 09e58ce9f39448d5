// Codes byte by byte, for rows of any width: the threads of a block share the bytes of a row.
#pragma once

#include "kernels/nested.h"

namespace firn::kernels {

// `code(c)` is the code of channel c, below the width.
template <typename Code>
__device__ __forceinline__ void StoreRowBytes(const NestedJob& job, uint32_t block, uint64_t in_block, Code code) {
  auto padded = [&](uint32_t c) -> uint32_t { return c < job.width ? code(c) & 0xFFu : 0; };
  uint32_t pair_bytes = (job.width + 3) / 4, nibble_bytes = (job.width + 1) / 2;
  for (uint32_t i = threadIdx.x; i < pair_bytes; i += blockDim.x) {
    uint32_t top = 0, second = 0;
    for (uint32_t q = 0; q < 4; ++q) {
      uint32_t c = padded(i + q * pair_bytes);
      top |= (c >> 6) << (2 * q);
      second |= (c >> 4 & 3u) << (2 * q);
    }
    *job.p2.At(block, in_block * pair_bytes + i) = static_cast<uint8_t>(top);
    if (job.p4.present()) *job.p4.At(block, in_block * pair_bytes + i) = static_cast<uint8_t>(second);
  }
  if (!job.p8.present()) return;
  for (uint32_t i = threadIdx.x; i < nibble_bytes; i += blockDim.x) {
    *job.p8.At(block, in_block * nibble_bytes + i) =
        static_cast<uint8_t>((padded(i) & 15u) | (padded(i + nibble_bytes) & 15u) << 4);
  }
}

// What the class of the job makes of the code of one channel.
__device__ __forceinline__ float LoadLevel(const NestedJob& job, uint32_t block, uint64_t in_block, uint32_t c) {
  uint32_t pair_bytes = (job.width + 3) / 4, nibble_bytes = (job.width + 1) / 2;
  uint64_t byte = in_block * pair_bytes + c % pair_bytes;
  uint32_t shift = 2 * (c / pair_bytes);
  uint32_t level = (*job.p2.At(block, byte) >> shift & 3u) << 6;
  if (job.precision == PrecisionClass::k2Bit) return static_cast<float>(level + 24);
  level |= (*job.p4.At(block, byte) >> shift & 3u) << 4;
  if (job.precision == PrecisionClass::k4Bit) return static_cast<float>(level);
  bool upper = c >= nibble_bytes;
  uint32_t nibbles = *job.p8.At(block, in_block * nibble_bytes + (upper ? c - nibble_bytes : c));
  return static_cast<float>(((level | (upper ? nibbles >> 4 : nibbles & 15u)) - 8u) & 0xFFu);
}

}  // namespace firn::kernels
