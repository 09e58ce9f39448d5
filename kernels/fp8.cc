#include "kernels/fp8.h"

#include "base/status.h"
#include "kernels/fp8/launch.h"
#include "kernels/launch_check.h"
#include "kernels/view_checks.h"

namespace firn::kernels {
namespace {

constexpr uint64_t kCodesMax = uint64_t{1} << 32;  // Kernels count codes of a block in 32 bits.

absl::StatusOr<Fp8Launch> Prepare(const Fp8Job& job) {
  if (job.width > kWidthMax) return InvalidArgument("rows of {} channels; the limit is {}", job.width, kWidthMax);
  FIRN_RETURN_IF_ERROR(CheckExtent({job.blocks, job.layers, job.heads, job.tokens}));
  FIRN_RETURN_IF_ERROR(CheckRows(job.rows, job.tokens));
  if (job.values != DType::kFp16 && job.values != DType::kBf16) {
    return Unimplemented("values of type {}; FP16 and BF16 are coded on a GPU", DTypeName(job.values));
  }
  if (uint64_t{job.tokens} * job.width > kRowsMax) {
    return InvalidArgument("heads of {} tokens of width {} have more than {} values", job.tokens, job.width, kRowsMax);
  }
  uint64_t block_values = uint64_t{job.layers} * job.heads * job.tokens * job.width;
  if (block_values >= kCodesMax)
    return InvalidArgument("blocks of {} values; the limit is {}", block_values, kCodesMax - 1);
  if (!job.codes.present()) return InvalidArgument("no run of codes");
  if (job.scales == nullptr && !job.meta_run.present()) return InvalidArgument("neither scales nor a metadata run");
  FIRN_RETURN_IF_ERROR(CheckRun(job.meta_run, "the metadata run", sizeof(float)));
  FIRN_RETURN_IF_ERROR(CheckRun(job.codes, "the run of codes", 1));
  Fp8Launch launch;
  launch.job = job;
  launch.shape = BatchShape(job.blocks, job.layers, job.heads, job.tokens, job.width);
  launch.by_page = FastDivisor(job.rows.page_tokens);
  launch.wide = job.width % 8 == 0 && AlignedRows(job.rows) && AlignedRun(job.codes, 8);
  launch.chunks = launch.wide ? job.width / 8 : job.width;
  bool plain = job.codes.pages == nullptr && job.codes.block_bases == nullptr;
  if (plain && LinearRows(job.rows, job.heads, job.tokens, job.width)) launch.places = Places::kLinear;
  launch.by_chunks = FastDivisor(launch.chunks);
  return launch;
}

bool NothingToDo(const Fp8Job& job) {
  return BatchExtent{job.blocks, job.layers, job.heads, job.tokens}.Empty() || job.width == 0;
}

}  // namespace

absl::Status EncodeFp8(const Fp8Job& job, cudaStream_t stream) {
  if (NothingToDo(job)) return absl::OkStatus();
  FIRN_ASSIGN_OR_RETURN(Fp8Launch launch, Prepare(job));
  return LaunchStatus(LaunchEncodeFp8(launch, stream), "encoding FP8");
}

absl::Status DecodeFp8(const Fp8Job& job, cudaStream_t stream) {
  if (NothingToDo(job)) return absl::OkStatus();
  FIRN_ASSIGN_OR_RETURN(Fp8Launch launch, Prepare(job));
  return LaunchStatus(LaunchDecodeFp8(launch, stream), "decoding FP8");
}

}  // namespace firn::kernels
