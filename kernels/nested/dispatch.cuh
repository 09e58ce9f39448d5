// From what is known at launch to template arguments, and launches that ask for shared memory. Host code.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/nested/launch.h"

namespace firn::kernels {

// f<Value>()
template <typename F>
cudaError_t ForValue(DType values, const F& f) {
  return values == DType::kFp16 ? f.template operator()<__half>() : f.template operator()<__nv_bfloat16>();
}

// f<Value, Meta>()
template <typename F>
cudaError_t ForMeta(const NestedJob& job, const F& f) {
  return ForValue(job.values, [&]<typename Value>() {
    return job.meta == MetaType::kFp32 ? f.template operator()<Value, float>() : f.template operator()<Value, Value>();
  });
}

// f<Value, kLanes, kPlaces>(), for the widths that have lanes.
template <typename F>
cudaError_t ForFast(const NestedLaunch& launch, const FastShape& fast, const F& f) {
  auto for_lanes = [&]<typename Value, int kLanes>() {
    if (launch.places == Places::kLinear) return f.template operator()<Value, kLanes, Places::kLinear>();
    if (launch.places == Places::kAnyRows) return f.template operator()<Value, kLanes, Places::kAnyRows>();
    return f.template operator()<Value, kLanes, Places::kAny>();
  };
  return ForValue(launch.job.values, [&]<typename Value>() {
    if (fast.lanes == 2) return for_lanes.template operator()<Value, 2>();
    if (fast.lanes == 4) return for_lanes.template operator()<Value, 4>();
    return for_lanes.template operator()<Value, 8>();
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
