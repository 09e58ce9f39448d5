// Rows in chunks of eight neighbouring channels, 16 bytes of values: a thread has a few chunks, each as far from the
// last as there are threads, and all of one block, so that most of an address is the same for all of them.
#pragma once

#include "kernels/device/rows.cuh"

namespace firn::kernels {

inline constexpr uint32_t kChunkThreads = 256;
inline constexpr uint32_t kChunksHeld = 4;  // By one thread.

struct ChunkShape {
  uint32_t row_chunks = 0, block_chunks = 0;
  uint32_t units = 0;  // What a block of threads does, of one block.
  FastDivisor by_row_chunks, by_units;

  ChunkShape() = default;
  explicit ChunkShape(const BatchShape& shape) {
    constexpr uint32_t kUnitChunks = kChunkThreads * kChunksHeld;
    row_chunks = shape.width / 8;
    block_chunks = shape.block_rows() * row_chunks;
    units = (block_chunks + kUnitChunks - 1) / kUnitChunks;
    by_row_chunks = FastDivisor(row_chunks);
    by_units = FastDivisor(units);
  }
};

#ifdef __CUDACC__
// The chunks of one thread. Beyond the last chunk it repeats that one, so that all lanes of a warp stay together.
struct ThreadChunks {
  uint32_t block, first, count;

  __device__ __forceinline__ explicit ThreadChunks(const ChunkShape& chunks) : count(chunks.block_chunks) {
    block = chunks.by_units.Quotient(blockIdx.x);
    first = (blockIdx.x - block * chunks.units) * (kChunkThreads * kChunksHeld) + threadIdx.x;
  }
  __device__ __forceinline__ uint32_t At(uint32_t k) const { return min(first + k * kChunkThreads, count - 1); }
  __device__ __forceinline__ bool Has(uint32_t k) const { return first + k * kChunkThreads < count; }
};

// The values of chunk `chunk` of a block, counted through its rows.
template <typename Value, Places kPlaces>
__device__ __forceinline__ Value* ChunkValues(const RowsView& rows, const BatchShape& shape, const ChunkShape& chunks,
                                              const FastDivisor& by_page, uint32_t block, uint32_t chunk) {
  if constexpr (kPlaces == Places::kLinear) {
    return static_cast<Value*>(rows.base) + block * rows.page_stride + uint64_t{chunk} * 8;
  }
  uint32_t row = chunks.by_row_chunks.Quotient(chunk);
  return RowOf<Value>(rows, by_page, shape.InBlockAt(block, row)) + (chunk - row * chunks.row_chunks) * 8;
}
#endif

}  // namespace firn::kernels
