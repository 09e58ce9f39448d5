// Per channel, for rows of 32 * kLanes channels and groups of at most 64 tokens: one thread block has one group of one
// head, each lane 32 channels of every sixteenth token, so that values are read once.
#include "kernels/device/channel_group.cuh"
#include "kernels/device/nested_planes.cuh"
#include "kernels/device/nested_scale.cuh"
#include "kernels/nested/dispatch.cuh"

namespace firn::kernels {
namespace {

constexpr uint32_t kSlots = 16;         // Tokens side by side.
constexpr uint32_t kTokensPerLane = 4;  // One after another.

template <int kLanes>
struct GroupAt : ChannelGroup {
  static constexpr uint32_t kWidth = 32 * kLanes;
  static constexpr uint32_t kQuarter = kWidth / 4;
  static constexpr uint32_t kThreads = kSlots * kLanes;
  uint32_t lane = threadIdx.x % kLanes, slot = threadIdx.x / kLanes;

  __device__ __forceinline__ explicit GroupAt(const NestedLaunch& launch) : ChannelGroup(launch) {}
  template <typename Value, Places kPlaces>
  __device__ __forceinline__ Value* Values(const NestedLaunch& launch, uint32_t token) const {
    const RowsView& rows = launch.job.rows;
    if constexpr (kPlaces == Places::kLinear) {
      return static_cast<Value*>(rows.base) + head.block * rows.page_stride +
             uint64_t{InBlock(launch, token)} * kWidth + lane * 8;
    }
    return Row<Value>(launch, token) + lane * 8;
  }
};

// The lane's bytes of a row that begins at an offset.
template <Places kPlaces, int kLanes>
__device__ __forceinline__ uint8_t* Run(const RunView& run, const GroupAt<kLanes>& own, uint32_t offset) {
  return RunBytesAt<kPlaces>(run, own.head.block, offset) + own.lane * 8;
}

// The smallest and largest of the tokens of this thread, then of its warp, pair by pair of channels.
template <typename Value, int kLanes>
__device__ __forceinline__ void WarpRange(uint32_t (&low)[16], uint32_t (&high)[16]) {
  using Traits = ValueTraits<Value>;
#pragma unroll
  for (int apart = kLanes; apart < 32; apart *= 2) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      low[i] = MinPair<Value>(low[i], __shfl_xor_sync(0xFFFFFFFFu, low[i], apart));
      high[i] = MaxPair<Value>(high[i], __shfl_xor_sync(0xFFFFFFFFu, high[i], apart));
    }
  }
}

