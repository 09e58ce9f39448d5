// Three kernels: queries are prepared; blocks of four warps read parts of sequences, a warp 16 tokens at a time; parts
// are put together.
//
// A warp's tile. Lane (g, t) = (lane / 4, lane % 4). Scores of 8 tokens are one product of queries (rows g) with keys
// (columns g), whose inner dimension is cut so that lane t's bytes of a row are neighbours; their sums lie with lane
// (query g, tokens 2t and 2t + 1), which is how the second product, values by weights, wants its weights. Values are
// read so that two tokens of one channel share a register.
#include <cuda_bf16.h>

#include "kernels/attention/launch.h"
#include "kernels/attention/unpack.cuh"

namespace firn::kernels {
namespace {

constexpr uint32_t kWidth = kAttentionWidth;
constexpr uint32_t kQuarter = kWidth / 4;
constexpr uint32_t kWarps = 4;
constexpr uint32_t kThreads = 32 * kWarps;
static_assert(kThreads == kWidth, "a thread has a channel");
constexpr float kLog2E = 1.4426950408889634f;
constexpr float kStepLogMin = -20.0f;

__device__ __forceinline__ float2 MetaFloats(uint32_t bits, bool fp16) {
  if (fp16) return __half22float2(*reinterpret_cast<const __half2*>(&bits));
  return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xFFFF0000u)};
}

// One thread a channel.
__device__ __forceinline__ float RotateChannels(float value, float* shared, bool rotated) {
  if (!rotated) return value;
  uint32_t c = threadIdx.x;
  for (uint32_t stride = 1; stride < kWidth; stride *= 2) {
    shared[c] = value;
    __syncthreads();
    float other = shared[c ^ stride];
    value = (c & stride) != 0 ? other - value : value + other;
    __syncthreads();
  }
  return value;
}

template <bool kMax>
__device__ __forceinline__ float OverChannels(float value, float* shared) {
  for (int apart = 16; apart > 0; apart /= 2) {
    float other = __shfl_xor_sync(0xFFFFFFFFu, value, apart);
    value = kMax ? fmaxf(value, other) : value + other;
  }
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  float result = shared[0];
  for (uint32_t i = 1; i < kWidth / 32; ++i) result = kMax ? fmaxf(result, shared[i]) : result + shared[i];
  __syncthreads();
  return result;
}

// What the quarters of a row have their codes multiplied with already.
__device__ __forceinline__ float QuarterUnit(uint32_t channel) {
  return 1.0f / static_cast<float>(1u << (2 * (channel / kQuarter)));
}

__global__ void __launch_bounds__(kWidth) PrepareQueries(const __grid_constant__ AttentionLaunch launch) {
  __shared__ float shared[kWidth];
  const AttentionJob& job = launch.job;
  uint32_t query = blockIdx.x, c = threadIdx.x;
  uint32_t kv_head = query % job.query_heads / launch.group;
  uint64_t channel = (uint64_t{job.layer} * job.kv_heads + kv_head) * kWidth + c;
  float value = __half2float(static_cast<const __half*>(job.queries)[uint64_t{query} * kWidth + c]);
  value *= job.softmax_scale * kLog2E;
  bool arrays = job.k_transform.mean != nullptr;
  float constant = arrays ? value * job.k_transform.mean[channel] : 0.0f;
  value *= arrays ? job.k_transform.decode_scale[channel] : job.k_transform.uniform_scale;
  value = RotateChannels(value, shared, job.rotated);
  constant = OverChannels<false>(constant, shared);
  float unit = fmaxf(OverChannels<true>(fabsf(value), shared), 1e-30f) / 256.0f;
  __half scaled = __float2half_rn(value / unit * QuarterUnit(c));
  float sum = OverChannels<false>(__half2float(scaled) / QuarterUnit(c), shared) * unit;
  static_cast<__half*>(launch.queries)[uint64_t{query} * kWidth + c] = scaled;
  if (c == 0) launch.facts[query] = {unit, sum, constant};
}

