#include <cuda_fp16.h>

#include <cstdio>
#include <cstdlib>

#include "tests/bench/gpu/sharing/load.h"

namespace firn::bench {
namespace {

__global__ void __launch_bounds__(kLoadThreads, 2048 / kLoadThreads) Load(uint32_t iterations, float* sink) {
  float a = static_cast<float>(threadIdx.x), b = a + 1, c = a + 2, d = a + 3;
  for (uint32_t i = 0; i < iterations; ++i) {
    a = a * 0.999f + 0.5f, b = b * 0.999f + 0.5f, c = c * 0.999f + 0.5f, d = d * 0.999f + 0.5f;
  }
  // Never: it keeps the compiler from dropping the loop.
  if (a + b + c + d == -1.0f) *sink = a;
}

__device__ uint32_t Mixed(uint64_t seed, uint64_t at) {
  uint64_t x = (seed + 1) * 0x9E3779B97F4A7C15ull ^ at;
  x ^= x >> 31, x *= 0xBF58476D1CE4E5B9ull, x ^= x >> 27;
  return static_cast<uint32_t>(x);
}

// Eight values a thread and step: both signs, from 2^-3 to 2.
__global__ void Produce(uint4* values, uint64_t count, uint64_t seed) {
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += uint64_t{gridDim.x} * blockDim.x) {
    auto pair = [&](uint32_t k) { return (Mixed(seed, i * 4 + k) & 0x8FFF8FFFu) + 0x30003000u; };
    values[i] = make_uint4(pair(0), pair(1), pair(2), pair(3));
  }
}

void CheckLaunch(const char* what) {
  cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace

void LaunchLoad(uint32_t blocks, uint32_t iterations, float* sink, cudaStream_t stream) {
  Load<<<blocks, kLoadThreads, 0, stream>>>(iterations, sink);
  CheckLaunch("the load");
}

void LaunchProduce(void* values, uint64_t bytes, uint64_t seed, cudaStream_t stream) {
  Produce<<<264, 256, 0, stream>>>(static_cast<uint4*>(values), bytes / 16, seed);
  CheckLaunch("the producer");
}

}  // namespace firn::bench
