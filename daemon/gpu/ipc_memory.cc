#include "daemon/gpu/ipc_memory.h"

#include <cstring>

#include "base/clock.h"
#include "base/status.h"
#include "daemon/gpu/cuda_check.h"

namespace firn::gpu {
namespace {

static_assert(sizeof(cudaIpcMemHandle_t) == kDeviceHandleBytes && sizeof(cudaIpcEventHandle_t) == kDeviceHandleBytes);

// cuMemGetAddressRange, without linking the driver.
using AddressRange = int (*)(uint64_t* base, size_t* bytes, uint64_t pointer);

absl::StatusOr<AddressRange> FindAddressRange() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  FIRN_RETURN_IF_ERROR(
      CudaStatus(cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &function, 12000, cudaEnableDefault, &found),
                 "look for cuMemGetAddressRange"));
  if (found != cudaDriverEntryPointSuccess) return Unimplemented("the driver has no cuMemGetAddressRange");
  return reinterpret_cast<AddressRange>(function);
}

}  // namespace

IpcMemory::~IpcMemory() { CloseIdle(0, 0); }

void IpcMemory::CloseIdle(int64_t now_ms, size_t keep) {
  while (!opened_.empty() && (opened_.size() > keep || opened_.back().used_ms + kIdleMs < now_ms)) {
    cudaIpcCloseMemHandle(opened_.back().base);
    opened_.pop_back();
  }
}

absl::StatusOr<IpcMemory::Opened*> IpcMemory::Find(const DeviceHandle& handle, int64_t now_ms) {
  for (auto it = opened_.begin(); it != opened_.end(); ++it) {
    if (it->handle != handle) continue;
    it->used_ms = now_ms;
    opened_.splice(opened_.begin(), opened_, it);
    return &opened_.front();
  }
  static const absl::StatusOr<AddressRange> address_range = FindAddressRange();
  FIRN_RETURN_IF_ERROR(address_range.status());
  cudaIpcMemHandle_t ipc;
  std::memcpy(&ipc, handle.data(), sizeof(ipc));
  void* base = nullptr;
  cudaError_t error = cudaIpcOpenMemHandle(&base, ipc, cudaIpcMemLazyEnablePeerAccess);
  if (error != cudaSuccess) {
    (void)cudaGetLastError();
    return InvalidArgument("a handle of memory that opens nothing: {} (CUDA {})", cudaGetErrorString(error),
                           static_cast<int>(error));
  }
  uint64_t start = 0;
  size_t bytes = 0;
  int code = (*address_range)(&start, &bytes, reinterpret_cast<uint64_t>(base));
  if (code != 0 || start != reinterpret_cast<uint64_t>(base)) {
    cudaIpcCloseMemHandle(base);
    return InternalError("the extent of a worker's memory is not to be had (CUDA {})", code);
  }
  opened_.push_front({handle, static_cast<uint8_t*>(base), bytes, now_ms});
  return &opened_.front();
}

absl::StatusOr<std::vector<uint8_t*>> IpcMemory::Open(const std::vector<DeviceHandle>& handles,
                                                      const std::vector<uint64_t>& ends) {
  int64_t now_ms = Clock::Real()->NowNs() / 1'000'000;
  CloseIdle(now_ms, kOpenMax);
  std::vector<uint8_t*> bases;
  for (size_t i = 0; i < handles.size(); ++i) {
    FIRN_ASSIGN_OR_RETURN(Opened * opened, Find(handles[i], now_ms));
    if (ends[i] > opened->bytes) {
      return InvalidArgument("rows up to byte {} of memory that has {}", ends[i], opened->bytes);
    }
    bases.push_back(opened->base);
  }
  return bases;
}

}  // namespace firn::gpu
