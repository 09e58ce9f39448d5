#include "daemon/gpu/gpu_worker_memory_test_util.h"

#include <cstring>

#include "tiers/hot/worker_memory_test_util.h"
#ifdef FIRN_WITH_CUDA
#include "kernels/device_memory.h"
#endif

namespace firn {
namespace {

class SharedMemory final : public GpuWorkerMemory {
 public:
  explicit SharedMemory(uint64_t bytes) : memory_(bytes) {}
  DeviceHandle handle() const override { return memory_.handle(); }
  void Fill(uint8_t byte, uint64_t bytes) override { std::memset(memory_.base(), byte, bytes); }
  std::vector<uint8_t> Read(uint64_t bytes) const override { return {memory_.base(), memory_.base() + bytes}; }

 private:
  WorkerMemory memory_;
};

#ifdef FIRN_WITH_CUDA
class CudaMemory final : public GpuWorkerMemory {
 public:
  explicit CudaMemory(uint64_t bytes) : memory_(bytes) {
    cudaIpcMemHandle_t handle;
    static_assert(sizeof(handle) == sizeof(handle_));
    FIRN_CHECK(cudaIpcGetMemHandle(&handle, memory_.as<void>()) == cudaSuccess);
    std::memcpy(handle_.data(), &handle, sizeof(handle));
  }
  DeviceHandle handle() const override { return handle_; }
  void Fill(uint8_t byte, uint64_t bytes) override {
    FIRN_CHECK(cudaMemset(memory_.as<void>(), byte, bytes) == cudaSuccess);
    // Another process writes next.
    FIRN_CHECK(cudaDeviceSynchronize() == cudaSuccess);
  }
  std::vector<uint8_t> Read(uint64_t bytes) const override {
    std::vector<uint8_t> to(bytes);
    FIRN_CHECK(cudaMemcpy(to.data(), memory_.as<uint8_t>(), bytes, cudaMemcpyDeviceToHost) == cudaSuccess);
    return to;
  }

 private:
  kernels::DeviceMemory memory_;
  DeviceHandle handle_{};
};
#endif

}  // namespace

std::unique_ptr<GpuWorkerMemory> MakeWorkerMemory(const ChildKind& kind, uint64_t bytes) {
  if (!kind.cuda) return std::make_unique<SharedMemory>(bytes);
#ifdef FIRN_WITH_CUDA
  return std::make_unique<CudaMemory>(bytes);
#else
  return nullptr;
#endif
}

}  // namespace firn
