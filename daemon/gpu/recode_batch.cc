#include "daemon/gpu/recode_batch.h"

#include <algorithm>
#include <cstring>

#include "base/status.h"
#include "codecs/block/part_geometry.h"
#include "daemon/gpu/cuda_check.h"
#include "daemon/gpu/part_kernels.h"
#include "kernels/checksum.h"
#include "tiers/hot/extent_pool.h"

namespace firn::gpu {
namespace {

bool SameCoding(const RecordHeader& a, const RecordHeader& b, Part part) {
  return a.CodingOf(part) == b.CodingOf(part);
}

// Whether kernels code this part of `target` from what `source` has.
absl::Status CheckEncoding(const RecordHeader& source, const RecordHeader& target, Part part) {
  if (source.CodingOf(part).codec != CodecId::kIdentity ||
      (source.dtype != DType::kFp16 && source.dtype != DType::kBf16)) {
    return Unimplemented("only FP16 and BF16 values are coded on a GPU");
  }
  return CheckKernel(target, part);
}

// Both parts take turns in it, which the stream keeps apart.
uint64_t ScratchBytes(const RecordHeader& source, const RecordHeader& target) {
  uint64_t bytes = 0;
  for (Part part : kParts) {
    if (!SameCoding(source, target, part)) bytes = std::max(bytes, PartScratchBytes(target, part));
  }
  return bytes;
}

bool TakesPositions(const RecordHeader& source, const RecordHeader& target) {
  return std::any_of(std::begin(kParts), std::end(kParts),
                     [&](Part part) { return !SameCoding(source, target, part) && PartTakesPositions(target, part); });
}

// The target's runs that kernels write.
RunMask CodedRuns(const RecordHeader& source, const RecordHeader& target) {
  RunMask coded;
  for (Part part : kParts) {
    if (SameCoding(source, target, part)) continue;
    for (uint32_t k = 0; k < kRunKinds; ++k) coded |= RunMask::Of(static_cast<RunKind>(k), part);
  }
  return coded & target.encoded;
}

uint32_t CheckCount(const RunInfo& run) { return static_cast<uint32_t>(run.checks.size()); }

uint64_t SourceBytes(const RecodeTask& task) {
  return std::max<uint64_t>(task.recoding.source.RunBytes(task.recoding.present), 1);
}

}  // namespace

bool RecodeBatch::Alike(const RecodeTask& a, const RecodeTask& b) {
  const RecordHeader &s = a.recoding.source, &t = b.recoding.source, &x = a.recoding.target, &y = b.recoding.target;
  return s.shape == t.shape && s.dtype == t.dtype && s.coding == t.coding && s.encoded == t.encoded &&
         s.exact_tokens == t.exact_tokens && a.recoding.present == b.recoding.present && x.coding == y.coding &&
         x.encoded == y.encoded && x.exact_tokens == y.exact_tokens && x.exact_map == y.exact_map &&
         x.ceilings == y.ceilings && s.identity.shard == t.identity.shard;
}

size_t RecodeBatch::BlocksThatFit(const RecodeTask& task, const ScratchSlot& slot, absl::Status* why) {
  const RecordHeader &source = task.recoding.source, &target = task.recoding.target;
  uint64_t block_bytes = 0, parameters = 0, rows = 0;
  RunMask coded = CodedRuns(source, target);
  if (source.exact_tokens > 0) {
    *why = Unimplemented("tokens that were exact before are coded by the processor");
    return 0;
  }
  // Kernels go by what the codings say of the runs.
  for (const RecordHeader* header : {&source, &target}) {
    *why = CheckRunLengths(*header);
    if (!why->ok()) return 0;
  }
  for (Part part : kParts) {
    if (SameCoding(source, target, part)) continue;
    *why = CheckEncoding(source, target, part);
    if (!why->ok()) return 0;
    if (target.shape.part(part).width == 0) continue;
    auto sampled = SampledErrors::Create(std::make_shared<const RecordHeader>(target), part);
    if (!sampled.ok()) {
      *why = sampled.status();
      return 0;
    }
    rows += sampled->rows() * target.shape.part(part).width * DTypeBytes(target.dtype) + kScratchAlignment;
  }
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (coded.Has(i)) block_bytes += ScratchAligned(target.runs[i].bytes);
    parameters += 8 * (uint64_t{CheckCount(source.runs[i])} + CheckCount(target.runs[i]) + 4);
  }
  block_bytes += ScratchBytes(source, target);
  if (TakesPositions(source, target)) parameters += sizeof(uint32_t) * target.shape.tokens;
  uint64_t fit =
      std::min({slot.codes_bytes() / std::max<uint64_t>(block_bytes, 1), ScratchSlot::kSideBytes / 2 / parameters,
                ScratchSlot::kSideBytes / std::max<uint64_t>(rows, 1), uint64_t{kBlocksMax}});
  if (fit == 0)
    *why = Unimplemented("a block of {} bytes of codes and conditioned rows does not fit scratch", block_bytes);
  return fit;
}