template <typename Value, int kLanes, Places kPlaces>
__global__ void __launch_bounds__(kSlots* kLanes) EncodeChannel(const __grid_constant__ NestedLaunch launch) {
  using Group = GroupAt<kLanes>;
  using Traits = ValueTraits<Value>;
  constexpr uint32_t kWarps = (Group::kThreads + 31) / 32;
  __shared__ __align__(16) Value lowest[kWarps][Group::kWidth];
  __shared__ __align__(16) Value highest[kWarps][Group::kWidth];
  __shared__ __align__(16) float minimum[Group::kWidth];
  __shared__ __align__(16) float inverse[Group::kWidth];
  const NestedJob& job = launch.job;
  Group own(launch);

  // Threads beyond the last token look at the last one again: it changes no minimum.
  uint4 raw[kTokensPerLane][4];
#pragma unroll
  for (uint32_t k = 0; k < kTokensPerLane; ++k) {
    uint32_t token = min(own.slot + k * kSlots, own.count - 1);
    const Value* source = own.template Values<const Value, kPlaces>(launch, token);
#pragma unroll
    for (int q = 0; q < 4; ++q) raw[k][q] = LoadOnce(source + q * Group::kQuarter);
  }
  uint32_t low[16], high[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const uint4& first = raw[0][i / 4];
    low[i] = high[i] = i % 4 == 0 ? first.x : i % 4 == 1 ? first.y : i % 4 == 2 ? first.z : first.w;
  }
#pragma unroll
  for (uint32_t k = 1; k < kTokensPerLane; ++k) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const uint4& four = raw[k][i / 4];
      uint32_t pair = i % 4 == 0 ? four.x : i % 4 == 1 ? four.y : i % 4 == 2 ? four.z : four.w;
      low[i] = MinPair<Value>(low[i], pair);
      high[i] = MaxPair<Value>(high[i], pair);
    }
  }
  WarpRange<Value, kLanes>(low, high);
  uint32_t warp = threadIdx.x / 32;
  if (threadIdx.x % 32 < kLanes) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      uint32_t channel = q * Group::kQuarter + own.lane * 8;
      *reinterpret_cast<uint4*>(&lowest[warp][channel]) = {low[q * 4], low[q * 4 + 1], low[q * 4 + 2], low[q * 4 + 3]};
      *reinterpret_cast<uint4*>(&highest[warp][channel]) = {high[q * 4], high[q * 4 + 1], high[q * 4 + 2],
                                                            high[q * 4 + 3]};
    }
  }
  __syncthreads();
  Value* meta =
      reinterpret_cast<Value*>(RunBytesAt<kPlaces>(job.meta_run, own.head.block, own.meta_offset * sizeof(Value)));
  uint32_t found = 0;
  for (uint32_t c = threadIdx.x; c < Group::kWidth; c += Group::kThreads) {
    // Pairs are joined as pairs: both halves order -0 below +0.
    Value lo = lowest[0][c], hi = highest[0][c];
    for (uint32_t w = 1; w < kWarps; ++w) {
      uint32_t l =
          MinPair<Value>(*reinterpret_cast<const uint16_t*>(&lo), *reinterpret_cast<const uint16_t*>(&lowest[w][c]));
      uint32_t h =
          MaxPair<Value>(*reinterpret_cast<const uint16_t*>(&hi), *reinterpret_cast<const uint16_t*>(&highest[w][c]));
      lo = *reinterpret_cast<const Value*>(&l), hi = *reinterpret_cast<const Value*>(&h);
    }
    float low_value = Traits::ToFloat(lo), high_value = Traits::ToFloat(hi);
    found |= SurveyOf<Value>(low_value, high_value, 1);
    GroupScale scale = ScaleOf<Value>(low_value, high_value);
    meta[c] = Traits::Nearest(scale.minimum);
    meta[Group::kWidth + c] = Traits::Nearest(scale.step);
    minimum[c] = scale.minimum;
    inverse[c] = scale.inverse;
  }
  if (job.survey != nullptr && found != 0) atomicOr(job.survey + own.head.block, found);
  __syncthreads();

  LaneCodes codes[kTokensPerLane];
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    uint32_t channel = q * Group::kQuarter + own.lane * 8;
    float m[8], s[8];
#pragma unroll
    for (int j = 0; j < 8; j += 4) {
      float4 mins = *reinterpret_cast<const float4*>(&minimum[channel + j]);
      float4 inverses = *reinterpret_cast<const float4*>(&inverse[channel + j]);
      m[j] = mins.x, m[j + 1] = mins.y, m[j + 2] = mins.z, m[j + 3] = mins.w;
      s[j] = inverses.x, s[j + 1] = inverses.y, s[j + 2] = inverses.z, s[j + 3] = inverses.w;
    }
#pragma unroll
    for (uint32_t k = 0; k < kTokensPerLane; ++k) {
      float v[8];
      ToFloats8<Value>(raw[k][q], v);
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        codes[k].words[q * 2 + w] = JoinBytes(
            CodeBits(v[w * 4], m[w * 4], s[w * 4]), CodeBits(v[w * 4 + 1], m[w * 4 + 1], s[w * 4 + 1]),
            CodeBits(v[w * 4 + 2], m[w * 4 + 2], s[w * 4 + 2]), CodeBits(v[w * 4 + 3], m[w * 4 + 3], s[w * 4 + 3]));
      }
    }
  }
#pragma unroll
  for (uint32_t k = 0; k < kTokensPerLane; ++k) {
    uint32_t token = own.slot + k * kSlots;
    if (token >= own.count) break;
    uint32_t row = own.InBlock(launch, token);
    StoreOnce8(Run<kPlaces>(job.p2, own, row * Group::kQuarter), PackTopPair(codes[k]));
    if (job.p4.present()) StoreOnce8(Run<kPlaces>(job.p4, own, row * Group::kQuarter), PackSecondPair(codes[k]));
    if (job.p8.present()) {
      uint8_t* nibbles = Run<kPlaces>(job.p8, own, row * (Group::kWidth / 2));
      StoreOnce8(nibbles, PackNibbles(codes[k], 0));
      StoreOnce8(nibbles + Group::kQuarter, PackNibbles(codes[k], 1));
    }
  }
}

