// Per token: a warp has one token of all heads, each lane chunks of eight channels, 32 chunks apart. A value and its
// place make a key that no other value has, so the next outlier is one maximum over the warp.
#include "kernels/nuq/levels.cuh"

namespace firn::kernels {
namespace {

constexpr uint32_t kThreads = 256, kWarps = kThreads / 32;

// The token of this warp. Warps beyond the last token do it again and write nothing new.
struct TokenPlace {
  RowAt at;
  uint32_t lane = threadIdx.x % 32;
  uint32_t chunks;  // Of the vector.

  __device__ __forceinline__ explicit TokenPlace(const NuqLaunch& launch) : chunks(launch.vector / 8) {
    uint32_t units = (launch.shape.tokens + kWarps - 1) / kWarps;
    uint32_t layer_index = blockIdx.x / units;
    uint32_t token = (blockIdx.x - layer_index * units) * kWarps + threadIdx.x / 32;
    at.block = launch.shape.by_layers.Quotient(layer_index);
    at.layer = layer_index - at.block * launch.shape.layers;
    at.head = 0, at.token = min(token, launch.shape.tokens - 1);
  }
  __device__ __forceinline__ uint32_t Chunk(uint32_t k) const { return min(k * 32 + lane, chunks - 1); }
  __device__ __forceinline__ bool Has(uint32_t k) const { return k * 32 + lane < chunks; }
  // The row of a chunk of the vector, within the block, and the chunk's place in it.
  struct InRow {
    RowAt at;
    uint32_t row, chunk;
  };
  __device__ __forceinline__ InRow Find(const NuqLaunch& launch, uint32_t chunk) const {
    InRow found{at, 0, 0};
    found.at.head = launch.by_row_chunks.Quotient(chunk);
    found.chunk = chunk - found.at.head * launch.by_row_chunks.divisor;
    found.row = (at.layer * launch.shape.heads + found.at.head) * launch.shape.tokens + at.token;
    return found;
  }
  template <typename Value, Places kPlaces>
  __device__ __forceinline__ Value* Values(const NuqLaunch& launch, const InRow& in) const {
    const RowsView& rows = launch.job.rows;
    if constexpr (kPlaces == Places::kLinear) {
      return static_cast<Value*>(rows.base) + at.block * rows.page_stride + uint64_t{in.row} * launch.shape.width +
             in.chunk * 8;
    }
    return RowOf<Value>(rows, launch.by_page, in.at) + in.chunk * 8;
  }
  // Word `index` of the token's metadata: the range, then an entry each.
  template <Places kPlaces>
  __device__ __forceinline__ uint32_t* Meta(const NuqLaunch& launch, uint32_t index) const {
    uint32_t offset = (at.layer * launch.shape.tokens + at.token) * launch.vector_bytes + index * 4;
    return reinterpret_cast<uint32_t*>(RunBytesAt<kPlaces>(launch.job.meta_run, at.block, offset));
  }
};

// Two values as 16-bit numbers of the same order, -0 below +0; and back.
__device__ __forceinline__ uint32_t OrderPair(uint32_t pair) {
  return pair ^ ((pair >> 15 & 0x00010001u) * 0x7FFFu) ^ 0x80008000u;
}
__device__ __forceinline__ uint32_t FromOrderPair(uint32_t order) {
  uint32_t pair = order ^ 0x80008000u;
  return pair ^ ((pair >> 15 & 0x00010001u) * 0x7FFFu);
}

// The largest key of a chunk: of 16-bit numbers, of equal ones the first. 0 is of none that is left: of the values only
// a NaN has it.
__device__ __forceinline__ uint32_t LargestKey(const uint32_t (&orders)[4], uint32_t first) {
  uint32_t largest = 0, places = 0xFFFFu - first;
#pragma unroll
  for (uint32_t j = 0; j < 8; ++j) {
    uint32_t word = orders[j / 2];
    largest = max(largest, (j % 2 == 0 ? word << 16 : word & 0xFFFF0000u) + (places - j));
  }
  return largest;
}

// Takes the `count` largest numbers of all lanes, which become 0; lane `number` + n keeps the n-th's entry, whose value
// is `flip` apart from the number. Gives the value that would be next.
template <uint32_t kChunks>
__device__ __forceinline__ uint32_t TakeLargest(const TokenPlace& own, uint32_t count, uint32_t flip, uint32_t number,
                                                uint32_t (&orders)[kChunks][4], uint32_t* entry) {
  uint32_t keys[kChunks];
#pragma unroll
  for (uint32_t k = 0; k < kChunks; ++k) keys[k] = LargestKey(orders[k], own.Chunk(k) * 8);
  for (uint32_t n = 0;; ++n) {
    uint32_t largest = keys[0];
#pragma unroll
    for (uint32_t k = 1; k < kChunks; ++k) largest = max(largest, keys[k]);
    largest = __reduce_max_sync(0xFFFFFFFFu, largest);
    uint32_t value = FromOrderPair((largest >> 16) ^ flip) & 0xFFFFu;
    if (n == count) return value;
    // The same for all lanes, of which one has it.
    uint32_t index = 0xFFFFu - (largest & 0xFFFFu), chunk = index / 8, word = index % 8 / 2;
    uint32_t left = chunk % 32 != own.lane ? 0xFFFFFFFFu : (index % 2 == 0 ? 0xFFFF0000u : 0x0000FFFFu);
    if (own.lane == number + n) *entry = index | value << 16;
#pragma unroll
    for (uint32_t k = 0; k < kChunks; ++k) {
      if (chunk / 32 != k) continue;
#pragma unroll
      for (uint32_t i = 0; i < 4; ++i) orders[k][i] &= word == i ? left : 0xFFFFFFFFu;
      keys[k] = LargestKey(orders[k], own.Chunk(k) * 8);
    }
  }
}

// The smallest become the largest; what is taken stays so.
__device__ __forceinline__ uint32_t FlipPair(uint32_t orders) {
  uint32_t low = (orders & 0xFFFFu) != 0 ? 0xFFFFu : 0, high = (orders >> 16) != 0 ? 0xFFFF0000u : 0;
  return ~orders & (low | high);
}

// Entries ascend by index.
template <Places kPlaces>
__device__ __forceinline__ void StoreEntries(const NuqLaunch& launch, const TokenPlace& own, uint32_t entry) {
  uint32_t rank = 0;
  for (uint32_t n = 0; n < launch.outliers; ++n) {
    rank += (__shfl_sync(0xFFFFFFFFu, entry, n) & 0xFFFFu) < (entry & 0xFFFFu) ? 1 : 0;
  }
  if (own.lane < launch.outliers) *own.Meta<kPlaces>(launch, 1 + rank) = entry;
}

template <typename Value, uint32_t kChunks>
__device__ __forceinline__ float MagnitudeOf(const uint4 (&raw)[kChunks]) {
  constexpr uint32_t kMagnitude = 0x7FFF7FFFu;
  uint32_t largest = 0;
#pragma unroll
  for (uint32_t k = 0; k < kChunks; ++k) {
    largest = MaxPair<Value>(largest, MaxPair<Value>(raw[k].x & kMagnitude, raw[k].y & kMagnitude));
    largest = MaxPair<Value>(largest, MaxPair<Value>(raw[k].z & kMagnitude, raw[k].w & kMagnitude));
  }
  uint32_t bits = __reduce_max_sync(0xFFFFFFFFu, max(largest & 0xFFFFu, largest >> 16));
  return ValueTraits<Value>::ToFloats(bits).x;
}

template <typename Value, int kBits, Places kPlaces, uint32_t kChunks>
__global__ void __launch_bounds__(kThreads) EncodeToken(const __grid_constant__ NuqLaunch launch) {
  __shared__ float thresholds[kLevelsMax];
  using Traits = ValueTraits<Value>;
  const NuqJob& job = launch.job;
  TokenPlace own(launch);
  LoadThresholds(job, own.at.layer, thresholds);
  __syncthreads();
  uint4 raw[kChunks];
#pragma unroll
  for (uint32_t k = 0; k < kChunks; ++k) {
    raw[k] = LoadOnce(own.Values<const Value, kPlaces>(launch, own.Find(launch, own.Chunk(k))));
  }
  uint32_t orders[kChunks][4];
#pragma unroll
  for (uint32_t k = 0; k < kChunks; ++k) {
    const uint32_t words[4] = {raw[k].x, raw[k].y, raw[k].z, raw[k].w};
#pragma unroll
    for (int i = 0; i < 4; ++i) orders[k][i] = own.Has(k) ? OrderPair(words[i]) : 0;
  }
  uint32_t low_count = launch.outliers / 2, high_count = launch.outliers - low_count, entry = 0;
  uint32_t high = TakeLargest(own, high_count, 0, 0, orders, &entry);
#pragma unroll
  for (uint32_t k = 0; k < kChunks; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) orders[k][i] = FlipPair(orders[k][i]);
  }
  uint32_t low = TakeLargest(own, low_count, 0xFFFFu, high_count, orders, &entry);
  float lowest = Traits::ToFloats(low).x, highest = Traits::ToFloats(high).x;
  NuqRange range = NuqRangeOf<Value>(lowest, highest);
  float magnitude = MagnitudeOf<Value>(raw);
  if (own.lane == 0) {
    *own.Meta<kPlaces>(launch, 0) = PairBits(Traits::Nearest(range.centre), Traits::Nearest(range.reach));
    TellSurvey(launch, own.at.block, MagnitudeSurvey<Value>(magnitude, true) | ReachSurvey<Value>(lowest, highest));
  }
  StoreEntries<kPlaces>(launch, own, entry);
#pragma unroll
  for (uint32_t k = 0; k < kChunks; ++k) {
    float v[8];
    ToFloats8<Value>(raw[k], v);
    uint32_t codes[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) codes[j] = NearestLevel(thresholds, kBits, (v[j] - range.centre) * range.inverse);
    TokenPlace::InRow in = own.Find(launch, own.Chunk(k));
    StoreCodes<kBits, kPlaces>(job.codes, own.at.block, in.row * launch.by_row_chunks.divisor + in.chunk,
                               PackChunk<kBits, 0>(codes), own.Has(k));
  }
}

// Outliers overwrite what the codes stand for, once all lanes have written that.
template <typename Value, int kBits, Places kPlaces, uint32_t kChunks>
__global__ void __launch_bounds__(kThreads) DecodeToken(const __grid_constant__ NuqLaunch launch) {
  __shared__ float decoded[kLevelsMax];
  using Traits = ValueTraits<Value>;
  const NuqJob& job = launch.job;
  TokenPlace own(launch);
  LoadDecoded(job, own.at.layer, decoded);
  __syncthreads();
  ChunkCodes codes[kChunks];
#pragma unroll
  for (uint32_t k = 0; k < kChunks; ++k) {
    TokenPlace::InRow in = own.Find(launch, own.Chunk(k));
    codes[k] = LoadCodes<kBits, kPlaces>(job.codes, own.at.block, in.row * launch.by_row_chunks.divisor + in.chunk);
  }
  float2 range = Traits::ToFloats(*own.Meta<kPlaces>(launch, 0));
  uint32_t entry = own.lane < launch.outliers ? *own.Meta<kPlaces>(launch, 1 + own.lane) : 0;
#pragma unroll
  for (uint32_t k = 0; k < kChunks; ++k) {
    if (!own.Has(k)) continue;
    float v[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = NuqValueOf(decoded[ChunkCode<kBits>(codes[k], j)], range.x, range.y);
    StoreOnce(own.Values<Value, kPlaces>(launch, own.Find(launch, own.Chunk(k))), ToSaturated8<Value>(v));
  }
  __syncwarp();
  uint32_t index = entry & 0xFFFFu;
  if (own.lane >= launch.outliers || index >= launch.vector) return;  // Beyond the vector: damaged.
  uint32_t pair = Traits::ToSaturatedPair(Traits::ToFloats(entry).y, 0.0f);
  auto* chunk = reinterpret_cast<uint16_t*>(own.Values<Value, kPlaces>(launch, own.Find(launch, index / 8)));
  chunk[index % 8] = static_cast<uint16_t>(pair);
}

template <bool kEncode>
cudaError_t Launch(const NuqLaunch& launch, cudaStream_t stream) {
  uint32_t units = (launch.shape.tokens + kWarps - 1) / kWarps;
  uint32_t blocks = launch.shape.blocks * launch.shape.layers * units;
  return ForNuq(launch, [&]<typename Value, int kBits, Places kPlaces>() {
    auto with = [&]<uint32_t kChunks>() {
      auto* kernel =
          kEncode ? EncodeToken<Value, kBits, kPlaces, kChunks> : DecodeToken<Value, kBits, kPlaces, kChunks>;
      return LaunchShared<NuqLaunch>(kernel, launch, blocks, kThreads, 0, stream);
    };
    if (launch.vector <= 512) return with.template operator()<2>();
    if (launch.vector <= 1024) return with.template operator()<4>();
    return with.template operator()<8>();
  });
}

}  // namespace

cudaError_t LaunchEncodeNuqToken(const NuqLaunch& launch, cudaStream_t stream) { return Launch<true>(launch, stream); }
cudaError_t LaunchDecodeNuqToken(const NuqLaunch& launch, cudaStream_t stream) { return Launch<false>(launch, stream); }

}  // namespace firn::kernels
