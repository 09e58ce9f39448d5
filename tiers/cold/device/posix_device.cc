#include "tiers/cold/device/posix_device.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/status.h"

namespace firn {

absl::StatusOr<std::unique_ptr<PosixDevice>> PosixDevice::Open(const DirectoryOptions& options) {
  std::unique_ptr<PosixDevice> device(new PosixDevice(options));
  FIRN_RETURN_IF_ERROR(device->OpenDirectory());
  uint32_t threads = std::clamp<uint32_t>(options.depth, 1, kThreadsMax);
  try {
    for (uint32_t i = 0; i < threads; ++i) device->threads_.emplace_back([d = device.get()] { d->Run(); });
  } catch (const std::system_error& error) {
    if (device->threads_.empty()) return ResourceExhausted("start an I/O thread: {}", error.what());
  }
  return device;
}

PosixDevice::~PosixDevice() {
  {
    std::lock_guard lock(mu_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void PosixDevice::SubmitImpl(RawIo io) {
  {
    std::lock_guard lock(mu_);
    queue_.push_back(std::move(io));
  }
  wake_.notify_one();
}

void PosixDevice::Run() {
  std::unique_lock lock(mu_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    RawIo io = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    int64_t result = TransferOnce(io);
    auto done = std::move(io.done);
    io = RawIo();  // The file is released before the callback, which may be the last to wait for that.
    done(result);
    done = nullptr;
    lock.lock();
  }
}

}  // namespace firn