size_t RecodeBatch::BlocksWorthwhile(const RecodeTask& task) { return kSourceBytesMin / SourceBytes(task) + 1; }

absl::Status RecodeBatch::Reserve(uint64_t bytes, uint64_t* used, uint64_t* at, const char* what) const {
  *at = *used;
  *used += (bytes + 15) / 16 * 16;
  if (*used <= ScratchSlot::kSideBytes) return absl::OkStatus();
  return Unimplemented("{} of {} blocks take more than {} bytes", what, tasks_.size(), ScratchSlot::kSideBytes);
}

absl::Status RecodeBatch::PlanScratch() {
  uint64_t at = 0;
  coded_runs_ = CodedRuns(source(), target());
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (!coded_runs_.Has(i)) continue;
    code_at_[i] = at;
    code_stride_[i] = ScratchAligned(target().runs[i].bytes);
    at += code_stride_[i] * tasks_.size();
  }
  scratch_at_ = at;
  at += ScratchBytes(source(), target()) * tasks_.size();
  if (at <= slot_->codes_bytes()) return absl::OkStatus();
  return Unimplemented("{} blocks take {} bytes of scratch; there are {}", tasks_.size(), at, slot_->codes_bytes());
}

absl::Status RecodeBatch::PlanPositions() {
  if (!TakesPositions(source(), target())) return absl::OkStatus();
  const uint64_t coded = target().shape.tokens - target().exact_tokens;
  FIRN_RETURN_IF_ERROR(
      Reserve(sizeof(uint32_t) * coded * tasks_.size(), &parameter_bytes_, &positions_at_, "positions"));
  auto* to = reinterpret_cast<uint32_t*>(slot_->host_parameters() + positions_at_);
  for (const RecodeTask& task : tasks_) {
    std::vector<uint32_t> positions = CodedPositions(task.recoding.target);
    to = std::copy(positions.begin(), positions.end(), to);
  }
  return absl::OkStatus();
}

absl::Status RecodeBatch::PlanParts(TransformCache* transforms) {
  for (Part part : kParts) {
    if (SameCoding(source(), target(), part) || target().shape.part(part).width == 0) continue;
    CodedPart coded;
    coded.part = part;
    FIRN_ASSIGN_OR_RETURN(coded.transform, transforms->Get(target().CodingOf(part), target().shape.part(part),
                                                           target().identity.shard, *artifacts_));
    auto header = std::make_shared<const RecordHeader>(target());
    FIRN_ASSIGN_OR_RETURN(SampledErrors sampled, SampledErrors::Create(std::move(header), part));
    coded.sampled_bytes = sampled.rows() * target().shape.part(part).width * DTypeBytes(target().dtype);
    coded.sampled = std::make_shared<const SampledErrors>(std::move(sampled));
    FIRN_RETURN_IF_ERROR(Reserve(4 * tasks_.size(), &parameter_bytes_, &coded.pages_at, "page numbers"));
    FIRN_RETURN_IF_ERROR(Reserve(coded.sampled_bytes * tasks_.size(), &row_bytes_, &coded.rows_at, "sampled rows"));
    auto* pages = reinterpret_cast<uint32_t*>(slot_->host_parameters() + coded.pages_at);
    for (size_t b = 0; b < tasks_.size(); ++b) {
      const auto& places = tasks_[b].job.source[RunIndex(RunKind::kWhole, part)];
      if (places.size() != 1 || places[0].space != kPoolSpace || places[0].offset % kExtentGranuleBytes != 0) {
        return InvalidArgument("values that do not lie in one extent of the pool");
      }
      pages[b] = static_cast<uint32_t>(places[0].offset / kExtentGranuleBytes);
    }
    parts_.push_back(std::move(coded));
  }
  return absl::OkStatus();
}

