// Rows of whole blocks, a chunk of eight channels at a time: the lanes of a block find its largest magnitude together.
// NVFP4 wants a layer's largest magnitude first, so there a thread block has one layer of a block.
#include "kernels/fp4/format.cuh"

namespace firn::kernels {
namespace {

constexpr uint32_t kLayerThreadsFew = 512, kLayerThreadsMax = 1024;
constexpr uint32_t kLayerHeld = 8;  // Chunks: of layers of up to 65,536 values all.

// The largest magnitude's bits; as integers they order as magnitudes do, and NaN comes after Inf.
__device__ __forceinline__ uint32_t MagnitudeBits(uint4 chunk) {
  constexpr uint32_t kMagnitude = 0x7FFF7FFFu;
  uint32_t pair = __vmaxu2(__vmaxu2(chunk.x & kMagnitude, chunk.y & kMagnitude),
                           __vmaxu2(chunk.z & kMagnitude, chunk.w & kMagnitude));
  return max(pair & 0xFFFFu, pair >> 16);
}
template <typename Value>
__device__ __forceinline__ float MagnitudeOf(uint32_t bits) {
  return ValueTraits<Value>::ToFloats(bits).x;
}
// Over `lanes` neighbouring lanes.
__device__ __forceinline__ uint32_t LargestOfLanes(uint32_t bits, uint32_t lanes) {
#pragma unroll
  for (uint32_t apart = 1; apart < lanes; apart *= 2) bits = max(bits, __shfl_xor_sync(0xFFFFFFFFu, bits, apart));
  return bits;
}

template <typename Value>
__device__ __forceinline__ ChunkCodes EncodeChunk(uint4 raw, float inverse) {
  float v[8];
  ToFloats8<Value>(raw, v);
  uint32_t codes[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) codes[i] = E2m1Of(v[i] * inverse);
  return PackChunk<4, 0>(codes);
}

template <typename Value, Places kPlaces>
__device__ __forceinline__ uint4 LoadChunk(const Fp4Launch& launch, uint32_t block, uint32_t chunk) {
  return LoadOnce(
      ChunkValues<const Value, kPlaces>(launch.job.rows, launch.shape, launch.chunks, launch.by_page, block, chunk));
}

template <typename Value, Places kPlaces>
__global__ void __launch_bounds__(kChunkThreads) EncodeMx(const __grid_constant__ Fp4Launch launch) {
  constexpr uint32_t kLanes = 4;
  ThreadChunks own(launch.chunks);
  uint4 held[kChunksHeld];
#pragma unroll
  for (uint32_t k = 0; k < kChunksHeld; ++k) held[k] = LoadChunk<Value, kPlaces>(launch, own.block, own.At(k));
  bool unfit = false;
#pragma unroll
  for (uint32_t k = 0; k < kChunksHeld; ++k) {
    uint32_t chunk = own.At(k);
    float magnitude = MagnitudeOf<Value>(LargestOfLanes(MagnitudeBits(held[k]), kLanes));
    unfit |= !isfinite(magnitude);
    Fp4Scale scale = MxBlockScaleOf(magnitude);
    if (chunk % kLanes == 0 && own.Has(k)) {
      *RunBytesAt<kPlaces>(launch.job.meta_run, own.block, chunk / kLanes) = static_cast<uint8_t>(scale.stored);
    }
    StoreCodes<4, kPlaces>(launch.job.codes, own.block, chunk, EncodeChunk<Value>(held[k], scale.inverse), own.Has(k));
  }
  TellUnfit(launch, own.block, unfit);
}

// Where a layer's metadata has its own scale, then a block's each.
__device__ __forceinline__ uint32_t LayerMetaOffset(const Fp4Launch& launch, uint32_t layer) {
  return layer * (4 + launch.shape.heads * launch.shape.tokens * launch.row_scales);
}
template <Places kPlaces>
__device__ __forceinline__ void StoreLayerScale(const Fp4Launch& launch, uint32_t block, uint32_t layer, float scale) {
  uint32_t bits = __float_as_uint(scale), offset = LayerMetaOffset(launch, layer);
  for (uint32_t i = 0; i < 4; ++i) {
    *RunBytesAt<kPlaces>(launch.job.meta_run, block, offset + i) = static_cast<uint8_t>(bits >> (8 * i));
  }
}
template <Places kPlaces>
__device__ __forceinline__ float LoadLayerScale(const Fp4Launch& launch, uint32_t block, uint32_t layer) {
  uint32_t bits = 0, offset = LayerMetaOffset(launch, layer);
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    bits |= uint32_t{*RunBytesAt<kPlaces>(launch.job.meta_run, block, offset + i)} << (8 * i);
  }
  return __uint_as_float(bits);
}

// The largest of all threads of the block.
__device__ __forceinline__ uint32_t LargestOfBlock(uint32_t bits) {
  __shared__ uint32_t of_warp[kLayerThreadsMax / 32];
  uint32_t largest = __reduce_max_sync(0xFFFFFFFFu, bits);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = largest;
  __syncthreads();
  for (uint32_t i = 0; i < blockDim.x / 32; ++i) largest = max(largest, of_warp[i]);
  return largest;
}

// Threads beyond the last chunk look at that again: it changes no maximum, and they write nothing.
template <typename Value, Places kPlaces>
__global__ void __launch_bounds__(kLayerThreadsMax) EncodeNv(const __grid_constant__ Fp4Launch launch) {
  constexpr uint32_t kLanes = 2;
  uint32_t block = launch.shape.by_layers.Quotient(blockIdx.x), layer = blockIdx.x - block * launch.shape.layers;
  uint32_t count = launch.by_layer_chunks.divisor, first = layer * count;
  auto load = [&](uint32_t at) { return LoadChunk<Value, kPlaces>(launch, block, first + min(at, count - 1)); };
  uint4 held[kLayerHeld];
#pragma unroll
  for (uint32_t k = 0; k < kLayerHeld; ++k) held[k] = load(k * blockDim.x + threadIdx.x);
  uint32_t largest = 0;
#pragma unroll
  for (uint32_t k = 0; k < kLayerHeld; ++k) largest = max(largest, MagnitudeBits(held[k]));
  for (uint32_t at = kLayerHeld * blockDim.x + threadIdx.x; at < count; at += blockDim.x) {
    largest = max(largest, MagnitudeBits(load(at)));
  }
  float magnitude = MagnitudeOf<Value>(LargestOfBlock(largest)), layer_scale = LayerScaleOf(magnitude);
  if (threadIdx.x == 0) {
    TellUnfit(launch, block, !isfinite(magnitude));
    StoreLayerScale<kPlaces>(launch, block, layer, layer_scale);
  }
  uint32_t scales = LayerMetaOffset(launch, layer) + 4;
  auto code = [&](uint4 chunk, uint32_t at) {
    bool valid = at < count;
    uint32_t of_block = LargestOfLanes(MagnitudeBits(chunk), kLanes);
    Fp4Scale scale = NvBlockScaleOf(MagnitudeOf<Value>(of_block), layer_scale);
    if (at % kLanes == 0 && valid) {
      *RunBytesAt<kPlaces>(launch.job.meta_run, block, scales + at / kLanes) = static_cast<uint8_t>(scale.stored);
    }
    StoreCodes<4, kPlaces>(launch.job.codes, block, first + min(at, count - 1),
                           EncodeChunk<Value>(chunk, scale.inverse), valid);
  };
#pragma unroll
  for (uint32_t k = 0; k < kLayerHeld; ++k) code(held[k], k * blockDim.x + threadIdx.x);
  for (uint32_t begin = kLayerHeld * blockDim.x; begin < count; begin += blockDim.x) {
    code(load(begin + threadIdx.x), begin + threadIdx.x);
  }
}

// Values of eight codes: two of them, four apart, make halves at once.
template <typename Value>
__device__ __forceinline__ uint4 DecodeChunk(uint32_t codes, float scale) {
  constexpr uint32_t kSigns = 0x80008000u, kMagnitudes = 0x0E000E00u;
  float v[8];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint32_t magnitudes = i < 3 ? codes << (9 - 4 * i) : codes >> 3;
    float2 pair = E2m1Pair((codes << (12 - 4 * i) & kSigns) | (magnitudes & kMagnitudes));
    v[i] = pair.x * scale, v[i + 4] = pair.y * scale;
  }
  return ToSaturated8<Value>(v);
}

