// Device memory of workers, opened by CUDA IPC and kept open for a while: opening takes longer than most jobs.
//
// Threads: one. Ownership: closes what nobody has used for kIdleMs or what kOpenMax others were used after. What is
// used until the next call of Open stays open.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <list>
#include <vector>

#include "absl/status/statusor.h"
#include "tiers/hot/device_rows.h"

namespace firn::gpu {

class IpcMemory {
 public:
  static constexpr size_t kOpenMax = 256;
  static constexpr int64_t kIdleMs = 30'000;

  ~IpcMemory();
  // The start of each allocation. InvalidArgument where one has fewer bytes than `ends` says are used, or where a
  // handle opens nothing.
  absl::StatusOr<std::vector<uint8_t*>> Open(const std::vector<DeviceHandle>& handles,
                                             const std::vector<uint64_t>& ends);

 private:
  struct Opened {
    DeviceHandle handle;
    uint8_t* base = nullptr;
    uint64_t bytes = 0;
    int64_t used_ms = 0;
  };
  absl::StatusOr<Opened*> Find(const DeviceHandle& handle, int64_t now_ms);
  void CloseIdle(int64_t now_ms, size_t keep);

  std::list<Opened> opened_;  // The last used first.
};

}  // namespace firn::gpu
