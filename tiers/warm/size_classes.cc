#include "tiers/warm/size_classes.h"

#include "base/check.h"

namespace firn {
namespace {

struct ClassTable {
  std::array<uint32_t, kSlotClassesMax> bytes{};
  uint32_t count = 0;
};

// The sizes that cut a page into n equal slots with nothing to spare, of which those stay that are a twelfth apart.
constexpr ClassTable MakeTable() {
  ClassTable table;
  for (uint32_t n = 2; n <= kArenaPageBytes / kSlotUnitBytes; ++n) {
    uint32_t bytes = static_cast<uint32_t>(kArenaPageBytes / n / kSlotUnitBytes * kSlotUnitBytes);
    uint32_t last = table.count == 0 ? 2 * bytes : table.bytes[table.count - 1];
    if (bytes * 12 <= last * 11) table.bytes[table.count++] = bytes;
  }
  return table;
}
constexpr ClassTable kTable = MakeTable();
static_assert(kTable.bytes[0] == kArenaPageBytes / 2 && kTable.bytes[kTable.count - 1] == kSlotUnitBytes);

// The class with the smallest slots of at least `bytes`.
uint8_t ClassFor(uint64_t bytes) {
  uint32_t low = 0, high = kTable.count - 1;
  while (low < high) {
    uint32_t middle = (low + high + 1) / 2;
    if (kTable.bytes[middle] >= bytes) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return static_cast<uint8_t>(low);
}

}  // namespace

uint32_t SlotClassCount() { return kTable.count; }

uint32_t SlotBytes(uint32_t slot_class) {
  FIRN_DCHECK(slot_class < kTable.count);
  return kTable.bytes[slot_class];
}

uint32_t SlotsPerPage(uint32_t slot_class) { return static_cast<uint32_t>(kArenaPageBytes / SlotBytes(slot_class)); }

uint64_t ChunkPlan::bytes() const {
  uint64_t total = pages * kArenaPageBytes;
  for (uint32_t i = 0; i < slot_count; ++i) total += SlotBytes(slots[i]);
  return total;
}

ChunkPlan PlanChunks(uint64_t bytes) {
  ChunkPlan plan;
  plan.pages = static_cast<uint32_t>(bytes / kArenaPageBytes);
  uint64_t tail = bytes % kArenaPageBytes;
  if (tail == 0) return plan;
  bool fits_slot = tail <= SlotBytes(0);
  uint64_t best_bytes = fits_slot ? SlotBytes(ClassFor(tail)) : kArenaPageBytes;
  // Another chunk is another span for every reader, so it must save an eighth.
  uint64_t worth_bytes = best_bytes / 8 * 7;
  for (uint32_t first = 0; first < kTable.count && best_bytes > kArenaPageBytes / 8; ++first) {
    uint64_t slot = SlotBytes(first);
    if (slot >= tail) continue;
    if (tail - slot > slot) break;
    uint8_t second = ClassFor(tail - slot);
    uint64_t both = slot + SlotBytes(second);
    if (both > worth_bytes || both >= best_bytes) continue;
    best_bytes = both;
    plan.slot_count = 2;
    plan.slots = {static_cast<uint8_t>(first), second};
  }
  if (plan.slot_count == 2) return plan;
  if (fits_slot) {
    plan.slot_count = 1;
    plan.slots[0] = ClassFor(tail);
  } else {
    ++plan.pages;
  }
  return plan;
}

}  // namespace firn
