// A worker's memory or event on the processor, where a GPU has none: shared memory by name. On a GPU,
// client/examples/gpu_worker does the same.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "tiers/hot/device_rows.h"

namespace firn {

class WorkerMemory {
 public:
  explicit WorkerMemory(uint64_t bytes) : bytes_(bytes) {
    static std::atomic<int> number{0};
    name_ = "/firn-worker-" + std::to_string(::getpid()) + "-" + std::to_string(number++);
    int fd = ::shm_open(name_.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
    FIRN_CHECK(fd >= 0 && ::ftruncate(fd, static_cast<off_t>(bytes)) == 0);
    void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    FIRN_CHECK(base != MAP_FAILED);
    base_ = static_cast<uint8_t*>(base);
    ::close(fd);
  }
  ~WorkerMemory() {
    ::munmap(base_, bytes_);
    ::shm_unlink(name_.c_str());
  }
  WorkerMemory(const WorkerMemory&) = delete;
  WorkerMemory& operator=(const WorkerMemory&) = delete;

  uint8_t* base() const { return base_; }
  uint64_t bytes() const { return bytes_; }
  DeviceHandle handle() const {
    DeviceHandle handle{};
    std::copy(name_.begin(), name_.end(), handle.begin());
    return handle;
  }

 private:
  const uint64_t bytes_;
  std::string name_;
  uint8_t* base_ = nullptr;
};

}  // namespace firn
