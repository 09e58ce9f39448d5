// Per channel, for widths that are multiples of 16: one thread block has one group of one head in shared memory, as it
// came or as it leaves.
#include "kernels/device/channel_group.cuh"
#include "kernels/device/nested_scale.cuh"
#include "kernels/device/nested_words.cuh"
#include "kernels/nested/dispatch.cuh"

namespace firn::kernels {
namespace {

constexpr uint32_t kThreads = 128;

struct TileLaunch {
  NestedLaunch nested;
  FastDivisor by_chunks, by_words;  // Eight values of a row; four bytes of p2.
};

// Word `index` of the group.
__device__ __forceinline__ WordAt WordOf(const TileLaunch& launch, const ChannelGroup& own, uint32_t token,
                                         uint32_t index) {
  return {own.head.block, own.InBlock(launch.nested, token), launch.nested.shape.width / 4,
          (index - token * launch.by_words.divisor) * 4};
}

template <typename Value>
__global__ void __launch_bounds__(kThreads) EncodeChannel(const __grid_constant__ TileLaunch launch) {
  using Traits = ValueTraits<Value>;
  extern __shared__ __align__(16) uint8_t memory[];
  ChannelGroup own(launch.nested);
  const NestedJob& job = launch.nested.job;
  uint32_t width = launch.nested.shape.width;
  float* minimum = reinterpret_cast<float*>(memory);
  float* inverse = minimum + width;
  uint32_t* pairs = reinterpret_cast<uint32_t*>(inverse + width);  // [token][pair of channels]
  for (uint32_t c = threadIdx.x; c < own.count * (width / 8); c += kThreads) {
    uint32_t token = launch.by_chunks.Quotient(c), channel = (c - token * (width / 8)) * 8;
    *reinterpret_cast<uint4*>(pairs + (token * width + channel) / 2) =
        LoadOnce(own.Row<const Value>(launch.nested, token) + channel);
  }
  __syncthreads();
  uint32_t found = 0;
  for (uint32_t p = threadIdx.x; p < width / 2; p += kThreads) {
    uint32_t low = pairs[p], high = low;
    for (uint32_t t = 1; t < own.count; ++t) {
      low = MinPair<Value>(low, pairs[t * (width / 2) + p]);
      high = MaxPair<Value>(high, pairs[t * (width / 2) + p]);
    }
    float2 lowest = Traits::ToFloats(low), highest = Traits::ToFloats(high);
    found |= SurveyOf<Value>(lowest.x, highest.x, 1) | SurveyOf<Value>(lowest.y, highest.y, 1);
    GroupScale a = ScaleOf<Value>(lowest.x, highest.x), b = ScaleOf<Value>(lowest.y, highest.y);
    *reinterpret_cast<uint32_t*>(own.MetaAt<Value>(launch.nested, 2 * p)) =
        PairBits(Traits::Nearest(a.minimum), Traits::Nearest(b.minimum));
    *reinterpret_cast<uint32_t*>(own.MetaAt<Value>(launch.nested, width + 2 * p)) =
        PairBits(Traits::Nearest(a.step), Traits::Nearest(b.step));
    minimum[2 * p] = a.minimum, minimum[2 * p + 1] = b.minimum;
    inverse[2 * p] = a.inverse, inverse[2 * p + 1] = b.inverse;
  }
  if (job.survey != nullptr && found != 0) atomicOr(job.survey + own.head.block, found);
  __syncthreads();
  uint32_t quarter = width / 4;
  for (uint32_t w = threadIdx.x; w < own.count * (quarter / 4); w += kThreads) {
    uint32_t token = launch.by_words.Quotient(w);
    WordAt at = WordOf(launch, own, token, w);
    LaneCodes codes{};
#pragma unroll
    for (uint32_t q = 0; q < 4; ++q) {
      uint32_t channel = q * quarter + at.byte;
      uint2 raw = *reinterpret_cast<const uint2*>(pairs + (token * width + channel) / 2);
      float2 a = Traits::ToFloats(raw.x), b = Traits::ToFloats(raw.y);
      float4 m = *reinterpret_cast<const float4*>(minimum + channel),
             s = *reinterpret_cast<const float4*>(inverse + channel);
      codes.words[q * 2] =
          JoinBytes(CodeBits(a.x, m.x, s.x), CodeBits(a.y, m.y, s.y), CodeBits(b.x, m.z, s.z), CodeBits(b.y, m.w, s.w));
    }
    StoreWord(job, at, codes);
  }
}

template <typename Value>
__global__ void __launch_bounds__(kThreads) DecodeChannel(const __grid_constant__ TileLaunch launch) {
  using Traits = ValueTraits<Value>;
  extern __shared__ __align__(16) uint8_t memory[];
  ChannelGroup own(launch.nested);
  const NestedJob& job = launch.nested.job;
  uint32_t width = launch.nested.shape.width, quarter = width / 4;
  float* minimum = reinterpret_cast<float*>(memory);
  float* step = minimum + width;
  uint32_t* pairs = reinterpret_cast<uint32_t*>(step + width);
  for (uint32_t p = threadIdx.x; p < width / 2; p += kThreads) {
    float2 m = Traits::ToFloats(*reinterpret_cast<const uint32_t*>(own.MetaAt<Value>(launch.nested, 2 * p)));
    float2 s = Traits::ToFloats(*reinterpret_cast<const uint32_t*>(own.MetaAt<Value>(launch.nested, width + 2 * p)));
    minimum[2 * p] = m.x, minimum[2 * p + 1] = m.y;
    step[2 * p] = s.x, step[2 * p + 1] = s.y;
  }
  __syncthreads();
  float offset = LevelOffset(job.precision);
  for (uint32_t w = threadIdx.x; w < own.count * (quarter / 4); w += kThreads) {
    uint32_t token = launch.by_words.Quotient(w);
    WordAt at = WordOf(launch, own, token, w);
    LaneCodes codes = LoadWord(job, at);
#pragma unroll
    for (uint32_t q = 0; q < 4; ++q) {
      uint32_t channel = q * quarter + at.byte;
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
    StoreOnce(own.Row<Value>(launch.nested, token) + channel,
              *reinterpret_cast<const uint4*>(pairs + (token * width + channel) / 2));
  }
}

template <bool kEncode>
cudaError_t Launch(const NestedLaunch& nested, cudaStream_t stream) {
  TileLaunch launch{nested, FastDivisor(nested.shape.width / 8), FastDivisor(nested.shape.width / 16)};
  uint32_t blocks = nested.shape.blocks * nested.shape.layers * nested.shape.heads * nested.groups;
  return ForValue(nested.job.values, [&]<typename Value>() {
    auto* kernel = kEncode ? EncodeChannel<Value> : DecodeChannel<Value>;
    return LaunchShared<TileLaunch>(kernel, launch, blocks, kThreads, ChannelTileBytes(nested), stream);
  });
}

}  // namespace

cudaError_t LaunchEncodeChannelTile(const NestedLaunch& launch, cudaStream_t stream) {
  return Launch<true>(launch, stream);
}
cudaError_t LaunchDecodeChannelTile(const NestedLaunch& launch, cudaStream_t stream) {
  return Launch<false>(launch, stream);
}

}  // namespace firn::kernels
