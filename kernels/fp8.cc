#include "kernels/fp8.h"

#include "base/status.h"
#include "kernels/fp8/launch.h"
#include "kernels/launch_check.h"
#include "kernels/nested.h"
#include "kernels/view_checks.h"

namespace firn::kernels {
namespace {

constexpr uint64_t kCodesMax = uint64_t{1} << 32;  // Kernels count codes of a block in 32 bits.

// Whether the kernels for any values and scales do it.
bool NeedsAny(const Fp8Job& job) { return job.values == DType::kFp32 || job.per_layer || job.group != 0; }

absl::Status CheckCoding(const Fp8Job& job) {
  if (NeedsAny(job) && job.width > kRowWidthMax) {
    return Unimplemented("rows of {} channels; a GPU codes up to {} with such scales", job.width, kRowWidthMax);
  }
  FIRN_RETURN_IF_ERROR(CheckValuesAndMeta(job.values, MetaType::kFp32));
  if (job.per_layer + (job.group != 0) + (job.scales != nullptr) <= 1) return absl::OkStatus();
  return InvalidArgument("two of a scale a layer, groups of {} and calibrated scales", job.group);
}

absl::StatusOr<Fp8Launch> Prepare(const Fp8Job& job) {
  if (job.width > kWidthMax) return InvalidArgument("rows of {} channels; the limit is {}", job.width, kWidthMax);
  FIRN_RETURN_IF_ERROR(CheckExtent({job.blocks, job.layers, job.heads, job.tokens}));
  FIRN_RETURN_IF_ERROR(CheckRows(job.rows, job.tokens));
  FIRN_RETURN_IF_ERROR(CheckCoding(job));
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
  if (job.group != 0) launch.groups = (job.width - 1) / job.group + 1;
  return launch;
}

bool NothingToDo(const Fp8Job& job) {
  return BatchExtent{job.blocks, job.layers, job.heads, job.tokens}.Empty() || job.width == 0;
}

}  // namespace

absl::Status EncodeFp8(const Fp8Job& job, cudaStream_t stream) {
  if (NothingToDo(job)) return absl::OkStatus();
  FIRN_ASSIGN_OR_RETURN(Fp8Launch launch, Prepare(job));
  auto* code = NeedsAny(job) ? LaunchEncodeFp8Any : LaunchEncodeFp8;
  return LaunchStatus(code(launch, stream), "encoding FP8");
}

absl::Status DecodeFp8(const Fp8Job& job, cudaStream_t stream) {
  if (NothingToDo(job)) return absl::OkStatus();
  FIRN_ASSIGN_OR_RETURN(Fp8Launch launch, Prepare(job));
  auto* code = NeedsAny(job) ? LaunchDecodeFp8Any : LaunchDecodeFp8;
  return LaunchStatus(code(launch, stream), "decoding FP8");
}

}  // namespace firn::kernels
