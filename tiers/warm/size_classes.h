// How a run's bytes are cut into chunks: whole pages of 64 KiB, and slots of smaller sizes for what is left.
//
// A pure function of the length, so that nobody needs to remember a run's cut. A slot class divides a page into equal
// slots; below 8 KiB the classes step by about an eighth, and a longer tail takes two slots where that saves an eighth.
// The mean waste over all tails is 5 %, the worst a fifth.
// Units: bytes. Every chunk is a multiple of 64, and so is every chunk's place.
#pragma once

#include <array>
#include <cstdint>

namespace firn {

inline constexpr uint64_t kArenaPageBytes = 64 * 1024;
inline constexpr uint64_t kSlotUnitBytes = 64;
inline constexpr uint32_t kSlotClassesMax = 64;

// Classes are numbered from the largest slots (half a page) to the smallest (64 bytes).
uint32_t SlotClassCount();
uint32_t SlotBytes(uint32_t slot_class);
uint32_t SlotsPerPage(uint32_t slot_class);

// Pages first, then `slot_count` slots in falling size. A run of no bytes has no chunks.
struct ChunkPlan {
  uint32_t pages = 0;
  uint32_t slot_count = 0;
  std::array<uint8_t, 2> slots{};  // Classes.
  bool operator==(const ChunkPlan&) const = default;
  uint32_t chunks() const { return pages + slot_count; }
  uint64_t bytes() const;  // Taken of the arena.
  // The length of chunk i, of which the last may hold less than it has room for.
  uint64_t chunk_bytes(uint32_t i) const { return i < pages ? kArenaPageBytes : SlotBytes(slots[i - pages]); }
};
ChunkPlan PlanChunks(uint64_t bytes);

}  // namespace firn
