// Per channel, for widths that are multiples of 16: one thread block has one group of one head in shared memory, as it
// came or as it leaves.
#include "kernels/device/nested_planes.cuh"
#include "kernels/device/nested_scale.cuh"
#include "kernels/nested/launch.h"

namespace firn::kernels {
namespace {

constexpr uint32_t kThreads = 128;

struct TileLaunch {
  NestedLaunch nested;
  FastDivisor by_chunks, by_words;  // Eight values of a row; four bytes of p2.
};

struct Group {
  const NestedLaunch& launch;
  RowAt head;
  uint32_t first, count, width;
  uint32_t meta_offset;  // In values.

  __device__ explicit Group(const NestedLaunch& of) : launch(of), width(of.shape.width) {
    uint32_t head_index = blockIdx.x / of.groups, group = blockIdx.x - head_index * of.groups;
    head = of.shape.HeadOf(head_index);
    first = group * of.job.group;
    count = min(static_cast<uint32_t>(of.job.group), of.shape.tokens - first);
    meta_offset = ((head.layer * of.shape.heads + head.head) * of.groups + group) * 2 * width;
  }
  template <typename Value>
  __device__ Value* Row(uint32_t token) const {
    RowAt at{head.block, head.layer, head.head, first + token};
    return RowOf<Value>(launch.job.rows, launch.by_page, at);
  }
  __device__ uint32_t InBlock(uint32_t token) const {
    return (head.layer * launch.shape.heads + head.head) * launch.shape.tokens + first + token;
  }
  // Four bytes of p2 or p4, and of p8 of quarters `low` and `low` + 2.
  __device__ uint32_t* Pairs(const RunView& run, uint32_t token, uint32_t byte) const {
    return reinterpret_cast<uint32_t*>(run.At(head.block, InBlock(token) * (width / 4) + byte));
  }
  __device__ uint32_t* Nibbles(const RunView& run, uint32_t token, uint32_t low, uint32_t byte) const {
    return reinterpret_cast<uint32_t*>(run.At(head.block, InBlock(token) * (width / 2) + low * (width / 4) + byte));
  }
  template <typename Value>
  __device__ Value* Meta(uint32_t index) const {
    return reinterpret_cast<Value*>(launch.job.meta_run.At(head.block, (meta_offset + index) * sizeof(Value)));
  }
};

template <typename Value>
__global__ void __launch_bounds__(kThreads) EncodeChannel(const __grid_constant__ TileLaunch launch) {
  using Traits = ValueTraits<Value>;
  extern __shared__ __align__(16) uint8_t memory[];
  Group own(launch.nested);
  const NestedJob& job = launch.nested.job;
  uint32_t width = own.width;
  float* minimum = reinterpret_cast<float*>(memory);
  float* inverse = minimum + width;
  uint32_t* pairs = reinterpret_cast<uint32_t*>(inverse + width);  // [token][pair of channels]
  for (uint32_t c = threadIdx.x; c < own.count * (width / 8); c += kThreads) {
    uint32_t token = launch.by_chunks.Quotient(c), channel = (c - token * (width / 8)) * 8;
    *reinterpret_cast<uint4*>(pairs + (token * width + channel) / 2) = LoadOnce(own.Row<const Value>(token) + channel);
  }
  __syncthreads();
  uint32_t found = 0;
  for (uint32_t p = threadIdx.x; p < width / 2; p += kThreads) {
    uint32_t low = pairs[p], high = low;
    for (uint32_t t = 1; t < own.count; ++t) {
      low = Traits::Min(low, pairs[t * (width / 2) + p]);
      high = Traits::Max(high, pairs[t * (width / 2) + p]);
    }
    float2 lowest = Traits::ToFloats(low), highest = Traits::ToFloats(high);
    found |= SurveyOf<Value>(lowest.x, highest.x, 1) | SurveyOf<Value>(lowest.y, highest.y, 1);
    GroupScale a = ScaleOf<Value>(lowest.x, highest.x), b = ScaleOf<Value>(lowest.y, highest.y);
    *reinterpret_cast<uint32_t*>(own.Meta<Value>(2 * p)) =
        PairBits(Traits::Nearest(a.minimum), Traits::Nearest(b.minimum));
    *reinterpret_cast<uint32_t*>(own.Meta<Value>(width + 2 * p)) =
        PairBits(Traits::Nearest(a.step), Traits::Nearest(b.step));
    minimum[2 * p] = a.minimum, minimum[2 * p + 1] = b.minimum;
    inverse[2 * p] = a.inverse, inverse[2 * p + 1] = b.inverse;
  }
  if (job.survey != nullptr && found != 0) atomicOr(job.survey + own.head.block, found);
  __syncthreads();
  uint32_t quarter = width / 4;
  for (uint32_t w = threadIdx.x; w < own.count * (quarter / 4); w += kThreads) {
    uint32_t token = launch.by_words.Quotient(w), byte = (w - token * (quarter / 4)) * 4;
    LaneCodes codes{};
#pragma unroll
    for (uint32_t q = 0; q < 4; ++q) {
      uint32_t channel = q * quarter + byte;
      uint2 raw = *reinterpret_cast<const uint2*>(pairs + (token * width + channel) / 2);
      float2 a = Traits::ToFloats(raw.x), b = Traits::ToFloats(raw.y);
      float4 m = *reinterpret_cast<const float4*>(minimum + channel),
             s = *reinterpret_cast<const float4*>(inverse + channel);
      codes.words[q * 2] =
          JoinBytes(CodeBits(a.x, m.x, s.x), CodeBits(a.y, m.y, s.y), CodeBits(b.x, m.z, s.z), CodeBits(b.y, m.w, s.w));
    }
    *own.Pairs(job.p2, token, byte) = PackTopPair(codes).x;
    if (job.p4.present()) *own.Pairs(job.p4, token, byte) = PackSecondPair(codes).x;
    if (job.p8.present()) {
      *own.Nibbles(job.p8, token, 0, byte) = PackNibbles(codes, 0).x;
      *own.Nibbles(job.p8, token, 1, byte) = PackNibbles(codes, 1).x;
    }
  }
}

template <typename Value>
__global__ void __launch_bounds__(kThreads) DecodeChannel(const __grid_constant__ TileLaunch launch) {
  using Traits = ValueTraits<Value>;
  extern __shared__ __align__(16) uint8_t memory[];
  Group own(launch.nested);
  const NestedJob& job = launch.nested.job;
  uint32_t width = own.width, quarter = width / 4;
  float* minimum = reinterpret_cast<float*>(memory);
  float* step = minimum + width;
  uint32_t* pairs = reinterpret_cast<uint32_t*>(step + width);
  for (uint32_t p = threadIdx.x; p < width / 2; p += kThreads) {
    float2 m = Traits::ToFloats(*reinterpret_cast<const uint32_t*>(own.Meta<Value>(2 * p)));
    float2 s = Traits::ToFloats(*reinterpret_cast<const uint32_t*>(own.Meta<Value>(width + 2 * p)));
    minimum[2 * p] = m.x, minimum[2 * p + 1] = m.y;
    step[2 * p] = s.x, step[2 * p + 1] = s.y;
  }
  __syncthreads();
  float offset = job.precision == PrecisionClass::k8Bit   ? 8388616.0f
                 : job.precision == PrecisionClass::k4Bit ? 8388608.0f
                                                          : 8388608.0f - 24.0f;
  for (uint32_t w = threadIdx.x; w < own.count * (quarter / 4); w += kThreads) {
    uint32_t token = launch.by_words.Quotient(w), byte = (w - token * (quarter / 4)) * 4;
    uint32_t p4 = 0, low = 0, high = 0;
    uint32_t p2 = __ldcs(own.Pairs(job.p2, token, byte));
    if (job.precision >= PrecisionClass::k4Bit) p4 = __ldcs(own.Pairs(job.p4, token, byte));
    if (job.precision >= PrecisionClass::k8Bit) {
      low = __ldcs(own.Nibbles(job.p8, token, 0, byte));
      high = __ldcs(own.Nibbles(job.p8, token, 1, byte));
    }
    LaneCodes codes;
    UnpackTopPair({p2, 0}, &codes);
    UnpackSecondPair({p4, 0}, &codes);
    UnpackNibbles({low, 0}, 0, &codes);
    UnpackNibbles({high, 0}, 1, &codes);
#pragma unroll
    for (uint32_t q = 0; q < 4; ++q) {
      uint32_t channel = q * quarter + byte;
      float4 m = *reinterpret_cast<const float4*>(minimum + channel),
             s = *reinterpret_cast<const float4*>(step + channel);
      uint32_t word = codes.words[q * 2];
      uint2 values = {
          Traits::ToSaturatedPair(m.x + s.x * LevelFloat(word, 0, offset), m.y + s.y * LevelFloat(word, 1, offset)),
          Traits::ToSaturatedPair(m.z + s.z * LevelFloat(word, 2, offset), m.w + s.w * LevelFloat(word, 3, offset))};
      *reinterpret_cast<uint2*>(pairs + (token * width + channel) / 2) = values;
    }
  }
  __syncthreads();
  for (uint32_t c = threadIdx.x; c < own.count * (width / 8); c += kThreads) {
    uint32_t token = launch.by_chunks.Quotient(c), channel = (c - token * (width / 8)) * 8;
    StoreOnce(own.Row<Value>(token) + channel, *reinterpret_cast<const uint4*>(pairs + (token * width + channel) / 2));
  }
}

template <bool kEncode, typename Value>
cudaError_t LaunchValue(const NestedLaunch& nested, cudaStream_t stream) {
  TileLaunch launch{nested, FastDivisor(nested.shape.width / 8), FastDivisor(nested.shape.width / 16)};
  uint32_t shared_bytes = ChannelTileBytes(nested);
  auto* kernel = kEncode ? EncodeChannel<Value> : DecodeChannel<Value>;
  constexpr uint32_t kWithoutAsking = 48 * 1024;
  if (shared_bytes > kWithoutAsking) {
    cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return error;
  }
  uint32_t blocks = nested.shape.blocks * nested.shape.layers * nested.shape.heads * nested.groups;
  kernel<<<blocks, kThreads, shared_bytes, stream>>>(launch);
  return cudaGetLastError();
}

template <bool kEncode>
cudaError_t LaunchTile(const NestedLaunch& launch, cudaStream_t stream) {
  return launch.job.values == DType::kFp16 ? LaunchValue<kEncode, __half>(launch, stream)
                                           : LaunchValue<kEncode, __nv_bfloat16>(launch, stream);
}

}  // namespace

cudaError_t LaunchEncodeChannelTile(const NestedLaunch& launch, cudaStream_t stream) {
  return LaunchTile<true>(launch, stream);
}
cudaError_t LaunchDecodeChannelTile(const NestedLaunch& launch, cudaStream_t stream) {
  return LaunchTile<false>(launch, stream);
}

}  // namespace firn::kernels
