#include "kernels/integer.h"

#include <algorithm>
#include <bit>

#include "base/status.h"
#include "kernels/integer/launch.h"
#include "kernels/launch_check.h"
#include "kernels/nested.h"
#include "kernels/view_checks.h"

namespace firn::kernels {
namespace {

constexpr float kRangeMax = 3.3e38f;

IntegerForm FormOf(const IntegerJob& job) {
  IntegerForm form;
  form.symmetric = job.symmetric;
  auto most = static_cast<float>((1u << job.bits) - 1), half = static_cast<float>(1u << (job.bits - 1));
  form.lowest = job.symmetric ? 1 - half : 0;
  form.highest = form.steps = job.symmetric ? half - 1 : most;
  form.offset = job.symmetric ? half : 0;
  form.steps_inverse = 1 / form.steps;
  // Values of a layer differ from one another by no more than FP32 holds, whichever head they are in.
  form.value_max = job.axis == ScaleAxis::kTensor ? kRangeMax / 2 : kRangeMax;
  return form;
}

absl::Status CheckCoding(const IntegerJob& job) {
  if (job.bits != 8 && job.bits != 4 && job.bits != 3 && job.bits != 2) {
    return InvalidArgument("integer codes of {} bits, 8, 4, 3 or 2", job.bits);
  }
  bool grouped = job.axis != ScaleAxis::kTensor && job.scales == nullptr;
  if (grouped != (job.group != 0)) return InvalidArgument("integer codes with groups of {} values", job.group);
  if (job.scales == nullptr) return absl::OkStatus();
  if (!job.symmetric || job.bits != 8 || job.axis == ScaleAxis::kChannel) {
    return InvalidArgument("calibrated scales for {} integers of {} bits{}; for symmetric ones of 8, not by channel",
                           job.symmetric ? "symmetric" : "asymmetric", job.bits,
                           job.axis == ScaleAxis::kChannel ? " by channel" : "");
  }
  return absl::OkStatus();
}

absl::Status CheckRuns(const IntegerJob& job) {
  if (!job.codes.present()) return InvalidArgument("no run of codes");
  FIRN_RETURN_IF_ERROR(CheckRun(job.codes, "the run of codes", 1));
  if (job.scales != nullptr) return absl::OkStatus();
  if (!job.meta_run.present()) return InvalidArgument("neither scales nor a metadata run");
  return CheckRun(job.meta_run, "the metadata run", job.meta == MetaType::kFp32 ? 4 : 2);
}

// Blocks of few enough values and scales for 32 bits.
absl::Status CheckSizes(const IntegerJob& job, uint32_t groups) {
  constexpr uint64_t kValuesMax = uint64_t{1} << 32, kScalesMax = kValuesMax / 8;
  uint64_t heads = uint64_t{job.layers} * job.heads;
  uint64_t values = heads * job.tokens * job.width;
  uint64_t scales = heads * groups * (job.axis == ScaleAxis::kChannel ? job.width : job.tokens);
  if (values >= kValuesMax || scales >= kScalesMax) {
    return InvalidArgument("blocks of {} values with {} scales; a GPU codes blocks of fewer than {} and {}", values,
                           scales, kValuesMax, kScalesMax);
  }
  if (job.axis == ScaleAxis::kChannel && job.blocks * heads * groups > kRowsMax) {
    return InvalidArgument("{} groups of each of {} heads; a call codes up to {} groups", groups, job.blocks * heads,
                           kRowsMax);
  }
  return absl::OkStatus();
}

absl::StatusOr<IntegerLaunch> Prepare(const IntegerJob& job) {
  if (job.width > kRowWidthMax) {
    return Unimplemented("rows of {} channels; a GPU codes up to {}", job.width, kRowWidthMax);
  }
  FIRN_RETURN_IF_ERROR(CheckExtent({job.blocks, job.layers, job.heads, job.tokens}));
  FIRN_RETURN_IF_ERROR(CheckValuesAndMeta(job.values, job.meta));
  FIRN_RETURN_IF_ERROR(CheckCoding(job));
  FIRN_RETURN_IF_ERROR(CheckRows(job.rows, job.tokens));
  FIRN_RETURN_IF_ERROR(CheckRuns(job));
  IntegerLaunch launch;
  launch.job = job;
  launch.form = FormOf(job);
  launch.shape = BatchShape(job.blocks, job.layers, job.heads, job.tokens, job.width);
  launch.by_page = FastDivisor(job.rows.page_tokens);
  uint32_t along = job.axis == ScaleAxis::kChannel ? job.tokens : job.width;
  // Without groups a whole row is one.
  if (job.group == 0) launch.job.group = along;
  launch.groups = (along - 1) / launch.job.group + 1;
  FIRN_RETURN_IF_ERROR(CheckSizes(job, launch.groups));
  if (PlainRun(job.codes) && PlainRun(job.meta_run)) {
    bool linear = LinearRows(job.rows, job.heads, job.tokens, job.width);
    launch.places = linear ? Places::kLinear : Places::kAnyRows;
  }
  return launch;
}

// Whether values and runs are as the kernels that work on chunks want them.
bool FitsChunks(const IntegerLaunch& launch) {
  const IntegerJob& job = launch.job;
  MetaType own = job.values == DType::kFp16 ? MetaType::kFp16 : MetaType::kBf16;
  return job.values != DType::kFp32 && (job.meta == own || job.scales != nullptr) &&
         job.width % (job.bits == 3 ? 32 : 8) == 0 && AlignedRows(job.rows) && AlignedRun(job.codes, 16) &&
         AlignedRun(job.meta_run, 16);
}

bool FitsChannels(const IntegerLaunch& launch) {
  uint32_t width = launch.job.width;
  return FitsChunks(launch) && (width == 64 || width == 128 || width == 256) && launch.job.group <= kChannelGroupMax;
}

// Fills in how chunks share scales; false where they do not.
bool ShareScales(IntegerLaunch* launch, bool encode) {
  const IntegerJob& job = launch->job;
  if (!FitsChunks(*launch)) return false;
  launch->chunks = ChunkShape(launch->shape);
  uint32_t head_chunks = job.tokens * launch->chunks.row_chunks;
  if (job.axis == ScaleAxis::kTensor) {
    launch->by_scale = FastDivisor(head_chunks * job.heads);
    launch->scale_stride = job.scales != nullptr ? job.heads : 1;
    return true;
  }
  if (job.scales != nullptr) {
    launch->by_scale = FastDivisor(head_chunks);
    return true;
  }
  if (job.group % 8 != 0 || job.width % job.group != 0) return false;
  launch->group_lanes = job.group / 8;
  launch->by_scale = FastDivisor(launch->group_lanes);
  bool even = std::has_single_bit(launch->group_lanes);
  // Four lanes that share the words of INT3 have four chunks one after another.
  launch->paired = even && launch->group_lanes >= (job.bits == 3 ? 8 : 2);
  launch->half_log2 = launch->paired ? static_cast<uint32_t>(std::countr_zero(launch->group_lanes)) - 1 : 0;
  return !encode || (even && launch->group_lanes <= (launch->paired ? 64 : 32));
}

bool NothingToDo(const IntegerJob& job) {
  return BatchExtent{job.blocks, job.layers, job.heads, job.tokens}.Empty() || job.width == 0;
}

}  // namespace

absl::Status EncodeIntegers(const IntegerJob& job, cudaStream_t stream) {
  if (NothingToDo(job)) return absl::OkStatus();
  FIRN_ASSIGN_OR_RETURN(IntegerLaunch launch, Prepare(job));
  cudaError_t error;
  if (job.axis == ScaleAxis::kChannel && FitsChannels(launch)) {
    launch.chunks = ChunkShape(launch.shape);
    error = LaunchEncodeIntegerChannel(launch, stream);
  } else if (job.axis != ScaleAxis::kChannel && ShareScales(&launch, /*encode=*/true)) {
    bool own_scales = job.axis == ScaleAxis::kTensor && job.scales == nullptr;
    error = own_scales ? LaunchEncodeIntegerTensor(launch, stream) : LaunchEncodeIntegerToken(launch, stream);
  } else {
    error = LaunchEncodeIntegerAny(launch, stream);
  }
  return LaunchStatus(error, "encoding integers");
}

absl::Status DecodeIntegers(const IntegerJob& job, cudaStream_t stream) {
  if (NothingToDo(job)) return absl::OkStatus();
  FIRN_ASSIGN_OR_RETURN(IntegerLaunch launch, Prepare(job));
  cudaError_t error;
  if (job.axis == ScaleAxis::kChannel && FitsChannels(launch)) {
    launch.chunks = ChunkShape(launch.shape);
    error = LaunchDecodeIntegerChannel(launch, stream);
  } else if (job.axis != ScaleAxis::kChannel && ShareScales(&launch, /*encode=*/false)) {
    error = LaunchDecodeIntegerToken(launch, stream);
  } else {
    error = LaunchDecodeIntegerAny(launch, stream);
  }
  return LaunchStatus(error, "decoding integers");
}

}  // namespace firn::kernels
