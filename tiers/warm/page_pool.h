// Which pages and slots of an arena are free: bookkeeping of offsets, without touching the memory.
//
// Pages of 64 KiB are handed out whole or cut into equal slots. Freeing what is not taken ends the process: a double
// free is how two blocks come to share bytes. Threads: none of its own; the arena's lock guards it. Limits: 2^32 - 1
// pages.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tiers/warm/size_classes.h"

namespace firn {

class PagePool {
 public:
  explicit PagePool(uint64_t pages_max);

  // Appends pages to the pool. `zeroed`: they read as zeros.
  void Grow(uint64_t pages, bool zeroed);

  struct Taken {
    uint64_t offset = 0;
    bool dirty = false;  // Holds bytes of another namespace than `tag`, or of an unknown one.
  };
  // Nothing when there is no room. `tag` (NamespaceTag, 0 where unknown) says who will write there.
  std::optional<Taken> TakePage(uint64_t tag);
  // Slots are always dirty: they are small, and neighbours of other namespaces.
  std::optional<Taken> TakeSlot(uint32_t slot_class);
  void FreePage(uint64_t offset);
  void FreeSlot(uint64_t offset, uint32_t slot_class);
  // Says who wrote a taken page, once that is known for sure.
  void TagPage(uint64_t offset, uint64_t tag);

  uint64_t pages() const { return pages_.size(); }
  uint64_t free_pages() const { return free_.size(); }
  uint64_t slotted_pages() const { return slotted_pages_; }
  bool IsTakenPage(uint64_t offset) const;
  bool IsTakenSlot(uint64_t offset, uint32_t slot_class) const;
  // Recounts free lists, states and slots; `taken_pages` and `taken_slots` are what the arena believes to own.
  absl::Status Audit(uint64_t taken_pages, uint64_t taken_slots) const;

 private:
  enum class State : uint8_t { kFree, kWhole, kSlotted };
  static constexpr uint64_t kZeroTag = 0;   // Reads as zeros.
  static constexpr uint64_t kMixedTag = 2;  // Of several namespaces or an unknown one; NamespaceTag is odd.
  struct Page {
    uint64_t tag = kZeroTag;
    uint32_t slab = 0;  // Index into slabs_ where kSlotted.
    State state = State::kFree;
  };
  // A page cut into slots.
  struct Slab {
    std::array<uint64_t, kArenaPageBytes / kSlotUnitBytes / 64> taken{};
    uint32_t page = 0;
    uint32_t used = 0;
    uint32_t place = 0;  // Index into open_[slot_class], kNotOpen when full.
    uint32_t slot_class = 0;
  };
  static constexpr uint32_t kNotOpen = ~0u;

  Slab* OpenSlab(uint32_t slot_class);
  void Open(uint32_t slab_index);
  void Close(uint32_t slab_index);

  std::vector<Page> pages_;
  std::vector<uint32_t> free_;  // Taken from the back: a fresh pool hands out neighbours in rising order.
  std::deque<Slab> slabs_;      // Never moved: growing must not copy under the lock.
  std::vector<uint32_t> unused_slabs_;
  std::array<std::vector<uint32_t>, kSlotClassesMax> open_;  // By class: slabs with a free slot.
  uint64_t slotted_pages_ = 0;
};

}  // namespace firn
