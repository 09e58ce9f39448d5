// Device memory with an owner, for tests and benchmarks. Failures are the program's: CHECKed.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"

namespace firn::kernels {

class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(uint64_t bytes) : bytes_(bytes) {
    // A byte more than asked for, so that an empty buffer has an address too.
    FIRN_CHECK(cudaMalloc(&data_, bytes + 1) == cudaSuccess);
  }
  template <typename T>
  explicit DeviceMemory(const std::vector<T>& values) : DeviceMemory(values.size() * sizeof(T)) {
    FIRN_CHECK(cudaMemcpy(data_, values.data(), bytes_, cudaMemcpyHostToDevice) == cudaSuccess);
    // It may come back before the bytes are there, and a stream that does not block does not wait for them.
    FIRN_CHECK(cudaStreamSynchronize(nullptr) == cudaSuccess);
  }
  DeviceMemory(DeviceMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceMemory() {
    if (data_ != nullptr) cudaFree(data_);
  }

  uint64_t bytes() const { return bytes_; }
  template <typename T = uint8_t>
  T* as() const {
    return static_cast<T*>(data_);
  }
  void Fill(int byte) { FIRN_CHECK(cudaMemset(data_, byte, bytes_) == cudaSuccess); }
  template <typename T = uint8_t>
  std::vector<T> Read() const {
    std::vector<T> values(bytes_ / sizeof(T));
    FIRN_CHECK(cudaMemcpy(values.data(), data_, values.size() * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess);
    return values;
  }

 private:
  void* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace firn::kernels
