#include "daemon/gpu/part_kernels.h"

#include <numeric>

#include "base/status.h"
#include "daemon/gpu/scratch_slot.h"
#include "kernels/condition.h"

namespace firn::gpu {
namespace {

constexpr uint8_t kTransforms = PartCoding::kRotated | PartCoding::kCentred | PartCoding::kBalanced;

uint32_t CodedTokens(const RecordHeader& header) { return header.shape.tokens - header.exact_tokens; }

// One block's conditioned rows.
uint64_t RowBytes(const RecordHeader& header, Part part) {
  const PartShape shape = header.shape.part(part);
  return ScratchAligned(uint64_t{shape.layers} * shape.heads * CodedTokens(header) * shape.width * sizeof(float));
}
// One block's cosines, and as many bytes of sines, of as many pairs as there may be.
uint64_t TurnBytes(const RecordHeader& header, Part part) {
  return ScratchAligned(uint64_t{CodedTokens(header)} * (header.shape.part(part).width / 2) * sizeof(float));
}

// FP32, [layer][head][coded token][channel].
kernels::RowsView ConditionedRows(const RecordHeader& header, Part part, uint8_t* scratch) {
  const PartShape shape = header.shape.part(part);
  kernels::RowsView rows;
  rows.base = scratch;
  rows.page_tokens = CodedTokens(header);
  rows.token_stride = shape.width;
  rows.head_stride = int64_t{rows.page_tokens} * shape.width;
  rows.layer_stride = rows.head_stride * shape.heads;
  rows.page_stride = static_cast<int64_t>(RowBytes(header, part) / sizeof(float));
  return rows;
}

// The work's rows that are coded.
kernels::RowsView CodedRows(const RecordHeader& header, const PartWork& work) {
  kernels::RowsView rows = work.rows;
  rows.first_token = header.exact_tokens;
  return rows;
}

absl::StatusOr<kernels::RopeView> EnqueueTurns(const RecordHeader& header, Part part, const PartWork& work,
                                               cudaStream_t stream) {
  kernels::RopeView rope;
  if (!PartTakesPositions(header, part)) return rope;
  if (work.transform->pairs > header.shape.part(part).width / 2) {
    return Unimplemented("{} pairs of {} channels", work.transform->pairs, header.shape.part(part).width);
  }
  uint8_t* at = work.scratch + work.blocks * RowBytes(header, part);
  kernels::RopeTableJob job;
  job.blocks = work.blocks;
  job.tokens = CodedTokens(header);
  job.pairs = work.transform->pairs;
  job.frequencies = work.transform->frequencies;
  job.positions = work.positions;
  job.cosines = reinterpret_cast<float*>(at);
  job.sines = reinterpret_cast<float*>(at + work.blocks * TurnBytes(header, part));
  rope = {job.cosines, job.sines, job.pairs, work.transform->interleaved};
  FIRN_RETURN_IF_ERROR(kernels::TurnPositions(job, stream));
  return rope;
}

absl::StatusOr<kernels::ConditionJob> PrepareConditioning(const RecordHeader& header, Part part, const PartWork& work,
                                                          cudaStream_t stream) {
  const PartShape shape = header.shape.part(part);
  const uint8_t flags = FlagsOutside(header.CodingOf(part));
  kernels::ConditionJob job;
  job.blocks = work.blocks, job.layers = shape.layers, job.heads = shape.heads, job.width = shape.width;
  job.tokens = CodedTokens(header);
  job.values = header.dtype;
  job.rotated = (flags & PartCoding::kRotated) != 0;
  if ((flags & kTransforms) != 0) job.transform = work.transform->view;
  job.rows = CodedRows(header, work);
  job.conditioned_rows = ConditionedRows(header, part, work.scratch);
  job.survey = work.survey;
  FIRN_ASSIGN_OR_RETURN(job.rope, EnqueueTurns(header, part, work, stream));
  return job;
}

CodesJob CodesJobOf(const RecordHeader& header, Part part, const PartWork& work) {
  const bool conditioned = FlagsOutside(header.CodingOf(part)) != 0;
  return {.header = header,
          .part = part,
          .blocks = work.blocks,
          .transform = *work.transform,
          .values = conditioned ? DType::kFp32 : header.dtype,
          .rows = conditioned ? ConditionedRows(header, part, work.scratch) : CodedRows(header, work),
          .run = work.run,
          .survey = work.survey};
}

kernels::GatherJob ExactJobOf(const RecordHeader& header, Part part, const PartWork& work) {
  kernels::GatherJob job = GatherJobOf(header, part, work.blocks, header.exact_tokens, work.rows);
  job.run = work.run(RunKind::kExact);
  return job;
}

bool IsIdentity(const RecordHeader& header, Part part) { return header.CodingOf(part).codec == CodecId::kIdentity; }

absl::Status DecodeRows(const RecordHeader& header, Part part, const PartWork& work, cudaStream_t stream) {
  FIRN_RETURN_IF_ERROR(DecodeCodes(CodesJobOf(header, part, work), stream));
  if (FlagsOutside(header.CodingOf(part)) == 0) return absl::OkStatus();
  FIRN_ASSIGN_OR_RETURN(kernels::ConditionJob conditioning, PrepareConditioning(header, part, work, stream));
  return kernels::RestoreRows(conditioning, stream);
}

}  // namespace

uint64_t PartScratchBytes(const RecordHeader& header, Part part) {
  if (FlagsOutside(header.CodingOf(part)) == 0) return 0;
  return RowBytes(header, part) + (PartTakesPositions(header, part) ? 2 * TurnBytes(header, part) : 0);
}

bool PartTakesPositions(const RecordHeader& header, Part part) {
  return (FlagsOutside(header.CodingOf(part)) & PartCoding::kPreRope) != 0;
}

std::vector<uint32_t> CodedPositions(const RecordHeader& header) {
  std::vector<uint32_t> positions(CodedTokens(header));
  std::iota(positions.begin(), positions.end(), header.first_token + header.exact_tokens);
  return positions;
}

absl::Status EncodePart(const RecordHeader& header, Part part, const PartWork& work, cudaStream_t stream) {
  FIRN_RETURN_IF_ERROR(CheckKernel(header, part));
  if (FlagsOutside(header.CodingOf(part)) != 0) {
    FIRN_ASSIGN_OR_RETURN(kernels::ConditionJob conditioning, PrepareConditioning(header, part, work, stream));
    FIRN_RETURN_IF_ERROR(kernels::ConditionRows(conditioning, stream));
  }
  FIRN_RETURN_IF_ERROR(EncodeCodes(CodesJobOf(header, part, work), stream));
  if (header.exact_tokens == 0) return absl::OkStatus();
  return kernels::GatherRows(ExactJobOf(header, part, work), stream);
}

absl::Status CheckDecoding(const RecordHeader& header, Part part) {
  if (!IsIdentity(header, part)) return CheckKernel(header, part);
  if (header.exact_map.empty()) return absl::OkStatus();
  return Unimplemented("sets of exact tokens are put in place by the processor");
}

absl::Status DecodePart(const RecordHeader& header, Part part, const PartWork& work, cudaStream_t stream) {
  FIRN_RETURN_IF_ERROR(CheckDecoding(header, part));
  if (IsIdentity(header, part)) {
    kernels::GatherJob whole = GatherJobOf(header, part, work.blocks, CodedTokens(header), CodedRows(header, work));
    whole.run = work.run(RunKind::kWhole);
    FIRN_RETURN_IF_ERROR(kernels::ScatterRows(whole, stream));
  } else {
    FIRN_RETURN_IF_ERROR(DecodeRows(header, part, work, stream));
  }
  if (header.exact_tokens == 0) return absl::OkStatus();
  return kernels::ScatterRows(ExactJobOf(header, part, work), stream);
}

}  // namespace firn::gpu
