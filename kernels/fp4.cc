#include "kernels/fp4.h"

#include "base/status.h"
#include "codecs/fp4/fp4_format.h"
#include "kernels/fp4/launch.h"
#include "kernels/launch_check.h"
#include "kernels/nested.h"
#include "kernels/view_checks.h"

namespace firn::kernels {
namespace {

uint32_t BlockOf(const Fp4Job& job) { return job.mx ? fp4::kMxBlock : fp4::kNvBlock; }

absl::StatusOr<Fp4Launch> Prepare(const Fp4Job& job) {
  constexpr uint64_t kValuesMax = uint64_t{1} << 32;  // Kernels count values of a block in 32 bits.
  if (job.width > kRowWidthMax) {
    return Unimplemented("rows of {} channels; a GPU codes up to {}", job.width, kRowWidthMax);
  }
  FIRN_RETURN_IF_ERROR(CheckExtent({job.blocks, job.layers, job.heads, job.tokens}));
  FIRN_RETURN_IF_ERROR(CheckValuesAndMeta(job.values, MetaType::kFp32));
  FIRN_RETURN_IF_ERROR(CheckRows(job.rows, job.tokens));
  if (!job.codes.present()) return InvalidArgument("no run of codes");
  if (!job.meta_run.present()) return InvalidArgument("no metadata run");
  FIRN_RETURN_IF_ERROR(CheckRun(job.codes, "the run of codes", 1));
  FIRN_RETURN_IF_ERROR(CheckRun(job.meta_run, "the metadata run", 1));
  uint64_t values = uint64_t{job.layers} * job.heads * job.tokens * job.width;
  if (values >= kValuesMax) return InvalidArgument("blocks of {} values; the limit is {}", values, kValuesMax - 1);
  Fp4Launch launch;
  launch.job = job;
  launch.shape = BatchShape(job.blocks, job.layers, job.heads, job.tokens, job.width);
  launch.by_page = FastDivisor(job.rows.page_tokens);
  launch.row_scales = fp4::BlocksOf(job.width, BlockOf(job));
  if (LinearRows(job.rows, job.heads, job.tokens, job.width) && PlainRun(job.codes) && PlainRun(job.meta_run)) {
    launch.places = Places::kLinear;
  }
  return launch;
}

// Whether the kernels that work on chunks of eight channels do it.
bool FitsChunks(Fp4Launch* launch) {
  const Fp4Job& job = launch->job;
  if (job.values == DType::kFp32 || job.width % BlockOf(job) != 0 || !AlignedRows(job.rows) ||
      !AlignedRun(job.codes, 4)) {
    return false;
  }
  launch->chunks = ChunkShape(launch->shape);
  launch->by_layer_chunks = FastDivisor(job.heads * job.tokens * launch->chunks.row_chunks);
  return true;
}

bool NothingToDo(const Fp4Job& job) {
  return BatchExtent{job.blocks, job.layers, job.heads, job.tokens}.Empty() || job.width == 0;
}

}  // namespace

absl::Status EncodeFp4(const Fp4Job& job, cudaStream_t stream) {
  if (NothingToDo(job)) return absl::OkStatus();
  FIRN_ASSIGN_OR_RETURN(Fp4Launch launch, Prepare(job));
  auto* code = !FitsChunks(&launch) ? LaunchEncodeFp4Any : job.mx ? LaunchEncodeMxFp4 : LaunchEncodeNvFp4;
  return LaunchStatus(code(launch, stream), "encoding FP4");
}

absl::Status DecodeFp4(const Fp4Job& job, cudaStream_t stream) {
  if (NothingToDo(job)) return absl::OkStatus();
  FIRN_ASSIGN_OR_RETURN(Fp4Launch launch, Prepare(job));
  auto* code = FitsChunks(&launch) ? LaunchDecodeFp4 : LaunchDecodeFp4Any;
  return LaunchStatus(code(launch, stream), "decoding FP4");
}

}  // namespace firn::kernels
