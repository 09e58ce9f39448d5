// What benchmarks of codecs and parity measure with: memory like the arena's, and time that no neighbour takes.
//
// Threads: any.
#pragma once

#include <sys/mman.h>
#include <time.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "base/units.h"

namespace firn {

struct FreeBenchMemory {
  void operator()(uint8_t* memory) const { std::free(memory); }
};
using BenchMemory = std::unique_ptr<uint8_t[], FreeBenchMemory>;

inline BenchMemory AllocateBenchMemory(uint64_t bytes) {
  constexpr uint64_t kHugePageBytes = 2 * kMiB;
  const uint64_t whole = (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  auto* memory = static_cast<uint8_t*>(std::aligned_alloc(kHugePageBytes, whole));
  FIRN_CHECK(memory != nullptr);
  madvise(memory, bytes, MADV_HUGEPAGE);  // As the store's arena does, for both sides of every ratio.
  std::memset(memory, 1, bytes);
  return BenchMemory(memory);
}

// Of this thread alone.
inline double ProcessorSeconds() {
  timespec now;
  FIRN_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace firn
