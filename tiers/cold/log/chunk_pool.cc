#include "tiers/cold/log/chunk_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/status.h"

namespace firn {

absl::StatusOr<std::shared_ptr<ChunkPool>> ChunkPool::Create(uint64_t bytes, uint64_t chunk_bytes) {
  if (chunk_bytes == 0 || chunk_bytes % kIoAlignment != 0) {
    return InvalidArgument("chunks of {} bytes are not a positive multiple of {}", chunk_bytes, kIoAlignment);
  }
  bytes = std::max(AlignDown(bytes, chunk_bytes), chunk_bytes);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return ErrnoStatus(errno, fmt::format("map {} bytes for cold transfers", bytes));
  madvise(memory, bytes, MADV_HUGEPAGE);  // Fewer pages to pin; nothing depends on it.
  return std::shared_ptr<ChunkPool>(new ChunkPool({static_cast<uint8_t*>(memory), bytes}, chunk_bytes));
}

ChunkPool::ChunkPool(MutableByteSpan region, uint64_t chunk_bytes) : region_(region), chunk_bytes_(chunk_bytes) {
  uint32_t chunks = static_cast<uint32_t>(region.size() / chunk_bytes);
  last_tags_.resize(chunks);
  for (uint32_t i = chunks; i > 0; --i) free_.push_back(i - 1);
}

ChunkPool::~ChunkPool() { munmap(region_.data(), region_.size()); }

uint64_t ChunkPool::free_bytes() const {
  std::lock_guard lock(mu_);
  uint64_t chunks = free_.size() * chunk_bytes_;
  return chunks > heap_bytes_ ? chunks - heap_bytes_ : 0;
}

std::shared_ptr<ChunkPool::Lease> ChunkPool::Take(uint64_t bytes, uint64_t namespace_tag, Contents contents) {
  bytes = std::max(AlignUp(bytes, kIoAlignment), kIoAlignment);
  std::shared_ptr<Lease> lease(new Lease);
  std::vector<uint32_t> to_zero;
  {
    std::lock_guard lock(mu_);
    if (free_.size() * chunk_bytes_ < heap_bytes_ + bytes) return nullptr;
    if (bytes * 2 <= chunk_bytes_) {
      heap_bytes_ += bytes;
    } else {
      uint64_t count = (bytes + chunk_bytes_ - 1) / chunk_bytes_;
      if (free_.size() * chunk_bytes_ < heap_bytes_ + count * chunk_bytes_) return nullptr;
      for (uint64_t i = 0; i < count; ++i) {
        uint32_t chunk = free_.back();
        free_.pop_back();
        lease->chunks_.push_back(chunk);
        if (last_tags_[chunk] != 0 && (namespace_tag == 0 || last_tags_[chunk] != namespace_tag))
          to_zero.push_back(chunk);
        last_tags_[chunk] = namespace_tag == 0 ? ~uint64_t{0} : namespace_tag;
      }
    }
    lease->pool_ = shared_from_this();
  }
  if (contents == Contents::kOverwritten) to_zero.clear();
  for (uint32_t chunk : to_zero) std::memset(region_.data() + chunk * chunk_bytes_, 0, chunk_bytes_);
  if (lease->chunks_.empty()) {
    lease->heap_ = AlignedBuffer(bytes);
    lease->pieces_.push_back(lease->heap_.span());
  }
  for (uint32_t chunk : lease->chunks_) lease->pieces_.push_back(region_.subspan(chunk * chunk_bytes_, chunk_bytes_));
  return lease;
}

std::shared_ptr<ChunkPool::Lease> ChunkPool::Lease::OnHeap(uint64_t bytes) {
  std::shared_ptr<Lease> lease(new Lease);
  lease->heap_ = AlignedBuffer(std::max(bytes, kIoAlignment));
  lease->pieces_.push_back(lease->heap_.span());
  return lease;
}

void ChunkPool::GiveBack(Lease* lease) {
  std::lock_guard lock(mu_);
  heap_bytes_ -= lease->heap_.size();
  free_.insert(free_.end(), lease->chunks_.begin(), lease->chunks_.end());
  if (on_free_) on_free_();
}

void ChunkPool::SetOnFree(std::function<void()> on_free) {
  std::lock_guard lock(mu_);
  on_free_ = std::move(on_free);
}

}  // namespace firn
