#include "daemon/gpu/registered_regions.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>

namespace firn::gpu {

RegisteredRegions::RegisteredRegions(int device) : thread_([this, device] { Run(device); }) {}

RegisteredRegions::~RegisteredRegions() {
  {
    std::lock_guard lock(mu_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void RegisteredRegions::Add(uint32_t region, uint8_t* base, uint64_t bytes) {
  bases_[region] = base;
  bytes_[region] = bytes;
}

void RegisteredRegions::SetUsable(uint32_t region, uint64_t usable_bytes) {
  uint64_t& queued = queued_[region];
  {
    std::lock_guard lock(mu_);
    // A piece at a time, or what is left at the end: a piece is registered once, whole.
    while (queued < usable_bytes) {
      uint64_t bytes = std::min(kPieceBytes, bytes_[region] - queued);
      if (usable_bytes - queued < bytes) break;
      pieces_.push_back({bases_[region] + queued, bytes, region});
      queued += bytes;
    }
  }
  changed_.notify_all();
}

bool RegisteredRegions::idle() const {
  std::lock_guard lock(mu_);
  return pieces_.empty() && !busy_;
}

void RegisteredRegions::Run(int device) {
  cudaSetDevice(device);
  for (;;) {
    Piece piece;
    {
      std::unique_lock lock(mu_);
      busy_ = false;
      changed_.wait(lock, [this] { return stopping_ || !pieces_.empty(); });
      if (stopping_) return;
      piece = pieces_.front();
      pieces_.pop_front();
      busy_ = true;
    }
    cudaError_t error = cudaHostRegister(piece.base, piece.bytes, cudaHostRegisterPortable);
    const auto begin = static_cast<uint64_t>(piece.base - bases_[piece.region]);
    if (error == cudaSuccess) {
      uint64_t before = begin;
      registered_[piece.region].compare_exchange_strong(before, begin + piece.bytes);
    } else {
      std::fprintf(stderr, "firnd-gpu: %llu bytes of host memory stay unregistered, copies to them are slow: %s\n",
                   static_cast<unsigned long long>(piece.bytes), cudaGetErrorString(error));
      (void)cudaGetLastError();
    }
  }
}

}  // namespace firn::gpu
