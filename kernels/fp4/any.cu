// For any shape: a thread block encodes a row (MXFP4) or a layer (NVFP4), and reads values twice, the second time from
// the caches; decoding goes row by row.
#include "kernels/fp4/format.cuh"

namespace firn::kernels {
namespace {

constexpr uint32_t kThreads = 128;

// The scale byte of a block of a row; a layer's own scale is before its first.
__device__ __forceinline__ uint8_t* ScaleByte(const Fp4Launch& launch, const RowAt& at, uint32_t scale) {
  uint64_t offset = launch.shape.InBlock(at) * launch.row_scales + scale;
  if (!launch.job.mx) offset += 4 * (uint64_t{at.layer} + 1);
  return launch.job.meta_run.At(at.block, offset);
}
__device__ __forceinline__ uint8_t* LayerByte(const Fp4Launch& launch, const RowAt& at, uint32_t byte) {
  uint64_t layer_bytes = 4 + uint64_t{launch.shape.heads} * launch.shape.tokens * launch.row_scales;
  return launch.job.meta_run.At(at.block, at.layer * layer_bytes + byte);
}

// Codes of a row, whose blocks' scales go to shared memory; `layer_scale` is NVFP4's. Tells whether all values are
// finite.
template <typename Value>
__device__ __forceinline__ bool EncodeRow(const Fp4Launch& launch, const RowAt& at, float layer_scale, float* inverse) {
  const Fp4Job& job = launch.job;
  const Value* row = RowOf<const Value>(job.rows, launch.by_page, at);
  uint32_t width = launch.shape.width, block = job.mx ? 32 : 16;
  bool finite = true;
  __syncthreads();
  for (uint32_t s = threadIdx.x; s < launch.row_scales; s += kThreads) {
    float magnitude = 0;
    for (uint32_t c = s * block; c < min((s + 1) * block, width); ++c) {
      float value = fabsf(LoadRowValue(row + c * job.rows.channel_stride));
      finite &= isfinite(value);
      magnitude = fmaxf(magnitude, value);
    }
    Fp4Scale scale = job.mx ? MxBlockScaleOf(magnitude) : NvBlockScaleOf(magnitude, layer_scale);
    *ScaleByte(launch, at, s) = static_cast<uint8_t>(scale.stored);
    inverse[s] = scale.inverse;
  }
  __syncthreads();
  StoreCodeRow(job.codes, at.block, launch.shape.InBlock(at), width, 4, [&](uint32_t c) {
    return E2m1Of(LoadRowValue(row + c * job.rows.channel_stride) * inverse[c / block]);
  });
  return finite;
}

template <typename Value>
__global__ void __launch_bounds__(kThreads) EncodeMx(const __grid_constant__ Fp4Launch launch) {
  extern __shared__ float memory[];
  RowAt at = launch.shape.Of(blockIdx.x);
  TellUnfit(launch, at.block, !EncodeRow<Value>(launch, at, 0, memory));
}

template <typename Value>
__global__ void __launch_bounds__(kThreads) EncodeNv(const __grid_constant__ Fp4Launch launch) {
  extern __shared__ float memory[];
  __shared__ uint32_t largest;
  RowAt at{};
  at.block = launch.shape.by_layers.Quotient(blockIdx.x);
  at.layer = blockIdx.x - at.block * launch.shape.layers;
  if (threadIdx.x == 0) largest = 0;
  __syncthreads();
  uint32_t own = 0;
  for (at.head = 0; at.head < launch.shape.heads; ++at.head) {
    for (at.token = 0; at.token < launch.shape.tokens; ++at.token) {
      const Value* row = RowOf<const Value>(launch.job.rows, launch.by_page, at);
      for (uint32_t c = threadIdx.x; c < launch.shape.width; c += kThreads) {
        float value = LoadRowValue(row + c * launch.job.rows.channel_stride);
        own = max(own, __float_as_uint(value) & 0x7FFFFFFFu);
      }
    }
  }
  atomicMax(&largest, own);
  __syncthreads();
  float layer_scale = LayerScaleOf(__uint_as_float(largest));
  if (threadIdx.x < 4) {
    *LayerByte(launch, at, threadIdx.x) = static_cast<uint8_t>(__float_as_uint(layer_scale) >> (8 * threadIdx.x));
  }
  bool finite = true;
  for (at.head = 0; at.head < launch.shape.heads; ++at.head) {
    for (at.token = 0; at.token < launch.shape.tokens; ++at.token) {
      finite &= EncodeRow<Value>(launch, at, layer_scale, memory);
    }
  }
  TellUnfit(launch, at.block, !finite);
}

template <typename Value>
__global__ void __launch_bounds__(kThreads) DecodeRow(const __grid_constant__ Fp4Launch launch) {
  const Fp4Job& job = launch.job;
  RowAt at = launch.shape.Of(blockIdx.x);
  Value* row = RowOf<Value>(job.rows, launch.by_page, at);
  uint64_t in_block = launch.shape.InBlock(at);
  float layer_scale = 0;
  if (!job.mx) {
    uint32_t bits = 0;
    for (uint32_t i = 0; i < 4; ++i) bits |= uint32_t{*LayerByte(launch, at, i)} << (8 * i);
    layer_scale = __uint_as_float(bits);
  }
  for (uint32_t c = threadIdx.x; c < launch.shape.width; c += kThreads) {
    uint32_t stored = *ScaleByte(launch, at, c / (job.mx ? 32 : 16));
    float scale = job.mx ? MxScaleOf(stored) : NvScaleOf(stored, layer_scale);
    uint32_t code = LoadCode(job.codes, at.block, in_block, launch.shape.width, 4, c);
    StoreSaturated(row + c * job.rows.channel_stride, E2m1Value(code) * scale);
  }
}

// f<Value>()
template <typename F>
cudaError_t ForRows(const Fp4Launch& launch, const F& f) {
  if (launch.job.values == DType::kFp32) return f.template operator()<float>();
  return ForValue(launch.job.values, f);
}

}  // namespace

cudaError_t LaunchEncodeFp4Any(const Fp4Launch& launch, cudaStream_t stream) {
  return ForRows(launch, [&]<typename Value>() {
    uint32_t blocks = launch.job.mx ? launch.shape.rows() : launch.shape.blocks * launch.shape.layers;
    return LaunchShared<Fp4Launch>(launch.job.mx ? EncodeMx<Value> : EncodeNv<Value>, launch, blocks, kThreads,
                                   uint64_t{launch.row_scales} * sizeof(float), stream);
  });
}
cudaError_t LaunchDecodeFp4Any(const Fp4Launch& launch, cudaStream_t stream) {
  return ForRows(launch, [&]<typename Value>() {
    return LaunchShared<Fp4Launch>(DecodeRow<Value>, launch, launch.shape.rows(), kThreads, 0, stream);
  });
}

}  // namespace firn::kernels
