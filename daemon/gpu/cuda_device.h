// A CUDA GPU as the child's device (tiers/hot/child/device.h).
//
// Each lane has two threads and its own streams: one thread enqueues, the other waits for what was enqueued, so that
// the next batch's kernels run beside this one's copies. Recodings that wait are taken together where they are alike,
// and finished by some threads more. Memory is taken once, at Open: the pool by cudaMalloc (smaller where the GPU has
// less), scratch, and pinned memory for parameters; so nothing runs out of memory later. Errors: cudaErrors that end
// the context go to on_fatal with CUDA's code.
#pragma once

#include <memory>

#include "tiers/hot/child/device.h"

namespace firn::gpu {

struct CudaFaults {
  uint64_t illegal_address_at_job = 0;  // That job reads where nothing is; 0: never.
};

std::unique_ptr<Device> MakeCudaDevice(const CudaFaults& faults);

}  // namespace firn::gpu