absl::Status RecodeBatch::PlanChecks() {
  uint64_t survey_at = 0;
  FIRN_RETURN_IF_ERROR(Reserve(4 * tasks_.size(), &result_bytes_, &survey_at, "surveys"));
  std::vector<ChecksumSeeds> of;
  for (const RecodeTask& task : tasks_) of.emplace_back(task.recoding.target.identity);
  for (bool of_source : {true, false}) {
    const RecordHeader& header = of_source ? source() : target();
    for (uint32_t i = 0; i < kRunIds; ++i) {
      bool wanted = of_source ? tasks_[0].recoding.present.Has(i) : IsCoded(i);
      if (!wanted || header.runs[i].bytes == 0) continue;
      CheckedRun run;
      run.run = i;
      run.of_source = of_source;
      run.bytes = header.runs[i].bytes;
      run.check_bytes = run.bytes / header.shape.layers * header.runs[i].layers_per_check;
      run.checks = CheckCount(header.runs[i]);
      FIRN_RETURN_IF_ERROR(Reserve(8 * tasks_.size(), &parameter_bytes_, &run.bases_at, "addresses"));
      FIRN_RETURN_IF_ERROR(Reserve(8 * tasks_.size() * run.checks, &parameter_bytes_, &run.seeds_at, "seeds"));
      FIRN_RETURN_IF_ERROR(Reserve(8 * tasks_.size() * run.checks, &result_bytes_, &run.results_at, "checks"));
      auto* bases = reinterpret_cast<uint8_t**>(slot_->host_parameters() + run.bases_at);
      auto* seeds = reinterpret_cast<uint64_t*>(slot_->host_parameters() + run.seeds_at);
      for (size_t b = 0; b < tasks_.size(); ++b) {
        const auto& places = tasks_[b].job.source[i];
        if (of_source && (places.size() != 1 || places[0].space != kPoolSpace)) {
          return InvalidArgument("a run that does not lie in one extent of the pool");
        }
        bases[b] = of_source ? pool_ + places[0].offset : Codes(i, b);
        for (uint32_t c = 0; c < run.checks; ++c) *seeds++ = of[b].Of(i, c * header.runs[i].layers_per_check);
      }
      checked_.push_back(run);
    }
  }
  return absl::OkStatus();
}

