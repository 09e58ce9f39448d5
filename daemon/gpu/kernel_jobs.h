// Which codings have kernels, and what those are called with: the same for a batch that is encoded and for a block that
// is decoded.
//
// Threads: reentrant. Stream behaviour: EncodeCodes and DecodeCodes enqueue. Errors: Unimplemented, naming the coding,
// where the processor has to; the kernels' own.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#include "codecs/record.h"
#include "daemon/gpu/transform_cache.h"
#include "kernels/gather.h"
#include "kernels/views.h"

namespace firn::gpu {

// Whether kernels code this part of `header`, which is not exact as a whole.
absl::Status CheckKernel(const RecordHeader& header, Part part);

// What of the coding is done to rows before its kernel sees them (kernels/condition.h), as flags of PartCoding; 0 where
// the kernel takes rows as they are. The part passes CheckKernel.
uint8_t FlagsOutside(const PartCoding& coding);

// The part's run of a kind; absent where there is none.
using RunOf = std::function<kernels::RunView(RunKind)>;

// One part of equal blocks, as a kernel sees it.
struct CodesJob {
  const RecordHeader& header;  // Of one of them.
  Part part;
  uint32_t blocks;
  const DeviceTransform& transform;
  DType values;            // Of the rows.
  kernels::RowsView rows;  // The coded ones.
  RunOf run;
  uint32_t* survey = nullptr;  // [blocks], cleared before; of encoding alone.
};
absl::Status EncodeCodes(const CodesJob& job, cudaStream_t stream);
absl::Status DecodeCodes(const CodesJob& job, cudaStream_t stream);

// The first `tokens` as they are, of all of the part's rows; the run is the caller's to set.
kernels::GatherJob GatherJobOf(const RecordHeader& header, Part part, uint32_t blocks, uint32_t tokens,
                               const kernels::RowsView& rows);

}  // namespace firn::gpu
