// Per channel, for widths of 64, 128 and 256: a thread block has one group of tokens of one head, each thread eight
// channels of up to four tokens, so that values are read once.
#include <algorithm>

#include "kernels/integer/dispatch.cuh"
#include "kernels/integer/scale.cuh"

namespace firn::kernels {
namespace {

constexpr uint32_t kTokensEach = 4;
constexpr uint32_t kThreadsMax = 1024;

struct GroupPlace {
  RowAt head;
  uint32_t lanes, lane, slot, slots;
  uint32_t first_row, count;  // Tokens, the first as a row of its block.
  uint32_t first_token;
  uint32_t meta_row;  // In rows of a value a channel.

  __device__ __forceinline__ explicit GroupPlace(const IntegerLaunch& launch) {
    lanes = launch.chunks.row_chunks;
    slot = launch.chunks.by_row_chunks.Quotient(threadIdx.x);
    lane = threadIdx.x - slot * lanes;
    slots = blockDim.x / lanes;
    uint32_t head_index = blockIdx.x / launch.groups, group = blockIdx.x - head_index * launch.groups;
    head = launch.shape.HeadOf(head_index);
    first_token = group * launch.job.group;
    count = min(launch.job.group, launch.shape.tokens - first_token);
    uint32_t in_block = head.layer * launch.shape.heads + head.head;
    first_row = in_block * launch.shape.tokens + first_token;
    meta_row = (in_block * launch.groups + group) * (launch.form.symmetric ? 1 : 2);
  }
  // The chunk of the thread's token number `k`, the last token's beyond it.
  __device__ __forceinline__ uint32_t Chunk(uint32_t k) const {
    return (first_row + min(slot + k * slots, count - 1)) * lanes + lane;
  }
  __device__ __forceinline__ bool Has(uint32_t k) const { return slot + k * slots < count; }
  template <typename Value, Places kPlaces>
  __device__ __forceinline__ Value* Values(const IntegerLaunch& launch, uint32_t k) const {
    if constexpr (kPlaces == Places::kLinear) {
      return static_cast<Value*>(launch.job.rows.base) + head.block * launch.job.rows.page_stride +
             uint64_t{Chunk(k)} * 8;
    }
    RowAt at{head.block, head.layer, head.head, first_token + min(slot + k * slots, count - 1)};
    return RowOf<Value>(launch.job.rows, launch.by_page, at) + lane * 8;
  }
  // Of channel `c`: minima first, then steps.
  template <typename Value, Places kPlaces>
  __device__ __forceinline__ Value* Meta(const IntegerLaunch& launch, bool steps, uint32_t c) const {
    uint32_t row = meta_row + (steps && !launch.form.symmetric ? 1 : 0);
    return reinterpret_cast<Value*>(
        RunBytesAt<kPlaces>(launch.job.meta_run, head.block, (row * launch.shape.width + c) * sizeof(Value)));
  }
};

__device__ __forceinline__ void Load8(const float* from, float (&to)[8]) {
  float4 a = reinterpret_cast<const float4*>(from)[0], b = reinterpret_cast<const float4*>(from)[1];
  to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w, to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
}

// The extremes of eight channels, two channels a word.
struct ChunkRange {
  uint4 low, high;
};
template <typename Value>
__device__ __forceinline__ void Join(ChunkRange* range, uint4 low, uint4 high) {
  range->low = {MinPair<Value>(range->low.x, low.x), MinPair<Value>(range->low.y, low.y),
                MinPair<Value>(range->low.z, low.z), MinPair<Value>(range->low.w, low.w)};
  range->high = {MaxPair<Value>(range->high.x, high.x), MaxPair<Value>(range->high.y, high.y),
                 MaxPair<Value>(range->high.z, high.z), MaxPair<Value>(range->high.w, high.w)};
}
__device__ __forceinline__ uint4 Exchange(uint4 v, uint32_t apart) {
  return {__shfl_xor_sync(0xFFFFFFFFu, v.x, apart), __shfl_xor_sync(0xFFFFFFFFu, v.y, apart),
          __shfl_xor_sync(0xFFFFFFFFu, v.z, apart), __shfl_xor_sync(0xFFFFFFFFu, v.w, apart)};
}

// A thread block's memory: the extremes that each warp has found, then every channel's scale.
template <typename Value>
struct GroupMemory {
  Value *lowest, *highest;  // [warp][channel]
  float *base, *inverse;

