// One part of equal blocks, coded on a GPU whatever its coding asks for: rows are conditioned into scratch where the
// code does not do it itself, coded, and the exact tokens set beside; and the way back.
//
// Threads: reentrant. Ownership: all memory, and the transform, must stay until the stream has passed them; scratch of
// one stream may be the next part's as well. Stream behaviour: both enqueue. Errors: those of daemon/gpu/kernel_jobs.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "daemon/gpu/kernel_jobs.h"

namespace firn::gpu {

struct PartWork {
  uint32_t blocks = 0;
  const DeviceTransform* transform = nullptr;
  kernels::RowsView rows;  // All of the part's, as the source or the target has them.
  RunOf run;
  uint32_t* survey = nullptr;           // [blocks], cleared before; of encoding alone.
  uint8_t* scratch = nullptr;           // PartScratchBytes for each block.
  const uint32_t* positions = nullptr;  // [blocks][coded tokens], where PartTakesPositions.
};

// What a block takes of scratch while it is coded, a multiple of kScratchAlignment; 0 where rows are coded as they are.
uint64_t PartScratchBytes(const RecordHeader& header, Part part);
// Whether the part's coding takes the rotary embedding back, and the positions of coded tokens that it needs then.
bool PartTakesPositions(const RecordHeader& header, Part part);
std::vector<uint32_t> CodedPositions(const RecordHeader& header);

// Whether DecodePart does it: what has a kernel, and values as they are.
absl::Status CheckDecoding(const RecordHeader& header, Part part);
// Of a part that passes CheckKernel, from source values.
absl::Status EncodePart(const RecordHeader& header, Part part, const PartWork& work, cudaStream_t stream);
absl::Status DecodePart(const RecordHeader& header, Part part, const PartWork& work, cudaStream_t stream);

}  // namespace firn::gpu
