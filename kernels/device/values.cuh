// FP16 and BF16 values, eight to a 16-byte access, and what their types need that FP32 arithmetic does not.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace firn::kernels {

template <typename Value>
struct ValueTraits;

template <>
struct ValueTraits<__half> {
  using Pair = __half2;
  static constexpr float kStepMin = 0x1p-14f;
  static constexpr float kLargest = 65504.0f;
  static constexpr float kMagnitudeMax = 65504.0f;  // Of what metadata may hold.
  static __device__ __forceinline__ float2 ToFloats(uint32_t bits) {
    return __half22float2(*reinterpret_cast<const __half2*>(&bits));
  }
  static __device__ __forceinline__ float ToFloat(__half v) { return __half2float(v); }
  static __device__ __forceinline__ __half Nearest(float v) { return __float2half_rn(v); }
  static __device__ __forceinline__ __half Down(float v) { return __float2half_rd(v); }
  static __device__ __forceinline__ __half Up(float v) { return __float2half_ru(v); }
  // Nearest, and at most the largest finite value.
  static __device__ __forceinline__ uint32_t ToSaturatedPair(float a, float b) {
    uint32_t pair;
    asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
    return pair;
  }
};

template <>
struct ValueTraits<__nv_bfloat16> {
  using Pair = __nv_bfloat162;
  static constexpr float kStepMin = 0x1p-126f;
  static constexpr float kLargest = 0x1.FEp127f;
  static constexpr float kMagnitudeMax = 3.3e38f;
  static __device__ __forceinline__ float2 ToFloats(uint32_t bits) {
    return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xFFFF0000u)};
  }
  static __device__ __forceinline__ float ToFloat(__nv_bfloat16 v) { return __bfloat162float(v); }
  static __device__ __forceinline__ __nv_bfloat16 Nearest(float v) { return __float2bfloat16_rn(v); }
  static __device__ __forceinline__ __nv_bfloat16 Down(float v) { return __float2bfloat16_rd(v); }
  static __device__ __forceinline__ __nv_bfloat16 Up(float v) { return __float2bfloat16_ru(v); }
  static __device__ __forceinline__ uint32_t ToSaturatedPair(float a, float b) {
    uint32_t pair;
    asm("cvt.rn.satfinite.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(b), "f"(a));
    return pair;
  }
};

// Of two pairs each; -0 is below +0, and NaN stays.
template <typename Value>
__device__ __forceinline__ uint32_t MinPair(uint32_t a, uint32_t b) {
  using Pair = typename ValueTraits<Value>::Pair;
  Pair least = __hmin2_nan(*reinterpret_cast<const Pair*>(&a), *reinterpret_cast<const Pair*>(&b));
  return *reinterpret_cast<const uint32_t*>(&least);
}
template <typename Value>
__device__ __forceinline__ uint32_t MaxPair(uint32_t a, uint32_t b) {
  using Pair = typename ValueTraits<Value>::Pair;
  Pair most = __hmax2_nan(*reinterpret_cast<const Pair*>(&a), *reinterpret_cast<const Pair*>(&b));
  return *reinterpret_cast<const uint32_t*>(&most);
}

// Values are read and written once: they need no room in the caches.
__device__ __forceinline__ uint4 LoadOnce(const void* at) { return __ldcs(static_cast<const uint4*>(at)); }
__device__ __forceinline__ uint2 LoadOnce8(const void* at) { return __ldcs(static_cast<const uint2*>(at)); }
__device__ __forceinline__ void StoreOnce(void* at, uint4 bits) { __stcs(static_cast<uint4*>(at), bits); }
__device__ __forceinline__ void StoreOnce8(void* at, uint2 bits) { __stcs(static_cast<uint2*>(at), bits); }

template <typename Value>
__device__ __forceinline__ void ToFloats8(uint4 bits, float* out) {
  float2 a = ValueTraits<Value>::ToFloats(bits.x), b = ValueTraits<Value>::ToFloats(bits.y);
  float2 c = ValueTraits<Value>::ToFloats(bits.z), d = ValueTraits<Value>::ToFloats(bits.w);
  out[0] = a.x, out[1] = a.y, out[2] = b.x, out[3] = b.y;
  out[4] = c.x, out[5] = c.y, out[6] = d.x, out[7] = d.y;
}
template <typename Value>
__device__ __forceinline__ uint4 ToSaturated8(const float* v) {
  using Traits = ValueTraits<Value>;
  return {Traits::ToSaturatedPair(v[0], v[1]), Traits::ToSaturatedPair(v[2], v[3]), Traits::ToSaturatedPair(v[4], v[5]),
          Traits::ToSaturatedPair(v[6], v[7])};
}

// Two 2-byte values as they lie in memory, `a` first.
template <typename Value>
__device__ __forceinline__ uint32_t PairBits(Value a, Value b) {
  return *reinterpret_cast<const uint16_t*>(&a) | uint32_t{*reinterpret_cast<const uint16_t*>(&b)} << 16;
}

__device__ __forceinline__ float MinOrNan(float a, float b) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}

}  // namespace firn::kernels
