// How a cold tier is configured, and how it says that it is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"
#include "base/executor.h"
#include "codecs/ecc/ecc.h"
#include "tiers/cold/device/device.h"
#include "tiers/cold_events.h"

namespace firn {

inline constexpr uint64_t kPoolBytesMax = uint64_t{64} << 20;
// Each of the two pools of a tier of this capacity.
inline uint64_t PoolBytesFor(uint64_t capacity_bytes) {
  return std::clamp(capacity_bytes / 8, uint64_t{8} << 20, kPoolBytesMax);
}

struct ColdOptions {
  std::string name = "cold";
  uint64_t capacity_bytes = 0;  // Of the whole directory, as `du` counts it: segments, index and all.
  uint64_t segment_bytes = uint64_t{64} << 20;
  uint64_t split_plane_bytes = uint64_t{64}
                               << 10;  // Planes of K and V together from this size on go to streams of their own.
  // Drafts and writes in flight, and what reads may hold: memory that stays taken. A larger record goes through memory
  // of its own, one at a time.
  uint64_t staging_bytes = kPoolBytesMax;
  uint64_t read_bytes = kPoolBytesMax;
  uint64_t chunk_bytes = uint64_t{512} << 10;
  double free_fraction = 0.05;          // Of the capacity, kept free by reclaiming.
  double relocate_fraction = 0.25;      // Of a reclaimed segment, rewritten at most.
  uint64_t write_bytes_per_second = 0;  // Admission; 0: unlimited.
  int64_t probe_interval_ms = 5000;     // How often a full or failed medium is tried again.
  uint32_t waiting_reads_max = 4096;
  Executor* executor = nullptr;  // Not owned; its threads may block in file calls. Outlives the tier.
  const Clock* clock = nullptr;  // Not owned.
  EccPolicy ecc = {};            // Of records written from now on.
  NoticeSink notice;
};

enum class ColdState : uint8_t {
  kOk = 0,
  kDegraded = 1,  // Works, but something is wrong: the index is behind, or a write failed.
  kReadOnly = 2,  // The medium is full or refuses writes; it is tried again by itself.
  kFailed = 3,    // Writes end in errors; it is tried again by itself.
};

struct ColdHealth {
  ColdState state = ColdState::kOk;
  std::string reason;
};

struct ColdCounters {
  uint64_t reclaimed_segments = 0, reclaimed_bytes = 0, relocated_records = 0, relocated_bytes = 0;
  uint64_t degraded_records = 0, dropped_records = 0;  // By reclaiming.
  uint64_t lost_records = 0, lost_runs = 0;            // Damaged or missing, found when read or at start.
  uint64_t read_retries = 0, write_errors = 0, probes = 0, admission_refusals = 0;
};

// What is found at start. Called on the thread that opens the tier.
struct ColdRecovery {
  std::function<void(RecoveredCopy)> on_copy;
  std::function<void(RecoveredFact)> on_fact;
};

struct ColdRecoveryReport {
  uint64_t copies = 0, facts = 0, segments = 0;
  uint64_t replayed_extents = 0;  // Found in segments that the index did not know whole.
  uint64_t torn_extents = 0;      // Found, and not whole: never acknowledged.
  uint64_t mended_extents = 0;    // Found, and whole with error correction.
  uint64_t duplicates = 0;        // Older copies of a block that were forgotten.
  uint64_t missing_extents = 0;   // The index knew them, the log has them no more.
  bool rebuilt = false;           // The index was empty and made anew.
};

}  // namespace firn
