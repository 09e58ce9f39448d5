#include "kernels/condition.h"

#include "base/status.h"
#include "codecs/nested/nested_format.h"
#include "kernels/condition/launch.h"
#include "kernels/launch_check.h"
#include "kernels/nested.h"
#include "kernels/view_checks.h"

namespace firn::kernels {
namespace {

absl::Status CheckTypes(const ConditionJob& job) {
  if (job.values != DType::kFp16 && job.values != DType::kBf16 && job.values != DType::kFp32) {
    return Unimplemented("values of type {}; FP16, BF16 and FP32 are conditioned", DTypeName(job.values));
  }
  if (job.conditioned == DType::kFp32 || job.conditioned == job.values) return absl::OkStatus();
  return InvalidArgument("conditioned rows of type {} for rows of type {}; FP32 or the same",
                         DTypeName(job.conditioned), DTypeName(job.values));
}

absl::Status CheckArrays(const ConditionJob& job) {
  const RopeView& rope = job.rope;
  if ((rope.cosines == nullptr) != (rope.sines == nullptr)) {
    return InvalidArgument("one of cosines and sines is null, the other not");
  }
  if (rope.cosines != nullptr && (rope.pairs == 0 || rope.pairs > job.width / 2)) {
    return InvalidArgument("{} pairs of {} channels", rope.pairs, job.width);
  }
  const TransformView& t = job.transform;
  bool all = t.mean != nullptr && t.encode_scale != nullptr && t.decode_scale != nullptr;
  if (!all && (t.mean != nullptr || t.encode_scale != nullptr || t.decode_scale != nullptr)) {
    return InvalidArgument("some of mean, encode_scale and decode_scale are null, others not");
  }
  return absl::OkStatus();
}

// Whether the kernel with lanes does it.
bool FitsHeads(const ConditionJob& job) {
  const RopeView& rope = job.rope;
  const TransformView& t = job.transform;
  bool turns = rope.cosines == nullptr || rope.interleaved ||
               (rope.pairs % 8 == 0 && Aligned(rope.cosines, 16) && Aligned(rope.sines, 16));
  return (job.width == 64 || job.width == 128 || job.width == 256) && turns && AlignedRows(job.rows) &&
         AlignedRows(job.conditioned_rows) && Aligned(t.mean, 16) && Aligned(t.encode_scale, 16) &&
         Aligned(t.decode_scale, 16);
}

absl::StatusOr<ConditionLaunch> Prepare(const ConditionJob& job, bool forward) {
  if (job.width > kRowWidthMax) {
    return Unimplemented("rows of {} channels; a GPU conditions up to {}", job.width, kRowWidthMax);
  }
  FIRN_RETURN_IF_ERROR(CheckExtent({job.blocks, job.layers, job.heads, job.tokens}));
  FIRN_RETURN_IF_ERROR(CheckTypes(job));
  FIRN_RETURN_IF_ERROR(CheckRows(job.rows, job.tokens));
  FIRN_RETURN_IF_ERROR(CheckRows(job.conditioned_rows, job.tokens));
  FIRN_RETURN_IF_ERROR(CheckArrays(job));
  ConditionLaunch launch;
  launch.job = job;
  launch.shape = BatchShape(job.blocks, job.layers, job.heads, job.tokens, job.width);
  launch.by_page = FastDivisor(job.rows.page_tokens);
  launch.by_conditioned_page = FastDivisor(job.conditioned_rows.page_tokens);
  launch.rotation = job.rotated ? nested::RotationSize(job.width) : 1;
  launch.magnitude_max = nested::RangeMaxOf(launch.rotation);
  if (!forward || launch.rotation == 1) launch.job.survey = nullptr;
  launch.forward = forward;
  return launch;
}

absl::Status Run(const ConditionJob& job, bool forward, cudaStream_t stream) {
  if (BatchExtent{job.blocks, job.layers, job.heads, job.tokens}.Empty() || job.width == 0) return absl::OkStatus();
  FIRN_ASSIGN_OR_RETURN(ConditionLaunch launch, Prepare(job, forward));
  const char* doing = forward ? "conditioning rows" : "restoring rows";
  if (!FitsHeads(job)) return LaunchStatus(LaunchConditionAny(launch, stream), doing);
  launch.by_lanes = FastDivisor(job.width / 8);
  return LaunchStatus(LaunchConditionHeads(launch, stream), doing);
}

}  // namespace

absl::Status ConditionRows(const ConditionJob& job, cudaStream_t stream) { return Run(job, /*forward=*/true, stream); }
absl::Status RestoreRows(const ConditionJob& job, cudaStream_t stream) { return Run(job, /*forward=*/false, stream); }

absl::Status TurnPositions(const RopeTableJob& job, cudaStream_t stream) {
  if (job.blocks == 0 || job.tokens == 0 || job.pairs == 0) return absl::OkStatus();
  if (uint64_t{job.blocks} * job.tokens > kRowsMax) {
    return InvalidArgument("{} blocks of {} tokens have more than {} positions", job.blocks, job.tokens, kRowsMax);
  }
  if (job.pairs > kRowWidthMax / 2) return InvalidArgument("{} pairs; the limit is {}", job.pairs, kRowWidthMax / 2);
  if (job.frequencies == nullptr || job.positions == nullptr) return InvalidArgument("no frequencies, or no positions");
  if (job.cosines == nullptr || job.sines == nullptr) return InvalidArgument("no room for cosines, or none for sines");
  return LaunchStatus(LaunchTurnPositions(job, stream), "turning positions");
}

}  // namespace firn::kernels
