// One lane of a GPU: jobs begun in order, enqueued by one thread and waited for by another.
//
// Copies that wait are enqueued together, and so are recodings that are alike. What a recoding leaves to the processor,
// above all the errors of some hundred rows a block, is done by some threads more, so that the GPU is not kept waiting.
// Threads: Add from any; everything else on the lane's own. Ownership: stops its threads when destroyed; what is
// enqueued is waited for. Errors: a job's own go into its answer; `on_fatal` gets what ends the context, once.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/executor.h"
#include "daemon/gpu/recode_batch.h"
#include "tiers/hot/child/device.h"

namespace firn::gpu {

struct LaneOptions {
  int device = 0;
  int priority = 0;  // Of its streams; lower goes first.
  uint8_t* pool = nullptr;
  const RegisteredRegions* regions = nullptr;
  const ArtifactSource* artifacts = nullptr;
  uint64_t slot_bytes = 0;  // Of scratch, for each of kSlots batches; 0: the lane only copies.
  size_t finishers = 1;     // Threads that finish recodings.
  Device::Events events;
  std::function<bool()> faulty;  // Asked for every job: true has it read where nothing is.
};

class CudaLane {
 public:
  // One batch leaves, one is coded, and one is about to be.
  static constexpr size_t kSlots = 3;
  static constexpr size_t kAnswerSlots = 6;  // The processor may be so many batches behind.
  static constexpr size_t kCopiesInFlightMax = 64;
  // Copies are answered together: few enough bytes that nobody waits long for the others'.
  static constexpr uint64_t kTogetherBytesMax = uint64_t{8} << 20;

  static absl::StatusOr<std::unique_ptr<CudaLane>> Create(LaneOptions options);
  ~CudaLane();
  void Add(Job job);

 private:
  // Enqueued, and not yet answered.
  struct Flight {
    std::vector<uint64_t> ids;
    // Of `batch`: the next unit to measure, units of each block that are not measured, blocks that are not finished.
    std::atomic<size_t> next_unit{0}, unfinished{0};
    std::vector<std::atomic<size_t>> unmeasured;
    absl::Status refused;  // Nothing was enqueued.
    cudaEvent_t done = nullptr;
    std::unique_ptr<RecodeBatch> batch;
    ScratchSlot* slot = nullptr;
    AnswerSlot* answer = nullptr;
  };

  explicit CudaLane(LaneOptions options) : options_(std::move(options)) {}
  void IssueLoop();
  void AnswerLoop();
  void IssueCopies(Job first);
  void IssueRecodes(Job first);
  // The recodings that wait behind `first` and are like it, `limit` at most with it.
  std::vector<RecodeTask> TakeAlike(RecodeTask first, size_t limit);
  void Fly(std::shared_ptr<Flight> flight);
  void Finish(const std::shared_ptr<Flight>& flight);
  void FinishUnits(Flight* flight);
  // What the flight had on the GPU, or what the processor needed of it, may be used again.
  void Land(const Flight& flight);
  void FreeAnswer(const Flight& flight);
  // Both; false where the lane is lost.
  bool TakeSlots(Flight* flight);
  cudaEvent_t TakeEvent();
  // Says so and ends the lane's work where the error ends the context.
  bool Lost(cudaError_t error, const char* what);

  const LaneOptions options_;
  cudaStream_t out_ = nullptr;
  TransformCache transforms_;  // Of the issuing thread.
  std::vector<std::unique_ptr<ScratchSlot>> slots_;
  std::vector<std::unique_ptr<AnswerSlot>> answers_;

  std::mutex mu_;
  // By what is waited for: a wake that nobody needs costs more than most jobs. One thread waits for each.
  std::condition_variable jobs_changed_, room_changed_, flights_changed_;
  // Guarded by mu_.
  std::deque<Job> jobs_;
  std::deque<std::shared_ptr<Flight>> flights_;
  std::vector<ScratchSlot*> free_slots_;
  std::vector<AnswerSlot*> free_answers_;
  size_t flying_blocks_ = 0;  // Of recodings that were enqueued and are not answered.
  std::vector<cudaEvent_t> free_events_;
  bool stopping_ = false, issued_all_ = false, lost_ = false;
  std::thread issuer_, answerer_;
  std::unique_ptr<ThreadPoolExecutor> finishers_;
};

}  // namespace firn::gpu
