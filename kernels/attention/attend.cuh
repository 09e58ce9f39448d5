// The attention kernel. A block of eight warps has a part of a sequence and one KV head with its queries: the warps
// read tiles of 16 tokens in turn, their parts are put together in shared memory, and the block that finishes a
// sequence last puts the blocks' parts together. Exact tokens are shared out among the blocks too.
#pragma once

#include <type_traits>

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

template <Code kCode, bool kHalves>
__device__ __forceinline__ Scale ScaleOf(uint32_t bits) {
  if constexpr (kCode == Code::kFp8) return {0.0f, __uint_as_float(bits)};
  using Value = std::conditional_t<kHalves, __half, __nv_bfloat16>;
  float2 pair = ValueTraits<Value>::ToFloats(bits);
  constexpr float kOffset = CodeTraits<kCode>::kOffset;
  return {kOffset == 0.0f ? pair.x : fmaf(kOffset, pair.y, pair.x), pair.y};
}

// Of a tile's products; gives the weights as the second product takes them.
template <typename Layout, bool kHalves>
__device__ __forceinline__ void Weigh(const uint8_t* tile, const Lane& lane,
                                      const QueryOperands<Layout::kWidth>& queries, const float (&products)[4],
                                      uint32_t tokens_left, State<Layout::kWidth>* state, uint32_t (&weights)[2]) {
  const auto* meta = reinterpret_cast<const uint32_t*>(tile + Layout::kMetaAt);
  uint32_t a = Layout::kFp8 ? 0 : lane.KeyToken(), b = Layout::kFp8 ? 0 : a + 8;
  Scale k[2] = {ScaleOf<Layout::kKeys, kHalves>(meta[a]), ScaleOf<Layout::kKeys, kHalves>(meta[b])};
  Scale v[2] = {ScaleOf<Layout::kValues, kHalves>(meta[16 + a]), ScaleOf<Layout::kValues, kHalves>(meta[16 + b])};
  float score[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    score[i] = Layout::kFp8 ? k[i / 2].step * products[i]
                            : fmaf(k[i / 2].step, products[i], k[i / 2].minimum * queries.sum[i % 2]);
  }
  if (tokens_left < kTileTokens) {
    // What stands behind the last token may be anything.
    if (lane.KeyToken() >= tokens_left) score[0] = score[1] = -INFINITY, v[0] = {};
    if (lane.KeyToken() + 8 >= tokens_left) score[2] = score[3] = -INFINITY, v[1] = {};
  }
  state->template Weigh<!Layout::kFp8>(score, queries.unit, v[0], v[1], weights);
}

// A warp's tiles one after another. Where they overlap, weights of nothing go along with the first tile's scores, so
// that nothing branches between the two and they share what the multiprocessor has.
template <typename Layout, bool kHalves>
__device__ __forceinline__ void AttendTiles(TileStream<Layout>* stream, TileOrder order, uint32_t end,
                                            const uint8_t* memory, const Lane& lane,
                                            const QueryOperands<Layout::kWidth>& queries,
                                            State<Layout::kWidth>* state) {
  constexpr uint32_t kEnd = Layout::kStages * Layout::kBytes;
  uint32_t stage = 0, before = 0, weights[2] = {};
  while (order.token() < end) {
    WaitForCopies<Layout::kAhead - 1>();
    __syncwarp();  // All lanes' copies are there, and all lanes are done with the tile that the next one replaces.
    stream->Issue();
    float products[4];
    Scores<Layout>(memory + stage, lane, queries, products);
    if (Layout::kOverlap) AddValues<Layout>(memory + before, lane, weights, state);
    Weigh<Layout, kHalves>(memory + stage, lane, queries, products, end - order.token(), state, weights);
    if (!Layout::kOverlap) AddValues<Layout>(memory + stage, lane, weights, state);
    order.Advance();
    before = stage;
    stage = stage + Layout::kBytes == kEnd ? 0 : stage + Layout::kBytes;
  }
  if (Layout::kOverlap) AddValues<Layout>(memory + before, lane, weights, state);
}

// `memory` is the warp's own, and so is what is in `sums_of`. Queries are prepared.
template <typename Layout>
__device__ __forceinline__ void AttendPacked(const AttentionLaunch& launch, TileStream<Layout>* stream, uint32_t begin,
                                             uint32_t end, uint8_t* memory, const Queries<Layout::kWidth>& queries,
                                             PartSums* sums_of) {
  Lane lane;
  QueryOperands<Layout::kWidth> operands(lane, queries);
  State<Layout::kWidth> state;
  TileOrder order(begin, launch.turn);
  if (Layout::kFp8 || launch.job.meta == MetaType::kFp16) {
    AttendTiles<Layout, true>(stream, order, end, memory, lane, operands, &state);
  } else {
    AttendTiles<Layout, Layout::kFp8>(stream, order, end, memory, lane, operands, &state);
  }
  WaitForCopies<0>();
  __syncwarp();
  state.template Store<Layout::kValues>(lane, launch.group, reinterpret_cast<float*>(memory), sums_of);
}

