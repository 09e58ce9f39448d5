// The attention kernel. A block of eight warps has a part of a sequence and one KV head with its queries: the warps read
// tiles of 16 tokens in turn, their parts are put together in shared memory, and the block that finishes a sequence last
// puts the blocks' parts together. Further blocks have the exact tokens.
#pragma once

#include "kernels/attention/exact.cuh"
#include "kernels/attention/merge.cuh"
#include "kernels/attention/tiles.cuh"

namespace firn::kernels {

template <int kBytes>
__device__ __forceinline__ void LoadBytes(const uint8_t* from, uint32_t* to) {
  if constexpr (kBytes == 2) {
    to[0] = *reinterpret_cast<const uint16_t*>(from);
  } else if constexpr (kBytes == 4) {
    to[0] = *reinterpret_cast<const uint32_t*>(from);
  } else if constexpr (kBytes == 8) {
    uint2 two = *reinterpret_cast<const uint2*>(from);
    to[0] = two.x, to[1] = two.y;
  } else {
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      uint4 four = reinterpret_cast<const uint4*>(from)[i];
      to[4 * i] = four.x, to[4 * i + 1] = four.y, to[4 * i + 2] = four.z, to[4 * i + 3] = four.w;
    }
  }
}

// A lane's piece of a token: one of kPieces of its row in every plane.
template <Code kCode, uint32_t kWidth, uint32_t kPieces>
struct Piece {
  static constexpr bool kNested = CodeTraits<kCode>::kNested;
  static constexpr int kBytes = static_cast<int>((kNested ? kWidth / 4 : kWidth) / kPieces);
  static constexpr int kWords = (kBytes + 3) / 4;
  uint32_t a[kWords], b[kWords] = {}, low[kWords] = {}, high[kWords] = {};

  // `part` is the tile's runs of one part.
  __device__ __forceinline__ Piece(const uint8_t* part, uint32_t token, uint32_t piece) {
    constexpr uint32_t kQuarter = kWidth / 4, kUnit = 16 * kQuarter;
    const uint8_t* at = part + token * (kNested ? kQuarter : kWidth) + piece * kBytes;
    LoadBytes<kBytes>(at, a);
    if constexpr (kCode == Code::kInt4 || kCode == Code::kInt8) LoadBytes<kBytes>(at + kUnit, b);
    if constexpr (kCode == Code::kInt8) {
      at = part + 2 * kUnit + token * 2 * kQuarter + piece * kBytes;
      LoadBytes<kBytes>(at, low);
      LoadBytes<kBytes>(at + kQuarter, high);
    }
  }
};

