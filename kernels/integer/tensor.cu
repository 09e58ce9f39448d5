// A scale a layer: one thread block finds the extremes of a layer of a block, then its codes. What fits in registers is
// read once, the rest again from the caches.
#include "kernels/integer/dispatch.cuh"
#include "kernels/integer/range.cuh"
#include "kernels/integer/scale.cuh"

namespace firn::kernels {
namespace {

constexpr uint32_t kThreadsFew = 512, kThreadsMax = 1024;
constexpr uint32_t kHeld = 8;  // Chunks: of layers of up to 65,536 values all.

// The extremes of all threads of the block.
template <typename Value>
__device__ __forceinline__ uint32_t BlockRange(uint32_t range) {
  __shared__ uint32_t of_warp[kThreadsMax / 32];
#pragma unroll
  for (uint32_t apart = 1; apart < 32; apart *= 2) {
    range = MinPair<Value>(range, __shfl_xor_sync(0xFFFFFFFFu, range, apart));
  }
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = range;
  __syncthreads();
  for (uint32_t i = 0; i < blockDim.x / 32; ++i) range = MinPair<Value>(range, of_warp[i]);
  return range;
}

template <typename Value, Places kPlaces>
__device__ __forceinline__ uint4 LoadChunk(const IntegerLaunch& launch, uint32_t block, uint32_t chunk) {
  return LoadOnce(
      ChunkValues<const Value, kPlaces>(launch.job.rows, launch.shape, launch.chunks, launch.by_page, block, chunk));
}

template <typename Value, int kBits, Places kPlaces>
__global__ void __launch_bounds__(kThreadsMax) EncodeTensor(const __grid_constant__ IntegerLaunch launch) {
  const IntegerJob& job = launch.job;
  uint32_t block = launch.shape.by_layers.Quotient(blockIdx.x), layer = blockIdx.x - block * launch.shape.layers;
  uint32_t count = launch.by_scale.divisor, first = layer * count;
  uint4 held[kHeld];
  // Threads beyond the last chunk look at that again: it changes no extreme.
#pragma unroll
  for (uint32_t k = 0; k < kHeld; ++k) {
    held[k] = LoadChunk<Value, kPlaces>(launch, block, first + min(k * blockDim.x + threadIdx.x, count - 1));
  }
  uint32_t range = RangeOfChunk<Value>(held[0]);
#pragma unroll
  for (uint32_t k = 1; k < kHeld; ++k) range = MinPair<Value>(range, RangeOfChunk<Value>(held[k]));
  for (uint32_t at = kHeld * blockDim.x + threadIdx.x; at < count; at += blockDim.x) {
    range = MinPair<Value>(range, RangeOfChunk<Value>(LoadChunk<Value, kPlaces>(launch, block, first + at)));
  }
  float2 ends = EndsOf<Value>(BlockRange<Value>(range));
  IntegerScale scale = IntegerScaleOf<Value, Value>(ends.x, ends.y, launch.form);
  if (threadIdx.x == 0) {
    using Traits = ValueTraits<Value>;
    uint32_t value_bytes = launch.form.symmetric ? 2 : 4;
    auto* meta = reinterpret_cast<Value*>(RunBytesAt<kPlaces>(job.meta_run, block, layer * value_bytes));
    if (!launch.form.symmetric) *meta++ = Traits::Nearest(scale.base);
    *meta = Traits::Nearest(scale.step);
    uint32_t found = IntegerSurveyOf<Value>(ends.x, ends.y, launch.form);
    if (found != 0 && job.survey != nullptr) atomicOr(job.survey + block, found);
  }
  auto code = [&](uint4 chunk, uint32_t at) {
    StoreCodes<kBits, kPlaces>(job.codes, block, first + min(at, count - 1),
                               EncodeChunk<Value, kBits>(chunk, scale, launch.form), at < count);
  };
#pragma unroll
  for (uint32_t k = 0; k < kHeld; ++k) code(held[k], k * blockDim.x + threadIdx.x);
  for (uint32_t begin = kHeld * blockDim.x; begin < count; begin += blockDim.x) {
    uint32_t at = begin + threadIdx.x;
    code(LoadChunk<Value, kPlaces>(launch, block, first + min(at, count - 1)), at);
  }
}

}  // namespace

cudaError_t LaunchEncodeIntegerTensor(const IntegerLaunch& launch, cudaStream_t stream) {
  uint32_t threads = launch.by_scale.divisor > kThreadsFew * kHeld ? kThreadsMax : kThreadsFew;
  return ForIntegers(launch, [&]<typename Value, int kBits, Places kPlaces>() {
    return LaunchShared<IntegerLaunch>(EncodeTensor<Value, kBits, kPlaces>, launch,
                                       launch.shape.blocks * launch.shape.layers, threads, 0, stream);
  });
}

}  // namespace firn::kernels
