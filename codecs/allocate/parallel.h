// Runs independent pieces of work on a few threads: results lie where the index says, so their number changes nothing.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace firn {

// Calls `work` once for each index below `count`, on up to `threads` threads, this one among them; returns after all.
inline void ForEachIndex(uint32_t count, uint32_t threads, absl::FunctionRef<void(uint32_t index)> work) {
  std::atomic<uint32_t> next{0};
  auto take = [&] {
    for (uint32_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) work(i);
  };
  std::vector<std::thread> others;
  for (uint32_t i = 1; i < std::min(threads, count); ++i) others.emplace_back(take);
  take();
  for (std::thread& other : others) other.join();
}

}  // namespace firn
