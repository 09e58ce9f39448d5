// What one batch of conversions needs beside the pool, allocated once: device memory for codes and results, pinned
// memory for parameters, and streams, so that the kernels of two batches run side by side.
//
// Threads: one batch at a time uses a slot. Ownership: frees what it has.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace firn::gpu {

// What lies in scratch starts at a multiple of this.
inline constexpr uint64_t kScratchAlignment = 256;
inline constexpr uint64_t ScratchAligned(uint64_t bytes) {
  return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

class ScratchSlot {
 public:
  static constexpr uint64_t kSideBytes = uint64_t{8} << 20;  // Of parameters, of results, and of sampled rows.
  static constexpr size_t kAside = 3;

  // Streams of `priority`: the batch's kernels in order in work(), what may run beside them in aside(i).
  static absl::StatusOr<std::unique_ptr<ScratchSlot>> Create(uint64_t codes_bytes, int priority);
  ~ScratchSlot();
  ScratchSlot(const ScratchSlot&) = delete;
  ScratchSlot& operator=(const ScratchSlot&) = delete;

  uint8_t* codes() const { return codes_; }
  uint64_t codes_bytes() const { return codes_bytes_; }
  // The same bytes here and there; copied by whoever uses them. Of results and rows the host's side is an AnswerSlot.
  uint8_t* host_parameters() const { return pinned_; }
  uint8_t* parameters() const { return side_; }
  uint8_t* results() const { return side_ + kSideBytes; }
  uint8_t* rows() const { return side_ + 2 * kSideBytes; }
  cudaStream_t work() const { return work_; }
  cudaStream_t aside(size_t i) const { return aside_[i % kAside]; }
  cudaEvent_t ready() const { return ready_; }
  cudaEvent_t coded() const { return coded_; }
  cudaEvent_t done() const { return done_; }
  // What aside(i) does from now on comes after `event`.
  absl::Status AsideAfter(cudaEvent_t event) const;
  // What `stream` does from now on comes after all that the slot's streams have been given.
  absl::Status Join(cudaStream_t stream) const;

 private:
  ScratchSlot() = default;
  uint8_t *codes_ = nullptr, *side_ = nullptr, *pinned_ = nullptr;
  uint64_t codes_bytes_ = 0;
  cudaStream_t work_ = nullptr;
  std::array<cudaStream_t, kAside> aside_{};
  cudaEvent_t ready_ = nullptr, coded_ = nullptr, joined_ = nullptr, done_ = nullptr;
};

// Where the results and sampled rows of a batch arrive, pinned: the processor looks at them while its ScratchSlot is of
// use to the next batch.
class AnswerSlot {
 public:
  static absl::StatusOr<std::unique_ptr<AnswerSlot>> Create();
  ~AnswerSlot();
  AnswerSlot(const AnswerSlot&) = delete;
  AnswerSlot& operator=(const AnswerSlot&) = delete;
  uint8_t* results() const { return pinned_; }
  uint8_t* rows() const { return pinned_ + ScratchSlot::kSideBytes; }

 private:
  AnswerSlot() = default;
  uint8_t* pinned_ = nullptr;
};

}  // namespace firn::gpu
