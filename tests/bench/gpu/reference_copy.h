// What moving FP16 bytes as they are costs: pinned copies between a GPU and this process, or memcpy where there is no
// GPU. Threads: one.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace firn::bench {

// Bytes a second, medians.
struct CopyRates {
  double down = 0;  // To the host.
  double up = 0;
};
// Whether this program can use a GPU at all.
bool BuiltWithCuda();
// cudaMemcpyAsync in pieces of 64 MiB from and to pinned memory of 1 GiB; its memory is given back. Unimplemented
// without CUDA.
absl::StatusOr<CopyRates> PinnedCopyRates(int device);
// memcpy by one thread over 64 MiB, both ways alike.
CopyRates MemcpyRates();

}  // namespace firn::bench
