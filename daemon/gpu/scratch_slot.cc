#include "daemon/gpu/scratch_slot.h"

#include "base/status.h"
#include "daemon/gpu/cuda_check.h"

namespace firn::gpu {
namespace {

absl::Status AllocatePinned(uint8_t** at, uint64_t bytes) {
  return CudaStatus(cudaMallocHost(reinterpret_cast<void**>(at), bytes),
                    fmt::format("allocate {} bytes of pinned memory", bytes));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ScratchSlot>> ScratchSlot::Create(uint64_t codes_bytes, int priority) {
  std::unique_ptr<ScratchSlot> slot(new ScratchSlot());
  slot->codes_bytes_ = codes_bytes;
  auto allocate = [](uint8_t** at, uint64_t bytes) {
    return CudaStatus(cudaMalloc(reinterpret_cast<void**>(at), bytes), fmt::format("allocate {} bytes", bytes));
  };
  FIRN_RETURN_IF_ERROR(allocate(&slot->codes_, codes_bytes));
  FIRN_RETURN_IF_ERROR(allocate(&slot->side_, 3 * kSideBytes));
  FIRN_RETURN_IF_ERROR(AllocatePinned(&slot->pinned_, kSideBytes));
  auto open = [priority](cudaStream_t* stream) {
    return CudaStatus(cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, priority), "make a stream");
  };
  FIRN_RETURN_IF_ERROR(open(&slot->work_));
  for (cudaStream_t& stream : slot->aside_) FIRN_RETURN_IF_ERROR(open(&stream));
  for (cudaEvent_t* event : {&slot->ready_, &slot->coded_, &slot->joined_}) {
    FIRN_RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "make an event"));
  }
  FIRN_RETURN_IF_ERROR(CudaStatus(
      cudaEventCreateWithFlags(&slot->done_, cudaEventDisableTiming | cudaEventBlockingSync), "make an event"));
  return slot;
}

ScratchSlot::~ScratchSlot() {
  cudaFree(codes_);
  cudaFree(side_);
  cudaFreeHost(pinned_);
  for (cudaStream_t stream : aside_) {
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
  if (work_ != nullptr) cudaStreamDestroy(work_);
  for (cudaEvent_t event : {ready_, coded_, joined_, done_}) {
    if (event != nullptr) cudaEventDestroy(event);
  }
}

absl::StatusOr<std::unique_ptr<AnswerSlot>> AnswerSlot::Create() {
  std::unique_ptr<AnswerSlot> slot(new AnswerSlot());
  FIRN_RETURN_IF_ERROR(AllocatePinned(&slot->pinned_, 2 * ScratchSlot::kSideBytes));
  return slot;
}

AnswerSlot::~AnswerSlot() { cudaFreeHost(pinned_); }

absl::Status ScratchSlot::AsideAfter(cudaEvent_t event) const {
  for (cudaStream_t stream : aside_) {
    FIRN_RETURN_IF_ERROR(CudaStatus(cudaStreamWaitEvent(stream, event, 0), "wait for an event"));
  }
  return absl::OkStatus();
}

absl::Status ScratchSlot::Join(cudaStream_t stream) const {
  // A wait is for the event's last record before it: one event does for all.
  for (cudaStream_t from : {work_, aside_[0], aside_[1], aside_[2]}) {
    FIRN_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(joined_, from), "record an event"));
    FIRN_RETURN_IF_ERROR(CudaStatus(cudaStreamWaitEvent(stream, joined_, 0), "wait for an event"));
  }
  return absl::OkStatus();
}

}  // namespace firn::gpu
