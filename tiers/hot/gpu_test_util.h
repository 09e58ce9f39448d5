// A GPU child in a thread of the test's own, and tiers on top of it.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/executor.h"
#include "tiers/hot/child/child.h"
#include "tiers/hot/child/cpu_device.h"
#include "tiers/hot/gpu_tier.h"
#include "tiers/hot/protocol/channel.h"

namespace firn {

class ThreadChild final : public GpuChild {
 public:
  explicit ThreadChild(const gpu::CpuFaults& faults) {
    auto sockets = gpu::SocketPair();
    FIRN_CHECK(sockets.ok());
    socket_ = std::move(sockets->first);
    end_ = UniqueFd(::dup(sockets->second.get()));
    thread_ = std::thread([faults, socket = std::move(sockets->second)]() mutable {
      auto device = gpu::MakeCpuDevice(faults);
      gpu::RunChild(std::move(socket), device.get());
    });
  }
  ~ThreadChild() override {
    ::shutdown(end_.get(), SHUT_RDWR);
    thread_.join();
  }
  UniqueFd TakeSocket() override { return std::move(socket_); }
  int pid() const override { return 0; }

 private:
  UniqueFd socket_, end_;
  std::thread thread_;
};

// Faults of the first child and of those after it.
inline GpuChildStarter StartThread(gpu::CpuFaults first = {}, gpu::CpuFaults later = {}) {
  auto starts = std::make_shared<std::atomic<int>>(0);
  return [first, later, starts]() -> absl::StatusOr<std::unique_ptr<GpuChild>> {
    return std::unique_ptr<GpuChild>(std::make_unique<ThreadChild>((*starts)++ == 0 ? first : later));
  };
}

inline GpuTierOptions TestGpuOptions(Executor* executor, uint64_t capacity_bytes, GpuChildStarter start) {
  GpuTierOptions options;
  options.capacity_bytes = capacity_bytes;
  options.staging_bytes = uint64_t{160} << 20;
  options.start = std::move(start);
  options.executor = executor;
  options.backoff_first_ms = 5;
  return options;
}

}  // namespace firn
