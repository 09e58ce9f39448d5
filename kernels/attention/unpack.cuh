// Planes to FP16 operands of tensor cores, two values a register, without conversions: a code's bits become the
// mantissa of a number from 1024 on, and 1024 is taken off again. Codes of quarter q of a row stand 2q bits up, so they
// come as code * 4^q; who multiplies with them takes that back.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace firn::kernels {

__device__ __forceinline__ uint32_t LessThousand(uint32_t pair) {
  __half2 value = __hsub2(*reinterpret_cast<const __half2*>(&pair), __half2half2(__ushort_as_half(0x6400)));
  return *reinterpret_cast<const uint32_t*>(&value);
}

// Of a word, or two of p2 and p4, whose halves have a byte each in their low eight bits.
template <bool kFourBits>
__device__ __forceinline__ uint32_t PairOfQuarter(uint32_t p2, uint32_t p4, int q) {
  constexpr uint32_t kThousand = 0x64006400u, kField = 0x00030003u;
  if constexpr (!kFourBits) return LessThousand((p2 & kField << (2 * q)) | kThousand);
  uint32_t low = (p4 & kField << (2 * q)) | kThousand;
  return LessThousand((p2 << 2 & kField << (2 * q + 2)) | low);
}

// d += a b, 16 x 8 x 16, FP16 in and FP32 out.
__device__ __forceinline__ void Multiply(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                         uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

}  // namespace firn::kernels