absl::Status RecodeBatch::Enqueue(std::vector<RecodeTask> tasks, ScratchSlot* slot, AnswerSlot* answer,
                                  TransformCache* transforms, cudaStream_t out) {
  tasks_ = std::move(tasks);
  slot_ = slot;
  answer_ = answer;
  cudaStream_t work = slot->work();
  FIRN_RETURN_IF_ERROR(PlanScratch());
  FIRN_RETURN_IF_ERROR(PlanParts(transforms));
  FIRN_RETURN_IF_ERROR(PlanPositions());
  FIRN_RETURN_IF_ERROR(PlanChecks());
  measured_.assign(tasks_.size() * measures_per_block(), InternalError("not measured"));
  FIRN_RETURN_IF_ERROR(CudaStatus(
      cudaMemcpyAsync(slot->parameters(), slot->host_parameters(), parameter_bytes_, cudaMemcpyHostToDevice, work),
      "copy parameters"));
  FIRN_RETURN_IF_ERROR(CudaStatus(cudaMemsetAsync(slot->results(), 0, 4 * tasks_.size(), work), "clear surveys"));
  FIRN_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(slot->ready(), work), "record an event"));
  FIRN_RETURN_IF_ERROR(EnqueueParts());
  FIRN_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(slot->coded(), work), "record an event"));
  // What only reads the source runs beside the coding, as far as there is room.
  FIRN_RETURN_IF_ERROR(slot->AsideAfter(slot->ready()));
  CopyList to_host(pool_, regions_);
  FIRN_RETURN_IF_ERROR(EnqueueSamples(&to_host));
  FIRN_RETURN_IF_ERROR(EnqueueChecks(/*of_source=*/true));
  FIRN_RETURN_IF_ERROR(slot->AsideAfter(slot->coded()));
  FIRN_RETURN_IF_ERROR(EnqueueChecks(/*of_source=*/false));
  FIRN_RETURN_IF_ERROR(CudaStatus(cudaStreamWaitEvent(out, slot->coded(), 0), "wait for an event"));
  FIRN_RETURN_IF_ERROR(EnqueueRuns(out));
  // Results behind the codes, in the same stream: in one of their own they may wait for the next batch's codes.
  FIRN_RETURN_IF_ERROR(slot->Join(out));
  to_host.AddPinned(slot->results(), answer->results(), result_bytes_);
  if (target().exact_tokens == 0) to_host.AddPinned(slot->rows(), answer->rows(), row_bytes_);
  FIRN_RETURN_IF_ERROR(to_host.Enqueue(out));
  return CudaStatus(cudaEventRecord(slot->done(), out), "record an event");
}

// The source values of a part, all heads of all layers.
kernels::RowsView RecodeBatch::RowsOf(const CodedPart& coded) const {
  const PartShape shape = target().shape.part(coded.part);
  kernels::RowsView rows;
  rows.base = pool_;
  rows.pages = reinterpret_cast<const uint32_t*>(slot_->parameters() + coded.pages_at);
  rows.page_stride = static_cast<int64_t>(kExtentGranuleBytes / DTypeBytes(target().dtype));
  if (tasks_.size() == 1) {
    // One block needs no look-up.
    rows.base = pool_ + tasks_[0].job.source[RunIndex(RunKind::kWhole, coded.part)][0].offset;
    rows.pages = nullptr;
    rows.page_stride = static_cast<int64_t>(shape.values());
  }
  rows.page_tokens = shape.tokens;
  rows.token_stride = shape.width;
  rows.head_stride = int64_t{shape.tokens} * shape.width;
  rows.layer_stride = rows.head_stride * shape.heads;
  return rows;
}

absl::Status RecodeBatch::EnqueueParts() {
  for (const CodedPart& coded : parts_) {
    PartWork work;
    work.blocks = static_cast<uint32_t>(tasks_.size());
    work.transform = coded.transform.get();
    work.rows = RowsOf(coded);
    work.run = [&](RunKind kind) {
      uint32_t index = RunIndex(kind, coded.part);
      kernels::RunView view;
      if (!IsCoded(index) || target().runs[index].bytes == 0) return view;
      view.base = Codes(index, 0);
      view.block_stride = code_stride_[index];
      return view;
    };
    work.survey = reinterpret_cast<uint32_t*>(slot_->results());
    work.scratch = slot_->codes() + scratch_at_;
    work.positions = reinterpret_cast<const uint32_t*>(slot_->parameters() + positions_at_);
    FIRN_RETURN_IF_ERROR(EncodePart(target(), coded.part, work, slot_->work()));
  }
  return absl::OkStatus();
}

absl::Status RecodeBatch::EnqueueChecks(bool of_source) {
  size_t launched = 0;
  for (const CheckedRun& run : checked_) {
    if (run.of_source != of_source) continue;
    kernels::ChecksumJob job;
    job.blocks = static_cast<uint32_t>(tasks_.size());
    job.run_bytes = run.bytes;
    job.check_bytes = run.check_bytes;
    job.run.block_bases = reinterpret_cast<uint8_t* const*>(slot_->parameters() + run.bases_at);
    job.seeds = reinterpret_cast<const uint64_t*>(slot_->parameters() + run.seeds_at);
    job.checks = reinterpret_cast<uint64_t*>(slot_->results() + run.results_at);
    FIRN_RETURN_IF_ERROR(kernels::ChecksumRuns(job, slot_->aside(launched++)));
  }
  return absl::OkStatus();
}

