// Scratch arrays that live on the stack up to `kInline` elements and on the heap beyond, aligned for any vector.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

#include "base/check.h"

namespace firn {

inline constexpr size_t kVectorAlignment = 64;

struct FreeDeleter {
  void operator()(void* memory) const { std::free(memory); }
};

// Contents are undefined at first. At least kVectorAlignment bytes behind the last element may be read and written.
template <typename T, size_t kInline>
class InlineBuffer {
 public:
  explicit InlineBuffer(size_t count) {
    if (count <= kInline) return;
    size_t bytes = (count * sizeof(T) + 2 * kVectorAlignment - 1) / kVectorAlignment * kVectorAlignment;
    heap_.reset(static_cast<T*>(std::aligned_alloc(kVectorAlignment, bytes)));
    FIRN_CHECK(heap_ != nullptr);
  }
  T* data() { return heap_ ? heap_.get() : inline_; }
  T& operator[](size_t i) { return data()[i]; }

 private:
  alignas(kVectorAlignment) T inline_[kInline + kVectorAlignment / sizeof(T)];
  std::unique_ptr<T, FreeDeleter> heap_;
};

}  // namespace firn