template <typename Value, Places kPlaces, bool kMx>
__global__ void __launch_bounds__(kChunkThreads) Decode(const __grid_constant__ Fp4Launch launch) {
  ThreadChunks own(launch.chunks);
  uint32_t codes[kChunksHeld], stored[kChunksHeld];
  float layer_scales[kChunksHeld];
  [[maybe_unused]] uint32_t before = 0;
#pragma unroll
  for (uint32_t k = 0; k < kChunksHeld; ++k) {
    uint32_t chunk = own.At(k), offset = chunk / 4;
    codes[k] = LoadCodes<4, kPlaces>(launch.job.codes, own.block, chunk).low;
    if constexpr (!kMx) {
      uint32_t layer = launch.by_layer_chunks.Quotient(chunk);
      // Chunks of one thread are of one layer, but for a few.
      bool same = k > 0 && layer == before;
      layer_scales[k] = same ? layer_scales[k > 0 ? k - 1 : 0] : LoadLayerScale<kPlaces>(launch, own.block, layer);
      before = layer;
      offset = LayerMetaOffset(launch, layer) + 4 + (chunk - layer * launch.by_layer_chunks.divisor) / 2;
    }
    stored[k] = *RunBytesAt<kPlaces>(launch.job.meta_run, own.block, offset);
  }
#pragma unroll
  for (uint32_t k = 0; k < kChunksHeld; ++k) {
    if (!own.Has(k)) break;
    float scale;
    if constexpr (kMx) scale = MxScaleOf(stored[k]);
    if constexpr (!kMx) scale = NvScaleOf(stored[k], layer_scales[k]);
    StoreOnce(
        ChunkValues<Value, kPlaces>(launch.job.rows, launch.shape, launch.chunks, launch.by_page, own.block, own.At(k)),
        DecodeChunk<Value>(codes[k], scale));
  }
}

}  // namespace