// Stretches of rows evenly apart: as if they were the tokens of one head.
absl::Status RecodeBatch::GatherSamples(const CodedPart& coded) {
  const SampledErrors& sampled = *coded.sampled;
  const uint64_t width = target().shape.part(coded.part).width, row_bytes = width * DTypeBytes(target().dtype);
  for (uint64_t i = 0, count = 1; i < sampled.rows(); i += count) {
    const uint64_t first = sampled.RowAt(i), step = i + 1 < sampled.rows() ? sampled.RowAt(i + 1) - first : 1;
    for (count = 1; i + count < sampled.rows() && sampled.RowAt(i + count) == first + count * step;) ++count;
    kernels::GatherJob gather = GatherJobOf(target(), coded.part, static_cast<uint32_t>(tasks_.size()),
                                            static_cast<uint32_t>(count), RowsOf(coded));
    gather.layers = gather.heads = 1;
    gather.rows.base = static_cast<uint8_t*>(gather.rows.base) + first * row_bytes;
    gather.rows.page_tokens = gather.tokens;
    gather.rows.token_stride = static_cast<int64_t>(step * width);
    gather.rows.head_stride = gather.rows.layer_stride = gather.rows.token_stride * gather.tokens;
    gather.run.base = slot_->rows() + coded.rows_at + i * row_bytes;
    gather.run.block_stride = coded.sampled_bytes;
    FIRN_RETURN_IF_ERROR(kernels::GatherRows(gather, slot_->aside(ScratchSlot::kAside - 1)));
  }
  return absl::OkStatus();
}

void RecodeBatch::CopySamples(const CodedPart& coded, CopyList* to_host) const {
  const PartShape shape = target().shape.part(coded.part);
  const uint32_t exact = target().exact_tokens, coded_tokens = shape.tokens - exact;
  const uint64_t row_bytes = uint64_t{shape.width} * DTypeBytes(target().dtype);
  for (size_t b = 0; b < tasks_.size(); ++b) {
    const uint8_t* from = pool_ + tasks_[b].job.source[RunIndex(RunKind::kWhole, coded.part)][0].offset;
    uint8_t* to = answer_->rows() + coded.rows_at + b * coded.sampled_bytes;
    for (uint64_t i = 0; i < coded.sampled->rows(); ++i) {
      uint64_t row = coded.sampled->RowAt(i);
      uint64_t canonical = row / coded_tokens * shape.tokens + exact + row % coded_tokens;
      to_host->AddPinned(from + canonical * row_bytes, to + i * row_bytes, row_bytes);
    }
  }
}

absl::Status RecodeBatch::EnqueueSamples(CopyList* to_host) {
  for (const CodedPart& coded : parts_) {
    if (target().exact_tokens == 0) {
      FIRN_RETURN_IF_ERROR(GatherSamples(coded));
    } else {
      CopySamples(coded, to_host);
    }
  }
  return absl::OkStatus();
}

absl::Status RecodeBatch::EnqueueRuns(cudaStream_t out) {
  CopyList codes(pool_, regions_);
  for (size_t b = 0; b < tasks_.size(); ++b) {
    const RecodeJob& job = tasks_[b].job;
    for (uint32_t i = 0; i < kRunIds; ++i) {
      if (!target().encoded.Has(i) || target().runs[i].bytes == 0) continue;
      if (!IsCoded(i) && (job.source[i].size() != 1 || source().runs[i].bytes != target().runs[i].bytes)) {
        return InvalidArgument("a run that is kept and does not lie in one extent of the pool");
      }
      codes.AddOut(IsCoded(i) ? Codes(i, b) : pool_ + job.source[i][0].offset, job.target[i]);
    }
  }
  return codes.Enqueue(out);
}

}  // namespace firn::gpu