template <typename Layout>
__global__ void __launch_bounds__(kAttentionThreads, 2) AttendParts(const __grid_constant__ AttentionLaunch launch) {
  constexpr uint32_t kWidth = Layout::kWidth, kWarpBytes = Layout::kStages * Layout::kBytes;
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ Queries<kWidth> queries, exact_queries;
  __shared__ PartSums sums[kQueriesMax][kQueriesMax];
  __shared__ LaneRuns<Layout> runs;
  __shared__ ExactShare exact;
  const AttentionJob& job = launch.job;
  uint32_t warp = threadIdx.x / 32;
  uint8_t* own = memory + warp * kWarpBytes;
  uint32_t begin = blockIdx.x * launch.tokens_per_split;
  // What is asked for before the length is known is there the sooner.
  TileStream<Layout> stream(launch, runs, begin, static_cast<uint32_t>(__cvta_generic_to_shared(own)));
  uint32_t end = min(job.lengths[blockIdx.z], begin + launch.tokens_per_split);
  if (warp == 0) runs.Set(job);
  if (threadIdx.x == 32) exact.Set(launch);
  __syncthreads();
  if (begin < end) {
    stream.Begin(end);
    PrepareQueries<Layout::kKeys, kWidth>(launch, &queries);
  }
  if (!exact.Empty()) {
    exact.Prefetch<kWidth>(launch);
    PrepareQueries<Code::kRows, kWidth>(launch, &exact_queries);
  }
  __syncthreads();
  HeadResult<kWidth / 32> result;
  if (begin < end) {
    AttendPacked<Layout>(launch, &stream, begin, end, own, queries, sums[warp]);
    __syncthreads();
    if (warp < launch.group) result = MergeWarps<kWidth>(sums, memory, kWarpBytes);
    result.highest += queries.constant[warp];
    __syncthreads();
  }
  if (!exact.Empty()) {
    AttendExact<kWidth>(launch, exact, own, exact_queries, sums[warp]);
    __syncthreads();
    if (warp < launch.group) {
      auto of_exact = MergeWarps<kWidth>(sums, memory, kWarpBytes);
      AsPacked<kWidth>(job, of_exact.values);
      result.Add(of_exact);
    }
  }
  uint64_t first_query = uint64_t{blockIdx.z} * job.query_heads + blockIdx.y * launch.group;
  if (job.splits > 1) {
    if (warp < launch.group) StorePart<kWidth>(launch, first_query + warp, blockIdx.x, result);
    if (job.arrivals == nullptr) return;
    if (!LastToArrive(job.arrivals + blockIdx.z * job.kv_heads + blockIdx.y, job.splits)) return;
    result = MergeParts<kWidth>(launch, first_query, reinterpret_cast<float*>(memory));
  }
  if (warp < launch.group) StoreResult<kWidth>(job, first_query + warp, result);
}

template <uint32_t kWidth>
__global__ void __launch_bounds__(kAttentionThreads) PutTogether(const __grid_constant__ AttentionLaunch launch) {
  __shared__ float memory[kQueriesMax * kWidth];
  uint64_t first_query = uint64_t{blockIdx.z} * launch.job.query_heads + blockIdx.y * launch.group;
  auto result = MergeParts<kWidth>(launch, first_query, memory);
  uint32_t warp = threadIdx.x / 32;
  if (warp < launch.group) StoreResult<kWidth>(launch.job, first_query + warp, result);
}

template <typename Layout>
cudaError_t LaunchLayout(const AttentionLaunch& launch, cudaStream_t stream) {
  const AttentionJob& job = launch.job;
  constexpr uint32_t kMemory = kQueriesMax * Layout::kStages * Layout::kBytes;
  auto* kernel = AttendParts<Layout>;
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMemory);
  if (error != cudaSuccess) return error;
  kernel<<<dim3(job.splits, job.kv_heads, job.sequences), kAttentionThreads, kMemory, stream>>>(launch);
  if (job.splits > 1 && job.arrivals == nullptr) {
    PutTogether<Layout::kWidth><<<dim3(1, job.kv_heads, job.sequences), kAttentionThreads, 0, stream>>>(launch);
  }
  return cudaGetLastError();
}

}  // namespace firn::kernels
