// Per channel, for widths of 64, 128 and 256: a thread block has one head, whose arrays its threads keep in registers;
// each thread has eight channels of a few tokens, and the lanes of a row choose its outliers together.
#include "kernels/nuq/levels.cuh"

namespace firn::kernels {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kTokensEach = 4;

struct HeadPlace {
  RowAt head;
  uint32_t lanes, lane, slot, slots;
  uint32_t in_block;  // The head's number within its block.

  __device__ __forceinline__ explicit HeadPlace(const NuqLaunch& launch) {
    head = launch.shape.HeadOf(blockIdx.x);
    lanes = launch.by_row_chunks.divisor;
    slot = launch.by_row_chunks.Quotient(threadIdx.x);
    lane = threadIdx.x - slot * lanes;
    slots = kThreads / lanes;
    in_block = head.layer * launch.shape.heads + head.head;
  }
  // Lanes of this row, of the warp's.
  __device__ __forceinline__ uint32_t RowMask() const {
    return (lanes == 32 ? 0xFFFFFFFFu : (1u << lanes) - 1) << (threadIdx.x % 32 - lane);
  }
  __device__ __forceinline__ uint32_t Row(const NuqLaunch& launch, uint32_t token) const {
    return in_block * launch.shape.tokens + token;
  }
  template <typename Value, Places kPlaces>
  __device__ __forceinline__ Value* Values(const NuqLaunch& launch, uint32_t token) const {
    const RowsView& rows = launch.job.rows;
    if constexpr (kPlaces == Places::kLinear) {
      return static_cast<Value*>(rows.base) + head.block * rows.page_stride +
             uint64_t{Row(launch, token)} * launch.shape.width + lane * 8;
    }
    return RowOf<Value>(rows, launch.by_page, {head.block, head.layer, head.head, token}) + lane * 8;
  }
  template <Places kPlaces>
  __device__ __forceinline__ uint32_t* Entry(const NuqLaunch& launch, uint32_t token, uint32_t number) const {
    uint32_t offset = Row(launch, token) * launch.vector_bytes + number * 4;
    return reinterpret_cast<uint32_t*>(RunBytesAt<kPlaces>(launch.job.meta_run, head.block, offset));
  }
  __device__ __forceinline__ void Load8(const NuqLaunch& launch, const float* array, float (&to)[8]) const {
    const auto* from = reinterpret_cast<const float4*>(array + uint64_t{in_block} * launch.shape.width + lane * 8);
    float4 a = __ldg(from), b = __ldg(from + 1);
    to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w, to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
  }
};

__device__ __forceinline__ uint32_t LargestOf(const uint32_t (&keys)[8]) {
  return max(max(max(keys[0], keys[1]), max(keys[2], keys[3])), max(max(keys[4], keys[5]), max(keys[6], keys[7])));
}

// The outliers that this lane has: a bit a channel, and how many come before them in the row.
struct Taken {
  uint32_t channels = 0, before = 0;
};
// Takes the row's largest keys, of equal ones the first, and sets them to 0.
__device__ __forceinline__ Taken TakeLargest(const HeadPlace& own, uint32_t count, uint32_t (&keys)[8]) {
  Taken taken;
  uint32_t mask = own.RowMask(), lane_bit = threadIdx.x % 32, largest = LargestOf(keys);
  for (uint32_t n = 0; n < count; ++n) {
    uint32_t of_row = largest;
    for (uint32_t apart = 1; apart < own.lanes; apart *= 2) {
      of_row = max(of_row, __shfl_xor_sync(0xFFFFFFFFu, of_row, apart));
    }
    uint32_t winner = __ffs(static_cast<int>(__ballot_sync(0xFFFFFFFFu, largest == of_row) & mask)) - 1;
    if (winner < lane_bit) ++taken.before;
    if (winner != lane_bit) continue;
    bool done = false;
#pragma unroll
    for (uint32_t j = 0; j < 8; ++j) {
      if (done || keys[j] != of_row) continue;
      keys[j] = 0;
      taken.channels |= 1u << j;
      done = true;
    }
    largest = LargestOf(keys);
  }
  return taken;
}

__device__ __forceinline__ uint32_t HalfWord(uint4 raw, uint32_t j) {
  uint32_t word = j < 4 ? (j < 2 ? raw.x : raw.y) : (j < 6 ? raw.z : raw.w);
  return (j & 1) != 0 ? word >> 16 : word & 0xFFFFu;
}

template <Places kPlaces>
__device__ __forceinline__ void StoreEntries(const NuqLaunch& launch, const HeadPlace& own, uint32_t token, uint4 raw,
                                             Taken taken) {
  for (uint32_t number = taken.before; taken.channels != 0; ++number) {
    uint32_t j = static_cast<uint32_t>(__ffs(static_cast<int>(taken.channels))) - 1;
    taken.channels &= taken.channels - 1;
    *own.Entry<kPlaces>(launch, token, number) = (own.lane * 8 + j) | HalfWord(raw, j) << 16;
  }
}

template <typename Value, int kBits, Places kPlaces>
__global__ void __launch_bounds__(kThreads) EncodeChannel(const __grid_constant__ NuqLaunch launch) {
  __shared__ float thresholds[kLevelsMax];
  const NuqJob& job = launch.job;
  HeadPlace own(launch);
  LoadThresholds(job, own.head.layer, thresholds);
  __syncthreads();
  float centre[8], scale[8];
  own.Load8(launch, job.ranges.mean, centre);
  own.Load8(launch, job.ranges.encode_scale, scale);
  uint32_t magnitudes = 0, last = launch.shape.tokens - 1;
  for (uint32_t first = 0; first < launch.shape.tokens; first += own.slots * kTokensEach) {
    uint4 held[kTokensEach];
    auto token = [&](uint32_t k) { return first + k * own.slots + own.slot; };
#pragma unroll
    for (uint32_t k = 0; k < kTokensEach; ++k) {
      held[k] = LoadOnce(own.Values<const Value, kPlaces>(launch, min(token(k), last)));
    }
#pragma unroll
    for (uint32_t k = 0; k < kTokensEach; ++k) {
      constexpr uint32_t kMagnitude = 0x7FFF7FFFu;
      magnitudes = MaxPair<Value>(magnitudes, MaxPair<Value>(held[k].x & kMagnitude, held[k].y & kMagnitude));
      magnitudes = MaxPair<Value>(magnitudes, MaxPair<Value>(held[k].z & kMagnitude, held[k].w & kMagnitude));
      float v[8];
      ToFloats8<Value>(held[k], v);
      uint32_t codes[8], keys[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        float normalised = (v[j] - centre[j]) * scale[j];
        codes[j] = NearestLevel(thresholds, kBits, normalised);
        keys[j] = (__float_as_uint(normalised) & 0x7FFFFFFFu) + 1;
      }
      bool valid = token(k) <= last;
      uint32_t row = own.Row(launch, min(token(k), last));
      StoreCodes<kBits, kPlaces>(job.codes, own.head.block, row * own.lanes + own.lane, PackChunk<kBits, 0>(codes),
                                 valid);
      Taken taken = TakeLargest(own, launch.outliers, keys);
      if (valid) StoreEntries<kPlaces>(launch, own, token(k), held[k], taken);
    }
  }
  uint32_t found = 0;
  float2 largest = ValueTraits<Value>::ToFloats(magnitudes);
  found = MagnitudeSurvey<Value>(largest.x, false) | MagnitudeSurvey<Value>(largest.y, false);
  TellSurvey(launch, own.head.block, found);
}

// Writes the outlier of an entry over what its code stands for. Damaged metadata writes nothing outside its row.
template <typename Value, Places kPlaces>
__device__ __forceinline__ void Overwrite(const NuqLaunch& launch, const HeadPlace& own, uint32_t token,
                                          uint32_t entry) {
  uint32_t index = entry & 0xFFFFu;
  if (index >= launch.shape.width) return;
  uint32_t pair = ValueTraits<Value>::ToSaturatedPair(ValueTraits<Value>::ToFloats(entry).y, 0.0f);
  auto* to = reinterpret_cast<uint16_t*>(own.Values<Value, kPlaces>(launch, token));
  *(to - own.lane * 8 + index) = static_cast<uint16_t>(pair);
}

// Each lane of a row has one of its outliers, or more where they are many, and writes it once all lanes have written
// what the codes stand for. Beyond the last token that one is written again, the same.
template <typename Value, int kBits, Places kPlaces>
__global__ void __launch_bounds__(kThreads) DecodeChannel(const __grid_constant__ NuqLaunch launch) {
  constexpr uint32_t kNoEntry = 0xFFFFu;  // No row is so wide here.
  __shared__ float decoded[kLevelsMax];
  const NuqJob& job = launch.job;
  HeadPlace own(launch);
  LoadDecoded(job, own.head.layer, decoded);
  __syncthreads();
  float centre[8], reach[8];
  own.Load8(launch, job.ranges.mean, centre);
  own.Load8(launch, job.ranges.decode_scale, reach);
  uint32_t last = launch.shape.tokens - 1;
  for (uint32_t first = 0; first < launch.shape.tokens; first += own.slots * kTokensEach) {
    ChunkCodes codes[kTokensEach];
    uint32_t entries[kTokensEach];
    auto token = [&](uint32_t k) { return min(first + k * own.slots + own.slot, last); };
#pragma unroll
    for (uint32_t k = 0; k < kTokensEach; ++k) {
      codes[k] = LoadCodes<kBits, kPlaces>(job.codes, own.head.block, own.Row(launch, token(k)) * own.lanes + own.lane);
      entries[k] = own.lane < launch.outliers ? *own.Entry<kPlaces>(launch, token(k), own.lane) : kNoEntry;
    }
#pragma unroll
    for (uint32_t k = 0; k < kTokensEach; ++k) {
      float v[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] = decoded[ChunkCode<kBits>(codes[k], j)] * reach[j] + centre[j];
      StoreOnce(own.Values<Value, kPlaces>(launch, token(k)), ToSaturated8<Value>(v));
    }
    __syncwarp();
#pragma unroll
    for (uint32_t k = 0; k < kTokensEach; ++k) Overwrite<Value, kPlaces>(launch, own, token(k), entries[k]);
    for (uint32_t k = 0; k < kTokensEach; ++k) {
      for (uint32_t e = own.lane + own.lanes; e < launch.outliers; e += own.lanes) {
        Overwrite<Value, kPlaces>(launch, own, token(k), *own.Entry<kPlaces>(launch, token(k), e));
      }
    }
    __syncwarp();
  }
}

template <bool kEncode>
cudaError_t Launch(const NuqLaunch& launch, cudaStream_t stream) {
  uint32_t heads = launch.shape.blocks * launch.shape.layers * launch.shape.heads;
  return ForNuq(launch, [&]<typename Value, int kBits, Places kPlaces>() {
    auto* kernel = kEncode ? EncodeChannel<Value, kBits, kPlaces> : DecodeChannel<Value, kBits, kPlaces>;
    return LaunchShared<NuqLaunch>(kernel, launch, heads, kThreads, 0, stream);
  });
}

}  // namespace

cudaError_t LaunchEncodeNuqChannel(const NuqLaunch& launch, cudaStream_t stream) {
  return Launch<true>(launch, stream);
}
cudaError_t LaunchDecodeNuqChannel(const NuqLaunch& launch, cudaStream_t stream) {
  return Launch<false>(launch, stream);
}

}  // namespace firn::kernels
