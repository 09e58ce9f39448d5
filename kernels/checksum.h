// The checks of runs on a GPU: the CRC-64 that codecs/record.h keeps of each run, so that what crosses a bus is covered
// from before it does.
//
// A run of `checks` checks has the CRC of bytes [i * check_bytes, (i + 1) * check_bytes) as check i, the last of what
// is left. Streams, threads, errors: as kernels/nested.h. Limits: runs of up to 2^30 bytes, fewer than 2^31 checks a
// call. Fast where runs and checks are multiples of 8 bytes; right everywhere.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "kernels/views.h"

namespace firn::kernels {

struct ChecksumJob {
  uint32_t blocks = 0;
  uint64_t run_bytes = 0;    // Of every block.
  uint64_t check_bytes = 0;  // layers_per_check times the bytes of a layer.
  RunView run;
  const uint64_t* seeds = nullptr;  // [blocks][checks], Identity::ChecksumSeed.
  uint64_t* checks = nullptr;       // [blocks][checks], written.

  uint64_t checks_per_block() const { return check_bytes == 0 ? 0 : (run_bytes + check_bytes - 1) / check_bytes; }
};

absl::Status ChecksumRuns(const ChecksumJob& job, cudaStream_t stream);

}  // namespace firn::kernels
