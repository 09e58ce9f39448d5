// Per channel, for rows of any width and groups of any length: one thread block has one group of one head and reads its
// values twice, the second time from the caches.
#include "kernels/device/channel_group.cuh"
#include "kernels/device/nested_bytes.cuh"
#include "kernels/device/nested_scale.cuh"
#include "kernels/nested/dispatch.cuh"

namespace firn::kernels {
namespace {

constexpr uint32_t kThreads = 128;

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
  ChannelGroup own(launch);
  uint32_t found = 0;
  for (uint32_t c = threadIdx.x; c < width; c += kThreads) {
    int32_t low = INT32_MAX, high = INT32_MIN;
    bool finite = true;
    for (uint32_t t = 0; t < own.count; ++t) {
      const Value* row = own.Row<const Value>(launch, t);
      float value = ValueTraits<Value>::ToFloat(row[c * job.rows.channel_stride]);
      finite &= isfinite(value);
      int32_t order = TotalOrder(value);
      low = min(low, order), high = max(high, order);
    }
    float lowest = FromTotalOrder(low), highest = FromTotalOrder(high);
    found |= finite ? SurveyOf<Meta>(lowest, highest, 1) : kSurveyUnfit;
    GroupScale scale = ScaleOf<Meta>(lowest, highest);
    *own.MetaAt<Meta>(launch, c) = Traits::Nearest(scale.minimum);
    *own.MetaAt<Meta>(launch, width + c) = Traits::Nearest(scale.step);
    minimum[c] = scale.minimum;
    inverse[c] = scale.inverse;
  }
  if (job.survey != nullptr && found != 0) atomicOr(job.survey + own.head.block, found);
  __syncthreads();

  for (uint32_t t = 0; t < own.count; ++t) {
    const Value* row = own.Row<const Value>(launch, t);
    StoreRowBytes(job, own.head.block, own.InBlock(launch, t), [&](uint32_t c) {
      float value = ValueTraits<Value>::ToFloat(row[c * job.rows.channel_stride]);
      return CodeBits(value, minimum[c], inverse[c]);
    });
  }
}

template <typename Value, typename Meta>
__global__ void __launch_bounds__(kThreads) DecodeChannel(const __grid_constant__ NestedLaunch launch) {
  using Traits = MetaTraits<Meta>;
  const NestedJob& job = launch.job;
  uint32_t width = launch.shape.width;
  ChannelGroup own(launch);
  for (uint32_t c = threadIdx.x; c < width; c += kThreads) {
    float minimum = Traits::ToFloat(*own.MetaAt<const Meta>(launch, c));
    float step = Traits::ToFloat(*own.MetaAt<const Meta>(launch, width + c));
    for (uint32_t t = 0; t < own.count; ++t) {
      float value = minimum + step * LoadLevel(job, own.head.block, own.InBlock(launch, t), c);
      uint32_t pair = ValueTraits<Value>::ToSaturatedPair(value, 0.0f);
      own.Row<Value>(launch, t)[c * job.rows.channel_stride] = *reinterpret_cast<const Value*>(&pair);
    }
  }
}

template <bool kEncode>
cudaError_t Launch(const NestedLaunch& launch, cudaStream_t stream) {
  uint64_t shared_bytes = kEncode ? uint64_t{launch.shape.width} * 2 * sizeof(float) : 0;
  uint32_t blocks = launch.shape.blocks * launch.shape.layers * launch.shape.heads * launch.groups;
  return ForMeta(launch.job, [&]<typename Value, typename Meta>() {
    auto* kernel = kEncode ? EncodeChannel<Value, Meta> : DecodeChannel<Value, Meta>;
    return LaunchShared<NestedLaunch>(kernel, launch, blocks, kThreads, shared_bytes, stream);
  });
}

}  // namespace

cudaError_t LaunchEncodeChannelAny(const NestedLaunch& launch, cudaStream_t stream) {
  return Launch<true>(launch, stream);
}
cudaError_t LaunchDecodeChannelAny(const NestedLaunch& launch, cudaStream_t stream) {
  return Launch<false>(launch, stream);
}

}  // namespace firn::kernels
