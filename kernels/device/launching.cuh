// From what is known at launch to template arguments, and launches that ask for shared memory. Host code.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "codecs/types.h"

namespace firn::kernels {

// f<Value>(), for FP16 and BF16.
template <typename F>
cudaError_t ForValue(DType values, const F& f) {
  return values == DType::kFp16 ? f.template operator()<__half>() : f.template operator()<__nv_bfloat16>();
}

// f<Value, Meta>(): FP16 and BF16 with metadata of their own type or FP32, FP32 with any.
template <typename F>
cudaError_t ForRowsAndMeta(DType values, MetaType meta, const F& f) {
  if (values == DType::kFp32) {
    if (meta == MetaType::kFp16) return f.template operator()<float, __half>();
    return meta == MetaType::kBf16 ? f.template operator()<float, __nv_bfloat16>()
                                   : f.template operator()<float, float>();
  }
  return ForValue(values, [&]<typename Value>() {
    return meta == MetaType::kFp32 ? f.template operator()<Value, float>() : f.template operator()<Value, Value>();
  });
}

template <typename Launch>
cudaError_t LaunchShared(void (*kernel)(Launch), const Launch& launch, uint32_t blocks, uint32_t threads,
                         uint64_t shared_bytes, cudaStream_t stream) {
  constexpr uint64_t kWithoutAsking = 48 * 1024;
  if (shared_bytes > kWithoutAsking) {
    cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return error;
  }
  kernel<<<blocks, threads, shared_bytes, stream>>>(launch);
  return cudaGetLastError();
}

}  // namespace firn::kernels
