// Imports from and exports to the device memory of workers, one job at a time, on a stream and a thread of its own; a
// GPU has several of them, which take jobs in turn.
//
// An import whose event has not come goes to the end of the line and is asked again; it never stands in the way of
// others, and fails after kPatienceMs. An export verifies every check before it writes a byte. Threads: Add from any.
// Ownership: ends its thread when destroyed. Errors: a job's own go into its answer; `on_fatal` gets what ends the
// context.
#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "daemon/gpu/ipc_memory.h"
#include "daemon/gpu/part_kernels.h"
#include "daemon/gpu/registered_regions.h"
#include "daemon/gpu/scratch_slot.h"
#include "daemon/gpu/transform_cache.h"
#include "kernels/checksum.h"
#include "kernels/views.h"
#include "tiers/hot/child/child.h"

namespace firn::gpu {

struct MoverOptions {
  int device = 0;
  int priority = 0;
  uint8_t* pool = nullptr;
  const RegisteredRegions* regions = nullptr;
  const ArtifactSource* artifacts = nullptr;
  uint64_t slot_bytes = 0;  // Of scratch: an export's codes, and its conditioned rows.
  Device::Events events;
  IpcMemory* memory = nullptr;  // Shared by the GPU's movers.
};

class CudaMover {
 public:
  static constexpr int64_t kPatienceMs = 20'000;

  static absl::StatusOr<std::unique_ptr<CudaMover>> Create(MoverOptions options);
  ~CudaMover();
  void Add(Job job);  // An ImportJob or an ExportJob.

 private:
  struct Waiting {
    Job job;
    cudaEvent_t event = nullptr;  // Opened; of an import that waits.
    int64_t until_ms = 0;
  };
  // Values in the parameters of the slot, here and on the GPU.
  class Parameters;

  explicit CudaMover(MoverOptions options) : options_(std::move(options)) {}
  void Run();
  // Nothing: its event has not come.
  std::optional<JobDone> Do(Waiting* waiting);
  absl::StatusOr<bool> EventHasCome(Waiting* waiting);
  absl::StatusOr<std::vector<uint8_t>> Import(const ImportJob& job);
  absl::Status Export(const ExportJob& job);
  // That both parts have kernels, and where they work: arrays uploaded with `parameters`, and scratch behind the first
  // `used` bytes.
  absl::Status PlanDecoding(const Moving& moving, uint64_t used, std::array<PartWork, 2>* work, Parameters* parameters);
  // Uploads `parameters` and compares the checks of what is there.
  absl::Status VerifyRuns(const Moving& moving, const std::array<uint8_t*, kRunIds>& runs, Parameters* parameters);
  absl::Status Decode(const RecordHeader& header, Part part, PartWork* work);
  // Where a part's rows lie, arrays uploaded with `parameters`.
  kernels::RowsView RowsOf(const DeviceRows& rows, Part part, const RecordHeader& header,
                           const std::vector<std::shared_ptr<const OpenedMemory>>& memory, Parameters* parameters);
  // The checks of `present` runs, arrays uploaded with `parameters`; to be enqueued after those.
  static std::vector<kernels::ChecksumJob> PlanSums(const RecordHeader& header, RunMask present,
                                                    const std::array<uint8_t*, kRunIds>& runs, Parameters* parameters,
                                                    std::array<uint64_t*, kRunIds>* results);
  // Every run in one piece: where it lies in the pool, or brought into the first `*used` bytes of scratch.
  absl::StatusOr<std::array<uint8_t*, kRunIds>> GatherRuns(const ExportJob& job, uint64_t* used);
  absl::Status Upload(const Parameters& parameters);
  // Brings results here and waits for the stream.
  absl::Status Await(const Parameters& parameters);
  absl::Status Wait();

  const MoverOptions options_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t done_ = nullptr;  // Waited for without giving the processor away: jobs take less than a wake does.
  std::unique_ptr<ScratchSlot> slot_;
  std::unique_ptr<AnswerSlot> answers_;
  TransformCache transforms_;
  cudaError_t sticky_ = cudaSuccess;

  std::mutex mu_;
  std::condition_variable changed_;
  // Guarded by mu_.
  std::deque<Waiting> waiting_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace firn::gpu
