// An arena: a region of memory handed out in pages and slots, to records whose runs come and go one by one.
//
// With a policy of error correction each piece has its parity behind it, so that the two come and go together.
//
// It starts with nothing and grows by Populate, step by step, so that a large pool does not keep the daemon from
// answering. Used and free bytes add up to the populated ones at every moment. Memory that another namespace wrote is
// zeroed before it is handed out again. Threads: every call is safe from any thread. One lock guards the bookkeeping;
// no byte of a run is touched under it. Ownership: copies hold the arena, so the memory outlives the tier while a
// reader needs it. Errors: ResourceExhausted where it does not fit now, InvalidArgument where it never can; both name
// the bytes.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "codecs/ecc/ecc.h"
#include "codecs/encoded_block.h"
#include "tiers/tier.h"
#include "tiers/warm/arena_record.h"
#include "tiers/warm/memory/memory_region.h"
#include "tiers/warm/page_pool.h"

namespace firn {

class Arena {
 public:
  Arena(std::string name, std::unique_ptr<MemoryRegion> region, EccPolicy ecc = {});
  ~Arena();

  // Takes up to `bytes` more of the region into the pool; less where the region ends. Slow: minutes for hundreds of
  // GiB. To be called off the serving threads until populated_bytes() is bytes_max(). After a failure the pool stays as
  // large as it is.
  absl::Status Populate(uint64_t bytes);
  uint64_t populated_bytes() const { return populated_bytes_.load(std::memory_order_acquire); }
  uint64_t bytes_max() const { return region_->bytes(); }
  const MemoryRegion& region() const { return *region_; }
  EccPolicy ecc() const { return ecc_; }
  // From now on no more than `bytes` are used; what is used already stays until it is freed.
  void SetLimit(uint64_t bytes);

  // A record being written: its runs, and a header of at most `header_bytes`.
  absl::StatusOr<ArenaRecord*> Reserve(const RecordLayout& layout, uint64_t header_bytes);
  void Abort(ArenaRecord* draft);
  // The draft becomes a record with one copy, which the index refers to.
  void Publish(ArenaRecord* draft, uint64_t namespace_tag);
  // One more copy of some pieces.
  void Share(ArenaRecord* record, PieceMask pieces);
  // The index lets a copy go; readers may still hold it.
  void Unindex(ArenaRecord* record, PieceMask pieces);
  // A piece turned out to be `right` instead of what the memory has. Chunks on pages where that happens again and again
  // are kept out of use once they are free, up to a share of the pool: a bit that is stuck would spoil the next block
  // too. However often a chunk's damage is found before it is free, it is one finding: everyone who reads it finds it.
  void NoteDamage(const ArenaRecord& record, uint32_t piece, ByteSpan right);
  // A copy is gone: pieces that no other copy uses are freed, and with the last of them the record.
  void Release(ArenaRecord* record, PieceMask pieces, bool indexed);

  // The memory of some pieces, neighbouring chunks joined; parity follows what it protects.
  using PieceBytes = std::array<MutableRunBytes, kPiecesMax>;
  PieceBytes Bytes(const ArenaRecord& record, PieceMask pieces) const;
  TierUsage Usage() const;
  // Recounts everything.
  absl::Status AuditForTest() const;

 private:
  // The chunks of a draft whose old bytes must go before it is handed out.
  using DirtyChunks = std::vector<MutableByteSpan>;

  bool TakeChunks(ArenaRecord* record, uint64_t tag, DirtyChunks* dirty);  // Needs mu_; all or nothing.
  void FreeChunks(const ChunkPlan& plan, std::span<const uint64_t> offsets);
  // Keeps a chunk that is to be freed where it is, if its page is not trusted.
  bool Quarantine(uint64_t offset, bool page, uint64_t bytes);
  void Unlink(ArenaRecord* record);
  uint64_t UsedBytes() const { return (pool_.pages() - pool_.free_pages()) * kArenaPageBytes; }
  uint64_t CapacityBytes() const { return std::min(limit_bytes_, pool_.pages() * kArenaPageBytes); }

  const std::string name_;
  const std::unique_ptr<MemoryRegion> region_;
  const EccPolicy ecc_;
  std::mutex populate_mu_;  // Taken before mu_.
  std::atomic<uint64_t> populated_bytes_{0};

  mutable std::mutex mu_;
  // Guarded by mu_.
  PagePool pool_;
  uint64_t limit_bytes_;
  ArenaRecord* records_ = nullptr;
  uint64_t stored_bytes_ = 0;  // Of all pieces, drafts included.
  uint64_t draft_bytes_ = 0;
  uint64_t held_bytes_ = 0;                          // Of pieces with copies of which none is indexed.
  uint64_t copies_ = 0;                              // Indexed ones.
  absl::flat_hash_map<uint64_t, uint32_t> damages_;  // By page: how often something there was wrong.
  absl::flat_hash_set<uint64_t> damaged_;            // Chunks in use that were counted there, by offset.
  absl::flat_hash_map<uint64_t, bool> quarantined_;  // Chunks out of use, by offset; true for pages.
  uint64_t quarantined_bytes_ = 0;
};

}  // namespace firn
