// For any shape: a thread block encodes all rows that share scales, and reads values twice, the second time from the
// caches; decoding goes row by row.
#include "kernels/device/code_rows.cuh"
#include "kernels/integer/dispatch.cuh"
#include "kernels/integer/scale.cuh"

namespace firn::kernels {
namespace {

constexpr uint32_t kThreads = 128;

template <typename Meta>
__device__ __forceinline__ Meta* MetaAt(const IntegerLaunch& launch, uint32_t block, uint64_t index) {
  return reinterpret_cast<Meta*>(launch.job.meta_run.At(block, index * sizeof(Meta)));
}

// Where a block's metadata has the scale of a channel of a row, in values.
struct MetaIndex {
  uint64_t minimum, step;

  __device__ __forceinline__ MetaIndex(const IntegerLaunch& launch, const RowAt& at, uint32_t c) {
    const IntegerJob& job = launch.job;
    uint32_t per_group = launch.form.symmetric ? 1 : 2;
    if (job.axis == ScaleAxis::kChannel) {
      uint64_t group = (uint64_t{at.layer} * launch.shape.heads + at.head) * launch.groups + at.token / job.group;
      minimum = group * per_group * launch.shape.width + c;
      step = launch.form.symmetric ? minimum : minimum + launch.shape.width;
      return;
    }
    uint64_t group = at.layer;
    if (job.axis == ScaleAxis::kToken) group = launch.shape.InBlock(at) * launch.groups + c / job.group;
    minimum = group * per_group;
    step = launch.form.symmetric ? minimum : minimum + 1;
  }
};

template <typename Value, typename Meta>
__device__ __forceinline__ IntegerScale LoadScale(const IntegerLaunch& launch, const RowAt& at, uint32_t c) {
  using Traits = MetaTraits<Meta>;
  const IntegerJob& job = launch.job;
  if (job.scales != nullptr) {
    uint32_t head = job.axis == ScaleAxis::kTensor ? 0 : at.head;
    float step = job.scales[at.layer * launch.shape.heads + head];
    return {-0.0f, step, __fdiv_rn(1.0f, step)};
  }
  MetaIndex index(launch, at, c);
  float base = launch.form.symmetric ? -0.0f : Traits::ToFloat(*MetaAt<Meta>(launch, at.block, index.minimum));
  return {base, Traits::ToFloat(*MetaAt<Meta>(launch, at.block, index.step)), 0};
}

template <typename Meta>
__device__ __forceinline__ IntegerScale SettleScale(const IntegerLaunch& launch, const RowAt& at, uint32_t c,
                                                    const OrderedRange& range, uint32_t* found) {
  using Traits = MetaTraits<Meta>;
  float lowest = range.lowest(), highest = range.highest();
  IntegerScale scale = IntegerScaleOf<float, Meta>(lowest, highest, launch.form);
  *found |= range.finite ? IntegerSurveyOf<Meta>(lowest, highest, launch.form) : kSurveyUnfit;
  MetaIndex index(launch, at, c);
  if (!launch.form.symmetric) *MetaAt<Meta>(launch, at.block, index.minimum) = Traits::Nearest(scale.base);
  *MetaAt<Meta>(launch, at.block, index.step) = Traits::Nearest(scale.step);
  return scale;
}

__device__ __forceinline__ void Tell(const IntegerLaunch& launch, uint32_t block, uint32_t found) {
  if (found != 0 && launch.job.survey != nullptr) atomicOr(launch.job.survey + block, found);
}

// Codes of a row by the scales in shared memory, of which `of_channel(c)` is a channel's.
template <typename Value, typename OfChannel>
__device__ __forceinline__ void StoreRow(const IntegerLaunch& launch, const RowAt& at, const float* base,
                                         const float* inverse, const OfChannel& of_channel) {
  const IntegerJob& job = launch.job;
  const Value* row = RowOf<const Value>(job.rows, launch.by_page, at);
  StoreCodeRow(job.codes, at.block, launch.shape.InBlock(at), launch.shape.width, job.bits, [&](uint32_t c) {
    uint32_t s = of_channel(c);
    float value = LoadRowValue(row + c * job.rows.channel_stride);
    return IntegerCodeSum(value, {base[s], 0, inverse[s]}, launch.form) & ((1u << job.bits) - 1);
  });
}

template <typename Value, typename Meta>
__global__ void __launch_bounds__(kThreads) EncodeToken(const __grid_constant__ IntegerLaunch launch) {
  extern __shared__ float memory[];
  const IntegerJob& job = launch.job;
  float *base = memory, *inverse = memory + launch.groups;
  RowAt at = launch.shape.Of(blockIdx.x);
  const Value* row = RowOf<const Value>(job.rows, launch.by_page, at);
  uint32_t found = 0, width = launch.shape.width;
  for (uint32_t g = threadIdx.x; g < launch.groups; g += kThreads) {
    OrderedRange range;
    uint32_t first = g * job.group;
    for (uint32_t c = first; c < min(first + job.group, width); ++c) {
      range.Add(LoadRowValue(row + c * job.rows.channel_stride));
    }
    IntegerScale scale;
    if (job.scales != nullptr) {
      scale = LoadScale<Value, Meta>(launch, at, first);
      if (!range.finite) found |= kSurveyUnfit;
    } else {
      scale = SettleScale<Meta>(launch, at, first, range, &found);
    }
    base[g] = scale.base, inverse[g] = scale.inverse;
  }
  Tell(launch, at.block, found);
  __syncthreads();
  StoreRow<Value>(launch, at, base, inverse, [&](uint32_t c) { return c / job.group; });
}

template <typename Value, typename Meta>
__global__ void __launch_bounds__(kThreads) EncodeChannel(const __grid_constant__ IntegerLaunch launch) {
  extern __shared__ float memory[];
  const IntegerJob& job = launch.job;
  uint32_t width = launch.shape.width;
  float *base = memory, *inverse = memory + width;
  uint32_t head_index = blockIdx.x / launch.groups;
  RowAt at = launch.shape.HeadOf(head_index);
  uint32_t first = (blockIdx.x - head_index * launch.groups) * job.group, found = 0;
  uint32_t end = min(first + job.group, launch.shape.tokens);
  for (uint32_t c = threadIdx.x; c < width; c += kThreads) {
    OrderedRange range;
    for (at.token = first; at.token < end; ++at.token) {
      range.Add(LoadRowValue(RowOf<const Value>(job.rows, launch.by_page, at) + c * job.rows.channel_stride));
    }
    at.token = first;
    IntegerScale scale = SettleScale<Meta>(launch, at, c, range, &found);
    base[c] = scale.base, inverse[c] = scale.inverse;
  }
  Tell(launch, at.block, found);
  __syncthreads();
  for (at.token = first; at.token < end; ++at.token) {
    StoreRow<Value>(launch, at, base, inverse, [](uint32_t c) { return c; });
  }
}

template <typename Value, typename Meta>
__global__ void __launch_bounds__(kThreads) EncodeTensor(const __grid_constant__ IntegerLaunch launch) {
  __shared__ int32_t low, high, finite;
  const IntegerJob& job = launch.job;
  RowAt at{};
  at.block = launch.shape.by_layers.Quotient(blockIdx.x);
  at.layer = blockIdx.x - at.block * launch.shape.layers;
  if (threadIdx.x == 0) low = INT32_MAX, high = INT32_MIN, finite = 1;
  __syncthreads();
  OrderedRange range;
  for (at.head = 0; at.head < launch.shape.heads; ++at.head) {
    for (at.token = 0; at.token < launch.shape.tokens; ++at.token) {
      const Value* row = RowOf<const Value>(job.rows, launch.by_page, at);
      for (uint32_t c = threadIdx.x; c < launch.shape.width; c += kThreads) {
        range.Add(LoadRowValue(row + c * job.rows.channel_stride));
      }
    }
  }
  atomicMin(&low, range.low);
  atomicMax(&high, range.high);
  if (!range.finite) atomicMin(&finite, 0);
  __syncthreads();
  range.low = low, range.high = high, range.finite = finite != 0;
  at.head = at.token = 0;
  uint32_t found = 0;
  IntegerScale scale;
  if (job.scales != nullptr) {
    scale = LoadScale<Value, Meta>(launch, at, 0);
    if (!range.finite) found = kSurveyUnfit;
  } else {
    // Every thread writes the same.
    scale = SettleScale<Meta>(launch, at, 0, range, &found);
  }
  Tell(launch, at.block, found);
  for (at.head = 0; at.head < launch.shape.heads; ++at.head) {
    for (at.token = 0; at.token < launch.shape.tokens; ++at.token) {
      StoreRow<Value>(launch, at, &scale.base, &scale.inverse, [](uint32_t) { return 0; });
    }
  }
}

template <typename Value, typename Meta>
__global__ void __launch_bounds__(kThreads) DecodeRow(const __grid_constant__ IntegerLaunch launch) {
  const IntegerJob& job = launch.job;
  RowAt at = launch.shape.Of(blockIdx.x);
  Value* row = RowOf<Value>(job.rows, launch.by_page, at);
  uint64_t in_block = launch.shape.InBlock(at);
  for (uint32_t c = threadIdx.x; c < launch.shape.width; c += kThreads) {
    IntegerScale scale = LoadScale<Value, Meta>(launch, at, c);
    uint32_t code = LoadCode(job.codes, at.block, in_block, launch.shape.width, job.bits, c);
    float level = static_cast<float>(code) - launch.form.offset;
    StoreSaturated(row + c * job.rows.channel_stride, scale.base + scale.step * level);
  }
}

template <typename Value, typename Meta>
cudaError_t LaunchEncode(const IntegerLaunch& launch, cudaStream_t stream) {
  uint32_t layers = launch.shape.blocks * launch.shape.layers;
  if (launch.job.axis == ScaleAxis::kTensor) {
    return LaunchShared<IntegerLaunch>(EncodeTensor<Value, Meta>, launch, layers, kThreads, 0, stream);
  }
  if (launch.job.axis == ScaleAxis::kChannel) {
    return LaunchShared<IntegerLaunch>(EncodeChannel<Value, Meta>, launch, layers * launch.shape.heads * launch.groups,
                                       kThreads, uint64_t{launch.shape.width} * 2 * sizeof(float), stream);
  }
  return LaunchShared<IntegerLaunch>(EncodeToken<Value, Meta>, launch, launch.shape.rows(), kThreads,
                                     uint64_t{launch.groups} * 2 * sizeof(float), stream);
}

}  // namespace

cudaError_t LaunchEncodeIntegerAny(const IntegerLaunch& launch, cudaStream_t stream) {
  return ForRowsAndMeta(launch.job.values, launch.job.meta,
                        [&]<typename Value, typename Meta>() { return LaunchEncode<Value, Meta>(launch, stream); });
}
cudaError_t LaunchDecodeIntegerAny(const IntegerLaunch& launch, cudaStream_t stream) {
  return ForRowsAndMeta(launch.job.values, launch.job.meta, [&]<typename Value, typename Meta>() {
    return LaunchShared<IntegerLaunch>(DecodeRow<Value, Meta>, launch, launch.shape.rows(), kThreads, 0, stream);
  });
}

}  // namespace firn::kernels
