// The processor as a device: ordinary memory for the pool, codecs/ for the kernels, a thread a lane. For tests, and for
// machines without a GPU; what it gives is what every other device must give, byte for byte.
//
// Faults are options: what a GPU does wrong, at a job that the test chooses.
#pragma once

#include <cstdint>
#include <memory>

#include "tiers/hot/child/device.h"

namespace firn::gpu {

struct CpuFaults {
  // Counted over all lanes; 0: never.
  uint64_t fatal_at_job = 0;               // Reports `fatal_code` and is lost.
  int32_t fatal_code = 700;                // cudaErrorIllegalAddress; 214 ECC, 226 NVLink, 719 launch failure.
  uint64_t exit_at_job = 0;                // Ends the process at once, in the middle of the job.
  uint64_t hang_at_job = 0;                // Never answers that job, or any after it on its lane.
  uint64_t fail_at_job = 0;                // That job fails, and nothing else: out of memory.
  uint64_t lie_at_job = 0;                 // That job's header comes back as another block's.
  uint64_t pool_bytes_max = ~uint64_t{0};  // What the GPU has left for a pool.
  int64_t job_delay_us = 0;
};

std::unique_ptr<Device> MakeCpuDevice(const CpuFaults& faults);

}  // namespace firn::gpu
