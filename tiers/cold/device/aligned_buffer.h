// Heap memory at I/O alignment, zeroed.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "tiers/cold/device/device.h"

namespace firn {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // Rounds `bytes` up to the alignment.
  explicit AlignedBuffer(uint64_t bytes) : bytes_(AlignUp(bytes, kIoAlignment)) {
    if (bytes_ == 0) return;
    data_ = static_cast<uint8_t*>(std::aligned_alloc(kIoAlignment, bytes_));
    FIRN_CHECK(data_ != nullptr);
    std::memset(data_, 0, bytes_);
  }
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~AlignedBuffer() { std::free(data_); }

  uint8_t* data() const { return data_; }
  uint64_t size() const { return bytes_; }
  MutableByteSpan span() const { return {data_, bytes_}; }

 private:
  uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace firn
