// Codes to FP16 operands of tensor cores, two values a register. A code's bits are put where FP16 has its mantissa and
// nothing else: that is the code times 2^-24, exactly (FP16 is even as far as 2047 such steps), and tensor cores take
// it. So a pair of values costs one AND. Fields that stand higher come as code times a power of two (`Multiple`), which
// who multiplies with them takes back. E4M3 becomes FP16 times 2^-8 by moving its bits; NaN counts as 480.
//
// A word has bytes b0 to b3. Operands pair b0 with b2 (`even`) and b1 with b3 (`odd`).
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace firn::kernels {

enum class Code { kInt2, kInt4, kInt8, kFp8, kRows };  // kRows: FP16 or BF16, not coded.

template <Code kCode>
struct CodeTraits {
  static constexpr bool kNested = kCode == Code::kInt2 || kCode == Code::kInt4 || kCode == Code::kInt8;
  // Runs' bytes of 16 tokens, in units of four bytes a channel.
  static constexpr uint32_t kUnits = kCode == Code::kInt2 ? 1 : kCode == Code::kInt4 ? 2 : 4;
  static constexpr int kQuarters = kNested ? 4 : 1;  // Operand pairs of a word, each even and odd.
  // A value is minimum + step * (kLevel * 2^-24 (or 1) * operand / Multiple + kOffset).
  static constexpr float kLevel = kCode == Code::kInt2   ? 64.0f * 0x1p24f
                                  : kCode == Code::kInt4 ? 16.0f * 0x1p24f
                                  : kCode == Code::kInt8 ? 0x1p24f
                                  : kCode == Code::kFp8  ? 256.0f
                                                         : 1.0f;
  static constexpr float kOffset = kCode == Code::kInt2 ? 24.0f : kCode == Code::kInt8 ? -8.0f : 0.0f;
  // What a quarter's operands are multiplied with already, as powers of two.
  static __host__ __device__ constexpr uint32_t MultipleLog2(uint32_t quarter) {
    return kCode == Code::kInt2 ? 2 * quarter : kCode == Code::kInt4 ? quarter / 2 * 4 : 0;
  }
};

template <Code kCode>
struct Operands {
  uint32_t even[CodeTraits<kCode>::kQuarters], odd[CodeTraits<kCode>::kQuarters];
};

// Bits of `a` where the mask has ones, else of `b`. The compiler would take two instructions.
__device__ __forceinline__ uint32_t Select(uint32_t mask, uint32_t a, uint32_t b) {
  uint32_t to;
  asm("lop3.b32 %0, %1, %2, %3, 0xE4;" : "=r"(to) : "r"(a), "r"(b), "r"(mask));
  return to;
}

// `a` is p2's word or FP8's codes, `b` p4's, `low` and `high` the words of p8 that have quarters 0 and 2, 1 and 3.
template <Code kCode>
__device__ __forceinline__ Operands<kCode> Unpack(uint32_t a, uint32_t b, uint32_t low, uint32_t high) {
  Operands<kCode> to;
  if constexpr (kCode == Code::kFp8) {
    constexpr uint32_t kSigns = 0x80008000u, kRest = 0x3F803F80u;
    to.even[0] = (a << 8 & kSigns) | (a << 7 & kRest);
    to.odd[0] = (a & kSigns) | (a >> 1 & kRest);
  } else if constexpr (kCode == Code::kInt2) {
#pragma unroll
    for (int q = 0; q < 4; ++q)
      to.even[q] = a & (0x00030003u << (2 * q)), to.odd[q] = (a >> 8) & (0x00030003u << (2 * q));
  } else {
    // Nibbles of quarters 0 and 2, of 1 and 3.
    uint32_t outer = Select(0xCCCCCCCCu, a << 2, b), inner = Select(0xCCCCCCCCu, a, b >> 2);
    if constexpr (kCode == Code::kInt4) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        uint32_t field = 0x000F000Fu << (4 * i);
        to.even[2 * i] = outer & field, to.odd[2 * i] = (outer >> 8) & field;
        to.even[2 * i + 1] = inner & field, to.odd[2 * i + 1] = (inner >> 8) & field;
      }
    } else {
      constexpr uint32_t kUpper = 0xF0F0F0F0u;
      const uint32_t bytes[4] = {Select(kUpper, outer << 4, low), Select(kUpper, inner << 4, high),
                                 Select(kUpper, outer, low >> 4), Select(kUpper, inner, high >> 4)};
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        to.even[q] = bytes[q] & 0x00FF00FFu;
        to.odd[q] = __byte_perm(bytes[q], 0, 0x4341);
      }
    }
  }
  return to;
}

// d += a b, 16 x 8 x 16, FP16 in and FP32 out.
__device__ __forceinline__ void Multiply(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                         uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Of an 8 x 8 matrix of halves, two neighbours of row lane / 4 a lane.
__device__ __forceinline__ uint32_t Transposed(uint32_t pair) {
  uint32_t to;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(to) : "r"(pair));
  return to;
}

__device__ __forceinline__ float PowerOfTwo(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace firn::kernels
