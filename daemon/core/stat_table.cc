#include "daemon/core/stat_table.h"

namespace firn {
namespace {

using enum StatKind;

constexpr StoreStatRow kStore[] = {
    {"blocks", kGauge, "Blocks in the index, one a shard.", &StoreStats::blocks},
    {"index_bytes", kGauge, "Memory of the index.", &StoreStats::index_bytes},
    {"recent_blocks", kGauge, "Blocks in the recent window of some sequence.", &StoreStats::recent_blocks},
    {"namespaces", kGauge, "Registered namespaces.", &StoreStats::namespaces},
    {"sessions", kGauge, "Open sessions, those of single streams included.", &StoreStats::sessions},
    {"pins", kGauge, "Pins held by sessions.", &StoreStats::pins},
    {"readers", kGauge, "Results of gets that are still held.", &StoreStats::readers},
    {"puts_in_flight", kGauge, "Puts begun and not yet committed or aborted.", &StoreStats::puts_in_flight},
    {"puts_in_flight_bytes", kGauge, "Bytes reserved by puts in flight.", &StoreStats::puts_in_flight_bytes},
    {"moves_in_flight", kGauge, "Demotions and promotions under way.", &StoreStats::moves_in_flight},
    {"puts_stored", kCounter, "Blocks stored.", &StoreStats::puts_stored},
    {"puts_existing", kCounter, "Puts of blocks that were there already.", &StoreStats::puts_existing},
    {"puts_replaced", kCounter, "Of the stored, those that replaced a coarser block.", &StoreStats::puts_replaced},
    {"puts_aborted", kCounter, "Puts that ended before their commit.", &StoreStats::puts_aborted},
    {"puts_failed", kCounter, "Puts whose commit failed.", &StoreStats::puts_failed},
    {"put_bytes", kCounter, "Source bytes of blocks stored.", &StoreStats::put_bytes},
    {"gets", kCounter, "Gets asked: hits and misses.", &StoreStats::gets},
    {"get_bytes", kCounter, "Encoded bytes of blocks handed to readers.", &StoreStats::get_bytes},
    {"lookups", kCounter, "Keys asked about by Lookup and Exists; not gets.", &StoreStats::lookups},
    {"lookup_hits", kCounter, "Of these, keys that were there.", &StoreStats::lookup_hits},
    {"prefetches", kCounter, "Blocks asked for by Prefetch; not gets.", &StoreStats::prefetches},
    {"deletes", kCounter, "Blocks removed by Delete.", &StoreStats::deletes},
    {"expired", kCounter, "Blocks removed because their time to live had passed.", &StoreStats::expired},
    {"removed", kCounter, "Blocks that left the index for any reason.", &StoreStats::removed},
    {"nonfinite_blocks", kCounter, "Blocks with NaN or Inf, kept at source precision.", &StoreStats::nonfinite_blocks},
    {"served_degraded", kCounter, "Gets served coarser than stored because a plane was damaged.",
     &StoreStats::served_degraded},
    {"error_gate_stops", kCounter, "Demotions that stopped finer for a floor or an error limit.",
     &StoreStats::error_gate_stops},
    {"shutdown_dropped", kCounter, "Blocks dropped because the shutdown budget was spent.",
     &StoreStats::shutdown_dropped},
    {"exact_token_bytes", kCounter, "Bytes of leading tokens written exact beside codes.",
     &StoreStats::exact_token_bytes},
    {"events_lost", kCounter, "Events overwritten in the ring of the latest, whether or not a watcher had read them.",
     &StoreStats::events_lost},
};

constexpr TierStatRow kTier[] = {
    {"capacity_bytes", kGauge, "Capacity.", [](const TierStats& t) { return t.usage.capacity_bytes; }},
    {"used_bytes", kGauge, "Bytes taken: copies, drafts and overhead.",
     [](const TierStats& t) { return t.usage.used_bytes; }},
    {"overhead_bytes", kGauge, "Of the bytes taken, the medium's own.",
     [](const TierStats& t) { return t.usage.overhead_bytes; }},
    {"draft_bytes", kGauge, "Of the bytes taken, reserved and not committed.",
     [](const TierStats& t) { return t.usage.draft_bytes; }},
    {"held_bytes", kGauge, "Of the bytes taken, removed blocks that readers still hold.",
     [](const TierStats& t) { return t.usage.held_bytes; }},
    {"copies", kGauge, "Copies stored.", [](const TierStats& t) { return t.usage.copies; }},
    {"hits", kCounter, "Gets served from here.", [](const TierStats& t) { return t.hits; }},
    {"demotions_in", kCounter, "Blocks that arrived from a hotter tier.",
     [](const TierStats& t) { return t.demotions_in; }},
    {"demotion_failures", kCounter, "Demotions into this tier that failed.",
     [](const TierStats& t) { return t.demotion_failures; }},
    {"promotions_in", kCounter, "Blocks that arrived from a colder tier.",
     [](const TierStats& t) { return t.promotions_in; }},
    {"degrades", kCounter, "Copies whose precision was lowered here.", [](const TierStats& t) { return t.degrades; }},
    {"degraded_bytes", kCounter, "Bytes given back by degrading.", [](const TierStats& t) { return t.degraded_bytes; }},
    {"evictions", kCounter, "Copies dropped to make room.", [](const TierStats& t) { return t.evictions; }},
    {"evictor_found_nothing", kCounter, "Times that nothing could be dropped.",
     [](const TierStats& t) { return t.evictor_found_nothing; }},
    {"recent_broken", kCounter, "Copies that lost their recent window for want of room.",
     [](const TierStats& t) { return t.recent_broken; }},
    {"reserves", kCounter, "Reservations of space.", [](const TierStats& t) { return t.counters.reserves; }},
    {"reserve_failures", kCounter, "Reservations that found no room.",
     [](const TierStats& t) { return t.counters.reserve_failures; }},
    {"commits", kCounter, "Copies written.", [](const TierStats& t) { return t.counters.commits; }},
    {"commit_failures", kCounter, "Copies that could not be written.",
     [](const TierStats& t) { return t.counters.commit_failures; }},
    {"committed_bytes", kCounter, "Bytes of copies written.",
     [](const TierStats& t) { return t.counters.committed_bytes; }},
    {"reads", kCounter, "Copies read.", [](const TierStats& t) { return t.counters.reads; }},
    {"read_failures", kCounter, "Copies that could not be read.",
     [](const TierStats& t) { return t.counters.read_failures; }},
    {"read_bytes", kCounter, "Bytes of copies read.", [](const TierStats& t) { return t.counters.read_bytes; }},
    {"narrows", kCounter, "Copies narrowed in place.", [](const TierStats& t) { return t.counters.narrows; }},
    {"narrowed_bytes", kCounter, "Bytes given back by narrowing.",
     [](const TierStats& t) { return t.counters.narrowed_bytes; }},
};

}  // namespace

std::span<const StoreStatRow> StoreStatTable() { return kStore; }
std::span<const TierStatRow> TierStatTable() { return kTier; }

}  // namespace firn
