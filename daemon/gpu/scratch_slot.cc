#include "daemon/gpu/scratch_slot.h"

#include "base/status.h"
#include "daemon/gpu/cuda_check.h"

namespace firn::gpu {

absl::StatusOr<std::unique_ptr<ScratchSlot>> ScratchSlot::Create(uint64_t codes_bytes) {
  std::unique_ptr<ScratchSlot> slot(new ScratchSlot());
  slot->codes_bytes_ = codes_bytes;
  auto allocate = [](uint8_t** at, uint64_t bytes) {
    return CudaStatus(cudaMalloc(reinterpret_cast<void**>(at), bytes), fmt::format("allocate {} bytes", bytes));
  };
  FIRN_RETURN_IF_ERROR(allocate(&slot->codes_, codes_bytes));
  FIRN_RETURN_IF_ERROR(allocate(&slot->side_, 2 * kSideBytes));
  FIRN_RETURN_IF_ERROR(CudaStatus(cudaMallocHost(reinterpret_cast<void**>(&slot->pinned_), 3 * kSideBytes),
                                  fmt::format("allocate {} bytes of pinned memory", 3 * kSideBytes)));
  FIRN_RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(&slot->coded_, cudaEventDisableTiming), "make an event"));
  FIRN_RETURN_IF_ERROR(CudaStatus(
      cudaEventCreateWithFlags(&slot->done_, cudaEventDisableTiming | cudaEventBlockingSync), "make an event"));
  return slot;
}

ScratchSlot::~ScratchSlot() {
  cudaFree(codes_);
  cudaFree(side_);
  cudaFreeHost(pinned_);
  if (coded_ != nullptr) cudaEventDestroy(coded_);
  if (done_ != nullptr) cudaEventDestroy(done_);
}

}  // namespace firn::gpu
