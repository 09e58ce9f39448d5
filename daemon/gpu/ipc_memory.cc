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

OpenedMemory::~OpenedMemory() {
  if (base != nullptr) cudaIpcCloseMemHandle(base);
}

void IpcMemory::CloseIdleLocked(int64_t now_ms) {
  // From the one used longest ago; what a job holds stays, since its handle could not be opened again.
  size_t open = opened_.size();
  for (auto it = opened_.end(); it != opened_.begin();) {
    --it;
    bool idle = (*it)->used_ms + kIdleMs < now_ms;
    if (!idle && open <= kOpenMax) return;
    if (it->use_count() > 1) continue;
    by_handle_.erase((*it)->handle);
    it = opened_.erase(it);
    --open;
  }
}

absl::StatusOr<std::shared_ptr<OpenedMemory>> IpcMemory::FindLocked(const DeviceHandle& handle, int64_t now_ms) {
  if (auto known = by_handle_.find(handle); known != by_handle_.end()) {
    (*known->second)->used_ms = now_ms;
    opened_.splice(opened_.begin(), opened_, known->second);
    return opened_.front();
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
  auto opened = std::make_shared<OpenedMemory>();
  opened->handle = handle;
  opened->base = static_cast<uint8_t*>(base);
  opened->used_ms = now_ms;
  uint64_t start = 0;
  size_t bytes = 0;
  int code = (*address_range)(&start, &bytes, reinterpret_cast<uint64_t>(base));
  if (code != 0 || start != reinterpret_cast<uint64_t>(base)) {
    return InternalError("the extent of a worker's memory is not to be had (CUDA {})", code);
  }
  opened->bytes = bytes;
  opened_.push_front(opened);
  by_handle_.emplace(handle, opened_.begin());
  return opened;
}

absl::StatusOr<std::vector<std::shared_ptr<const OpenedMemory>>> IpcMemory::Open(
    const std::vector<DeviceHandle>& handles, const std::vector<uint64_t>& ends) {
  std::lock_guard lock(mu_);
  int64_t now_ms = Clock::Real()->NowNs() / 1'000'000;
  CloseIdleLocked(now_ms);
  std::vector<std::shared_ptr<const OpenedMemory>> out;
  for (size_t i = 0; i < handles.size(); ++i) {
    FIRN_ASSIGN_OR_RETURN(auto opened, FindLocked(handles[i], now_ms));
    if (ends[i] > opened->bytes) {
      return InvalidArgument("rows up to byte {} of memory that has {}", ends[i], opened->bytes);
    }
    out.push_back(std::move(opened));
  }
  return out;
}

}  // namespace firn::gpu