// A tile's bytes, as a lane has them.
template <bool kFourK, bool kFourV>
struct RawTile {
  uint2 k_p2[2], k_p4[2];      // Keys of tokens g and 8 + g: bytes 8t to 8t + 7 of a row.
  uint32_t v_p2[4], v_p4[4];   // Values of tokens 2t, 2t + 1, 8 + 2t, 9 + 2t: bytes 4g to 4g + 3.
  uint2 k_meta[2], v_meta[2];  // Of tokens 2t, 2t + 1, then 8 + 2t, 9 + 2t.
};

struct Lane {
  uint32_t g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
};

__device__ __forceinline__ const uint8_t* BlockBytes(const RunView& run, uint32_t block) {
  return run.block_bases != nullptr ? run.block_bases[block] : run.base + block * run.block_stride;
}

// Where a tile is. Its block is looked up one tile before its bytes are asked for, so that nothing waits for the table.
struct TilePlace {
  uint32_t token, block, in_block;

  __device__ __forceinline__ TilePlace(const AttentionLaunch& launch, uint32_t at, uint32_t end) : token(at) {
    uint32_t index = launch.by_block.Quotient(at);
    in_block = at - index * launch.job.block_tokens;
    block =
        at < end ? __ldg(launch.job.block_table + uint64_t{blockIdx.z} * launch.job.blocks_per_sequence + index) : 0;
  }
};

template <bool kFourK, bool kFourV>
__device__ __forceinline__ RawTile<kFourK, kFourV> LoadTile(const AttentionLaunch& launch, const Lane& lane,
                                                            const TilePlace& place) {
  const AttentionJob& job = launch.job;
  uint32_t block = place.block;
  uint32_t row = (job.layer * job.kv_heads + blockIdx.y) * job.block_tokens + place.in_block;
  const uint8_t* k_p2 = BlockBytes(job.k_p2, block) + (row + lane.g) * kQuarter + lane.t * 8;
  const uint8_t* v_p2 = BlockBytes(job.v_p2, block) + (row + 2 * lane.t) * kQuarter + lane.g * 4;
  const uint8_t* k_meta = BlockBytes(job.k_meta, block) + (row + 2 * lane.t) * 4;
  const uint8_t* v_meta = BlockBytes(job.v_meta, block) + (row + 2 * lane.t) * 4;
  RawTile<kFourK, kFourV> raw;
#pragma unroll
  for (int i = 0; i < 2; ++i) raw.k_p2[i] = __ldcs(reinterpret_cast<const uint2*>(k_p2 + i * 8 * kQuarter));
  if constexpr (kFourK) {
    const uint8_t* k_p4 = BlockBytes(job.k_p4, block) + (row + lane.g) * kQuarter + lane.t * 8;
#pragma unroll
    for (int i = 0; i < 2; ++i) raw.k_p4[i] = __ldcs(reinterpret_cast<const uint2*>(k_p4 + i * 8 * kQuarter));
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    raw.k_meta[i] = __ldcs(reinterpret_cast<const uint2*>(k_meta + i * 32));
    raw.v_meta[i] = __ldcs(reinterpret_cast<const uint2*>(v_meta + i * 32));
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    raw.v_p2[i] = __ldcs(reinterpret_cast<const uint32_t*>(v_p2 + (i / 2 * 8 + i % 2) * kQuarter));
  }
  if constexpr (kFourV) {
    const uint8_t* v_p4 = BlockBytes(job.v_p4, block) + (row + 2 * lane.t) * kQuarter + lane.g * 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      raw.v_p4[i] = __ldcs(reinterpret_cast<const uint32_t*>(v_p4 + (i / 2 * 8 + i % 2) * kQuarter));
    }
  }
  return raw;
}

