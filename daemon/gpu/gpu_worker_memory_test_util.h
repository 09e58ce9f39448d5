// A worker's memory as a GPU's child opens it, in a test's process: shared memory by name, or of the GPU.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/gpu/gpu_child_test_util.h"
#include "tiers/hot/device_rows.h"

namespace firn {

class GpuWorkerMemory {
 public:
  virtual ~GpuWorkerMemory() = default;
  virtual DeviceHandle handle() const = 0;
  // The first bytes, both.
  virtual void Fill(uint8_t byte, uint64_t bytes) = 0;
  virtual std::vector<uint8_t> Read(uint64_t bytes) const = 0;
};

// Null where this build has no CUDA and the child does.
std::unique_ptr<GpuWorkerMemory> MakeWorkerMemory(const ChildKind& kind, uint64_t bytes);

}  // namespace firn
