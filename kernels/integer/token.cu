// Per token: the lanes that share a group find its extremes together, and everything else of a chunk, or of two of one
// group, happens in one thread. Decoding is the same for a scale a layer.
#include "kernels/integer/dispatch.cuh"
#include "kernels/integer/range.cuh"
#include "kernels/integer/scale.cuh"

namespace firn::kernels {
namespace {

// The scale that is stored, or given, for a chunk.
template <typename Value, Places kPlaces>
__device__ __forceinline__ IntegerScale LoadScale(const IntegerLaunch& launch, uint32_t block, uint32_t chunk) {
  using Traits = ValueTraits<Value>;
  const IntegerJob& job = launch.job;
  uint32_t index = launch.by_scale.Quotient(chunk) * launch.scale_stride;
  if (job.scales != nullptr) {
    float step = __ldg(job.scales + index);
    return {-0.0f, step, __fdiv_rn(1.0f, step)};
  }
  if (launch.form.symmetric) {
    return {-0.0f,
            Traits::ToFloat(*reinterpret_cast<const Value*>(RunBytesAt<kPlaces>(job.meta_run, block, index * 2))), 0};
  }
  float2 both =
      Traits::ToFloats(__ldg(reinterpret_cast<const uint32_t*>(RunBytesAt<kPlaces>(job.meta_run, block, index * 4))));
  return {both.x, both.y, 0};
}

// Writes the scale of a group of which this lane has the first chunk.
template <typename Value, Places kPlaces>
__device__ __forceinline__ void StoreScale(const IntegerLaunch& launch, uint32_t block, uint32_t chunk,
                                           const IntegerScale& scale) {
  using Traits = ValueTraits<Value>;
  uint32_t index = launch.by_scale.Quotient(chunk);
  if (launch.form.symmetric) {
    *reinterpret_cast<Value*>(RunBytesAt<kPlaces>(launch.job.meta_run, block, index * 2)) = Traits::Nearest(scale.step);
  } else {
    *reinterpret_cast<uint32_t*>(RunBytesAt<kPlaces>(launch.job.meta_run, block, index * 4)) =
        PairBits(Traits::Nearest(scale.base), Traits::Nearest(scale.step));
  }
}

// The chunks of one thread. With pairs two of them are of one group, half a group apart, and share its scale and their
// row's address; the lanes of a group are half as many.
template <uint32_t kPair>
struct ThreadGroups {
  ThreadChunks chunks;  // Of pairs, where there are: counted one after another.
  uint32_t half_log2;

