// Which parts of a GPU's pool are free: contiguous extents of whole granules, without touching the memory.
//
// A run lies in one piece, so that a copy engine takes it in one go and a kernel needs no page table. Best fit; freed
// neighbours are joined. Freeing what is not taken ends the process. Threads: none of its own; the tier's lock guards
// it. Time: logarithmic in the number of free extents.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"

namespace firn {

inline constexpr uint64_t kExtentGranuleBytes = 4096;
constexpr uint64_t ExtentBytes(uint64_t bytes) {
  return (bytes + kExtentGranuleBytes - 1) / kExtentGranuleBytes * kExtentGranuleBytes;
}

class ExtentPool {
 public:
  explicit ExtentPool(uint64_t bytes);  // Rounded down to granules.

  // Where ExtentBytes(bytes) bytes are now taken; nothing where no free extent is so long. `bytes` is above 0.
  std::optional<uint64_t> Take(uint64_t bytes);
  void Free(uint64_t offset, uint64_t bytes);

  uint64_t bytes() const { return bytes_; }
  uint64_t free_bytes() const { return free_bytes_; }
  uint64_t largest_free_bytes() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }
  // Recounts: extents in order, apart, joined, and as many bytes as are said to be free.
  absl::Status Audit() const;

 private:
  void Add(uint64_t offset, uint64_t bytes);
  void Remove(std::map<uint64_t, uint64_t>::iterator extent);

  const uint64_t bytes_;
  uint64_t free_bytes_ = 0;
  std::map<uint64_t, uint64_t> by_offset_;           // Free extents: offset, bytes.
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // The same: bytes, offset.
};

}  // namespace firn
