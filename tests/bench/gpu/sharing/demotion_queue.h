// Batches on their way from a GPU to host memory as INT4 codes: encoded into device memory and taken by the copy
// engine, the next batch's kernel beside the copy, as firnd-gpu does; or stored over the bus by the kernel.
//
// Threads: one. Streams: two of its own. Failures end the program. Slots: a batch's codes lie in its slot of registered
// host memory until the slot is used again.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "kernels/transfer_workload.h"

namespace firn::bench {

enum class TransferWay { kStaged, kDirect };

class DemotionQueue {
 public:
  static constexpr uint32_t kStagingSlots = 4;

  // `work` is not owned and outlives the queue.
  DemotionQueue(const kernels::TransferWorkload* work, TransferWay way, uint32_t host_slots);
  ~DemotionQueue();
  DemotionQueue(const DemotionQueue&) = delete;
  DemotionQueue& operator=(const DemotionQueue&) = delete;

  // Enqueues the batch at `rows`, behind `after` where that is not null. Waits where kStagingSlots are under way.
  void Push(uint8_t* rows, cudaEvent_t after, uint32_t host_slot);
  // Waits until the oldest batch is in host memory, and gives its slot. There must be one.
  uint32_t WaitOldest();
  size_t under_way() const { return under_way_.size(); }
  // Of all codes in all slots.
  uint64_t HostChecksum() const;

 private:
  struct Batch {
    uint32_t host_slot, staging_slot;
  };
  uint8_t* HostRuns(uint32_t slot) const { return host_.data() + slot * runs_bytes_; }

  const kernels::TransferWorkload* const work_;
  const TransferWay way_;
  const uint32_t host_slots_;
  const uint64_t runs_bytes_;
  kernels::RegisteredMemory host_;
  std::vector<kernels::DeviceMemory> staging_;
  cudaStream_t compute_ = nullptr, copy_ = nullptr;
  cudaEvent_t filled_[kStagingSlots], drained_[kStagingSlots];
  std::deque<Batch> under_way_;
  uint32_t next_ = 0;
};

}  // namespace firn::bench
