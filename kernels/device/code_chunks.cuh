// The codes of eight neighbouring channels, 8, 4, 3 or 2 bits each, as they lie in a row's stream of bits: kBits bytes.
//
// Three bytes a chunk are no word: four neighbouring lanes, whose chunks are neighbours too and begin at a multiple of
// four, store three words together.
#pragma once

#include "kernels/device/rows.cuh"
#include "kernels/device/values.cuh"

namespace firn::kernels {

struct ChunkCodes {
  uint32_t low = 0, high = 0;  // `high` is of 8 bits alone.
};

// What 1.5 * 2^23 has of bits: a number added to it leaves its nearest integer in the last ones.
inline constexpr float kRounding = 12582912.0f;
inline constexpr uint32_t kRoundingBits = 0x4B400000u;

// Codes stand in the last bits of kBeside + code. Whole words are added up, and what is not code is taken off.
template <int kBits, uint32_t kBeside = kRoundingBits>
__device__ __forceinline__ ChunkCodes PackChunk(const uint32_t (&sums)[8]) {
  constexpr int kOfWord = kBits == 8 ? 4 : 8;
  uint32_t excess = 0;
#pragma unroll
  for (int i = 0; i < kOfWord; ++i) excess += kBeside << (kBits * i);
  auto word = [&](int from) {
    uint32_t sum = sums[from];
#pragma unroll
    for (int i = 1; i < kOfWord; ++i) sum += sums[from + i] << (kBits * i);
    return sum - excess;
  };
  if constexpr (kBits == 8) return {word(0), word(4)};
  return {word(0), 0};
}

// Code i as a number, less `offset`. It is looked at where it stands, in a float whose last bit there counts 1.
template <int kBits>
__device__ __forceinline__ float ChunkLevel(const ChunkCodes& codes, int i, float offset) {
  if constexpr (kBits == 8) {
    return __uint_as_float(__byte_perm(i < 4 ? codes.low : codes.high, 0x4B000000u, 0x7440u | (i & 3))) -
           (8388608.0f + offset);
  }
  int at = kBits * i;
  uint32_t word = codes.low;
  if (at + kBits > 23) word >>= 16, at -= 16;
  uint32_t bits = (word & ((1u << kBits) - 1) << at) | (0x4B000000u - (static_cast<uint32_t>(at) << 23));
  return __uint_as_float(bits) - (static_cast<float>(1u << (23 - at)) + offset);
}

template <int kBits>
__device__ __forceinline__ uint32_t ChunkCode(const ChunkCodes& codes, int i) {
  if constexpr (kBits == 8) return (i < 4 ? codes.low : codes.high) >> (8 * (i & 3)) & 0xFFu;
  return codes.low >> (kBits * i) & ((1u << kBits) - 1);
}

// All lanes of a warp come here; `valid` is the same for four neighbours.
template <int kBits, Places kPlaces>
__device__ __forceinline__ void StoreCodes(const RunView& run, uint32_t block, uint32_t chunk, ChunkCodes codes,
                                           bool valid) {
  if constexpr (kBits == 3) {
    uint32_t next = __shfl_down_sync(0xFFFFFFFFu, codes.low, 1), part = chunk & 3;
    if (!valid || part == 3) return;
    uint32_t word = codes.low >> (8 * part) | next << (24 - 8 * part);
    __stcs(reinterpret_cast<uint32_t*>(RunBytesAt<kPlaces>(run, block, (chunk - part) * 3 + part * 4)), word);
  } else {
    if (!valid) return;
    uint8_t* at = RunBytesAt<kPlaces>(run, block, chunk * kBits);
    if constexpr (kBits == 8) StoreOnce8(at, {codes.low, codes.high});
    if constexpr (kBits == 4) __stcs(reinterpret_cast<uint32_t*>(at), codes.low);
    if constexpr (kBits == 2) __stcs(reinterpret_cast<uint16_t*>(at), static_cast<uint16_t>(codes.low));
  }
}

template <int kBits, Places kPlaces>
__device__ __forceinline__ ChunkCodes LoadCodes(const RunView& run, uint32_t block, uint32_t chunk) {
  if constexpr (kBits == 3) {
    uint32_t part = chunk & 3, first = part * 3 / 4;
    auto word = [&](uint32_t index) {
      uint32_t offset = (chunk - part) * 3 + index * 4;
      return __ldcs(reinterpret_cast<const uint32_t*>(RunBytesAt<kPlaces>(run, block, offset)));
    };
    return {__funnelshift_r(word(first), word(min(first + 1, 2u)), part * 24) & 0xFFFFFFu, 0};
  } else {
    const uint8_t* at = RunBytesAt<kPlaces>(run, block, chunk * kBits);
    if constexpr (kBits == 8) {
      uint2 both = LoadOnce8(at);
      return {both.x, both.y};
    }
    if constexpr (kBits == 4) return {__ldcs(reinterpret_cast<const uint32_t*>(at)), 0};
    return {__ldcs(reinterpret_cast<const uint16_t*>(at)), 0};
  }
}

}  // namespace firn::kernels
