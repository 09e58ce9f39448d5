// What the cold tier keeps in memory of one stored copy: where its extents are, and how to tell that they are its.
//
// Threads: Runs and StoredBytes from any thread; the rest is guarded by the tier's mutex. Ownership: the tier refers to
// a copy from the slots of the segments that hold its extents; a forgotten copy lives on with its readers and can be
// read until its segments are reclaimed. Identity and classes are not kept: they are in the log and in the index.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "tiers/cold/layout_table.h"
#include "tiers/tier.h"

namespace firn {

class ColdCopy final : public Copy {
 public:
  struct Extent {
    uint32_t segment = 0;  // 0: none. Ids are not used twice, so a segment that is gone is simply not found.
    uint32_t slot = 0;     // In the segment's list.
  };

  ColdCopy(uint64_t its_sequence, uint64_t its_digest) : sequence(its_sequence), digest(its_digest) {}
  ~ColdCopy() override {
    if (forgotten) layout.AddHeldBytes(-static_cast<int64_t>(StoredBytes()));
  }

  RunMask Runs() const override { return RunMask(runs.load(std::memory_order_relaxed)); }
  uint64_t StoredBytes() const override {
    return uint64_t{stored_units.load(std::memory_order_relaxed)} * kExtentAlignment;
  }

  const uint64_t sequence;
  const uint64_t digest;
  LayoutRef layout;
  std::array<Extent, kRecordExtentsMax> extents{};
  std::atomic<uint32_t> stored_units{0};
  std::atomic<uint16_t> runs{0};
  bool forgotten = false;
  bool tombstoned = false;    // The log will know that it is forgotten.
  uint8_t read_failures = 0;  // In a row.
};
// With the reference counts of std::make_shared: 88 bytes. A slot of 20 bytes for each extent comes on top.
static_assert(sizeof(ColdCopy) <= 80);
using ColdCopyPtr = std::shared_ptr<ColdCopy>;

}  // namespace firn
