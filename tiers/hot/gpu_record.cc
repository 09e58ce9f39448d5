// Extents of records in a GPU's pool: who uses them, and what is counted of that.
#include "tiers/hot/gpu_tier_internal.h"

namespace firn {

bool GpuTier::Record::TakeExtents(const RecordLayout& layout, uint64_t limit_bytes) {
  std::lock_guard lock(pool->mu);
  ++pool->records;
  uint64_t needed = 0;
  for (uint64_t bytes : layout.run_bytes) needed += ExtentBytes(bytes);
  uint64_t used = pool->extents.bytes() - pool->extents.free_bytes();
  if (used + needed > limit_bytes) return false;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (layout.run_bytes[i] == 0) continue;
    auto offset = pool->extents.Take(layout.run_bytes[i]);
    if (!offset.has_value()) {
      for (Run& run : runs) {
        if (run.bytes > 0) Free(&run);
      }
      return false;
    }
    runs[i].offset = *offset;
    runs[i].bytes = layout.run_bytes[i];
    pool->draft_bytes += ExtentBytes(runs[i].bytes);
  }
  return true;
}

void GpuTier::Record::Publish(RunMask mask) {
  std::lock_guard lock(pool->mu);
  ++pool->copies;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (!mask.Has(i)) continue;
    runs[i].copies = runs[i].indexed = 1;
    pool->draft_bytes -= ExtentBytes(runs[i].bytes);
  }
  draft = false;
}

void GpuTier::Record::Share(RunMask mask) {
  std::lock_guard lock(pool->mu);
  ++pool->copies;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (!mask.Has(i)) continue;
    if (runs[i].held()) pool->held_bytes -= ExtentBytes(runs[i].bytes);
    ++runs[i].copies;
    ++runs[i].indexed;
  }
}

void GpuTier::Record::Unindex(RunMask mask) {
  std::lock_guard lock(pool->mu);
  --pool->copies;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (!mask.Has(i)) continue;
    FIRN_CHECK(runs[i].indexed > 0);
    --runs[i].indexed;
    if (runs[i].held()) pool->held_bytes += ExtentBytes(runs[i].bytes);
  }
}

void GpuTier::Record::Release(RunMask mask, bool indexed) {
  std::lock_guard lock(pool->mu);
  if (indexed) --pool->copies;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (!mask.Has(i)) continue;
    Run& run = runs[i];
    FIRN_CHECK(run.copies > 0);
    if (run.held()) pool->held_bytes -= ExtentBytes(run.bytes);
    --run.copies;
    if (indexed) --run.indexed;
    if (run.held()) pool->held_bytes += ExtentBytes(run.bytes);
    if (run.copies == 0 && run.bytes > 0) Free(&run);
  }
}

}  // namespace firn
