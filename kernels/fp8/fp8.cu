// One thread block a head: its largest magnitude, then its codes. What fits in registers is read once.
#include "kernels/fp8/format.cuh"

namespace firn::kernels {
namespace {

constexpr uint32_t kThreadsMax = 256;
constexpr uint32_t kHeld = 4;  // Chunks of eight values that a thread keeps: of heads of up to 8,192 values all.

// Chunk `index` of a head: where its values and its codes are. A chunk is eight values of a row, or a single one.
template <Places kPlaces>
struct ChunkAt {
  RowAt row;
  uint32_t channel, in_head;

  __device__ __forceinline__ ChunkAt(const Fp8Launch& launch, const RowAt& head, uint32_t index) : row(head) {
    uint32_t per_chunk = launch.wide ? 8 : 1;
    in_head = index * per_chunk;
    channel = 0;
    if constexpr (kPlaces == Places::kLinear) return;
    row.token = launch.by_chunks.Quotient(index);
    channel = (index - row.token * launch.chunks) * per_chunk;
  }
  template <typename Value>
  __device__ __forceinline__ Value* Values(const Fp8Launch& launch) const {
    const RowsView& rows = launch.job.rows;
    if constexpr (kPlaces == Places::kLinear) {
      return static_cast<Value*>(rows.base) + row.block * rows.page_stride + row.layer * rows.layer_stride +
             row.head * rows.head_stride + in_head;
    }
    return RowOf<Value>(rows, launch.by_page, row) + channel * rows.channel_stride;
  }
  __device__ __forceinline__ uint8_t* Codes(const Fp8Launch& launch) const {
    uint32_t head = row.layer * launch.shape.heads + row.head;
    return RunBytesAt<kPlaces>(launch.job.codes, row.block, head * launch.shape.tokens * launch.shape.width + in_head);
  }
};

template <typename Value, Places kPlaces>
__device__ __forceinline__ uint4 LoadChunk(const Fp8Launch& launch, const ChunkAt<kPlaces>& at) {
  const Value* values = at.template Values<const Value>(launch);
  if (launch.wide) return LoadOnce(values);
  return {*reinterpret_cast<const uint16_t*>(values), 0, 0, 0};  // A single value, in the chunk's first place.
}

// The largest magnitudes of values in even and odd places; NaN stays.
template <typename Value>
__device__ __forceinline__ uint32_t LargestOf(uint32_t so_far, uint4 chunk) {
  using Traits = ValueTraits<Value>;
  constexpr uint32_t kMagnitude = 0x7FFF7FFFu;
  uint32_t a = MaxPair<Value>(chunk.x & kMagnitude, chunk.y & kMagnitude);
  uint32_t b = MaxPair<Value>(chunk.z & kMagnitude, chunk.w & kMagnitude);
  return MaxPair<Value>(so_far, MaxPair<Value>(a, b));
}

// Of all threads: magnitudes as integers order as they do, and NaN comes after Inf.
__device__ __forceinline__ uint32_t BlockLargest(uint32_t pair) {
  __shared__ uint32_t of_warp[kThreadsMax / 32];
  uint32_t own = __reduce_max_sync(0xFFFFFFFFu, max(pair & 0xFFFFu, pair >> 16));
  if (blockDim.x == 32) return own;
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = own;
  __syncthreads();
  uint32_t largest = 0;
  for (uint32_t i = 0; i < blockDim.x / 32; ++i) largest = max(largest, of_warp[i]);
  return largest;
}

template <typename Value, bool kE5m2>
__device__ __forceinline__ void StoreCodes(const Fp8Launch& launch, uint8_t* to, uint4 chunk, float inverse) {
  float v[8];
  ToFloats8<Value>(chunk, v);
  uint32_t low = Fp8CodePair<kE5m2>(v[0], v[1], inverse);
  if (!launch.wide) {
    *to = static_cast<uint8_t>(low);
    return;
  }
  low |= Fp8CodePair<kE5m2>(v[2], v[3], inverse) << 16;
  uint32_t high = Fp8CodePair<kE5m2>(v[4], v[5], inverse) | Fp8CodePair<kE5m2>(v[6], v[7], inverse) << 16;
  StoreOnce8(to, {low, high});
}

template <typename Value, bool kE5m2, Places kPlaces>
__global__ void __launch_bounds__(kThreadsMax) Encode(const __grid_constant__ Fp8Launch launch) {
  const Fp8Job& job = launch.job;
  RowAt head = launch.shape.HeadOf(blockIdx.x);
  uint32_t count = launch.shape.tokens * launch.chunks;
  uint4 held[kHeld];
  uint32_t largest = 0;
#pragma unroll
  for (uint32_t i = 0; i < kHeld; ++i) {
    uint32_t index = threadIdx.x + i * blockDim.x;
    held[i] = index < count ? LoadChunk<Value>(launch, ChunkAt<kPlaces>(launch, head, index)) : uint4{};
  }
#pragma unroll
  for (uint32_t i = 0; i < kHeld; ++i) largest = LargestOf<Value>(largest, held[i]);
  for (uint32_t index = threadIdx.x + kHeld * blockDim.x; index < count; index += blockDim.x) {
    largest = LargestOf<Value>(largest, LoadChunk<Value>(launch, ChunkAt<kPlaces>(launch, head, index)));
  }
  largest = BlockLargest(largest);
  uint16_t bits = static_cast<uint16_t>(largest);
  float magnitude = ValueTraits<Value>::ToFloat(*reinterpret_cast<const Value*>(&bits));
  uint64_t scale_index = uint64_t{head.layer} * launch.shape.heads + head.head;
  float scale = job.scales != nullptr ? job.scales[scale_index] : Fp8ScaleOf<kE5m2>(magnitude);
  if (threadIdx.x == 0) {
    if (job.scales == nullptr) *Fp8ScaleAt(launch, head.block, scale_index) = scale;
    TellUnfit(launch, head.block, !isfinite(magnitude));
  }
  float inverse = __fdiv_rn(1.0f, scale);
#pragma unroll
  for (uint32_t i = 0; i < kHeld; ++i) {
    uint32_t index = threadIdx.x + i * blockDim.x;
    if (index >= count) break;
    StoreCodes<Value, kE5m2>(launch, ChunkAt<kPlaces>(launch, head, index).Codes(launch), held[i], inverse);
  }
  for (uint32_t index = threadIdx.x + kHeld * blockDim.x; index < count; index += blockDim.x) {
    ChunkAt<kPlaces> at(launch, head, index);
    StoreCodes<Value, kE5m2>(launch, at.Codes(launch), LoadChunk<Value>(launch, at), inverse);
  }
}

template <typename Value, bool kE5m2, Places kPlaces>
__global__ void __launch_bounds__(kThreadsMax) Decode(const __grid_constant__ Fp8Launch launch) {
  const Fp8Job& job = launch.job;
  RowAt head = launch.shape.HeadOf(blockIdx.x);
  uint32_t count = launch.shape.tokens * launch.chunks;
  uint64_t scale_index = uint64_t{head.layer} * launch.shape.heads + head.head;
  float scale = job.scales != nullptr ? job.scales[scale_index] : *Fp8ScaleAt(launch, head.block, scale_index);
  for (uint32_t index = threadIdx.x; index < count; index += blockDim.x) {
    ChunkAt<kPlaces> at(launch, head, index);
    const uint8_t* from = at.Codes(launch);
    Value* to = at.template Values<Value>(launch);
    if (!launch.wide) {
      *to = Fp8Rounded<Value>(Fp8Floats<kE5m2>(*from).x * scale);
      continue;
    }
    uint2 codes = LoadOnce8(from);
    const uint32_t pairs[4] = {codes.x & 0xFFFFu, codes.x >> 16, codes.y & 0xFFFFu, codes.y >> 16};
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float2 v = Fp8Floats<kE5m2>(pairs[i]);
      words[i] = PairBits(Fp8Rounded<Value>(v.x * scale), Fp8Rounded<Value>(v.y * scale));
    }
    StoreOnce(to, {words[0], words[1], words[2], words[3]});
  }
}

template <bool kEncode, typename Value, Places kPlaces>
cudaError_t LaunchPlaces(const Fp8Launch& launch, cudaStream_t stream) {
  uint32_t heads = launch.shape.blocks * launch.shape.layers * launch.shape.heads;
  uint32_t threads = 32;
  while (threads < kThreadsMax && threads * kHeld < launch.shape.tokens * launch.chunks) threads *= 2;
  auto* e4m3 = kEncode ? Encode<Value, false, kPlaces> : Decode<Value, false, kPlaces>;
  auto* e5m2 = kEncode ? Encode<Value, true, kPlaces> : Decode<Value, true, kPlaces>;
  (launch.job.e5m2 ? e5m2 : e4m3)<<<heads, threads, 0, stream>>>(launch);
  return cudaGetLastError();
}

template <bool kEncode, typename Value>
cudaError_t Launch(const Fp8Launch& launch, cudaStream_t stream) {
  if (launch.places == Places::kLinear) return LaunchPlaces<kEncode, Value, Places::kLinear>(launch, stream);
  return LaunchPlaces<kEncode, Value, Places::kAny>(launch, stream);
}

}  // namespace

cudaError_t LaunchEncodeFp8(const Fp8Launch& launch, cudaStream_t stream) {
  return launch.job.values == DType::kFp16 ? Launch<true, __half>(launch, stream)
                                           : Launch<true, __nv_bfloat16>(launch, stream);
}
cudaError_t LaunchDecodeFp8(const Fp8Launch& launch, cudaStream_t stream) {
  return launch.job.values == DType::kFp16 ? Launch<false, __half>(launch, stream)
                                           : Launch<false, __nv_bfloat16>(launch, stream);
}

}  // namespace firn::kernels
