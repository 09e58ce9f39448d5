// For widths of 64, 128 and 256: a thread block has one head, whose arrays its threads keep in registers; each thread
// has eight channels of a token at a time, and the lanes of a row exchange what they mix.
#include "kernels/condition/rows.cuh"
#include "kernels/device/hadamard.cuh"

namespace firn::kernels {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kTokensEach = 2;

struct HeadLanes {
  RowAt head;
  uint32_t lanes, lane, slot, slots;

  __device__ __forceinline__ explicit HeadLanes(const ConditionLaunch& launch) {
    head = launch.shape.HeadOf(blockIdx.x);
    lanes = launch.by_lanes.divisor;
    slot = launch.by_lanes.Quotient(threadIdx.x);
    lane = threadIdx.x - slot * lanes;
    slots = kThreads / lanes;
  }
};

__device__ __forceinline__ void LoadFloats8(const float* from, float (&to)[8]) {
  float4 a = reinterpret_cast<const float4*>(from)[0], b = reinterpret_cast<const float4*>(from)[1];
  to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w, to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
}
template <typename Value>
__device__ __forceinline__ void LoadValues8(const Value* from, float (&to)[8]) {
  if constexpr (sizeof(Value) == 4)
    LoadFloats8(from, to);
  else
    ToFloats8<Value>(LoadOnce(from), to);
}
template <typename Value>
__device__ __forceinline__ void StoreValues8(Value* to, const float (&v)[8]) {
  if constexpr (sizeof(Value) == 4) {
    auto* words = reinterpret_cast<float4*>(to);
    __stcs(words, make_float4(v[0], v[1], v[2], v[3]));
    __stcs(words + 1, make_float4(v[4], v[5], v[6], v[7]));
  } else {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = PairBits(RoundedTo<Value>(v[2 * i]), RoundedTo<Value>(v[2 * i + 1]));
    StoreOnce(to, {words[0], words[1], words[2], words[3]});
  }
}

// Pairs are neighbours: in one lane, both.
__device__ __forceinline__ void TurnNeighbours(const RopeView& rope, uint64_t turns, uint32_t lane, bool back,
                                               float (&v)[8]) {
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    uint32_t pair = lane * 4 + i;
    if (pair >= rope.pairs) break;
    float a = v[2 * i], b = v[2 * i + 1], c = __ldg(rope.cosines + turns + pair), s = __ldg(rope.sines + turns + pair);
    if (back) s = -s;
    v[2 * i] = a * c - b * s;
    v[2 * i + 1] = b * c + a * s;
  }
}
// Pairs are halves: in two lanes, of which each makes its own. a * c - b * s is a * c + b * -s to the bit.
__device__ __forceinline__ void TurnHalves(const RopeView& rope, uint64_t turns, const HeadLanes& own, bool back,
                                           float (&v)[8]) {
  uint32_t half = rope.pairs / 8;
  bool first = own.lane < half, turned = own.lane < 2 * half;
  uint32_t chunk = first || !turned ? own.lane : own.lane - half;
  uint32_t partner = threadIdx.x % 32 + (turned ? (first ? half : 0u - half) : 0u);
  float other[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) other[j] = __shfl_sync(0xFFFFFFFFu, v[j], static_cast<int>(partner));
  if (!turned) return;
  float c[8], s[8];
  LoadFloats8(rope.cosines + turns + chunk * 8, c);
  LoadFloats8(rope.sines + turns + chunk * 8, s);
  bool negative = back != first;
#pragma unroll
  for (int j = 0; j < 8; ++j) v[j] = v[j] * c[j] + other[j] * (negative ? -s[j] : s[j]);
}
__device__ __forceinline__ void TurnChunk(const ConditionLaunch& launch, const HeadLanes& own, const RowAt& at,
                                          bool back, float (&v)[8]) {
  const RopeView& rope = launch.job.rope;
  if (rope.cosines == nullptr) return;
  uint64_t turns = TurnsOf(launch, at);
  if (rope.interleaved) {
    TurnNeighbours(rope, turns, own.lane, back, v);
  } else {
    TurnHalves(rope, turns, own, back, v);
  }
}