template <typename Value, int kLanes, Places kPlaces>
__global__ void __launch_bounds__(kSlots* kLanes) DecodeChannel(const __grid_constant__ NestedLaunch launch) {
  using Group = GroupAt<kLanes>;
  using Traits = ValueTraits<Value>;
  const NestedJob& job = launch.job;
  Group own(launch);
  float offset = LevelOffset(job.precision);
  // All loads first: nothing is unpacked before the last has been asked for.
  uint2 p2[kTokensPerLane], p4[kTokensPerLane], low[kTokensPerLane], high[kTokensPerLane];
#pragma unroll
  for (uint32_t k = 0; k < kTokensPerLane; ++k) {
    uint32_t row = own.InBlock(launch, min(own.slot + k * kSlots, own.count - 1));
    p2[k] = LoadOnce8(Run<kPlaces>(job.p2, own, row * Group::kQuarter));
    if (job.precision >= PrecisionClass::k4Bit) p4[k] = LoadOnce8(Run<kPlaces>(job.p4, own, row * Group::kQuarter));
    if (job.precision >= PrecisionClass::k8Bit) {
      const uint8_t* nibbles = Run<kPlaces>(job.p8, own, row * (Group::kWidth / 2));
      low[k] = LoadOnce8(nibbles);
      high[k] = LoadOnce8(nibbles + Group::kQuarter);
    }
  }
  LaneCodes codes[kTokensPerLane];
#pragma unroll
  for (uint32_t k = 0; k < kTokensPerLane; ++k) {
    UnpackTopPair(p2[k], &codes[k]);
    if (job.precision >= PrecisionClass::k4Bit) UnpackSecondPair(p4[k], &codes[k]);
    if (job.precision >= PrecisionClass::k8Bit) {
      UnpackNibbles(low[k], 0, &codes[k]);
      UnpackNibbles(high[k], 1, &codes[k]);
    }
  }
  const Value* meta = reinterpret_cast<const Value*>(
      RunBytesAt<kPlaces>(job.meta_run, own.head.block, own.meta_offset * sizeof(Value)));
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    uint32_t channel = q * Group::kQuarter + own.lane * 8;
    float minimum[8], step[8];
    ToFloats8<Value>(__ldg(reinterpret_cast<const uint4*>(meta + channel)), minimum);
    ToFloats8<Value>(__ldg(reinterpret_cast<const uint4*>(meta + Group::kWidth + channel)), step);
#pragma unroll
    for (uint32_t k = 0; k < kTokensPerLane; ++k) {
      uint32_t token = own.slot + k * kSlots;
      if (token >= own.count) break;
      float v[8];
#pragma unroll
      for (int j = 0; j < 8; ++j)
        v[j] = minimum[j] + step[j] * LevelFloat(codes[k].words[q * 2 + j / 4], j % 4, offset);
      StoreOnce(own.template Values<Value, kPlaces>(launch, token) + q * Group::kQuarter, ToSaturated8<Value>(v));
    }
  }
}

template <bool kEncode>
cudaError_t Launch(const NestedLaunch& launch, const FastShape& fast, cudaStream_t stream) {
  uint32_t blocks = launch.shape.blocks * launch.shape.layers * launch.shape.heads * launch.groups;
  return ForFast(launch, fast, [&]<typename Value, int kLanes, Places kPlaces>() {
    auto* kernel = kEncode ? EncodeChannel<Value, kLanes, kPlaces> : DecodeChannel<Value, kLanes, kPlaces>;
    kernel<<<blocks, kSlots * kLanes, 0, stream>>>(launch);
    return cudaGetLastError();
  });
}

}  // namespace

cudaError_t LaunchEncodeChannelFast(const NestedLaunch& launch, const FastShape& fast, cudaStream_t stream) {
  return Launch<true>(launch, fast, stream);
}
cudaError_t LaunchDecodeChannelFast(const NestedLaunch& launch, const FastShape& fast, cudaStream_t stream) {
  return Launch<false>(launch, fast, stream);
}

}  // namespace firn::kernels
