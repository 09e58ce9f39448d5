// Exact copies between an engine's rows and canonical block runs, both ways: FP16, BF16 or FP8 bytes as given, as
// codecs/identity keeps them. A run is [layer][head][token][channel] without gaps.
//
// Streams, threads, errors: as kernels/nested.h. Limits: values of 1 or 2 bytes, fewer than 2^31 rows a call, runs of
// fewer than 2^32 bytes.
// Fast where rows are contiguous and they and the runs are 16-byte aligned; accesses are as wide as alignment allows,
// one value at the least.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "kernels/views.h"

namespace firn::kernels {

struct GatherJob {
  uint32_t blocks = 0, layers = 0, heads = 0, width = 0;
  uint32_t tokens = 0;        // Of every block.
  uint32_t block_tokens = 0;  // Rows of a head in the run: those from `tokens` on are zero.
  uint32_t value_bytes = 2;
  RowsView rows;
  RunView run;
};

// From rows to runs.
absl::Status GatherRows(const GatherJob& job, cudaStream_t stream);
// From runs to rows: what lies beyond `tokens` is neither read nor written.
absl::Status ScatterRows(const GatherJob& job, cudaStream_t stream);

}  // namespace firn::kernels
