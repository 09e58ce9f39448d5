// One thread block a check. Thread t sums words t, t + 256, ...: by Horner's rule its sum times x^(64 * 256), plus the
// next word, with the multiplication by that constant from eight tables in shared memory. Then each sum is brought to
// the end of the stretch, and all are added.
#include "kernels/checksum/launch.h"

namespace firn::kernels {
namespace {

__device__ const CrcStepTables kStepTables = MakeCrcStepTables();
__device__ const CrcEndPowers kEndPowers = MakeCrcEndPowers();

__device__ __forceinline__ uint64_t Times(const CrcStepTables& tables, uint64_t word) {
  uint64_t product = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) product ^= tables.of_byte[i][word >> (8 * i) & 0xFF];
  return product;
}

__device__ uint64_t XorOfBlock(uint64_t own) {
  __shared__ uint64_t of_warp[kChecksumThreads / 32];
  for (int apart = 16; apart > 0; apart /= 2) own ^= __shfl_xor_sync(0xFFFFFFFFu, own, apart);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = own;
  __syncthreads();
  uint64_t sum = 0;
  for (uint32_t i = 0; i < kChecksumThreads / 32; ++i) sum ^= of_warp[i];
  return sum;
}

struct Stretch {
  uint32_t block;
  uint64_t first, bytes;
  uint64_t check;

  __device__ explicit Stretch(const ChecksumLaunch& launch) {
    block = blockIdx.x / launch.checks_per_block;
    uint32_t index = blockIdx.x - block * launch.checks_per_block;
    first = index * launch.job.check_bytes;
    bytes = min(launch.job.check_bytes, launch.job.run_bytes - first);
    check = blockIdx.x;
  }
};

__global__ void __launch_bounds__(kChecksumThreads) ChecksumWords(const __grid_constant__ ChecksumLaunch launch) {
  __shared__ CrcStepTables tables;
  for (uint32_t i = threadIdx.x; i < 8 * 256; i += kChecksumThreads) {
    tables.of_byte[i / 256][i % 256] = kStepTables.of_byte[i / 256][i % 256];
  }
  __syncthreads();
  Stretch own(launch);
  uint32_t words = static_cast<uint32_t>(own.bytes / 8);
  uint64_t state = ~launch.job.seeds[own.check];
  auto word = [&](uint32_t at) {
    uint64_t value =
        __ldcs(reinterpret_cast<const unsigned long long*>(launch.job.run.At(own.block, own.first + uint64_t{at} * 8)));
    return at == 0 ? value ^ state : value;
  };
  // Four words at a time are on their way while the last ones are multiplied.
  constexpr uint32_t kAhead = 4;
  uint64_t sum = 0;
  uint32_t at = threadIdx.x;
  uint32_t last = at;
  for (; at + (kAhead - 1) * kChecksumThreads < words; at += kAhead * kChecksumThreads) {
    uint64_t next[kAhead];
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) next[i] = word(at + i * kChecksumThreads);
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) sum = Times(tables, sum) ^ next[i];
    last = at + (kAhead - 1) * kChecksumThreads;
  }
  for (; at < words; at += kChecksumThreads) {
    sum = Times(tables, sum) ^ word(at);
    last = at;
  }
  if (threadIdx.x < words) sum = CrcTimes(sum, kEndPowers.powers[words - 1 - last]);
  uint64_t crc = XorOfBlock(sum);
  if (threadIdx.x == 0) launch.job.checks[own.check] = ~crc;
}

__global__ void __launch_bounds__(kChecksumThreads) ChecksumBytes(const __grid_constant__ ChecksumLaunch launch) {
  Stretch own(launch);
  // Each thread sums a stretch of its own, byte by byte, and brings it to the end.
  uint64_t each = (own.bytes + kChecksumThreads - 1) / kChecksumThreads;
  uint64_t begin = min(own.bytes, threadIdx.x * each), end = min(own.bytes, begin + each);
  uint64_t sum = begin == 0 && end > 0 ? ~launch.job.seeds[own.check] : 0;
  for (uint64_t at = begin; at < end; ++at) {
    sum ^= *launch.job.run.At(own.block, own.first + at);
    for (int bit = 0; bit < 8; ++bit) sum = CrcTimesX(sum);
  }
  if (end > begin) sum = CrcTimes(sum, CrcShift(own.bytes - end));
  uint64_t crc = XorOfBlock(sum);
  if (threadIdx.x == 0) launch.job.checks[own.check] = ~crc;
}

}  // namespace

cudaError_t LaunchChecksum(const ChecksumLaunch& launch, cudaStream_t stream) {
  uint32_t grid = launch.job.blocks * launch.checks_per_block;
  if (!launch.words) {
    ChecksumBytes<<<grid, kChecksumThreads, 0, stream>>>(launch);
    return cudaGetLastError();
  }
  ChecksumWords<<<grid, kChecksumThreads, 0, stream>>>(launch);
  return cudaGetLastError();
}

}  // namespace firn::kernels