cudaError_t LaunchEncodeMxFp4(const Fp4Launch& launch, cudaStream_t stream) {
  return ForFp4(launch, [&]<typename Value, Places kPlaces>() {
    return LaunchShared<Fp4Launch>(EncodeMx<Value, kPlaces>, launch, launch.shape.blocks * launch.chunks.units,
                                   kChunkThreads, 0, stream);
  });
}
cudaError_t LaunchEncodeNvFp4(const Fp4Launch& launch, cudaStream_t stream) {
  uint32_t threads =
      launch.by_layer_chunks.divisor > kLayerThreadsFew * kLayerHeld ? kLayerThreadsMax : kLayerThreadsFew;
  return ForFp4(launch, [&]<typename Value, Places kPlaces>() {
    return LaunchShared<Fp4Launch>(EncodeNv<Value, kPlaces>, launch, launch.shape.blocks * launch.shape.layers, threads,
                                   0, stream);
  });
}
cudaError_t LaunchDecodeFp4(const Fp4Launch& launch, cudaStream_t stream) {
  return ForFp4(launch, [&]<typename Value, Places kPlaces>() {
    auto* kernel = launch.job.mx ? Decode<Value, kPlaces, true> : Decode<Value, kPlaces, false>;
    return LaunchShared<Fp4Launch>(kernel, launch, launch.shape.blocks * launch.chunks.units, kChunkThreads, 0, stream);
  });
}

}  // namespace firn::kernels
