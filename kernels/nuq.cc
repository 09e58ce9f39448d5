#include "kernels/nuq.h"

#include <algorithm>

#include "base/status.h"
#include "codecs/nuq/nuq_format.h"
#include "codecs/record.h"
#include "kernels/launch_check.h"
#include "kernels/nested.h"
#include "kernels/nuq/launch.h"
#include "kernels/view_checks.h"

namespace firn::kernels {
namespace {

absl::Status CheckCoding(const NuqJob& job, bool encode) {
  if (job.bits < 2 || job.bits > 4) return InvalidArgument("codebook codes of {} bits, 2 to 4", job.bits);
  if (job.outliers > PartCoding::kOutliersMax) {
    return InvalidArgument("{} thousandths of outliers, at most {}", job.outliers, PartCoding::kOutliersMax);
  }
  if (job.group == 0 || (job.group > 1 && !job.per_channel)) {
    return InvalidArgument("vectors of {} tokens; of one, or by channel of more", job.group);
  }
  if (encode && job.levels == nullptr) return InvalidArgument("no levels to encode by");
  if (!encode && job.decoded == nullptr) return InvalidArgument("no values that codes stand for");
  const TransformView& ranges = job.ranges;
  if (!job.per_channel) {
    if (ranges.mean == nullptr && ranges.encode_scale == nullptr && ranges.decode_scale == nullptr) {
      return absl::OkStatus();
    }
    return InvalidArgument("ranges of channels for codes by token, which have their own");
  }
  if (ranges.mean == nullptr || (encode ? ranges.encode_scale : ranges.decode_scale) == nullptr) {
    return InvalidArgument("codes by channel without ranges of channels");
  }
  return absl::OkStatus();
}

absl::Status CheckRuns(const NuqJob& job) {
  if (!job.codes.present()) return InvalidArgument("no run of codes");
  FIRN_RETURN_IF_ERROR(CheckRun(job.codes, "the run of codes", 1));
  if (job.per_channel && job.outliers == 0) return absl::OkStatus();
  if (!job.meta_run.present()) return InvalidArgument("no metadata run");
  return CheckRun(job.meta_run, "the metadata run", 2);
}

// Blocks of few enough values and bytes of metadata for 32 bits.
absl::Status CheckSizes(const NuqJob& job, uint64_t meta_bytes) {
  constexpr uint64_t kValuesMax = uint64_t{1} << 32;
  uint64_t values = uint64_t{job.layers} * job.heads * job.tokens * job.width;
  if (values < kValuesMax && meta_bytes < kValuesMax) return absl::OkStatus();
  return InvalidArgument("blocks of {} values with {} bytes of metadata; a GPU codes blocks of fewer than {} of either",
                         values, meta_bytes, kValuesMax);
}

// Vectors, their outliers and their metadata; the bytes of a block's metadata.
uint64_t PlaceVectors(NuqLaunch* launch) {
  const NuqJob& job = launch->job;
  PartCoding coding;
  coding.outliers = static_cast<uint8_t>(job.outliers);
  coding.meta_type = job.meta;
  auto entries_bytes = [&](uint64_t vector) { return nuq::OutlierBytes(coding, vector); };
  // Without outliers all vectors are alike, whatever they have.
  launch->group = job.outliers == 0 ? 1 : std::min(job.group, job.tokens);
  launch->groups = (job.tokens - 1) / launch->group + 1;
  launch->vector = job.per_channel ? job.width * launch->group : job.width * job.heads;
  launch->outliers = nuq::OutlierCount(coding, launch->vector);
  launch->index_bytes = nuq::IndexBytes(launch->vector);
  launch->last_vector = job.width * (job.tokens - (launch->groups - 1) * launch->group);
  launch->last_outliers = nuq::OutlierCount(coding, launch->last_vector);
  launch->last_index_bytes = nuq::IndexBytes(launch->last_vector);
  launch->by_groups = FastDivisor(launch->groups);
  launch->by_width = FastDivisor(job.width);
  uint64_t vector_bytes = entries_bytes(launch->vector);
  if (!job.per_channel) vector_bytes += 2 * nested::MetaValueBytes(job.meta);
  uint64_t head_bytes = (launch->groups - 1) * vector_bytes + entries_bytes(launch->last_vector);
  launch->vector_bytes = static_cast<uint32_t>(vector_bytes);
  launch->head_bytes = static_cast<uint32_t>(head_bytes);
  return job.layers * (job.per_channel ? job.heads * head_bytes : job.tokens * vector_bytes);
}

absl::StatusOr<NuqLaunch> Prepare(const NuqJob& job, bool encode) {
  if (job.width > kRowWidthMax) {
    return Unimplemented("rows of {} channels; a GPU codes up to {}", job.width, kRowWidthMax);
  }
  FIRN_RETURN_IF_ERROR(CheckExtent({job.blocks, job.layers, job.heads, job.tokens}));
  FIRN_RETURN_IF_ERROR(CheckValuesAndMeta(job.values, job.meta));
  FIRN_RETURN_IF_ERROR(CheckCoding(job, encode));
  FIRN_RETURN_IF_ERROR(CheckRows(job.rows, job.tokens));
  FIRN_RETURN_IF_ERROR(CheckRuns(job));
  NuqLaunch launch;
  launch.job = job;
  launch.shape = BatchShape(job.blocks, job.layers, job.heads, job.tokens, job.width);
  launch.by_page = FastDivisor(job.rows.page_tokens);
  FIRN_RETURN_IF_ERROR(CheckSizes(job, PlaceVectors(&launch)));
  if (LinearRows(job.rows, job.heads, job.tokens, job.width) && PlainRun(job.codes) && PlainRun(job.meta_run)) {
    launch.places = Places::kLinear;
  }
  return launch;
}

// Whether the kernels that work on chunks of eight channels do it.
bool FitsChunks(NuqLaunch* launch) {
  const NuqJob& job = launch->job;
  MetaType own = job.values == DType::kFp16 ? MetaType::kFp16 : MetaType::kBf16;
  bool fits = job.values != DType::kFp32 && job.meta == own && job.width % (job.bits == 3 ? 32 : 8) == 0 &&
              AlignedRows(job.rows) && AlignedRun(job.codes, 4) && AlignedRun(job.meta_run, 4);
  if (!fits) return false;
  launch->by_row_chunks = FastDivisor(job.width / 8);
  if (!job.per_channel) return launch->vector <= kTokenVectorMax && launch->outliers <= kTokenOutliersMax;
  const TransformView& ranges = job.ranges;
  return launch->group == 1 && (job.width == 64 || job.width == 128 || job.width == 256) && Aligned(ranges.mean, 16) &&
         Aligned(ranges.encode_scale, 16) && Aligned(ranges.decode_scale, 16);
}

bool NothingToDo(const NuqJob& job) {
  return BatchExtent{job.blocks, job.layers, job.heads, job.tokens}.Empty() || job.width == 0;
}

}  // namespace

absl::Status EncodeNuq(const NuqJob& job, cudaStream_t stream) {
  if (NothingToDo(job)) return absl::OkStatus();
  FIRN_ASSIGN_OR_RETURN(NuqLaunch launch, Prepare(job, /*encode=*/true));
  auto* code = !FitsChunks(&launch) ? LaunchEncodeNuqAny
               : job.per_channel    ? LaunchEncodeNuqChannel
                                    : LaunchEncodeNuqToken;
  return LaunchStatus(code(launch, stream), "encoding codebook codes");
}

absl::Status DecodeNuq(const NuqJob& job, cudaStream_t stream) {
  if (NothingToDo(job)) return absl::OkStatus();
  FIRN_ASSIGN_OR_RETURN(NuqLaunch launch, Prepare(job, /*encode=*/false));
  auto* code = !FitsChunks(&launch) ? LaunchDecodeNuqAny
               : job.per_channel    ? LaunchDecodeNuqChannel
                                    : LaunchDecodeNuqToken;
  return LaunchStatus(code(launch, stream), "decoding codebook codes");
}

}  // namespace firn::kernels
