#include "tiers/hot/extent_pool.h"

#include "base/check.h"
#include "base/status.h"

namespace firn {

ExtentPool::ExtentPool(uint64_t bytes) : bytes_(bytes / kExtentGranuleBytes * kExtentGranuleBytes) {
  if (bytes_ > 0) Add(0, bytes_);
  free_bytes_ = bytes_;
}

void ExtentPool::Add(uint64_t offset, uint64_t bytes) {
  by_offset_.emplace(offset, bytes);
  by_size_.emplace(bytes, offset);
}

void ExtentPool::Remove(std::map<uint64_t, uint64_t>::iterator extent) {
  by_size_.erase({extent->second, extent->first});
  by_offset_.erase(extent);
}

std::optional<uint64_t> ExtentPool::Take(uint64_t bytes) {
  FIRN_CHECK(bytes > 0);
  uint64_t wanted = ExtentBytes(bytes);
  auto fit = by_size_.lower_bound({wanted, 0});
  if (fit == by_size_.end()) return std::nullopt;
  auto [have, offset] = *fit;
  Remove(by_offset_.find(offset));
  if (have > wanted) Add(offset + wanted, have - wanted);
  free_bytes_ -= wanted;
  return offset;
}

void ExtentPool::Free(uint64_t offset, uint64_t bytes) {
  uint64_t length = ExtentBytes(bytes);
  FIRN_CHECK(length > 0 && offset % kExtentGranuleBytes == 0 && offset + length <= bytes_);
  free_bytes_ += length;
  auto next = by_offset_.lower_bound(offset);
  FIRN_CHECK(next == by_offset_.end() || offset + length <= next->first);
  if (next != by_offset_.end() && next->first == offset + length) {
    length += next->second;
    auto after = std::next(next);
    Remove(next);
    next = after;
  }
  if (next != by_offset_.begin()) {
    auto previous = std::prev(next);
    FIRN_CHECK(previous->first + previous->second <= offset);
    if (previous->first + previous->second == offset) {
      offset = previous->first;
      length += previous->second;
      Remove(previous);
    }
  }
  Add(offset, length);
}

absl::Status ExtentPool::Audit() const {
  uint64_t total = 0, end = 0;
  bool first = true;
  for (auto [offset, bytes] : by_offset_) {
    if (bytes == 0 || (!first && offset <= end) || offset + bytes > bytes_) {
      return InternalError("a free extent of {} bytes at {} behind one that ends at {}", bytes, offset, end);
    }
    if (!by_size_.contains({bytes, offset})) return InternalError("the extent at {} is not listed by size", offset);
    total += bytes;
    end = offset + bytes;
    first = false;
  }
  if (total != free_bytes_ || by_size_.size() != by_offset_.size()) {
    return InternalError("{} bytes in {} free extents, {} and {} counted", total, by_offset_.size(), free_bytes_,
                         by_size_.size());
  }
  return absl::OkStatus();
}

}  // namespace firn
