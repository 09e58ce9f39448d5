// Per token, for rows of any width: one thread block has one row, as FP32 in shared memory.
#include "kernels/device/nested_bytes.cuh"
#include "kernels/device/nested_scale.cuh"
#include "kernels/nested/dispatch.cuh"

namespace firn::kernels {
namespace {

constexpr uint32_t kThreadsMax = 256;

// Groups' minima and what their values are multiplied with, after the row's own values.
struct SharedRow {
  float* values;
  float* minimum;
  float* factor;

  __device__ SharedRow(float* memory, uint32_t width, uint32_t groups)
      : values(memory), minimum(memory + width), factor(minimum + groups) {}
};

__device__ __forceinline__ void Rotate(float* values, uint32_t width, uint32_t size) {
  for (uint32_t stride = 1; stride < size; stride *= 2) {
    __syncthreads();
    for (uint32_t pair = threadIdx.x; pair < width / 2; pair += blockDim.x) {
      uint32_t i = (pair / stride) * 2 * stride + pair % stride;
      float a = values[i], b = values[i + stride];
      values[i] = a + b;
      values[i + stride] = a - b;
    }
  }
  __syncthreads();
}

// One warp a group, lanes along it.
template <typename Value, typename Meta>
__device__ void ScaleGroups(const NestedLaunch& launch, const RowAt& at, uint64_t in_block, const SharedRow& row) {
  using Traits = MetaTraits<Meta>;
  uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  for (uint32_t g = warp; g < launch.groups; g += warps) {
    uint32_t first = g * launch.job.group, last = min(first + launch.job.group, launch.shape.width);
    float lowest = row.values[first], highest = lowest;
    for (uint32_t c = first + lane; c < last; c += 32) {
      lowest = MinOrNan(lowest, row.values[c]);
      highest = fmaxf(highest, row.values[c]);
    }
    for (int apart = 16; apart > 0; apart /= 2) {
      lowest = MinOrNan(lowest, __shfl_xor_sync(0xFFFFFFFFu, lowest, apart));
      highest = fmaxf(highest, __shfl_xor_sync(0xFFFFFFFFu, highest, apart));
    }
    if (lane != 0) continue;
    lowest = lowest + 0.0f, highest = highest + 0.0f;
    uint32_t found = SurveyOf<Meta>(lowest, highest, launch.rotation);
    if (launch.job.survey != nullptr && found != 0) atomicOr(launch.job.survey + at.block, found);
    GroupScale scale = ScaleOf<Meta>(lowest, highest);
    uint64_t offset = (in_block * launch.groups + g) * 2 * sizeof(Meta);
    Meta* to = reinterpret_cast<Meta*>(launch.job.meta_run.At(at.block, offset));
    to[0] = Traits::Nearest(scale.minimum);
    to[1] = Traits::Nearest(scale.step);
    row.minimum[g] = scale.minimum;
    row.factor[g] = scale.inverse;
  }
}

template <typename Value, typename Meta>
__global__ void __launch_bounds__(kThreadsMax) EncodeToken(const __grid_constant__ NestedLaunch launch) {
  extern __shared__ float memory[];
  const NestedJob& job = launch.job;
  uint32_t width = launch.shape.width;
  SharedRow row(memory, width, launch.groups);
  RowAt at = launch.shape.Of(blockIdx.x);
  uint64_t in_block = launch.shape.InBlock(at);
  const Value* source = RowOf<const Value>(job.rows, launch.by_page, at);
  uint64_t channels = (uint64_t{at.layer} * launch.shape.heads + at.head) * width;
  for (uint32_t c = threadIdx.x; c < width; c += blockDim.x) {
    float value = ValueTraits<Value>::ToFloat(source[c * job.rows.channel_stride]);
    if (job.transform.mean != nullptr) {
      value = (value - job.transform.mean[channels + c]) * job.transform.encode_scale[channels + c];
    } else {
      value *= job.transform.uniform_scale;
    }
    row.values[c] = value;
  }
  __syncthreads();
  Rotate(row.values, width, launch.rotation);
  ScaleGroups<Value, Meta>(launch, at, in_block, row);
  __syncthreads();

  StoreRowBytes(job, at.block, in_block, [&](uint32_t c) {
    uint32_t g = c / job.group;
    return CodeBits(row.values[c], row.minimum[g], row.factor[g]);
  });
}

template <typename Value, typename Meta>
__global__ void __launch_bounds__(kThreadsMax) DecodeToken(const __grid_constant__ NestedLaunch launch) {
  extern __shared__ float memory[];
  using Traits = MetaTraits<Meta>;
  const NestedJob& job = launch.job;
  uint32_t width = launch.shape.width;
  RowAt at = launch.shape.Of(blockIdx.x);
  uint64_t in_block = launch.shape.InBlock(at);
  for (uint32_t c = threadIdx.x; c < width; c += blockDim.x) {
    uint32_t g = c / job.group;
    const Meta* meta =
        reinterpret_cast<const Meta*>(job.meta_run.At(at.block, (in_block * launch.groups + g) * 2 * sizeof(Meta)));
    memory[c] = Traits::ToFloat(meta[0]) + Traits::ToFloat(meta[1]) * LoadLevel(job, at.block, in_block, c);
  }
  __syncthreads();
  Rotate(memory, width, launch.rotation);
  Value* target = RowOf<Value>(job.rows, launch.by_page, at);
  uint64_t channels = (uint64_t{at.layer} * launch.shape.heads + at.head) * width;
  for (uint32_t c = threadIdx.x; c < width; c += blockDim.x) {
    float value = memory[c];
    if (job.transform.mean != nullptr) {
      value = value * job.transform.decode_scale[channels + c] + job.transform.mean[channels + c];
    } else {
      value *= job.transform.uniform_scale;
    }
    uint32_t pair = ValueTraits<Value>::ToSaturatedPair(value, 0.0f);
    target[c * job.rows.channel_stride] = *reinterpret_cast<const Value*>(&pair);
  }
}

template <bool kEncode>
cudaError_t Launch(const NestedLaunch& launch, cudaStream_t stream) {
  uint64_t shared_bytes = (uint64_t{launch.shape.width} + (kEncode ? 2 * launch.groups : 0)) * sizeof(float);
  uint32_t threads = 32;
  while (threads < kThreadsMax && threads * 4 < launch.shape.width) threads *= 2;
  return ForMeta(launch.job, [&]<typename Value, typename Meta>() {
    auto* kernel = kEncode ? EncodeToken<Value, Meta> : DecodeToken<Value, Meta>;
    return LaunchShared<NestedLaunch>(kernel, launch, launch.shape.rows(), threads, shared_bytes, stream);
  });
}

}  // namespace

cudaError_t LaunchEncodeTokenAny(const NestedLaunch& launch, cudaStream_t stream) {
  return Launch<true>(launch, stream);
}
cudaError_t LaunchDecodeTokenAny(const NestedLaunch& launch, cudaStream_t stream) {
  return Launch<false>(launch, stream);
}

}  // namespace firn::kernels
