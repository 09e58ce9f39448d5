#include "kernels/nested.h"

#include <algorithm>

#include "base/status.h"
#include "codecs/nested/nested_format.h"
#include "kernels/launch_check.h"
#include "kernels/nested/launch.h"
#include "kernels/view_checks.h"

namespace firn::kernels {
namespace {

constexpr uint64_t kRunValuesMax = uint64_t{1} << 32;
constexpr uint64_t kSharedBytesMax = 227 * 1024;  // Of one thread block, on compute capability 9.0.

absl::Status CheckCoding(const NestedJob& job) {
  bool fp16 = job.values == DType::kFp16;
  if (!fp16 && job.values != DType::kBf16) {
    return Unimplemented("values of type {}; FP16 and BF16 are coded on a GPU", DTypeName(job.values));
  }
  MetaType own = fp16 ? MetaType::kFp16 : MetaType::kBf16;
  if (job.meta != own && job.meta != MetaType::kFp32) {
    return InvalidArgument("metadata of type {} for values of type {}", static_cast<int>(job.meta),
                           DTypeName(job.values));
  }
  if (job.group == 0) return InvalidArgument("groups of 0 values");
  if (job.per_channel && job.rotated) return InvalidArgument("codes by channel are not rotated");
  const TransformView& t = job.transform;
  bool all = t.mean != nullptr && t.encode_scale != nullptr && t.decode_scale != nullptr;
  if (!all && (t.mean != nullptr || t.encode_scale != nullptr || t.decode_scale != nullptr)) {
    return InvalidArgument("some of mean, encode_scale and decode_scale are null, others not");
  }
  if (job.per_channel && all) return InvalidArgument("codes by channel are neither centred nor balanced");
  return absl::OkStatus();
}

absl::Status CheckRuns(const NestedJob& job, bool encode) {
  if (!job.meta_run.present() || !job.p2.present()) return InvalidArgument("no metadata run, or no run p2");
  uint64_t meta_bytes = job.meta == MetaType::kFp32 ? 4 : 2;
  FIRN_RETURN_IF_ERROR(CheckRun(job.meta_run, "the metadata run", 2 * meta_bytes));
  FIRN_RETURN_IF_ERROR(CheckRun(job.p2, "p2", 1));
  FIRN_RETURN_IF_ERROR(CheckRun(job.p4, "p4", 1));
  FIRN_RETURN_IF_ERROR(CheckRun(job.p8, "p8", 1));
  if (encode) return absl::OkStatus();
  if (job.precision != PrecisionClass::k8Bit && job.precision != PrecisionClass::k4Bit &&
      job.precision != PrecisionClass::k2Bit) {
    return InvalidArgument("nested codes are not decoded at {}", PrecisionClassName(job.precision));
  }
  if (job.precision >= PrecisionClass::k4Bit && !job.p4.present()) return InvalidArgument("no run p4 for 4 bits");
  if (job.precision >= PrecisionClass::k8Bit && !job.p8.present()) return InvalidArgument("no run p8 for 8 bits");
  return absl::OkStatus();
}

// The fast kernels write a row, or a group's metadata, from one address: it must not straddle two pages.
bool FitsFast(const RunView& run, uint64_t access_bytes) {
  constexpr uint32_t kPageShiftMin = 10;  // 1 KiB: the metadata of a group of 256 channels.
  return AlignedRun(run, access_bytes) && (run.pages == nullptr || run.page_shift >= kPageShiftMin);
}

Places PlacesOf(const NestedJob& job) {
  for (const RunView* run : {&job.meta_run, &job.p2, &job.p4, &job.p8}) {
    if (run->pages != nullptr || run->block_bases != nullptr) return Places::kAny;
  }
  return LinearRows(job.rows, job.heads, job.tokens, job.width) ? Places::kLinear : Places::kAnyRows;
}

bool TransformAligned(const TransformView& transform) {
  return Aligned(transform.mean, 16) && Aligned(transform.encode_scale, 16) && Aligned(transform.decode_scale, 16);
}

// Which kernels a job gets: those with lanes for widths of 32 * lanes, those with tiles for most other widths, or those
// for anything.
struct KernelChoice {
  FastShape fast;
  bool tile = false;
};

KernelChoice Choose(const NestedLaunch& launch) {
  const NestedJob& job = launch.job;
  bool runs_fit = FitsFast(job.meta_run, 16) && FitsFast(job.p2, 8) && FitsFast(job.p4, 8) && FitsFast(job.p8, 8);
  if (!runs_fit || !AlignedRows(job.rows) || job.meta == MetaType::kFp32 || job.width % 16 != 0) return {};
  uint32_t lanes = job.width / 32;
  if (job.width % 32 != 0 || (lanes != 2 && lanes != 4 && lanes != 8)) lanes = 0;
  if (job.per_channel) {
    if (lanes > 0 && job.group <= 64) return {.fast = {lanes}};
    uint64_t tile_bytes = job.width * (8 + 2 * uint64_t{std::min<uint32_t>(job.group, job.tokens)});
    return {.fast = {}, .tile = tile_bytes <= kChannelTileBytesMax};
  }
  if (!TransformAligned(job.transform)) return {};
  bool scaled_alone = !job.rotated && job.transform.mean == nullptr && job.transform.uniform_scale != 1.0f;
  if (lanes > 0 && launch.groups == 1 && !scaled_alone) return {.fast = {lanes}};
  bool groups_fit = job.group % 4 == 0 || launch.groups == 1;
  return {.fast = {}, .tile = groups_fit && job.width <= kTileWidthMax};
}

absl::StatusOr<NestedLaunch> Prepare(const NestedJob& job, bool encode) {
  if (job.width > kRowWidthMax)
    return Unimplemented("rows of {} channels; a GPU codes up to {}", job.width, kRowWidthMax);
  FIRN_RETURN_IF_ERROR(CheckExtent({job.blocks, job.layers, job.heads, job.tokens}));
  FIRN_RETURN_IF_ERROR(CheckCoding(job));
  FIRN_RETURN_IF_ERROR(CheckRows(job.rows, job.tokens));
  FIRN_RETURN_IF_ERROR(CheckRuns(job, encode));
  NestedLaunch launch;
  launch.job = job;
  launch.shape = BatchShape(job.blocks, job.layers, job.heads, job.tokens, job.width);
  launch.by_page = FastDivisor(job.rows.page_tokens);
  launch.places = PlacesOf(job);
  launch.rotation = job.rotated ? nested::RotationSize(job.width) : 1;
  uint32_t along = job.per_channel ? job.tokens : job.width;
  launch.groups = (along + job.group - 1) / job.group;
  if (uint64_t{job.blocks} * job.layers * job.heads * launch.groups > kRowsMax) {
    return InvalidArgument("{} groups of each of {} heads; a call codes up to {} groups", launch.groups,
                           uint64_t{job.blocks} * job.layers * job.heads, kRowsMax);
  }
  // Kernels count bytes of a run in 32 bits; a record's runs have at most 2^30.
  uint64_t values_per_block = uint64_t{job.layers} * job.heads * job.tokens * job.width;
  uint64_t scales_per_block =
      uint64_t{job.layers} * job.heads * launch.groups * (job.per_channel ? job.width : job.tokens);
  if (values_per_block >= kRunValuesMax || scales_per_block >= kRunValuesMax / 8) {
    return InvalidArgument("blocks of {} values with {} scales; a GPU codes blocks of fewer than {} and {}",
                           values_per_block, scales_per_block, kRunValuesMax, kRunValuesMax / 8);
  }
  uint64_t shared_bytes = (uint64_t{job.width} + (job.per_channel ? job.width : 2 * launch.groups)) * sizeof(float);
  if (shared_bytes > kSharedBytesMax) {
    return Unimplemented("rows of {} channels in groups of {} take {} bytes of shared memory; there are {}", job.width,
                         job.group, shared_bytes, kSharedBytesMax);
  }
  return launch;
}

bool NothingToDo(const NestedJob& job) {
  return job.blocks == 0 || job.layers == 0 || job.heads == 0 || job.tokens == 0 || job.width == 0;
}

}  // namespace

absl::Status EncodeNested(const NestedJob& job, cudaStream_t stream) {
  if (NothingToDo(job)) return absl::OkStatus();
  FIRN_ASSIGN_OR_RETURN(NestedLaunch launch, Prepare(job, /*encode=*/true));
  KernelChoice choice = Choose(launch);
  cudaError_t error;
  if (choice.fast.lanes > 0) {
    error = job.per_channel ? LaunchEncodeChannelFast(launch, choice.fast, stream)
                            : LaunchEncodeTokenFast(launch, choice.fast, stream);
  } else if (choice.tile) {
    error = job.per_channel ? LaunchEncodeChannelTile(launch, stream) : LaunchEncodeTokenTile(launch, stream);
  } else {
    error = job.per_channel ? LaunchEncodeChannelAny(launch, stream) : LaunchEncodeTokenAny(launch, stream);
  }
  return LaunchStatus(error, "encoding nested codes");
}

absl::Status DecodeNested(const NestedJob& job, cudaStream_t stream) {
  if (NothingToDo(job)) return absl::OkStatus();
  FIRN_ASSIGN_OR_RETURN(NestedLaunch launch, Prepare(job, /*encode=*/false));
  KernelChoice choice = Choose(launch);
  cudaError_t error;
  if (choice.fast.lanes > 0) {
    error = job.per_channel ? LaunchDecodeChannelFast(launch, choice.fast, stream)
                            : LaunchDecodeTokenFast(launch, choice.fast, stream);
  } else if (choice.tile) {
    error = job.per_channel ? LaunchDecodeChannelTile(launch, stream) : LaunchDecodeTokenTile(launch, stream);
  } else {
    error = job.per_channel ? LaunchDecodeChannelAny(launch, stream) : LaunchDecodeTokenAny(launch, stream);
  }
  return LaunchStatus(error, "decoding nested codes");
}

}  // namespace firn::kernels