  __device__ __forceinline__ explicit ThreadGroups(const IntegerLaunch& launch)
      : chunks(launch.chunks), half_log2(launch.half_log2) {
    if constexpr (kPair == 2) {
      chunks.first = (chunks.first - threadIdx.x) / 2 + threadIdx.x;
      chunks.count /= 2;
    }
  }
  __device__ __forceinline__ uint32_t block() const { return chunks.block; }
  __device__ __forceinline__ bool Has(uint32_t group) const { return chunks.Has(group); }
  // The first chunk of a group, or of a pair.
  __device__ __forceinline__ uint32_t At(uint32_t group) const {
    uint32_t index = chunks.At(group);
    if constexpr (kPair == 1) return index;
    uint32_t inside = index & ((1u << half_log2) - 1);
    return (index - inside) * 2 + inside;
  }
  // From one chunk of a pair to the other.
  __device__ __forceinline__ uint32_t apart() const { return 1u << half_log2; }
};

template <typename Value, int kBits, Places kPlaces, uint32_t kPair>
__global__ void __launch_bounds__(kChunkThreads) EncodeToken(const __grid_constant__ IntegerLaunch launch) {
  constexpr uint32_t kGroups = kChunksHeld / kPair;
  const IntegerJob& job = launch.job;
  ThreadGroups<kPair> own(launch);
  uint4 held[kGroups][kPair];
  uint32_t range[kGroups];
#pragma unroll
  for (uint32_t g = 0; g < kGroups; ++g) {
    const Value* values = ChunkValues<const Value, kPlaces>(job.rows, launch.shape, launch.chunks, launch.by_page,
                                                            own.block(), own.At(g));
#pragma unroll
    for (uint32_t i = 0; i < kPair; ++i) held[g][i] = LoadOnce(values + i * own.apart() * 8);
  }
#pragma unroll
  for (uint32_t g = 0; g < kGroups; ++g) {
    range[g] = RangeOfChunk<Value>(held[g][0]);
    if constexpr (kPair == 2) range[g] = MinPair<Value>(range[g], RangeOfChunk<Value>(held[g][1]));
  }
  uint32_t lanes = launch.group_lanes / kPair;
  for (uint32_t apart = 1; apart < lanes; apart *= 2) {
#pragma unroll
    for (uint32_t g = 0; g < kGroups; ++g) {
      range[g] = MinPair<Value>(range[g], __shfl_xor_sync(0xFFFFFFFFu, range[g], apart));
    }
  }
  uint32_t found = 0;
#pragma unroll
  for (uint32_t g = 0; g < kGroups; ++g) {
    uint32_t chunk = own.At(g);
    float2 ends = EndsOf<Value>(range[g]);
    IntegerScale scale;
    if (job.scales != nullptr) {
      scale = LoadScale<Value, kPlaces>(launch, own.block(), chunk);
      found |= isfinite(ends.x) && isfinite(ends.y) ? 0 : kSurveyUnfit;
    } else {
      scale = IntegerScaleOf<Value, Value>(ends.x, ends.y, launch.form);
      found |= IntegerSurveyOf<Value>(ends.x, ends.y, launch.form);
      if ((chunk & (launch.group_lanes - 1)) == 0 && own.Has(g)) {
        StoreScale<Value, kPlaces>(launch, own.block(), chunk, scale);
      }
    }
#pragma unroll
    for (uint32_t i = 0; i < kPair; ++i) {
      ChunkCodes codes = EncodeChunk<Value, kBits>(held[g][i], scale, launch.form);
      StoreCodes<kBits, kPlaces>(job.codes, own.block(), chunk + i * own.apart(), codes, own.Has(g));
    }
  }
  if (found != 0 && job.survey != nullptr) atomicOr(job.survey + own.block(), found);
}

template <typename Value, int kBits, Places kPlaces, uint32_t kPair>
__global__ void __launch_bounds__(kChunkThreads) DecodeToken(const __grid_constant__ IntegerLaunch launch) {
  constexpr uint32_t kGroups = kChunksHeld / kPair;
  const IntegerJob& job = launch.job;
  ThreadGroups<kPair> own(launch);
  ChunkCodes codes[kGroups][kPair];
  IntegerScale scales[kGroups];
#pragma unroll
  for (uint32_t g = 0; g < kGroups; ++g) {
    uint32_t chunk = own.At(g);
#pragma unroll
    for (uint32_t i = 0; i < kPair; ++i) {
      codes[g][i] = LoadCodes<kBits, kPlaces>(job.codes, own.block(), chunk + i * own.apart());
    }
    scales[g] = LoadScale<Value, kPlaces>(launch, own.block(), chunk);
  }
#pragma unroll
  for (uint32_t g = 0; g < kGroups; ++g) {
    if (!own.Has(g)) break;
    Value* values =
        ChunkValues<Value, kPlaces>(job.rows, launch.shape, launch.chunks, launch.by_page, own.block(), own.At(g));
#pragma unroll
    for (uint32_t i = 0; i < kPair; ++i) {
      float v[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        v[j] = scales[g].base + scales[g].step * ChunkLevel<kBits>(codes[g][i], j, launch.form.offset);
      }
      StoreOnce(values + i * own.apart() * 8, ToSaturated8<Value>(v));
    }
  }
}

template <bool kEncode>
cudaError_t Launch(const IntegerLaunch& launch, cudaStream_t stream) {
  return ForIntegers(launch, [&]<typename Value, int kBits, Places kPlaces>() {
    auto with = [&]<uint32_t kPair>() {
      auto* kernel = kEncode ? EncodeToken<Value, kBits, kPlaces, kPair> : DecodeToken<Value, kBits, kPlaces, kPair>;
      return LaunchShared<IntegerLaunch>(kernel, launch, launch.shape.blocks * launch.chunks.units, kChunkThreads, 0,
                                         stream);
    };
    return launch.paired ? with.template operator()<2>() : with.template operator()<1>();
  });
}

}  // namespace

cudaError_t LaunchEncodeIntegerToken(const IntegerLaunch& launch, cudaStream_t stream) {
  return Launch<true>(launch, stream);
}
cudaError_t LaunchDecodeIntegerToken(const IntegerLaunch& launch, cudaStream_t stream) {
  return Launch<false>(launch, stream);
}

}  // namespace firn::kernels
