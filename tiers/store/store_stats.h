// A snapshot of everything the store counts. Each counter is counted where the thing happens and nowhere else; metrics,
// Stats and `firn verify` all read this.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "codecs/types.h"
#include "tiers/tier.h"

namespace firn {

enum class MissReason : uint8_t {
  kUnknown = 0,  // Never stored, or removed.
  kExpired = 1,
  kPrecision = 2,   // There, but coarser than asked for.
  kDamaged = 3,     // A checksum failed.
  kReadFailed = 4,  // The medium failed or ran out of time.
  kShard = 5,       // Not every shard is there.
};
inline constexpr size_t kMissReasons = 6;
std::string_view MissReasonName(MissReason reason);

struct TierStats {
  std::string name;
  TierUsage usage;
  TierCounters counters;
  uint64_t hits = 0;          // Gets served from here.
  uint64_t demotions_in = 0;  // Blocks that arrived from a hotter tier.
  uint64_t demotion_failures = 0;
  uint64_t promotions_in = 0;
  uint64_t degrades = 0;
  uint64_t degraded_bytes = 0;  // Given back by degrading.
  uint64_t evictions = 0;       // Copies dropped to make room.
  uint64_t evictor_found_nothing = 0;
  uint64_t recent_broken = 0;     // Copies that lost their recent window for want of room.
  uint64_t damaged_reads = 0;     // Reads for gets and moves whose checksums failed.
  uint64_t mended = 0;            // Damaged copies written anew, whole: by error correction or from other copies.
  uint64_t damage_degraded = 0;   // Damaged copies that lost planes.
  uint64_t damage_withdrawn = 0;  // Damaged copies let go.
  uint64_t scrubbed_copies = 0, scrubbed_bytes = 0, scrub_findings = 0;
  LatencySnapshot demotion_latency;   // Of the demotions that arrived, from their start.
  uint64_t blocks_by_class[17] = {};  // Indexed by PrecisionClass of the coarser of K and V.
};

// What one pass over everything found.
struct ScrubReport {
  uint64_t copies = 0, bytes = 0;
  uint64_t mended = 0;     // Damaged, and written anew whole.
  uint64_t degraded = 0;   // Lost planes that nothing gave back.
  uint64_t withdrawn = 0;  // Let go.
  uint64_t unread = 0;     // The medium would not give them, or not take them anew; left as they are.
  int64_t milliseconds = 0;
};

struct StoreStats {
  std::vector<TierStats> tiers;
  uint64_t blocks = 0;  // Index entries, one a shard.
  uint64_t index_bytes = 0;
  uint64_t recent_blocks = 0;  // In the recent window of some sequence.
  uint64_t namespaces = 0;
  uint64_t sessions = 0;
  uint64_t pins = 0;
  uint64_t readers = 0;  // GetResults alive.
  uint64_t puts_in_flight = 0;
  uint64_t puts_in_flight_bytes = 0;
  uint64_t moves_in_flight = 0;
  uint64_t puts_stored = 0;
  uint64_t puts_existing = 0;
  uint64_t puts_replaced = 0;  // Of the stored, those that replaced a coarser block.
  uint64_t puts_aborted = 0;
  uint64_t puts_failed = 0;
  uint64_t put_bytes = 0;
  uint64_t gets = 0;
  uint64_t get_bytes = 0;
  std::array<uint64_t, kMissReasons> misses{};
  uint64_t lookups = 0;  // Keys asked about by Locate.
  uint64_t lookup_hits = 0;
  uint64_t prefetches = 0;
  uint64_t deletes = 0;
  uint64_t expired = 0;
  uint64_t removed = 0;           // Blocks that left the index for any reason.
  uint64_t nonfinite_blocks = 0;  // Puts with NaN or Inf, kept at source precision.
  uint64_t served_degraded = 0;   // Gets served below the copy's class because a plane was damaged.
  uint64_t error_gate_stops = 0;  // Demotions stopped by max_relative_error or a floor.
  uint64_t shutdown_dropped = 0;
  uint64_t exact_token_bytes = 0;  // Bytes of tokens that moves wrote exact beside codes.
  uint64_t events_lost = 0;
  uint64_t heals_in_flight = 0;  // Copies being verified or healed.
  uint64_t scrub_passes = 0;     // Ended ones.
  uint64_t scrub_running = 0;    // 1 while a pass runs.
  uint64_t scrub_permille = 0;   // How far that one has come.
};

}  // namespace firn
