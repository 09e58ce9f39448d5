#include "daemon/gpu/kernel_jobs.h"

#include "base/status.h"

namespace firn::gpu {
namespace {

template <typename Job>
Job JobOf(const RecordHeader& header, Part part, uint32_t blocks, const kernels::RowsView& rows) {
  const PartShape shape = header.shape.part(part);
  Job job;
  job.blocks = blocks, job.layers = shape.layers, job.heads = shape.heads, job.width = shape.width;
  job.rows = rows;
  return job;
}

template <typename Job>
Job CodedJobOf(const RecordHeader& header, Part part, uint32_t blocks, const kernels::RowsView& rows,
               const RunOf& run) {
  Job job = JobOf<Job>(header, part, blocks, rows);
  job.rows.first_token = header.exact_tokens;
  job.tokens = header.shape.tokens - header.exact_tokens;
  job.values = header.dtype;
  job.meta_run = run(RunKind::kMeta);
  return job;
}

}  // namespace

absl::Status CheckKernel(const RecordHeader& header, Part part) {
  if (header.Mixed(part)) return Unimplemented("heads that differ in precision are coded by the processor");
  if (!header.exact_map.empty()) return Unimplemented("sets of exact tokens are coded by the processor");
  const PartCoding& coding = header.CodingOf(part);
  constexpr uint8_t kNestedFlags = PartCoding::kRotated | PartCoding::kCentred | PartCoding::kBalanced;
  bool nested = (coding.codec == CodecId::kNestedToken && (coding.flags & ~kNestedFlags) == 0) ||
                (coding.codec == CodecId::kNestedChannel && coding.flags == 0);
  bool fp8 = IsFp8(coding.codec) && coding.group == 0 && (coding.flags & ~PartCoding::kCalibrated) == 0;
  if (nested || fp8) return absl::OkStatus();
  return Unimplemented("no kernel for codec {} with flags {:#x} and groups of {}", static_cast<int>(coding.codec),
                       coding.flags, coding.group);
}

kernels::Fp8Job Fp8JobOf(const RecordHeader& header, Part part, uint32_t blocks, const DeviceTransform& transform,
                         const kernels::RowsView& rows, const RunOf& run) {
  auto job = CodedJobOf<kernels::Fp8Job>(header, part, blocks, rows, run);
  job.e5m2 = header.CodingOf(part).codec == CodecId::kFp8E5m2;
  job.scales = transform.scales;
  job.codes = run(RunKind::kWhole);
  return job;
}

kernels::NestedJob NestedJobOf(const RecordHeader& header, Part part, uint32_t blocks, const DeviceTransform& transform,
                               const kernels::RowsView& rows, const RunOf& run) {
  const PartCoding& coding = header.CodingOf(part);
  auto job = CodedJobOf<kernels::NestedJob>(header, part, blocks, rows, run);
  job.per_channel = coding.codec == CodecId::kNestedChannel;
  job.meta = coding.meta_type;
  job.group = coding.group;
  job.rotated = (coding.flags & PartCoding::kRotated) != 0;
  job.transform = transform.view;
  job.p2 = run(RunKind::kP2);
  job.p4 = run(RunKind::kP4);
  job.p8 = run(RunKind::kP8);
  return job;
}

kernels::GatherJob GatherJobOf(const RecordHeader& header, Part part, uint32_t blocks, uint32_t tokens,
                               const kernels::RowsView& rows) {
  auto job = JobOf<kernels::GatherJob>(header, part, blocks, rows);
  job.tokens = job.block_tokens = tokens;
  job.value_bytes = DTypeBytes(header.dtype);
  return job;
}

}  // namespace firn::gpu
