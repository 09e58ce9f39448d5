// Which parts of a block kernels code, and the kernels' jobs for them, the same for a batch that is encoded and for a
// block that is decoded.
//
// Threads: reentrant. Errors: Unimplemented, naming the coding, where the processor has to.
#pragma once

#include <functional>

#include "codecs/record.h"
#include "daemon/gpu/transform_cache.h"
#include "kernels/fp8.h"
#include "kernels/gather.h"
#include "kernels/nested.h"

namespace firn::gpu {

// Whether kernels code this part of `header`, which is not exact as a whole.
absl::Status CheckKernel(const RecordHeader& header, Part part);

inline bool IsFp8(CodecId codec) { return codec == CodecId::kFp8E4m3 || codec == CodecId::kFp8E5m2; }

// The part's run of a kind; absent where there is none.
using RunOf = std::function<kernels::RunView(RunKind)>;

// `rows` are all of the part's, of which the jobs take the coded ones.
kernels::Fp8Job Fp8JobOf(const RecordHeader& header, Part part, uint32_t blocks, const DeviceTransform& transform,
                         const kernels::RowsView& rows, const RunOf& run);
kernels::NestedJob NestedJobOf(const RecordHeader& header, Part part, uint32_t blocks, const DeviceTransform& transform,
                               const kernels::RowsView& rows, const RunOf& run);
// The first `tokens` as they are; the run is the caller's to set.
kernels::GatherJob GatherJobOf(const RecordHeader& header, Part part, uint32_t blocks, uint32_t tokens,
                               const kernels::RowsView& rows);

}  // namespace firn::gpu
