// Per token: the lanes that share a group find its extremes together, and everything else of a chunk happens in one
// thread. Decoding is the same for a scale a layer.
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

template <typename Value, int kBits, Places kPlaces>
__global__ void __launch_bounds__(kChunkThreads) EncodeToken(const __grid_constant__ IntegerLaunch launch) {
  const IntegerJob& job = launch.job;
  ThreadChunks own(launch.chunks);
  uint4 held[kChunksHeld];
  uint32_t range[kChunksHeld];
#pragma unroll
  for (uint32_t k = 0; k < kChunksHeld; ++k) {
    held[k] = LoadOnce(
        ChunkValues<const Value, kPlaces>(job.rows, launch.shape, launch.chunks, launch.by_page, own.block, own.At(k)));
  }
#pragma unroll
  for (uint32_t k = 0; k < kChunksHeld; ++k) range[k] = RangeOfChunk<Value>(held[k]);
  for (uint32_t apart = 1; apart < launch.group_lanes; apart *= 2) {
#pragma unroll
    for (uint32_t k = 0; k < kChunksHeld; ++k) {
      range[k] = MinPair<Value>(range[k], __shfl_xor_sync(0xFFFFFFFFu, range[k], apart));
    }
  }
  uint32_t found = 0;
#pragma unroll
  for (uint32_t k = 0; k < kChunksHeld; ++k) {
    uint32_t chunk = own.At(k);
    float2 ends = EndsOf<Value>(range[k]);
    IntegerScale scale;
    if (job.scales != nullptr) {
      scale = LoadScale<Value, kPlaces>(launch, own.block, chunk);
      found |= isfinite(ends.x) && isfinite(ends.y) ? 0 : kSurveyUnfit;
    } else {
      scale = IntegerScaleOf<Value>(ends.x, ends.y, launch.form);
      found |= IntegerSurveyOf<Value>(ends.x, ends.y, launch.form);
      if ((chunk & (launch.group_lanes - 1)) == 0 && own.Has(k)) {
        StoreScale<Value, kPlaces>(launch, own.block, chunk, scale);
      }
    }
    ChunkCodes codes = EncodeChunk<Value, kBits>(held[k], scale, launch.form);
    StoreCodes<kBits, kPlaces>(job.codes, own.block, chunk, codes, own.Has(k));
  }
  if (found != 0 && job.survey != nullptr) atomicOr(job.survey + own.block, found);
}

template <typename Value, int kBits, Places kPlaces>
__global__ void __launch_bounds__(kChunkThreads) DecodeToken(const __grid_constant__ IntegerLaunch launch) {
  const IntegerJob& job = launch.job;
  ThreadChunks own(launch.chunks);
  ChunkCodes codes[kChunksHeld];
  IntegerScale scales[kChunksHeld];
#pragma unroll
  for (uint32_t k = 0; k < kChunksHeld; ++k) {
    codes[k] = LoadCodes<kBits, kPlaces>(job.codes, own.block, own.At(k));
    scales[k] = LoadScale<Value, kPlaces>(launch, own.block, own.At(k));
  }
#pragma unroll
  for (uint32_t k = 0; k < kChunksHeld; ++k) {
    if (!own.Has(k)) break;
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      v[i] = scales[k].base + scales[k].step * ChunkLevel<kBits>(codes[k], i, launch.form.offset);
    }
    StoreOnce(ChunkValues<Value, kPlaces>(job.rows, launch.shape, launch.chunks, launch.by_page, own.block, own.At(k)),
              ToSaturated8<Value>(v));
  }
}

template <bool kEncode>
cudaError_t Launch(const IntegerLaunch& launch, cudaStream_t stream) {
  return ForIntegers(launch, [&]<typename Value, int kBits, Places kPlaces>() {
    auto* kernel = kEncode ? EncodeToken<Value, kBits, kPlaces> : DecodeToken<Value, kBits, kPlaces>;
    return LaunchShared<IntegerLaunch>(kernel, launch, launch.shape.blocks * launch.chunks.units, kChunkThreads, 0,
                                       stream);
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