// What a warp knows of its part: for query g (the same in its four lanes), and sums for queries 2t and 2t + 1.
struct State {
  float highest = -INFINITY, weight = 0, base = 0;  // Sum of weights, and of weights times minima.
  float values[8][4] = {};  // [quarter * 2 + pair]: channels 4g + 2 pair and one more, by query.
};

// Queries as the first product takes them: [quarter * 2 + word].
struct QueryOperand {
  uint32_t even[8], odd[8];
};

// Of both halves of a tile, whose sums do not wait for each other.
template <bool kFour>
__device__ __forceinline__ void Scores(const QueryOperand& queries, const uint2 (&p2)[2], const uint2 (&p4)[2],
                                       float (&scores)[2][4]) {
#pragma unroll
  for (int w = 0; w < 2; ++w) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t twos = w == 0 ? p2[half].x : p2[half].y, fours = kFour ? (w == 0 ? p4[half].x : p4[half].y) : 0;
        uint32_t even = PairOfQuarter<kFour>(twos, fours, q), odd = PairOfQuarter<kFour>(twos >> 8, fours >> 8, q);
        Multiply(scores[half], queries.even[q * 2 + w], 0, queries.odd[q * 2 + w], 0, even, odd);
      }
    }
  }
}

template <bool kFourK, bool kFourV>
__device__ __forceinline__ void Attend(const AttentionJob& job, const Lane& lane, const QueryOperand& queries,
                                       const QueryFacts& facts, const RawTile<kFourK, kFourV>& raw,
                                       uint32_t tokens_left, State* state) {
  bool fp16 = job.meta == MetaType::kFp16;
  float score[4], log_step[4], v_minimum[4];
  float most = -INFINITY;
  float products[2][4] = {};
  Scores<kFourK>(queries, raw.k_p2, raw.k_p4, products);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t k_meta[2] = {raw.k_meta[half].x, raw.k_meta[half].y};
    const uint32_t v_meta[2] = {raw.v_meta[half].x, raw.v_meta[half].y};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int at = half * 2 + i;
      float2 k = MetaFloats(k_meta[i], fp16), v = MetaFloats(v_meta[i], fp16);
      float minimum = kFourK ? k.x : k.x + 24.0f * k.y;
      score[at] = (kFourK ? 16.0f : 64.0f) * k.y * facts.unit * products[half][i] + minimum * facts.sum;
      v_minimum[at] = kFourV ? v.x : v.x + 24.0f * v.y;
      // What stands behind the last token may be anything.
      if (half * 8 + 2 * lane.t + i >= tokens_left) score[at] = -INFINITY, v_minimum[at] = 0.0f;
      log_step[at] = fmaxf(__log2f(v.y), kStepLogMin);
      most = fmaxf(most, score[at] + log_step[at]);
    }
  }
  most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, 1));
  most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, 2));
  if (__any_sync(0xFFFFFFFFu, most > state->highest)) {
    float highest = fmaxf(state->highest, most);
    float factor = exp2f(state->highest - highest);
    if (highest == -INFINITY) factor = 1.0f;
    state->highest = highest;
    state->weight *= factor;
    state->base *= factor;
    float left = __shfl_sync(0xFFFFFFFFu, factor, 8 * lane.t), right = __shfl_sync(0xFFFFFFFFu, factor, 8 * lane.t + 4);
#pragma unroll
    for (int m = 0; m < 8; ++m) {
      state->values[m][0] *= left, state->values[m][1] *= right;
      state->values[m][2] *= left, state->values[m][3] *= right;
    }
  }
  // Weights carry the values' steps, so that they are at most 1 and FP16 holds them.
  float weight[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float plain = score[i] == -INFINITY ? 0.0f : exp2f(score[i] - state->highest);
    weight[i] = score[i] == -INFINITY ? 0.0f : exp2f(score[i] + log_step[i] - state->highest);
    state->weight += plain;
    state->base += plain * v_minimum[i];
  }
  __half2 first = __floats2half2_rn(weight[0], weight[1]), second = __floats2half2_rn(weight[2], weight[3]);
  uint32_t b0 = *reinterpret_cast<const uint32_t*>(&first), b1 = *reinterpret_cast<const uint32_t*>(&second);
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    // Two tokens' bytes `2 pair` and `2 pair + 1` in the halves of a word.
    uint32_t selector = pair == 0 ? 0x5410u : 0x7632u;
    uint32_t a2 = __byte_perm(raw.v_p2[0], raw.v_p2[1], selector), b2 = __byte_perm(raw.v_p2[2], raw.v_p2[3], selector);
    uint32_t a4 = kFourV ? __byte_perm(raw.v_p4[0], raw.v_p4[1], selector) : 0;
    uint32_t b4 = kFourV ? __byte_perm(raw.v_p4[2], raw.v_p4[3], selector) : 0;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      Multiply(state->values[q * 2 + pair], PairOfQuarter<kFourV>(a2, a4, q),
               PairOfQuarter<kFourV>(a2 >> 8, a4 >> 8, q), PairOfQuarter<kFourV>(b2, b4, q),
               PairOfQuarter<kFourV>(b2 >> 8, b4 >> 8, q), b0, b1);
    }
  }
}

