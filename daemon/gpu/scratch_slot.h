// What one batch of conversions needs beside the pool, allocated once: device memory for codes, and pinned memory for
// parameters and results.
//
// Threads: one batch at a time uses a slot. Ownership: frees what it has.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace firn::gpu {

class ScratchSlot {
 public:
  static constexpr uint64_t kSideBytes = uint64_t{8} << 20;  // Of parameters, of results, and of sampled rows.

  static absl::StatusOr<std::unique_ptr<ScratchSlot>> Create(uint64_t codes_bytes);
  ~ScratchSlot();
  ScratchSlot(const ScratchSlot&) = delete;
  ScratchSlot& operator=(const ScratchSlot&) = delete;

  uint8_t* codes() const { return codes_; }
  uint64_t codes_bytes() const { return codes_bytes_; }
  // The same bytes here and there; copied by whoever uses them.
  uint8_t* host_parameters() const { return pinned_; }
  uint8_t* parameters() const { return side_; }
  uint8_t* host_results() const { return pinned_ + kSideBytes; }
  uint8_t* results() const { return side_ + kSideBytes; }
  uint8_t* host_rows() const { return pinned_ + 2 * kSideBytes; }
  cudaEvent_t coded() const { return coded_; }
  cudaEvent_t done() const { return done_; }

 private:
  ScratchSlot() = default;
  uint8_t *codes_ = nullptr, *side_ = nullptr, *pinned_ = nullptr;
  uint64_t codes_bytes_ = 0;
  cudaEvent_t coded_ = nullptr, done_ = nullptr;
};

}  // namespace firn::gpu