template <typename Layout>
__device__ __forceinline__ void Scores(const uint8_t* tile, const Lane& lane,
                                       const QueryOperands<Layout::kWidth>& queries, float (&score)[4]) {
  constexpr Code kCode = Layout::kKeys;
  constexpr int kQuarters = CodeTraits<kCode>::kQuarters;
  Piece<kCode, Layout::kWidth, 4> a(tile, lane.KeyToken(), lane.t), b(tile, lane.KeyToken() + 8, lane.t);
  float sums[2][4] = {};  // Two, so that products wait less for each other.
#pragma unroll
  for (int w = 0; w < a.kWords; ++w) {
    auto of_a = Unpack<kCode>(a.a[w], a.b[w], a.low[w], a.high[w]);
    auto of_b = Unpack<kCode>(b.a[w], b.b[w], b.low[w], b.high[w]);
#pragma unroll
    for (int q = 0; q < kQuarters; ++q) {
      int product = w * kQuarters + q;
      Multiply(sums[product % 2], of_a.even[q], of_b.even[q], of_a.odd[q], of_b.odd[q], queries.even[product],
               queries.odd[product]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) score[i] = sums[0][i] + sums[1][i];
}

template <typename Layout>
__device__ __forceinline__ void AddValues(const uint8_t* tile, const Lane& lane, const uint32_t (&weights)[2],
                                          State<Layout::kWidth>* state) {
  constexpr Code kCode = Layout::kValues;
  constexpr int kQuarters = CodeTraits<kCode>::kQuarters;
  using TokenPiece = Piece<kCode, Layout::kWidth, 8>;
  const uint8_t* part = tile + Layout::kValuesAt;
  TokenPiece v[4] = {{part, lane.ValueToken(0), lane.g},
                     {part, lane.ValueToken(1), lane.g},
                     {part, lane.ValueToken(2), lane.g},
                     {part, lane.ValueToken(3), lane.g}};
#pragma unroll
  for (int h = 0; h < TokenPiece::kBytes / 2; ++h) {
    int w = h / 2;
    // Two tokens' bytes 2h and 2h + 1 in the halves of a word.
    uint32_t bytes = h % 2 == 0 ? 0x5410u : 0x7632u;
    auto both = [bytes](uint32_t first, uint32_t second) { return __byte_perm(first, second, bytes); };
    auto front = Unpack<kCode>(both(v[0].a[w], v[1].a[w]), both(v[0].b[w], v[1].b[w]), both(v[0].low[w], v[1].low[w]),
                               both(v[0].high[w], v[1].high[w]));
    auto back = Unpack<kCode>(both(v[2].a[w], v[3].a[w]), both(v[2].b[w], v[3].b[w]), both(v[2].low[w], v[3].low[w]),
                              both(v[2].high[w], v[3].high[w]));
#pragma unroll
    for (int q = 0; q < kQuarters; ++q) {
      Multiply(state->values[h * kQuarters + q], front.even[q], front.odd[q], back.even[q], back.odd[q], weights[0],
               weights[1]);
    }
  }
}

template <Code kCode>
__device__ __forceinline__ Scale ScaleOf(uint32_t bits, bool fp16) {
  if constexpr (kCode == Code::kFp8) return {0.0f, __uint_as_float(bits)};
  float2 pair = fp16 ? ValueTraits<__half>::ToFloats(bits) : ValueTraits<__nv_bfloat16>::ToFloats(bits);
  constexpr float kOffset = CodeTraits<kCode>::kOffset;
  return {kOffset == 0.0f ? pair.x : fmaf(kOffset, pair.y, pair.x), pair.y};
}

template <typename Layout>
__device__ __forceinline__ void AttendTile(const uint8_t* tile, const Lane& lane, bool fp16,
                                           const QueryOperands<Layout::kWidth>& queries, uint32_t tokens_left,
                                           State<Layout::kWidth>* state) {
  float products[4], score[4];
  Scores<Layout>(tile, lane, queries, products);
  const auto* meta = reinterpret_cast<const uint32_t*>(tile + Layout::kMetaAt);
  uint32_t a = Layout::kFp8 ? 0 : lane.KeyToken(), b = Layout::kFp8 ? 0 : a + 8;
  Scale k[2] = {ScaleOf<Layout::kKeys>(meta[a], fp16), ScaleOf<Layout::kKeys>(meta[b], fp16)};
  Scale v[2] = {ScaleOf<Layout::kValues>(meta[16 + a], fp16), ScaleOf<Layout::kValues>(meta[16 + b], fp16)};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    score[i] = Layout::kFp8 ? k[i / 2].step * products[i]
                            : fmaf(k[i / 2].step, products[i], k[i / 2].minimum * queries.sum[i % 2]);
  }
  if (tokens_left < kTileTokens) {
    if (lane.KeyToken() >= tokens_left) score[0] = score[1] = -INFINITY;
    if (lane.KeyToken() + 8 >= tokens_left) score[2] = score[3] = -INFINITY;
  }
  uint32_t weights[2];
  state->template Weigh<!Layout::kFp8>(score, queries.unit, v[0], v[1], weights);
  AddValues<Layout>(tile, lane, weights, state);
}

// Tokens begin to end of the packed cache. `memory` is the warp's own, and so is what is in `sums_of`.
template <typename Layout>
__device__ __forceinline__ void AttendPacked(const AttentionLaunch& launch, uint32_t begin, uint32_t end,
                                             uint8_t* memory, Queries<Layout::kWidth>* queries, PartSums* sums_of) {
  auto memory_at = static_cast<uint32_t>(__cvta_generic_to_shared(memory));
  TileStream<Layout> stream(launch, blockIdx.z, blockIdx.y, begin, end, memory_at);
  constexpr int kAhead = static_cast<int>(Layout::kStages) - 1;
#pragma unroll
  for (int i = 0; i < kAhead; ++i) stream.Issue();
  PrepareQueries<Layout::kKeys, Layout::kWidth>(launch, blockIdx.z, blockIdx.y, queries);
  __syncthreads();
  Lane lane;
  QueryOperands<Layout::kWidth> operands(lane, *queries);
  State<Layout::kWidth> state;
  bool fp16 = launch.job.meta == MetaType::kFp16;
  uint32_t stage = 0;
  for (uint32_t token = begin + threadIdx.x / 32 * kTileTokens; token < end; token += kQueriesMax * kTileTokens) {
    WaitForCopies<kAhead - 1>();
    __syncwarp();  // All lanes' copies are there, and all lanes are done with the tile that the next one replaces.
    stream.Issue();
    AttendTile<Layout>(memory + stage, lane, fp16, operands, end - token, &state);
    stage = stage + Layout::kBytes == Layout::kStages * Layout::kBytes ? 0 : stage + Layout::kBytes;
  }
  WaitForCopies<0>();
  __syncwarp();
  state.template Store<Layout::kValues>(lane, launch.group, reinterpret_cast<float*>(memory), sums_of);
}

// Which tokens a block of threads has.
struct PartTokens {
  uint32_t exact = 2;  // Which of the exact rows; 2: packed tokens.
  uint32_t begin, end;

  __device__ __forceinline__ explicit PartTokens(const AttentionLaunch& launch) {
    const AttentionJob& job = launch.job;
    uint32_t part = blockIdx.x;
    if (part < job.splits) {
      begin = part * launch.tokens_per_split;
      end = min(job.lengths[blockIdx.z], begin + launch.tokens_per_split);
      return;
    }
    part -= job.splits;
    exact = part < launch.exact_parts[0] ? 0 : 1;
    begin = (exact == 0 ? part : part - launch.exact_parts[0]) * kExactTokensPerPart;
    end = min(job.exact[exact].lengths[blockIdx.z], begin + kExactTokensPerPart);
  }
};

template <typename Layout>
__global__ void __launch_bounds__(kAttentionThreads, 2) AttendParts(const __grid_constant__ AttentionLaunch launch) {
  constexpr uint32_t kWidth = Layout::kWidth, kWarpBytes = Layout::kStages * Layout::kBytes;
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ Queries<kWidth> queries;
  __shared__ PartSums sums[kQueriesMax][kQueriesMax];
  const AttentionJob& job = launch.job;
  uint32_t warp = threadIdx.x / 32;
  PartTokens tokens(launch);
  HeadResult<kWidth / 32> result;
  if (tokens.begin < tokens.end) {
    uint8_t* own = memory + warp * kWarpBytes;
    if (tokens.exact == 2) {
      AttendPacked<Layout>(launch, tokens.begin, tokens.end, own, &queries, sums[warp]);
    } else {
      AttendExact<kWidth>(launch, tokens.exact, tokens.begin, tokens.end, own, &queries, sums[warp]);
    }
    __syncthreads();
    if (warp < launch.group) {
      result = MergeWarps<kWidth>(sums, memory, kWarpBytes);
      result.highest += queries.constant[warp];
      if (tokens.exact != 2) AsPacked<kWidth>(job, result.values);
    }
  }
  uint64_t query = uint64_t{blockIdx.z} * job.query_heads + blockIdx.y * launch.group + warp;
  if (launch.parts > 1) {
    if (warp < launch.group) StorePart<kWidth>(launch, query, blockIdx.x, result);
    if (job.arrivals == nullptr) return;
    if (!LastToArrive(job.arrivals + blockIdx.z * job.kv_heads + blockIdx.y, launch.parts)) return;
    if (warp < launch.group) result = MergeParts<kWidth>(launch, query);
  }
  if (warp < launch.group) StoreResult<kWidth>(job, query, result);
}

template <uint32_t kWidth>
__global__ void __launch_bounds__(kAttentionThreads) PutTogether(const __grid_constant__ AttentionLaunch launch) {
  uint32_t warp = threadIdx.x / 32;
  if (warp >= launch.group) return;
  uint64_t query = uint64_t{blockIdx.z} * launch.job.query_heads + blockIdx.y * launch.group + warp;
  StoreResult<kWidth>(launch.job, query, MergeParts<kWidth>(launch, query));
}

template <typename Layout>
cudaError_t LaunchLayout(const AttentionLaunch& launch, cudaStream_t stream) {
  const AttentionJob& job = launch.job;
  constexpr uint32_t kMemory = kQueriesMax * Layout::kStages * Layout::kBytes;
  auto* kernel = AttendParts<Layout>;
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMemory);
  if (error != cudaSuccess) return error;
  kernel<<<dim3(launch.parts, job.kv_heads, job.sequences), kAttentionThreads, kMemory, stream>>>(launch);
  if (launch.parts > 1 && job.arrivals == nullptr) {
    PutTogether<Layout::kWidth><<<dim3(1, job.kv_heads, job.sequences), kAttentionThreads, 0, stream>>>(launch);
  }
  return cudaGetLastError();
}

}  // namespace firn::kernels