__device__ __forceinline__ uint32_t PairOf(const __half* at, int first, int second) {
  return __half_as_ushort(at[first]) | uint32_t{__half_as_ushort(at[second])} << 16;
}

template <bool kFourK, bool kFourV>
__global__ void __launch_bounds__(kThreads, 4) AttendParts(const __grid_constant__ AttentionLaunch launch) {
  __shared__ float highest_of[kWarps][kQueriesMax], weight_of[kWarps][kQueriesMax], base_of[kWarps][kQueriesMax];
  __shared__ float values_of[kWarps][kQueriesMax][kWidth];
  const AttentionJob& job = launch.job;
  Lane lane;
  uint32_t warp = threadIdx.x / 32, sequence = blockIdx.z, kv_head = blockIdx.y;
  uint32_t length = job.lengths[sequence];
  uint32_t begin = blockIdx.x * launch.tokens_per_split, end = min(length, begin + launch.tokens_per_split);
  // Queries beyond the group repeat the last one, and are not written.
  uint64_t first_query = uint64_t{sequence} * job.query_heads + kv_head * launch.group;
  uint64_t query = first_query + min(lane.g, launch.group - 1);
  QueryFacts facts = launch.facts[query];
  QueryOperand operand;
  const __half* values = static_cast<const __half*>(launch.queries) + query * kWidth;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const __half* at = values + i / 2 * kQuarter + lane.t * 8 + i % 2 * 4;
    operand.even[i] = PairOf(at, 0, 2);
    operand.odd[i] = PairOf(at, 1, 3);
  }
  State state;
  constexpr uint32_t kStep = kWarps * kTileTokens;
  TilePlace place(launch, begin + warp * kTileTokens, end);
  if (place.token < end) {
    auto raw = LoadTile<kFourK, kFourV>(launch, lane, place);
    place = TilePlace(launch, place.token + kStep, end);
    for (uint32_t token = begin + warp * kTileTokens; token < end; token += kStep) {
      auto now = raw;
      if (place.token < end) raw = LoadTile<kFourK, kFourV>(launch, lane, place);
      place = TilePlace(launch, place.token + kStep, end);
      Attend<kFourK, kFourV>(job, lane, operand, facts, now, end - token, &state);
    }
  }
  // Four lanes have parts of a query's sums.
  for (int apart = 1; apart < 4; apart *= 2) {
    state.weight += __shfl_xor_sync(0xFFFFFFFFu, state.weight, apart);
    state.base += __shfl_xor_sync(0xFFFFFFFFu, state.base, apart);
  }
  if (lane.t == 0) {
    highest_of[warp][lane.g] = state.highest;
    weight_of[warp][lane.g] = state.weight, base_of[warp][lane.g] = state.base;
  }
  float level = kFourV ? 16.0f : 64.0f;
