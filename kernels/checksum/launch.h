// What the launcher of the checksum kernel is given once the checks have passed. Internal to kernels/.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/checksum.h"
#include "kernels/checksum/crc64.h"

namespace firn::kernels {

// Threads of one check. Each takes every so many-th word, and its sum is moved on by that many words at a time.
inline constexpr uint32_t kChecksumThreads = kCrcStride;

struct ChecksumLaunch {
  ChecksumJob job;
  uint32_t checks_per_block = 0;
  bool words = false;  // Everything is a multiple of 8 bytes.
};

cudaError_t LaunchChecksum(const ChecksumLaunch& launch, cudaStream_t stream);

}  // namespace firn::kernels
