// Codes four channels at a time: the same four of each quarter of a row make a word of p2, of p4, and two of p8. For
// widths that are multiples of 16.
#pragma once

#include "kernels/device/nested_planes.cuh"
#include "kernels/nested.h"

namespace firn::kernels {

// Word `byte` / 4 of row `in_block` of a block.
struct WordAt {
  uint32_t block, in_block, quarter, byte;  // `quarter` is a quarter of the width.

  __device__ __forceinline__ uint32_t* Pairs(const RunView& run) const {
    return reinterpret_cast<uint32_t*>(run.At(block, in_block * quarter + byte));
  }
  // Of quarters `low` and `low` + 2.
  __device__ __forceinline__ uint32_t* Nibbles(const RunView& run, uint32_t low) const {
    return reinterpret_cast<uint32_t*>(run.At(block, in_block * quarter * 2 + low * quarter + byte));
  }
};

// Codes stand in words 0, 2, 4 and 6.
__device__ __forceinline__ void StoreWord(const NestedJob& job, const WordAt& at, const LaneCodes& codes) {
  *at.Pairs(job.p2) = PackTopPair(codes).x;
  if (job.p4.present()) *at.Pairs(job.p4) = PackSecondPair(codes).x;
  if (job.p8.present()) {
    *at.Nibbles(job.p8, 0) = PackNibbles(codes, 0).x;
    *at.Nibbles(job.p8, 1) = PackNibbles(codes, 1).x;
  }
}

__device__ __forceinline__ LaneCodes LoadWord(const NestedJob& job, const WordAt& at) {
  uint32_t p4 = 0, low = 0, high = 0;
  uint32_t p2 = __ldcs(at.Pairs(job.p2));
  if (job.precision >= PrecisionClass::k4Bit) p4 = __ldcs(at.Pairs(job.p4));
  if (job.precision >= PrecisionClass::k8Bit) {
    low = __ldcs(at.Nibbles(job.p8, 0));
    high = __ldcs(at.Nibbles(job.p8, 1));
  }
  LaneCodes codes;
  UnpackTopPair({p2, 0}, &codes);
  UnpackSecondPair({p4, 0}, &codes);
  UnpackNibbles({low, 0}, 0, &codes);
  UnpackNibbles({high, 0}, 1, &codes);
  return codes;
}

}  // namespace firn::kernels