#pragma unroll
  for (int m = 0; m < 8; ++m) {
    uint32_t channel = m / 2 * kQuarter + lane.g * 4 + m % 2 * 2;
    float unit = level * QuarterUnit(channel);
    *reinterpret_cast<float2*>(&values_of[warp][2 * lane.t][channel]) = {state.values[m][0] * unit,
                                                                         state.values[m][2] * unit};
    *reinterpret_cast<float2*>(&values_of[warp][2 * lane.t + 1][channel]) = {state.values[m][1] * unit,
                                                                             state.values[m][3] * unit};
  }
  __syncthreads();
  // One thread a channel puts the warps' parts together.
  uint64_t heads = uint64_t{job.sequences} * job.query_heads;
  for (uint32_t g = 0; g < launch.group; ++g) {
    float highest = -INFINITY, weight = 0, value = 0;
    for (uint32_t w = 0; w < kWarps; ++w) highest = fmaxf(highest, highest_of[w][g]);
    for (uint32_t w = 0; w < kWarps; ++w) {
      if (highest_of[w][g] == -INFINITY) continue;
      float factor = exp2f(highest_of[w][g] - highest);
      weight += weight_of[w][g] * factor;
      value += (values_of[w][g][threadIdx.x] + base_of[w][g]) * factor;
    }
    Partial& partial = launch.partials[blockIdx.x * heads + first_query + g];
    partial.values[threadIdx.x] = value;
    if (threadIdx.x == 0) partial.highest = highest, partial.weight = weight;
  }
}

__global__ void __launch_bounds__(kWidth) PutTogether(const __grid_constant__ AttentionLaunch launch) {
  __shared__ float shared[kWidth];
  const AttentionJob& job = launch.job;
  uint32_t query = blockIdx.x, c = threadIdx.x;
  uint64_t heads = uint64_t{job.sequences} * job.query_heads;
  float highest = -INFINITY;
  for (uint32_t s = 0; s < job.splits; ++s) highest = fmaxf(highest, launch.partials[s * heads + query].highest);
  float weight = 0, value = 0;
  for (uint32_t s = 0; s < job.splits; ++s) {
    const Partial& partial = launch.partials[s * heads + query];
    if (partial.highest == -INFINITY) continue;
    float factor = exp2f(partial.highest - highest);
    weight += partial.weight * factor;
    value += partial.values[c] * factor;
  }
  value = weight > 0 ? value / weight : 0.0f;  // Of no tokens: zeros, and an lse of minus infinity.
  value = RotateChannels(value, shared, job.rotated) * job.v_scale;
  static_cast<__half*>(job.out)[uint64_t{query} * kWidth + c] = __float2half_rn(value);
  if (c == 0 && job.lse != nullptr) {
    job.lse[query] = weight > 0 ? (highest + __log2f(weight) + launch.facts[query].constant) / kLog2E : -INFINITY;
  }
}

}  // namespace

cudaError_t LaunchAttention(const AttentionLaunch& launch, cudaStream_t stream) {
  const AttentionJob& job = launch.job;
  uint32_t heads = job.sequences * job.query_heads;
  PrepareQueries<<<heads, kWidth, 0, stream>>>(launch);
  bool four_k = job.k_precision == PrecisionClass::k4Bit, four_v = job.v_precision == PrecisionClass::k4Bit;
  auto* parts = four_k ? (four_v ? AttendParts<true, true> : AttendParts<true, false>)
                       : (four_v ? AttendParts<false, true> : AttendParts<false, false>);
  parts<<<dim3(job.splits, job.kv_heads, job.sequences), kThreads, 0, stream>>>(launch);
  PutTogether<<<heads, kWidth, 0, stream>>>(launch);
  return cudaGetLastError();
}

}  // namespace firn::kernels
