// What the launchers of the copying kernels are given once the checks have passed. Internal to kernels/.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/device/rows.cuh"
#include "kernels/gather.h"

namespace firn::kernels {

struct GatherLaunch {
  RowsView rows;  // Its strides count bytes.
  RunView run;
  BatchShape shape;  // Rows of the runs: `shape.tokens` is the job's block_tokens.
  FastDivisor by_page;
  uint32_t tokens = 0;
  uint32_t access_bytes = 0;  // 16, 8, 4, 2 or 1.
  uint32_t chunks = 0;        // Accesses of a row.
  int64_t chunk_stride = 0;   // Of rows, in bytes.
  uint32_t lanes_log2 = 0;    // Threads that share a row.
};

cudaError_t LaunchGather(const GatherLaunch& launch, cudaStream_t stream);
cudaError_t LaunchScatter(const GatherLaunch& launch, cudaStream_t stream);

}  // namespace firn::kernels
