// Per channel, for rows of any width and groups of any length: one thread block has one group of one head and reads its
// values twice, the second time from the caches.
#include "kernels/device/nested_scale.cuh"
#include "kernels/nested/launch.h"

namespace firn::kernels {
namespace {

constexpr uint32_t kThreads = 128;

struct GroupAt {
  RowAt head;
  uint32_t first, count;
  uint64_t meta_offset;  // In values.

  __device__ explicit GroupAt(const NestedLaunch& launch) {
    uint32_t head_index = blockIdx.x / launch.groups, group = blockIdx.x - head_index * launch.groups;
    head = launch.shape.HeadOf(head_index);
    first = group * launch.job.group;
    count = min(static_cast<uint32_t>(launch.job.group), launch.shape.tokens - first);
    uint64_t before = (uint64_t{head.layer} * launch.shape.heads + head.head) * launch.groups + group;
    meta_offset = before * 2 * launch.shape.width;
  }
  __device__ RowAt Row(uint32_t token) const { return {head.block, head.layer, head.head, first + token}; }
};

// A number that orders all finite values and the two zeros: -0 comes just before +0.
__device__ __forceinline__ int32_t TotalOrder(float value) {
  int32_t bits = __float_as_int(value);
  return bits ^ static_cast<int32_t>(static_cast<uint32_t>(bits >> 31) >> 1);
}
__device__ __forceinline__ float FromTotalOrder(int32_t order) {
  return __int_as_float(order ^ static_cast<int32_t>(static_cast<uint32_t>(order >> 31) >> 1));
}

template <typename Value, typename Meta>
__global__ void __launch_bounds__(kThreads) EncodeChannel(const __grid_constant__ NestedLaunch launch) {
  extern __shared__ float memory[];
  using Traits = MetaTraits<Meta>;
  const NestedJob& job = launch.job;
  uint32_t width = launch.shape.width;
  float *minimum = memory, *inverse = memory + width;
  GroupAt own(launch);
  uint32_t found = 0;
  for (uint32_t c = threadIdx.x; c < width; c += kThreads) {
    int32_t low = INT32_MAX, high = INT32_MIN;
    bool finite = true;
    for (uint32_t t = 0; t < own.count; ++t) {
      const Value* row = RowOf<const Value>(job.rows, launch.by_page, own.Row(t));
      float value = ValueTraits<Value>::ToFloat(row[c * job.rows.channel_stride]);
      finite &= isfinite(value);
      int32_t order = TotalOrder(value);
      low = min(low, order), high = max(high, order);
    }
    float lowest = FromTotalOrder(low), highest = FromTotalOrder(high);
    found |= finite ? SurveyOf<Meta>(lowest, highest, 1) : kSurveyUnfit;
    GroupScale scale = ScaleOf<Meta>(lowest, highest);
    *reinterpret_cast<Meta*>(job.meta_run.At(own.head.block, (own.meta_offset + c) * sizeof(Meta))) =
        Traits::Nearest(scale.minimum);
    *reinterpret_cast<Meta*>(job.meta_run.At(own.head.block, (own.meta_offset + width + c) * sizeof(Meta))) =
        Traits::Nearest(scale.step);
    minimum[c] = scale.minimum;
    inverse[c] = scale.inverse;
  }
  if (job.survey != nullptr && found != 0) atomicOr(job.survey + own.head.block, found);
  __syncthreads();

  uint32_t pair_bytes = (width + 3) / 4, nibble_bytes = (width + 1) / 2;
  for (uint32_t t = 0; t < own.count; ++t) {
    RowAt at = own.Row(t);
    const Value* row = RowOf<const Value>(job.rows, launch.by_page, at);
    uint64_t in_block = launch.shape.InBlock(at);
    auto code = [&](uint32_t c) -> uint32_t {
      if (c >= width) return 0;
      float value = ValueTraits<Value>::ToFloat(row[c * job.rows.channel_stride]);
      return CodeBits(value, minimum[c], inverse[c]) & 0xFFu;
    };
    for (uint32_t i = threadIdx.x; i < pair_bytes; i += kThreads) {
      uint32_t a = code(i), b = code(i + pair_bytes), c = code(i + 2 * pair_bytes), d = code(i + 3 * pair_bytes);
      if (job.p2.present()) {
        *job.p2.At(at.block, in_block * pair_bytes + i) =
            static_cast<uint8_t>(a >> 6 | (b >> 6) << 2 | (c >> 6) << 4 | (d >> 6) << 6);
      }
      if (job.p4.present()) {
        *job.p4.At(at.block, in_block * pair_bytes + i) =
            static_cast<uint8_t>((a >> 4 & 3) | (b >> 4 & 3) << 2 | (c >> 4 & 3) << 4 | (d >> 4 & 3) << 6);
      }
    }
    if (!job.p8.present()) continue;
    for (uint32_t i = threadIdx.x; i < nibble_bytes; i += kThreads) {
      *job.p8.At(at.block, in_block * nibble_bytes + i) =
          static_cast<uint8_t>((code(i) & 15u) | (code(i + nibble_bytes) & 15u) << 4);
    }
  }
}

template <typename Value, typename Meta>
__global__ void __launch_bounds__(kThreads) DecodeChannel(const __grid_constant__ NestedLaunch launch) {
  using Traits = MetaTraits<Meta>;
  const NestedJob& job = launch.job;
  uint32_t width = launch.shape.width;
  uint32_t pair_bytes = (width + 3) / 4, nibble_bytes = (width + 1) / 2;
  GroupAt own(launch);
  for (uint32_t c = threadIdx.x; c < width; c += kThreads) {
    uint32_t byte = c % pair_bytes, shift = 2 * (c / pair_bytes);
    float minimum = Traits::ToFloat(
        *reinterpret_cast<const Meta*>(job.meta_run.At(own.head.block, (own.meta_offset + c) * sizeof(Meta))));
    float step = Traits::ToFloat(
        *reinterpret_cast<const Meta*>(job.meta_run.At(own.head.block, (own.meta_offset + width + c) * sizeof(Meta))));
    for (uint32_t t = 0; t < own.count; ++t) {
      RowAt at = own.Row(t);
      uint64_t in_block = launch.shape.InBlock(at);
      uint32_t level = (*job.p2.At(at.block, in_block * pair_bytes + byte) >> shift & 3u) << 6;
      if (job.precision == PrecisionClass::k2Bit) level += 24;
      if (job.precision >= PrecisionClass::k4Bit) {
        level |= (*job.p4.At(at.block, in_block * pair_bytes + byte) >> shift & 3u) << 4;
      }
      if (job.precision >= PrecisionClass::k8Bit) {
        uint32_t nibbles = *job.p8.At(at.block, in_block * nibble_bytes + (c < nibble_bytes ? c : c - nibble_bytes));
        level = ((level | (c < nibble_bytes ? nibbles & 15u : nibbles >> 4)) - 8u) & 0xFFu;
      }
      uint32_t pair = ValueTraits<Value>::ToSaturatedPair(minimum + step * static_cast<float>(level), 0.0f);
      RowOf<Value>(job.rows, launch.by_page, at)[c * job.rows.channel_stride] = *reinterpret_cast<const Value*>(&pair);
    }
  }
}

template <bool kEncode, typename Value, typename Meta>
cudaError_t LaunchTyped(const NestedLaunch& launch, cudaStream_t stream) {
  uint64_t memory_bytes = kEncode ? uint64_t{launch.shape.width} * 2 * sizeof(float) : 0;
  auto* kernel = kEncode ? EncodeChannel<Value, Meta> : DecodeChannel<Value, Meta>;
  constexpr uint64_t kWithoutAsking = 48 * 1024;
  if (memory_bytes > kWithoutAsking) {
    cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(memory_bytes));
    if (error != cudaSuccess) return error;
  }
  uint32_t blocks = launch.shape.blocks * launch.shape.layers * launch.shape.heads * launch.groups;
  kernel<<<blocks, kThreads, memory_bytes, stream>>>(launch);
  return cudaGetLastError();
}

template <bool kEncode>
cudaError_t LaunchAny(const NestedLaunch& launch, cudaStream_t stream) {
  bool wide = launch.job.meta == MetaType::kFp32;
  if (launch.job.values == DType::kFp16) {
    return wide ? LaunchTyped<kEncode, __half, float>(launch, stream)
                : LaunchTyped<kEncode, __half, __half>(launch, stream);
  }
  return wide ? LaunchTyped<kEncode, __nv_bfloat16, float>(launch, stream)
              : LaunchTyped<kEncode, __nv_bfloat16, __nv_bfloat16>(launch, stream);
}

}  // namespace

cudaError_t LaunchEncodeChannelAny(const NestedLaunch& launch, cudaStream_t stream) {
  return LaunchAny<true>(launch, stream);
}
cudaError_t LaunchDecodeChannelAny(const NestedLaunch& launch, cudaStream_t stream) {
  return LaunchAny<false>(launch, stream);
}

}  // namespace firn::kernels