  __device__ __forceinline__ GroupMemory(unsigned char* memory, uint32_t width) {
    uint32_t values = blockDim.x / 32 * width;
    lowest = reinterpret_cast<Value*>(memory), highest = lowest + values;
    base = reinterpret_cast<float*>(highest + values), inverse = base + width;
  }
};

// The scale of channel `c`, from what the warps have found.
template <typename Value, Places kPlaces>
__device__ __forceinline__ uint32_t SettleChannel(const IntegerLaunch& launch, const GroupPlace& own,
                                                  const GroupMemory<Value>& memory, uint32_t c) {
  using Traits = ValueTraits<Value>;
  uint32_t width = launch.shape.width;
  auto bits = [](const Value& value) { return uint32_t{*reinterpret_cast<const uint16_t*>(&value)}; };
  // Joined as pairs, which order -0 below +0; the other half of each is not looked at.
  uint32_t low = bits(memory.lowest[c]), high = bits(memory.highest[c]);
  for (uint32_t w = 1; w < blockDim.x / 32; ++w) {
    low = MinPair<Value>(low, bits(memory.lowest[w * width + c]));
    high = MaxPair<Value>(high, bits(memory.highest[w * width + c]));
  }
  float lowest = Traits::ToFloats(low).x, highest = Traits::ToFloats(high).x;
  IntegerScale scale = IntegerScaleOf<Value, Value>(lowest, highest, launch.form);
  if (!launch.form.symmetric) *own.Meta<Value, kPlaces>(launch, false, c) = Traits::Nearest(scale.base);
  *own.Meta<Value, kPlaces>(launch, true, c) = Traits::Nearest(scale.step);
  memory.base[c] = scale.base;
  memory.inverse[c] = scale.inverse;
  return IntegerSurveyOf<Value>(lowest, highest, launch.form);
}

template <typename Value, int kBits, Places kPlaces>
__global__ void __launch_bounds__(kThreadsMax) EncodeChannel(const __grid_constant__ IntegerLaunch launch) {
  extern __shared__ __align__(16) unsigned char bytes[];
  const IntegerJob& job = launch.job;
  GroupMemory<Value> memory(bytes, launch.shape.width);
  GroupPlace own(launch);
  uint4 raw[kTokensEach];
#pragma unroll
  for (uint32_t k = 0; k < kTokensEach; ++k) raw[k] = LoadOnce(own.Values<const Value, kPlaces>(launch, k));
  ChunkRange range{raw[0], raw[0]};
#pragma unroll
  for (uint32_t k = 1; k < kTokensEach; ++k) Join<Value>(&range, raw[k], raw[k]);
  for (uint32_t apart = own.lanes; apart < 32; apart *= 2) {
    uint4 low = Exchange(range.low, apart), high = Exchange(range.high, apart);
    Join<Value>(&range, low, high);
  }
  if (threadIdx.x % 32 < own.lanes) {
    uint32_t at = threadIdx.x / 32 * launch.shape.width + own.lane * 8;
    *reinterpret_cast<uint4*>(memory.lowest + at) = range.low;
    *reinterpret_cast<uint4*>(memory.highest + at) = range.high;
  }
  __syncthreads();
  uint32_t found = 0;
  for (uint32_t c = threadIdx.x; c < launch.shape.width; c += blockDim.x) {
    found |= SettleChannel<Value, kPlaces>(launch, own, memory, c);
  }
  if (found != 0 && job.survey != nullptr) atomicOr(job.survey + own.head.block, found);
  __syncthreads();
  float base[8], inverse[8];
  Load8(memory.base + own.lane * 8, base);
  Load8(memory.inverse + own.lane * 8, inverse);
#pragma unroll
  for (uint32_t k = 0; k < kTokensEach; ++k) {
    float v[8];
    ToFloats8<Value>(raw[k], v);
    uint32_t sums[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[i] = IntegerCodeSum(v[i], {base[i], 0, inverse[i]}, launch.form);
    StoreCodes<kBits, kPlaces>(job.codes, own.head.block, own.Chunk(k), PackChunk<kBits>(sums), own.Has(k));
  }
}

template <typename Value, int kBits, Places kPlaces>
__global__ void __launch_bounds__(kThreadsMax) DecodeChannel(const __grid_constant__ IntegerLaunch launch) {
  const IntegerJob& job = launch.job;
  GroupPlace own(launch);
  ChunkCodes codes[kTokensEach];
#pragma unroll
  for (uint32_t k = 0; k < kTokensEach; ++k) {
    codes[k] = LoadCodes<kBits, kPlaces>(job.codes, own.head.block, own.Chunk(k));
  }
  float base[8], step[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) base[i] = -0.0f;
  auto load = [&](bool steps, float* to) {
    ToFloats8<Value>(__ldg(reinterpret_cast<const uint4*>(own.Meta<const Value, kPlaces>(launch, steps, own.lane * 8))),
                     to);
  };
  if (!launch.form.symmetric) load(false, base);
  load(true, step);
#pragma unroll
  for (uint32_t k = 0; k < kTokensEach; ++k) {
    if (!own.Has(k)) break;
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = base[i] + step[i] * ChunkLevel<kBits>(codes[k], i, launch.form.offset);
    StoreOnce(own.Values<Value, kPlaces>(launch, k), ToSaturated8<Value>(v));
  }
}

template <bool kEncode>
cudaError_t Launch(const IntegerLaunch& launch, cudaStream_t stream) {
  uint32_t lanes = launch.chunks.row_chunks, tokens = std::min(launch.job.group, launch.shape.tokens);
  uint32_t threads = ((tokens + kTokensEach - 1) / kTokensEach * lanes + 31) / 32 * 32;  // Whole warps.
  uint64_t shared_bytes = kEncode ? uint64_t{launch.shape.width} * (threads / 32 * 4 + 8) : 0;
  uint32_t blocks = launch.shape.blocks * launch.shape.layers * launch.shape.heads * launch.groups;
  return ForIntegers(launch, [&]<typename Value, int kBits, Places kPlaces>() {
    auto* kernel = kEncode ? EncodeChannel<Value, kBits, kPlaces> : DecodeChannel<Value, kBits, kPlaces>;
    return LaunchShared<IntegerLaunch>(kernel, launch, blocks, threads, shared_bytes, stream);
  });
}

}  // namespace

cudaError_t LaunchEncodeIntegerChannel(const IntegerLaunch& launch, cudaStream_t stream) {
  return Launch<true>(launch, stream);
}
cudaError_t LaunchDecodeIntegerChannel(const IntegerLaunch& launch, cudaStream_t stream) {
  return Launch<false>(launch, stream);
}

}  // namespace firn::kernels
