// The index's memory: one entry a shard of a block, one held copy a tier it is in, in slabs with small reusable ids.
//
// Ids instead of pointers keep an entry at 96 bytes and a held copy at 40 (docs/performance.md states the measured
// total), and make links cheap. What few entries have, the ranks of their tokens, lies beside them. Addresses are
// stable for the life of an entry. Threads: not thread-safe; the store's lock guards it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "base/digest.h"
#include "codecs/types.h"
#include "tiers/policy/policy.h"
#include "tiers/tier.h"

namespace firn {

using EntryId = uint32_t;
inline constexpr EntryId kNoEntry = 0xFFFFFFFFu;

// Fixed-size elements in chunks that never move.
template <typename T>
class Slab {
 public:
  uint32_t Allocate() {
    if (free_.empty()) {
      FIRN_CHECK(size_ < 0xFFFFFFF0u);
      if (size_ % kChunk == 0) chunks_.push_back(std::make_unique<T[]>(kChunk));
      return size_++;
    }
    uint32_t id = free_.back();
    free_.pop_back();
    return id;
  }
  void Free(uint32_t id) {
    (*this)[id] = T{};
    free_.push_back(id);
  }
  T& operator[](uint32_t id) {
    FIRN_DCHECK(id < size_);
    return chunks_[id / kChunk][id % kChunk];
  }
  const T& operator[](uint32_t id) const {
    FIRN_DCHECK(id < size_);
    return chunks_[id / kChunk][id % kChunk];
  }
  uint32_t size() const { return size_; }  // Ids are below this; free ones included.
  size_t in_use() const { return size_ - free_.size(); }
  uint64_t MemoryBytes() const { return chunks_.size() * kChunk * sizeof(T) + free_.capacity() * sizeof(uint32_t); }

 private:
  static constexpr uint32_t kChunk = 1024;
  std::vector<std::unique_ptr<T[]>> chunks_;
  std::vector<uint32_t> free_;
  uint32_t size_ = 0;
};

// A copy that the index refers to. Its id is the policy's node id.
struct HeldCopy {
  CopyPtr copy;
  EntryId entry = kNoEntry;
  NodeId next = kNoNode;  // The next colder copy of the same entry.
  uint8_t tier = 0;
  ClassPair served;
  bool used = false;
};
static_assert(sizeof(HeldCopy) <= 40);

struct Entry {
  static constexpr uint16_t kUsed = 1, kMoving = 2, kNonFinite = 4;
  static constexpr uint16_t kRecent = 8;  // Some recent window holds it (recent_windows.h).

  Digest key;
  uint64_t generation = 0;
  int64_t expires_unix_ms = 0;
  uint32_t ns = 0;
  uint32_t first_token = 0;
  uint32_t tokens = 0;
  EntryId parent = kNoEntry;
  EntryId first_child = kNoEntry;
  EntryId next_sibling = kNoEntry;
  EntryId previous_sibling = kNoEntry;
  NodeId first_copy = kNoNode;  // Hot to cold.
  uint32_t pins = 0;
  uint32_t live_until_s = 0;  // On the store's clock; a sequence that uses it is decoding.
  uint16_t shard = 0;
  uint16_t flags = 0;
  float importance = 0;
};
static_assert(sizeof(Entry) <= 104);

struct EntryName {
  uint32_t ns = 0;
  uint16_t shard = 0;
  Digest key;
};

// The importance of a block's tokens, one byte each (RankImportance); shared with the moves that use it.
using TokenRanks = std::shared_ptr<const std::vector<uint8_t>>;

class EntryTable {
 public:
  EntryTable();
  EntryTable(const EntryTable&) = delete;
  EntryTable& operator=(const EntryTable&) = delete;

  EntryId Find(const EntryName& name) const;
  // A new entry for a name that has none.
  EntryId Insert(const EntryName& name);
  // The entry must hold no copies. Its children become orphans.
  void Erase(EntryId id);
  void LinkParent(EntryId child, EntryId parent);

  NodeId AddCopy(EntryId id, uint8_t tier, CopyPtr copy, ClassPair served);
  // Returns the copy that was held.
  CopyPtr RemoveCopy(EntryId id, uint8_t tier);
  HeldCopy* FindCopy(EntryId id, uint8_t tier);
  const HeldCopy* FindCopy(EntryId id, uint8_t tier) const;
  NodeId FindCopyNode(EntryId id, uint8_t tier) const;

  // Null where nothing is known; Erase drops them.
  TokenRanks RanksOf(EntryId id) const;
  void SetRanks(EntryId id, TokenRanks ranks);

  Entry& entry(EntryId id) { return entries_[id]; }
  const Entry& entry(EntryId id) const { return entries_[id]; }
  HeldCopy& copy(NodeId id) { return copies_[id]; }
  const HeldCopy& copy(NodeId id) const { return copies_[id]; }
  // The hottest copy's tier, or kTiersMax where there is none.
  uint8_t HottestTier(EntryId id) const;

  size_t size() const { return entries_.in_use(); }
  EntryId end() const { return entries_.size(); }  // Ids are below it; unused ones included.
  size_t copies() const { return copies_.in_use(); }
  uint64_t MemoryBytes() const;
  template <typename F>
  void ForEach(F&& f) const {
    for (EntryId id = 0; id < entries_.size(); ++id) {
      if (entries_[id].flags & Entry::kUsed) f(id);
    }
  }

 private:
  struct Hash {
    using is_transparent = void;
    const EntryTable* table;
    size_t operator()(EntryId id) const;
    size_t operator()(const EntryName& name) const;
  };
  struct Equal {
    using is_transparent = void;
    const EntryTable* table;
    bool operator()(EntryId a, EntryId b) const { return a == b; }
    bool operator()(EntryId a, const EntryName& b) const;
    bool operator()(const EntryName& a, EntryId b) const { return (*this)(b, a); }
  };
  void Unlink(EntryId child);

  Slab<Entry> entries_;
  Slab<HeldCopy> copies_;
  absl::flat_hash_set<EntryId, Hash, Equal> by_name_;
  absl::flat_hash_map<EntryId, TokenRanks> ranks_;
  uint64_t rank_bytes_ = 0;
};

}  // namespace firn
