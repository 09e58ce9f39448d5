// What a worker's GPU does beside handing over blocks. Streams: every function enqueues and returns; a failed launch
// ends the program.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace firn::bench {

// Fused multiply-adds in registers: `blocks` thread blocks of 256 threads, 4 * `iterations` steps a thread.
inline constexpr uint32_t kLoadThreads = 256;
void LaunchLoad(uint32_t blocks, uint32_t iterations, float* sink, cudaStream_t stream);

// Finite FP16 values that depend on `seed` and their place alone, as a producer's kernel writes them. `bytes` is a
// multiple of 16.
void LaunchProduce(void* values, uint64_t bytes, uint64_t seed, cudaStream_t stream);

}  // namespace firn::bench
