#include "tests/bench/gpu/sharing/demotion_queue.h"

#include "base/check.h"
#include "base/checksum.h"

namespace firn::bench {

using kernels::CheckCuda;
using kernels::CheckOk;

DemotionQueue::DemotionQueue(const kernels::TransferWorkload* work, TransferWay way, uint32_t host_slots)
    : work_(work),
      way_(way),
      host_slots_(host_slots),
      runs_bytes_(work->RunsBytes(kernels::kTransferInt4)),
      host_(runs_bytes_ * host_slots) {
  for (cudaStream_t* stream : {&compute_, &copy_}) CheckCuda(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
  for (uint32_t i = 0; i < kStagingSlots; ++i) {
    if (way == TransferWay::kStaged) staging_.emplace_back(runs_bytes_);
    CheckCuda(cudaEventCreateWithFlags(&filled_[i], cudaEventDisableTiming));
    // As in the child: a thread that waits must not take a core.
    CheckCuda(cudaEventCreateWithFlags(&drained_[i], cudaEventDisableTiming | cudaEventBlockingSync));
  }
}

DemotionQueue::~DemotionQueue() {
  while (!under_way_.empty()) WaitOldest();
  for (cudaEvent_t event : filled_) cudaEventDestroy(event);
  for (cudaEvent_t event : drained_) cudaEventDestroy(event);
  cudaStreamDestroy(compute_);
  cudaStreamDestroy(copy_);
}

void DemotionQueue::Push(uint8_t* rows, cudaEvent_t after, uint32_t host_slot) {
  FIRN_CHECK(host_slot < host_slots_);
  if (under_way_.size() == kStagingSlots) WaitOldest();
  const uint32_t slot = next_++ % kStagingSlots;
  if (after != nullptr) CheckCuda(cudaStreamWaitEvent(compute_, after));
  const bool staged = way_ == TransferWay::kStaged;
  uint8_t* runs = staged ? staging_[slot].as<uint8_t>() : HostRuns(host_slot);
  CheckOk(EncodeNested(work_->Job(kernels::kTransferInt4, rows, runs), compute_));
  if (staged) {
    CheckCuda(cudaEventRecord(filled_[slot], compute_));
    CheckCuda(cudaStreamWaitEvent(copy_, filled_[slot]));
    CheckCuda(cudaMemcpyAsync(HostRuns(host_slot), runs, runs_bytes_, cudaMemcpyDeviceToHost, copy_));
  }
  CheckCuda(cudaEventRecord(drained_[slot], staged ? copy_ : compute_));
  under_way_.push_back({host_slot, slot});
}

uint32_t DemotionQueue::WaitOldest() {
  FIRN_CHECK(!under_way_.empty());
  Batch oldest = under_way_.front();
  under_way_.pop_front();
  CheckCuda(cudaEventSynchronize(drained_[oldest.staging_slot]));
  return oldest.host_slot;
}

uint64_t DemotionQueue::HostChecksum() const { return Crc64({host_.data(), runs_bytes_ * host_slots_}, 0); }

}  // namespace firn::bench