__device__ __forceinline__ void RotateChunk(const ConditionLaunch& launch, const HeadLanes& own, float (&v)[8]) {
  if (launch.rotation == 1) return;
  Butterflies<1, 8>(v);
  for (uint32_t apart = 1; apart < own.lanes; apart *= 2) {
    float sign = (own.lane & apart) != 0 ? -1.0f : 1.0f;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      // other + sign * own, rounded once: the product is exact.
      v[j] = __fmaf_rn(v[j], sign, __shfl_xor_sync(0xFFFFFFFFu, v[j], apart));
    }
  }
}

// What a head's channels are shifted and scaled by.
struct HeadArrays {
  float mean[8], scale[8];

  __device__ __forceinline__ HeadArrays(const ConditionLaunch& launch, const HeadLanes& own, const float* scales) {
    const TransformView& transform = launch.job.transform;
    uint32_t at = (own.head.layer * launch.shape.heads + own.head.head) * launch.shape.width + own.lane * 8;
#pragma unroll
    for (int j = 0; j < 8; ++j) scale[j] = transform.uniform_scale, mean[j] = 0;
    if (transform.mean == nullptr) return;
    LoadFloats8(transform.mean + at, mean);
    LoadFloats8(scales + at, scale);
  }
};

// Slots beyond the last token do it again and write nothing, so that all lanes of a warp stay together.
template <typename Engine, typename Conditioned, bool kForward>
__global__ void __launch_bounds__(kThreads) ConditionHead(const __grid_constant__ ConditionLaunch launch) {
  using From = std::conditional_t<kForward, Engine, Conditioned>;
  using To = std::conditional_t<kForward, Conditioned, Engine>;
  const TransformView& transform = launch.job.transform;
  HeadLanes own(launch);
  HeadArrays arrays(launch, own, kForward ? transform.encode_scale : transform.decode_scale);
  bool centred = transform.mean != nullptr, unfit = false;
  for (uint32_t first = 0; first < launch.shape.tokens; first += own.slots * kTokensEach) {
    float v[kTokensEach][8];
    RowAt at[kTokensEach];
#pragma unroll
    for (uint32_t k = 0; k < kTokensEach; ++k) {
      at[k] = own.head;
      at[k].token = min(first + k * own.slots + own.slot, launch.shape.tokens - 1);
      const From* row;
      if constexpr (kForward) row = EngineRow<const From>(launch, at[k]);
      if constexpr (!kForward) row = ConditionedRow<const From>(launch, at[k]);
      LoadValues8(row + own.lane * 8, v[k]);
    }
#pragma unroll
    for (uint32_t k = 0; k < kTokensEach; ++k) {
      if constexpr (kForward) TurnChunk(launch, own, at[k], /*back=*/true, v[k]);
      if constexpr (!kForward) RotateChunk(launch, own, v[k]);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        if (kForward && centred) v[k][j] = v[k][j] - arrays.mean[j];
        v[k][j] *= arrays.scale[j];
        if (!kForward && centred) v[k][j] = v[k][j] + arrays.mean[j];
        if (!kForward) v[k][j] = SaturatedBack(v[k][j]);
      }
      if constexpr (kForward) {
        RotateChunk(launch, own, v[k]);
#pragma unroll
        for (int j = 0; j < 8; ++j) unfit |= !CanComeBack(launch, v[k][j]);
      }
      if constexpr (!kForward) {
        TurnChunk(launch, own, at[k], /*back=*/false, v[k]);
#pragma unroll
        for (int j = 0; j < 8; ++j) v[k][j] = SaturatedBack(v[k][j]);
      }
      To* row;
      if constexpr (kForward) row = ConditionedRow<To>(launch, at[k]);
      if constexpr (!kForward) row = EngineRow<To>(launch, at[k]);
      if (first + k * own.slots + own.slot < launch.shape.tokens) StoreValues8(row + own.lane * 8, v[k]);
    }
  }
  TellUnfit(launch, own.head.block, unfit);
}

}  // namespace

cudaError_t LaunchConditionHeads(const ConditionLaunch& launch, cudaStream_t stream) {
  return ForConditioned(launch.job, [&]<typename Engine, typename Conditioned>() {
    auto* kernel =
        launch.forward ? ConditionHead<Engine, Conditioned, true> : ConditionHead<Engine, Conditioned, false>;
    uint32_t heads = launch.shape.blocks * launch.shape.layers * launch.shape.heads;
    return LaunchShared<ConditionLaunch>(kernel, launch, heads, kThreads, 0, stream);
  });
}

}  // namespace firn::kernels
