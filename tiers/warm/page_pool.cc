#include "tiers/warm/page_pool.h"

#include <bit>
#include <limits>

#include "base/check.h"
#include "base/status.h"

namespace firn {

PagePool::PagePool(uint64_t pages_max) {
  FIRN_CHECK(pages_max <= std::numeric_limits<uint32_t>::max());
  // Address space only; growing in place keeps a large pool from being copied under the lock.
  pages_.reserve(pages_max);
  free_.reserve(pages_max);
}

void PagePool::Grow(uint64_t pages, bool zeroed) {
  uint64_t first = pages_.size();
  FIRN_CHECK(first + pages <= pages_.capacity());
  Page fresh;
  fresh.tag = zeroed ? kZeroTag : kMixedTag;
  pages_.resize(first + pages, fresh);
  for (uint64_t i = first + pages; i > first; --i) free_.push_back(static_cast<uint32_t>(i - 1));
}

std::optional<PagePool::Taken> PagePool::TakePage(uint64_t tag) {
  if (free_.empty()) return std::nullopt;
  uint32_t index = free_.back();
  free_.pop_back();
  Page& page = pages_[index];
  FIRN_CHECK(page.state == State::kFree);
  page.state = State::kWhole;
  bool dirty = page.tag != kZeroTag && (tag == 0 || page.tag != tag);
  page.tag = tag == 0 ? kMixedTag : tag;
  return Taken{index * kArenaPageBytes, dirty};
}

void PagePool::FreePage(uint64_t offset) {
  FIRN_CHECK(IsTakenPage(offset));
  auto index = static_cast<uint32_t>(offset / kArenaPageBytes);
  pages_[index].state = State::kFree;
  free_.push_back(index);
}

void PagePool::TagPage(uint64_t offset, uint64_t tag) {
  FIRN_CHECK(IsTakenPage(offset));
  pages_[offset / kArenaPageBytes].tag = tag;
}

bool PagePool::IsTakenPage(uint64_t offset) const {
  uint64_t index = offset / kArenaPageBytes;
  return offset % kArenaPageBytes == 0 && index < pages_.size() && pages_[index].state == State::kWhole;
}

bool PagePool::IsTakenSlot(uint64_t offset, uint32_t slot_class) const {
  uint64_t index = offset / kArenaPageBytes;
  if (index >= pages_.size() || pages_[index].state != State::kSlotted) return false;
  const Slab& slab = slabs_[pages_[index].slab];
  uint64_t slot = offset % kArenaPageBytes / SlotBytes(slab.slot_class);
  if (slab.slot_class != slot_class || offset % kArenaPageBytes % SlotBytes(slot_class) != 0) return false;
  return slot < SlotsPerPage(slot_class) && (slab.taken[slot / 64] >> (slot % 64) & 1) != 0;
}

void PagePool::Open(uint32_t slab_index) {
  Slab& slab = slabs_[slab_index];
  slab.place = static_cast<uint32_t>(open_[slab.slot_class].size());
  open_[slab.slot_class].push_back(slab_index);
}

void PagePool::Close(uint32_t slab_index) {
  Slab& slab = slabs_[slab_index];
  std::vector<uint32_t>& open = open_[slab.slot_class];
  open[slab.place] = open.back();
  slabs_[open.back()].place = slab.place;
  open.pop_back();
  slab.place = kNotOpen;
}

// A slab with a free slot; null when that needs a page and there is none.
PagePool::Slab* PagePool::OpenSlab(uint32_t slot_class) {
  if (!open_[slot_class].empty()) return &slabs_[open_[slot_class].back()];
  if (free_.empty()) return nullptr;
  uint32_t page_index = free_.back();
  free_.pop_back();
  uint32_t slab_index;
  if (unused_slabs_.empty()) {
    slab_index = static_cast<uint32_t>(slabs_.size());
    slabs_.emplace_back();
  } else {
    slab_index = unused_slabs_.back();
    unused_slabs_.pop_back();
    slabs_[slab_index] = {};
  }
  Page& page = pages_[page_index];
  FIRN_CHECK(page.state == State::kFree);
  page = {.tag = kMixedTag, .slab = slab_index, .state = State::kSlotted};
  slabs_[slab_index].page = page_index;
  slabs_[slab_index].slot_class = slot_class;
  Open(slab_index);
  ++slotted_pages_;
  return &slabs_[slab_index];
}

std::optional<PagePool::Taken> PagePool::TakeSlot(uint32_t slot_class) {
  Slab* slab = OpenSlab(slot_class);
  if (slab == nullptr) return std::nullopt;
  uint32_t slots = SlotsPerPage(slot_class), slot = 0;
  for (uint32_t word = 0;; ++word) {
    FIRN_CHECK(word * 64 < slots);
    if (slab->taken[word] == ~uint64_t{0}) continue;
    slot = word * 64 + static_cast<uint32_t>(std::countr_one(slab->taken[word]));
    break;
  }
  FIRN_CHECK(slot < slots);
  slab->taken[slot / 64] |= uint64_t{1} << (slot % 64);
  if (++slab->used == slots) Close(pages_[slab->page].slab);
  return Taken{slab->page * kArenaPageBytes + uint64_t{slot} * SlotBytes(slot_class), true};
}

void PagePool::FreeSlot(uint64_t offset, uint32_t slot_class) {
  FIRN_CHECK(IsTakenSlot(offset, slot_class));
  Page& page = pages_[offset / kArenaPageBytes];
  Slab& slab = slabs_[page.slab];
  uint64_t slot = offset % kArenaPageBytes / SlotBytes(slot_class);
  slab.taken[slot / 64] &= ~(uint64_t{1} << (slot % 64));
  if (slab.place == kNotOpen) Open(page.slab);
  if (--slab.used > 0) return;
  Close(page.slab);
  unused_slabs_.push_back(page.slab);
  page.state = State::kFree;
  free_.push_back(static_cast<uint32_t>(offset / kArenaPageBytes));
  --slotted_pages_;
}

absl::Status PagePool::Audit(uint64_t taken_pages, uint64_t taken_slots) const {
  std::vector<bool> in_free(pages_.size(), false);
  for (uint32_t index : free_) {
    if (index >= pages_.size()) return InternalError("free list: page {} of {}", index, pages_.size());
    if (in_free[index]) return InternalError("free list: page {} is there twice", index);
    in_free[index] = true;
  }
  uint64_t whole = 0, slotted = 0, slots = 0;
  for (uint64_t i = 0; i < pages_.size(); ++i) {
    if (in_free[i] != (pages_[i].state == State::kFree)) return InternalError("page {}: state and free list differ", i);
    if (pages_[i].state == State::kWhole) ++whole;
    if (pages_[i].state != State::kSlotted) continue;
    ++slotted;
    const Slab& slab = slabs_[pages_[i].slab];
    uint32_t used = 0;
    for (uint64_t word : slab.taken) used += static_cast<uint32_t>(std::popcount(word));
    if (slab.page != i || slab.used != used || used == 0) return InternalError("page {}: its slots are miscounted", i);
    bool full = used == SlotsPerPage(slab.slot_class);
    if (full != (slab.place == kNotOpen))
      return InternalError("page {}: a full slab is open or a part-full one is not", i);
    slots += used;
  }
  if (whole != taken_pages || slots != taken_slots || slotted != slotted_pages_) {
    return InternalError("{} pages and {} slots are taken, {} and {} are owned; {} slotted pages, {} counted", whole,
                         slots, taken_pages, taken_slots, slotted, slotted_pages_);
  }
  return absl::OkStatus();
}

}  // namespace firn
