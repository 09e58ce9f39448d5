// For rows that have been conditioned, and scales of a layer or of groups of channels: a thread block encodes all that
// shares a scale, or a row of groups, and reads values twice, the second time from the caches; decoding goes row by
// row.
#include "kernels/device/code_rows.cuh"
#include "kernels/device/launching.cuh"
#include "kernels/fp8/format.cuh"

namespace firn::kernels {
namespace {

constexpr uint32_t kThreads = 128;

// Codes of a row, of which `inverse_of(c)` is a channel's.
template <typename Value, bool kE5m2, typename InverseOf>
__device__ __forceinline__ void StoreRow(const Fp8Launch& launch, const RowAt& at, const InverseOf& inverse_of) {
  const RowsView& rows = launch.job.rows;
  const Value* row = RowOf<const Value>(rows, launch.by_page, at);
  uint64_t first = launch.shape.InBlock(at) * launch.shape.width;
  for (uint32_t c = threadIdx.x; c < launch.shape.width; c += kThreads) {
    float value = LoadRowValue(row + c * rows.channel_stride);
    *launch.job.codes.At(at.block, first + c) = static_cast<uint8_t>(Fp8CodePair<kE5m2>(value, 0, inverse_of(c)));
  }
}

template <typename Value, bool kE5m2>
__global__ void __launch_bounds__(kThreads) EncodeGroups(const __grid_constant__ Fp8Launch launch) {
  extern __shared__ float inverse[];
  const Fp8Job& job = launch.job;
  RowAt at = launch.shape.Of(blockIdx.x);
  const Value* row = RowOf<const Value>(job.rows, launch.by_page, at);
  uint32_t width = launch.shape.width;
  bool finite = true;
  for (uint32_t g = threadIdx.x; g < launch.groups; g += kThreads) {
    float magnitude = 0;
    for (uint32_t c = g * job.group; c < min((g + 1) * job.group, width); ++c) {
      float value = fabsf(LoadRowValue(row + c * job.rows.channel_stride));
      finite &= isfinite(value);
      magnitude = fmaxf(magnitude, value);
    }
    float scale = Fp8ScaleOf<kE5m2>(magnitude);
    *Fp8ScaleAt(launch, at.block, launch.shape.InBlock(at) * launch.groups + g) = scale;
    inverse[g] = __fdiv_rn(1.0f, scale);
  }
  TellUnfit(launch, at.block, !finite);
  __syncthreads();
  StoreRow<Value, kE5m2>(launch, at, [&](uint32_t c) { return inverse[c / job.group]; });
}

// Heads, or layers.
template <typename Value, bool kE5m2>
__global__ void __launch_bounds__(kThreads) EncodeShared(const __grid_constant__ Fp8Launch launch) {
  __shared__ uint32_t largest;
  const Fp8Job& job = launch.job;
  const BatchShape& shape = launch.shape;
  RowAt at{};
  uint32_t heads = 1;
  if (job.per_layer) {
    at.block = shape.by_layers.Quotient(blockIdx.x);
    at.layer = blockIdx.x - at.block * shape.layers;
    heads = shape.heads;
  } else {
    at = shape.HeadOf(blockIdx.x);
  }
  const uint32_t first = at.head;
  if (threadIdx.x == 0) largest = 0;
  __syncthreads();
  uint32_t own = 0;  // Magnitudes as integers order as they do, and NaN comes after Inf.
  for (at.head = first; at.head < first + heads; ++at.head) {
    for (at.token = 0; at.token < shape.tokens; ++at.token) {
      const Value* row = RowOf<const Value>(job.rows, launch.by_page, at);
      for (uint32_t c = threadIdx.x; c < shape.width; c += kThreads) {
        own = max(own, __float_as_uint(LoadRowValue(row + c * job.rows.channel_stride)) & 0x7FFFFFFFu);
      }
    }
  }
  atomicMax(&largest, own);
  __syncthreads();
  float magnitude = __uint_as_float(largest);
  uint64_t index = job.per_layer ? at.layer : uint64_t{at.layer} * shape.heads + first;
  float scale = job.scales != nullptr ? job.scales[index] : Fp8ScaleOf<kE5m2>(magnitude);
  if (threadIdx.x == 0) {
    if (job.scales == nullptr) *Fp8ScaleAt(launch, at.block, index) = scale;
    TellUnfit(launch, at.block, !isfinite(magnitude));
  }
  float inverse = __fdiv_rn(1.0f, scale);
  for (at.head = first; at.head < first + heads; ++at.head) {
    for (at.token = 0; at.token < shape.tokens; ++at.token) {
      StoreRow<Value, kE5m2>(launch, at, [&](uint32_t) { return inverse; });
    }
  }
}

template <typename Value, bool kE5m2>
__global__ void __launch_bounds__(kThreads) DecodeRow(const __grid_constant__ Fp8Launch launch) {
  const Fp8Job& job = launch.job;
  RowAt at = launch.shape.Of(blockIdx.x);
  Value* row = RowOf<Value>(job.rows, launch.by_page, at);
  uint64_t in_block = launch.shape.InBlock(at), head = uint64_t{at.layer} * launch.shape.heads + at.head;
  for (uint32_t c = threadIdx.x; c < launch.shape.width; c += kThreads) {
    uint64_t index = job.group != 0 ? in_block * launch.groups + c / job.group : job.per_layer ? at.layer : head;
    float scale = job.scales != nullptr ? job.scales[index] : *Fp8ScaleAt(launch, at.block, index);
    uint32_t code = *job.codes.At(at.block, in_block * launch.shape.width + c);
    row[c * job.rows.channel_stride] = Fp8Rounded<Value>(Fp8Floats<kE5m2>(code).x * scale);
  }
}

// f<Value, kE5m2>()
template <typename F>
cudaError_t ForCodes(const Fp8Job& job, const F& f) {
  auto for_values = [&]<typename Value>() {
    return job.e5m2 ? f.template operator()<Value, true>() : f.template operator()<Value, false>();
  };
  return job.values == DType::kFp32 ? for_values.template operator()<float>() : ForValue(job.values, for_values);
}

}  // namespace

cudaError_t LaunchEncodeFp8Any(const Fp8Launch& launch, cudaStream_t stream) {
  return ForCodes(launch.job, [&]<typename Value, bool kE5m2>() {
    if (launch.job.group != 0) {
      return LaunchShared<Fp8Launch>(EncodeGroups<Value, kE5m2>, launch, launch.shape.rows(), kThreads,
                                     uint64_t{launch.groups} * sizeof(float), stream);
    }
    uint32_t layers = launch.shape.blocks * launch.shape.layers;
    return LaunchShared<Fp8Launch>(EncodeShared<Value, kE5m2>, launch,
                                   launch.job.per_layer ? layers : layers * launch.shape.heads, kThreads, 0, stream);
  });
}
cudaError_t LaunchDecodeFp8Any(const Fp8Launch& launch, cudaStream_t stream) {
  return ForCodes(launch.job, [&]<typename Value, bool kE5m2>() {
    return LaunchShared<Fp8Launch>(DecodeRow<Value, kE5m2>, launch, launch.shape.rows(), kThreads, 0, stream);
  });
}

}  // namespace firn::kernels
