// What of a batch is left to the processor: the errors of sampled rows, and headers.
#include <algorithm>

#include "base/status.h"
#include "codecs/block/sampled_errors.h"
#include "daemon/gpu/recode_batch.h"

namespace firn::gpu {

absl::Status RecodeBatch::VerdictOf(size_t block) const {
  const Recoding& recoding = tasks_[block].recoding;
  for (const CheckedRun& run : checked_) {
    if (!run.of_source) continue;
    const std::vector<uint64_t>& kept = recoding.source.runs[run.run].checks;
    if (!std::equal(kept.begin(), kept.end(), ChecksOf(run, block))) {
      return DataLoss("run {} of the source is damaged", run.run);
    }
  }
  if (reinterpret_cast<const uint32_t*>(answer_->results())[block] != 0) {
    return Aborted("values do not fit the metadata planned for them");
  }
  return absl::OkStatus();
}

void RecodeBatch::Measure(size_t unit) {
  const size_t block = unit / measures_per_block(), part = unit % measures_per_block();
  if (part >= parts_.size() || !VerdictOf(block).ok()) return;
  const CodedPart& coded = parts_[part];
  auto header = std::make_shared<const RecordHeader>(tasks_[block].recoding.target);
  EncodedBlock encoded;
  encoded.header = header;
  encoded.present = header->encoded;
  for (uint32_t k = 0; k < kRunKinds; ++k) {
    uint32_t i = RunIndex(static_cast<RunKind>(k), coded.part);
    for (const Place& place : tasks_[block].job.target[i]) {
      encoded.runs[i].Append(ByteSpan(regions_->base(place.space) + place.offset, place.bytes));
    }
  }
  ByteSpan rows(answer_->rows() + coded.rows_at + block * coded.sampled_bytes, coded.sampled_bytes);
  auto sampled = SampledErrors::Create(std::move(header), coded.part);
  measured_[unit] = sampled.ok() ? sampled->Measure(rows, encoded, *artifacts_) : sampled.status();
}

absl::StatusOr<std::vector<uint8_t>> RecodeBatch::HeaderOf(size_t block) const {
  FIRN_RETURN_IF_ERROR(VerdictOf(block));
  const Recoding& recoding = tasks_[block].recoding;
  RecordHeader header = recoding.target;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (header.encoded.Has(i) && !IsCoded(i)) header.runs[i] = recoding.source.runs[i];
  }
  for (const CheckedRun& run : checked_) {
    if (run.of_source) continue;
    const uint64_t* checks = ChecksOf(run, block);
    header.runs[run.run].checks.assign(checks, checks + run.checks);
  }
  for (size_t part = 0; part < parts_.size(); ++part) {
    FIRN_ASSIGN_OR_RETURN(header.errors[static_cast<size_t>(parts_[part].part)],
                          measured_[block * measures_per_block() + part]);
  }
  return SerializeHeader(header);
}

JobDone RecodeBatch::Finish(size_t block) const {
  auto payload = HeaderOf(block);
  JobDone answer{tasks_[block].id, payload.status(), {}};
  if (payload.ok()) answer.payload = *std::move(payload);
  return answer;
}

}  // namespace firn::gpu
