#include "daemon/gpu/cuda_device.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "base/status.h"
#include "daemon/gpu/cuda_check.h"
#include "daemon/gpu/cuda_lane.h"
#include "daemon/gpu/cuda_mover.h"

namespace firn::gpu {
namespace {

// What is left to others on the GPU, when it has less than was asked for.
constexpr uint64_t kLeftBytes = uint64_t{512} << 20;
// Each finishes 10,000 blocks a second and more.
constexpr size_t kFinishersMax = 8;
constexpr uint64_t kPoolGranuleBytes = uint64_t{2} << 20;

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const CudaFaults& faults) : faults_(faults) {}

  absl::StatusOr<Ready> Open(const Hello& hello, const ArtifactSource* artifacts, Events events) override;
  void AddRegion(uint32_t region, uint8_t* base, uint64_t bytes) override { regions_->Add(region, base, bytes); }
  void SetUsable(uint32_t region, uint64_t bytes) override { regions_->SetUsable(region, bytes); }
  void Submit(Job job) override {
    size_t turn = turn_++ % kMovers;
    if (std::holds_alternative<ImportJob>(job.work)) return importers_[turn]->Add(std::move(job));
    if (std::holds_alternative<ExportJob>(job.work)) return exporters_[turn]->Add(std::move(job));
    auto lane = static_cast<size_t>(job.lane == Lane::kImport ? Lane::kStore : job.lane);
    lanes_[lane]->Add(std::move(job));
  }
  void Stop() override {
    for (auto& lane : lanes_) lane.reset();
    for (auto& mover : importers_) mover.reset();
    for (auto& mover : exporters_) mover.reset();
  }

 private:
  // As much of `bytes` as there is.
  absl::StatusOr<uint64_t> TakePool(uint64_t bytes);

  const CudaFaults faults_;
  std::atomic<uint64_t> jobs_{0};
  uint8_t* pool_ = nullptr;
  std::unique_ptr<RegisteredRegions> regions_;
  std::array<std::unique_ptr<CudaLane>, kLanes> lanes_;
  IpcMemory memory_;  // Outlives the movers.
  static constexpr size_t kMovers = 3;
  std::array<std::unique_ptr<CudaMover>, kMovers> importers_, exporters_;
  size_t turn_ = 0;  // Of the thread that submits.
};

absl::StatusOr<uint64_t> CudaDevice::TakePool(uint64_t bytes) {
  while (bytes >= kPoolGranuleBytes) {
    cudaError_t error = cudaMalloc(reinterpret_cast<void**>(&pool_), bytes);
    if (error == cudaSuccess) return bytes;
    (void)cudaGetLastError();
    if (error != cudaErrorMemoryAllocation) return CudaStatus(error, "allocate the pool");
    size_t free = 0, total = 0;
    FIRN_RETURN_IF_ERROR(CudaStatus(cudaMemGetInfo(&free, &total), "ask for free memory"));
    // What the GPU says is free may be in pieces: less and less until it is to be had.
    uint64_t left = free > kLeftBytes ? free - kLeftBytes : 0;
    bytes = std::min(left, bytes - bytes / 8) / kPoolGranuleBytes * kPoolGranuleBytes;
  }
  return 0;
}

absl::StatusOr<Ready> CudaDevice::Open(const Hello& hello, const ArtifactSource* artifacts, Events events) {
  int count = 0;
  FIRN_RETURN_IF_ERROR(CudaStatus(cudaGetDeviceCount(&count), "count GPUs"));
  if (hello.device >= static_cast<uint32_t>(count)) {
    return NotFound("GPU {}; this machine has {}", hello.device, count);
  }
  const int device = static_cast<int>(hello.device);
  FIRN_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(device), "choose a GPU"));
  FIRN_RETURN_IF_ERROR(CudaStatus(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync), "set how to wait"));
  cudaDeviceProp properties{};
  FIRN_RETURN_IF_ERROR(CudaStatus(cudaGetDeviceProperties(&properties, device), "look at a GPU"));
  regions_ = std::make_unique<RegisteredRegions>(device);
  LaneOptions options;
  options.device = device;
  options.regions = regions_.get();
  options.artifacts = artifacts;
  options.events = std::move(events);
  options.faulty = [this] { return ++jobs_ == faults_.illegal_address_at_job; };
  Ready ready;
  ready.device = properties.name;
  ready.device_bytes = properties.totalGlobalMem;
  // Scratch before the pool: a pool that cannot be moved out of is of no use.
  options.finishers = std::clamp<size_t>(std::thread::hardware_concurrency() / 2, 1, kFinishersMax);
  int least = 0, greatest = 0;
  FIRN_RETURN_IF_ERROR(CudaStatus(cudaDeviceGetStreamPriorityRange(&least, &greatest), "ask for priorities"));
  void* reserve = nullptr;  // Of what the lanes take.
  const uint64_t lanes_bytes = 2 * hello.scratch_bytes + 16 * CudaLane::kSlots * ScratchSlot::kSideBytes;
  FIRN_RETURN_IF_ERROR(CudaStatus(cudaMalloc(&reserve, lanes_bytes), "allocate scratch"));
  FIRN_ASSIGN_OR_RETURN(ready.pool_bytes, TakePool(hello.pool_bytes));
  cudaFree(reserve);
  options.pool = pool_;
  for (Lane lane : {Lane::kServe, Lane::kStore, Lane::kDemote}) {
    options.priority = lane == Lane::kDemote ? least : greatest;
    options.slot_bytes = lane == Lane::kDemote ? hello.scratch_bytes / CudaLane::kSlots : 0;
    FIRN_ASSIGN_OR_RETURN(lanes_[static_cast<size_t>(lane)], CudaLane::Create(options));
  }
  MoverOptions mover;
  mover.device = device;
  mover.priority = greatest;
  mover.pool = pool_;
  mover.regions = regions_.get();
  mover.artifacts = artifacts;
  mover.events = options.events;
  mover.memory = &memory_;
  for (auto& importer : importers_) {
    FIRN_ASSIGN_OR_RETURN(importer, CudaMover::Create(mover));
  }
  mover.slot_bytes = hello.scratch_bytes / kMovers;
  for (auto& exporter : exporters_) {
    FIRN_ASSIGN_OR_RETURN(exporter, CudaMover::Create(mover));
  }
  return ready;
}

}  // namespace

std::unique_ptr<Device> MakeCudaDevice(const CudaFaults& faults) { return std::make_unique<CudaDevice>(faults); }

}  // namespace firn::gpu
