// Aligned memory for transfers: fixed chunks of one mapping that the device may have registered.
//
// A large extent is a list of chunks, so that the pool never fragments; what fits in less than a chunk lies on the heap
// and counts against the same budget. Memory that another namespace used before is zeroed when it is handed out.
// Threads: all calls are safe from any thread. Ownership: a lease keeps the pool alive and gives its memory back when
// it goes. Errors: none; Take answers with nothing when the budget is used up.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "tiers/cold/device/aligned_buffer.h"

namespace firn {

class ChunkPool : public std::enable_shared_from_this<ChunkPool> {
 public:
  class Lease;

  // `bytes` is rounded down to whole chunks, at least one; `chunk_bytes` is a multiple of kIoAlignment.
  static absl::StatusOr<std::shared_ptr<ChunkPool>> Create(uint64_t bytes, uint64_t chunk_bytes);
  ~ChunkPool();

  // Memory of at least `bytes`; pieces of chunk_bytes, the last one maybe longer than needed. `namespace_tag` as in
  // RecordLayout; kOverwritten where all of it that will be shown is written first.
  enum class Contents : uint8_t { kZeroForeign, kOverwritten };
  std::shared_ptr<Lease> Take(uint64_t bytes, uint64_t namespace_tag, Contents contents = Contents::kZeroForeign);
  // Called after memory has been given back; an empty function to stop.
  void SetOnFree(std::function<void()> on_free);
  // What Take would count for `bytes`.
  uint64_t CostOf(uint64_t bytes) const {
    return AlignUp(bytes, bytes * 2 <= chunk_bytes_ ? kIoAlignment : chunk_bytes_);
  }
  MutableByteSpan region() const { return region_; }
  uint64_t chunk_bytes() const { return chunk_bytes_; }
  uint64_t budget_bytes() const { return region_.size(); }
  uint64_t free_bytes() const;

 private:
  ChunkPool(MutableByteSpan region, uint64_t chunk_bytes);
  void GiveBack(Lease* lease);

  const MutableByteSpan region_;
  const uint64_t chunk_bytes_;
  mutable std::mutex mu_;
  std::vector<uint32_t> free_;       // Guarded by mu_, as all below.
  std::vector<uint64_t> last_tags_;  // Of each chunk; 0: never used.
  uint64_t heap_bytes_ = 0;
  std::function<void()> on_free_;
};

class ChunkPool::Lease {
 public:
  ~Lease() {
    if (pool_ != nullptr) pool_->GiveBack(this);
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  const std::vector<MutableByteSpan>& pieces() const { return pieces_; }

  // Memory outside any pool.
  static std::shared_ptr<Lease> OnHeap(uint64_t bytes);

 private:
  friend class ChunkPool;
  Lease() = default;
  std::shared_ptr<ChunkPool> pool_;
  std::vector<uint32_t> chunks_;
  AlignedBuffer heap_;
  std::vector<MutableByteSpan> pieces_;
};

}  // namespace firn
