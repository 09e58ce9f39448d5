// Recodings of equal blocks as one set of kernels: from extents of the pool into scratch, and from there to the regions
// by the copy engine.
//
// What comes out equals codecs/ byte for byte, header included: checks are summed on the GPU, errors are those of the
// rows that the host's encoder compares too. Use: Enqueue, wait for slot->done(), Measure every unit, Finish every
// block. Threads: one at a time, but Measure and Finish, which any may call, one for each unit or block. Errors of
// Enqueue: Unimplemented where there is no kernel for a coding; a batch's jobs share their fate so far, and in Finish
// each has its own. Stream behaviour: Enqueue enqueues. Codes leave as soon as they are there; checks are summed beside
// that.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "codecs/block/sampled_errors.h"
#include "daemon/gpu/copy_list.h"
#include "daemon/gpu/registered_regions.h"
#include "daemon/gpu/scratch_slot.h"
#include "daemon/gpu/transform_cache.h"
#include "tiers/hot/child/child.h"

namespace firn::gpu {

struct RecodeTask {
  uint64_t id = 0;
  RecodeJob job;
  Recoding recoding;
};

class RecodeBatch {
 public:
  // No more than fills the GPU: what goes together comes back together, and whoever sent it waits for all of it.
  static constexpr size_t kBlocksMax = 16;
  static constexpr uint64_t kSourceBytesMin = uint64_t{16} << 20;  // Less is not worth a start, where more waits.

  RecodeBatch(uint8_t* pool, const RegisteredRegions* regions, const ArtifactSource* artifacts)
      : pool_(pool), regions_(regions), artifacts_(artifacts) {}

  // Whether two may be coded together.
  static bool Alike(const RecodeTask& a, const RecodeTask& b);
  // How many blocks like this one a slot has room for, with their conditioned rows; 0: not even one, or there is no
  // kernel (`*why`).
  static size_t BlocksThatFit(const RecodeTask& task, const ScratchSlot& slot, absl::Status* why);
  // How many of these blocks keep the GPU busy for longer than it takes to start them.
  static size_t BlocksWorthwhile(const RecodeTask& task);

  // `out` gets the copies to the host. After slot->done() `answer` alone is needed.
  absl::Status Enqueue(std::vector<RecodeTask> tasks, ScratchSlot* slot, AnswerSlot* answer, TransformCache* transforms,
                       cudaStream_t out);
  // What the processor has to do: units [0, measures_per_block() * tasks().size()), in any order and side by side.
  // Block b may be finished when all of its units, which follow each other, are done.
  size_t measures_per_block() const { return std::max<size_t>(parts_.size(), 1); }
  void Measure(size_t unit);
  JobDone Finish(size_t block) const;
  const std::vector<RecodeTask>& tasks() const { return tasks_; }

 private:
  struct CheckedRun {
    uint32_t run = 0;
    bool of_source = false;
    uint64_t bytes = 0, check_bytes = 0;
    uint32_t checks = 0;                  // A block.
    uint64_t bases_at = 0, seeds_at = 0;  // In the parameters.
    uint64_t results_at = 0;
  };
  struct CodedPart {
    Part part = Part::kK;
    std::shared_ptr<const DeviceTransform> transform;
    std::shared_ptr<const SampledErrors> sampled;  // Of any of the blocks: which rows are sampled.
    uint64_t pages_at = 0;                         // In the parameters.
    uint64_t rows_at = 0;        // Of the sampled rows of the first block; those of the others follow.
    uint64_t sampled_bytes = 0;  // A block.
  };

  // Where codes and conditioned rows lie in the slot.
  absl::Status PlanScratch();
  absl::Status PlanParts(TransformCache* transforms);
  absl::Status PlanPositions();
  absl::Status PlanChecks();
  absl::Status Reserve(uint64_t bytes, uint64_t* used, uint64_t* at, const char* what) const;
  kernels::RowsView RowsOf(const CodedPart& coded) const;
  absl::Status EnqueueParts();
  absl::Status EnqueueChecks(bool of_source);
  // Sampled rows into scratch; with exact tokens in between, straight to the host.
  absl::Status EnqueueSamples(CopyList* to_host);
  absl::Status GatherSamples(const CodedPart& coded);
  void CopySamples(const CodedPart& coded, CopyList* to_host) const;
  absl::Status EnqueueRuns(cudaStream_t out);
  const uint64_t* ChecksOf(const CheckedRun& run, size_t block) const {
    return reinterpret_cast<const uint64_t*>(answer_->results() + run.results_at) + block * run.checks;
  }
  // Whether the source was whole and the values fit.
  absl::Status VerdictOf(size_t block) const;
  absl::StatusOr<std::vector<uint8_t>> HeaderOf(size_t block) const;
  const RecordHeader& source() const { return tasks_[0].recoding.source; }
  const RecordHeader& target() const { return tasks_[0].recoding.target; }
  bool IsCoded(uint32_t run) const { return coded_runs_.Has(run); }
  uint8_t* Codes(uint32_t run, size_t block) const {
    return slot_->codes() + code_at_[run] + block * code_stride_[run];
  }

  uint8_t* const pool_;
  const RegisteredRegions* const regions_;
  const ArtifactSource* const artifacts_;
  std::vector<RecodeTask> tasks_;
  ScratchSlot* slot_ = nullptr;
  AnswerSlot* answer_ = nullptr;
  RunMask coded_runs_;  // Of the target, those that kernels write; the others are the source's.
  std::array<uint64_t, kRunIds> code_at_{}, code_stride_{};
  uint64_t scratch_at_ = 0;    // Behind the codes: what one part is conditioned into, and then the next.
  uint64_t positions_at_ = 0;  // In the parameters; of all blocks' coded tokens.
  std::vector<CodedPart> parts_;
  std::vector<CheckedRun> checked_;
  std::vector<absl::StatusOr<PartErrors>> measured_;  // By unit.
  uint64_t parameter_bytes_ = 0, result_bytes_ = 0, row_bytes_ = 0;
};

}  // namespace firn::gpu
