// Device memory of workers, opened by CUDA IPC and kept open for a while: opening takes longer than most jobs.
//
// A process may open a handle once at a time, so the movers of a GPU share one of these. Threads: safe from any; the
// GPU must be the caller's current one. Ownership: what is used stays open as long as somebody holds it; what nobody
// has used for kIdleMs, or what kOpenMax others were used after, is closed at the next call.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "tiers/hot/device_rows.h"

namespace firn::gpu {

// One allocation of a worker's, open.
struct OpenedMemory {
  ~OpenedMemory();
  DeviceHandle handle;
  uint8_t* base = nullptr;
  uint64_t bytes = 0;
  int64_t used_ms = 0;  // Guarded by IpcMemory's lock.
};

class IpcMemory {
 public:
  // Workers have some two allocations a layer each, and all of them are used again and again.
  static constexpr size_t kOpenMax = 8192;
  static constexpr int64_t kIdleMs = 30'000;

  // InvalidArgument where an allocation has fewer bytes than `ends` says are used, or where a handle opens nothing.
  absl::StatusOr<std::vector<std::shared_ptr<const OpenedMemory>>> Open(const std::vector<DeviceHandle>& handles,
                                                                        const std::vector<uint64_t>& ends);

 private:
  absl::StatusOr<std::shared_ptr<OpenedMemory>> FindLocked(const DeviceHandle& handle, int64_t now_ms);
  void CloseIdleLocked(int64_t now_ms);

  using Opened = std::list<std::shared_ptr<OpenedMemory>>;
  std::mutex mu_;
  // Guarded by mu_.
  Opened opened_;  // The last used first.
  absl::flat_hash_map<DeviceHandle, Opened::iterator> by_handle_;
};

}  // namespace firn::gpu
