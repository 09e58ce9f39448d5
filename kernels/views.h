// Where values and runs lie in memory that a GPU can reach: what kernels are told instead of layout names.
//
// Plain data, passed to kernels by value; nothing here owns memory. Pointers are device addresses (device memory, or
// host memory registered with cudaHostRegister), arrays too. Strides and page sizes of values count values, those of
// runs count bytes. Limits are the launchers' to check; what lies in device arrays nobody checks.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define FIRN_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define FIRN_HOST_DEVICE inline
#endif

namespace firn::kernels {

// Division of numbers below 2^31 by a number known at launch, without a divide instruction.
struct FastDivisor {
  uint32_t divisor = 1, multiplier = 0, shift = 0;

  FastDivisor() = default;
  explicit FastDivisor(uint32_t by) : divisor(by) {
    while ((uint64_t{1} << shift) < by) ++shift;
    multiplier = static_cast<uint32_t>(((uint64_t{1} << (32 + shift)) + by - 1) / by - (uint64_t{1} << 32));
  }
  FIRN_HOST_DEVICE uint32_t Quotient(uint32_t n) const {
#ifdef __CUDA_ARCH__
    uint32_t high = __umulhi(n, multiplier);
#else
    uint32_t high = static_cast<uint32_t>(uint64_t{n} * multiplier >> 32);
#endif
    return (high + n) >> shift;  // Neither term reaches 2^31, so the sum does not wrap.
  }
};

// Rows of one part (K or V) of a batch of blocks in an engine's own layout, paged or not: token t of a block lies in
// the block's page t / page_tokens. A canonical block is one page of as many tokens as it has.
//   value(layer, block, head, token, channel) =
//     base_of(layer) + page * page_stride + (token % page_tokens) * token_stride + head * head_stride
//                    + channel * channel_stride
struct RowsView {
  void* base = nullptr;
  void* const* layer_bases = nullptr;  // [layers]; null: base + layer * layer_stride.
  const uint32_t* pages = nullptr;     // [blocks][pages_per_block]; null: page b * pages_per_block + i.
  uint32_t page_tokens = 0;
  uint32_t pages_per_block = 1;
  uint32_t first_token = 0;  // Tokens of every block that are not looked at: sinks that are kept exact.
  int64_t layer_stride = 0, page_stride = 0, token_stride = 0, head_stride = 0, channel_stride = 1;
};

// One run of every block of a batch, in one piece a block or in pages of an arena.
struct RunView {
  uint8_t* base = nullptr;                // Null: the run is not there, unless block_bases is.
  uint8_t* const* block_bases = nullptr;  // [blocks]; null: base + block * block_stride.
  uint64_t block_stride = 0;
  const uint32_t* pages = nullptr;  // [blocks][pages_per_block]: base + (page << page_shift).
  uint32_t pages_per_block = 0, page_shift = 0;

  FIRN_HOST_DEVICE bool present() const { return base != nullptr || block_bases != nullptr; }
  FIRN_HOST_DEVICE uint8_t* At(uint32_t block, uint64_t offset) const {
    if (pages != nullptr) {
      uint32_t page = pages[uint64_t{block} * pages_per_block + (offset >> page_shift)];
      return base + (uint64_t{page} << page_shift) + (offset & ((uint64_t{1} << page_shift) - 1));
    }
    return (block_bases != nullptr ? block_bases[block] : base + block * block_stride) + offset;
  }
};

// What is done to the channels of rows (codecs/tile.h), for every head: [layers][heads][width] of FP32.
struct TransformView {
  const float* mean = nullptr;
  const float* encode_scale = nullptr;
  const float* decode_scale = nullptr;
  float uniform_scale = 1.0f;  // Where the arrays are null, all three.
};

}  // namespace firn::kernels
