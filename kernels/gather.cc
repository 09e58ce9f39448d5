#include "kernels/gather.h"

#include "base/status.h"
#include "codecs/types.h"
#include "kernels/gather/launch.h"
#include "kernels/launch_check.h"
#include "kernels/view_checks.h"

namespace firn::kernels {
namespace {

constexpr uint64_t kRunBytesMax = (uint64_t{1} << 32) - 1;

// The widest access that all rows and runs are aligned to, of those that divide a row. What device arrays of addresses
// hold is aligned by their contract.
uint32_t AccessBytes(const GatherJob& job) {
  const RowsView& rows = job.rows;
  if (rows.channel_stride != 1) return job.value_bytes;
  uint64_t all =
      job.width | static_cast<uint64_t>(rows.layer_stride | rows.page_stride | rows.token_stride | rows.head_stride);
  uint32_t bytes = 16;
  auto fits = [&] {
    return all * job.value_bytes % bytes == 0 && Aligned(rows.base, bytes) && AlignedRun(job.run, bytes);
  };
  while (bytes > job.value_bytes && !fits()) bytes /= 2;
  return bytes;
}

// Few enough that little of a warp is idle, many enough that a warp reads long pieces.
uint32_t LanesLog2(uint32_t chunks) {
  constexpr uint32_t kLanesLog2Max = 8, kLongLog2 = 3;
  if (chunks % (1u << kLongLog2) == 0) {
    uint32_t log2 = kLongLog2;
    while (log2 < kLanesLog2Max && chunks % (2u << log2) == 0) ++log2;
    return log2;
  }
  uint32_t log2 = 0;
  while (log2 < kLanesLog2Max && (1u << log2) < chunks) ++log2;
  return log2;
}

absl::StatusOr<GatherLaunch> Prepare(const GatherJob& job) {
  if (job.value_bytes != 1 && job.value_bytes != 2) {
    return InvalidArgument("values of {} bytes; 1 and 2 are copied", job.value_bytes);
  }
  if (job.width > kWidthMax) return InvalidArgument("rows of {} channels; the limit is {}", job.width, kWidthMax);
  if (job.tokens > job.block_tokens) {
    return InvalidArgument("{} tokens in blocks of {}", job.tokens, job.block_tokens);
  }
  FIRN_RETURN_IF_ERROR(CheckExtent({job.blocks, job.layers, job.heads, job.block_tokens}));
  FIRN_RETURN_IF_ERROR(CheckRows(job.rows, job.tokens));
  if (!job.run.present()) return InvalidArgument("no run");
  FIRN_RETURN_IF_ERROR(CheckRun(job.run, "the run", job.value_bytes));
  if (job.value_bytes == 2 && !Aligned(job.rows.base, 2)) return InvalidArgument("rows are not aligned to 2 bytes");
  uint64_t run_bytes = uint64_t{job.layers} * job.heads * job.block_tokens * job.width * job.value_bytes;
  if (run_bytes > kRunBytesMax) return InvalidArgument("runs of {} bytes; the limit is {}", run_bytes, kRunBytesMax);
  GatherLaunch launch;
  launch.rows = job.rows;
  for (int64_t* stride : {&launch.rows.layer_stride, &launch.rows.page_stride, &launch.rows.token_stride,
                          &launch.rows.head_stride, &launch.rows.channel_stride}) {
    *stride *= job.value_bytes;
  }
  launch.run = job.run;
  launch.shape = BatchShape(job.blocks, job.layers, job.heads, job.block_tokens, job.width);
  launch.by_page = FastDivisor(job.rows.page_tokens);
  launch.tokens = job.tokens;
  launch.access_bytes = AccessBytes(job);
  launch.chunks = job.width * job.value_bytes / launch.access_bytes;
  launch.chunk_stride = launch.access_bytes == job.value_bytes ? launch.rows.channel_stride : launch.access_bytes;
  launch.lanes_log2 = LanesLog2(launch.chunks);
  return launch;
}

bool NothingToDo(const GatherJob& job) {
  return BatchExtent{job.blocks, job.layers, job.heads, job.block_tokens}.Empty() || job.width == 0;
}

}  // namespace

absl::Status GatherRows(const GatherJob& job, cudaStream_t stream) {
  if (NothingToDo(job)) return absl::OkStatus();
  FIRN_ASSIGN_OR_RETURN(GatherLaunch launch, Prepare(job));
  return LaunchStatus(LaunchGather(launch, stream), "gathering rows");
}

absl::Status ScatterRows(const GatherJob& job, cudaStream_t stream) {
  if (NothingToDo(job) || job.tokens == 0) return absl::OkStatus();
  FIRN_ASSIGN_OR_RETURN(GatherLaunch launch, Prepare(job));
  return LaunchStatus(LaunchScatter(launch, stream), "scattering rows");
}

}  // namespace firn::kernels
