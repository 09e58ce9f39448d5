// Making room: planes of the coldest blocks first, then the coldest blocks themselves, one tier down or out; blocks in
// recent windows only where nothing else is left.
//
// Pump looks at every tier, coldest first, so that room below exists before the tier above needs it. It runs after
// anything that took or gave room, and from Tick.
#include <algorithm>
#include <utility>

#include "base/status.h"
#include "tiers/store/store_impl.h"

namespace firn {
namespace {

constexpr size_t kDegradesABatch = 64;
constexpr uint32_t kEvictionsABatch = 64;
constexpr uint32_t kRoundsMax = 8;        // Of breaking windows in one pump of a tier.
constexpr uint32_t kDescentMax = 1024;    // Blocks looked at on the way down a chain,
constexpr uint32_t kDescentsMax = 64;     // and chains.
constexpr uint32_t kExpiredATick = 4096;  // Blocks whose windows end.
// An importance hint spares a block once and is worth less each time.
constexpr float kImportanceDecay = 0.5f;
constexpr float kImportanceSpares = 0.25f;

}  // namespace

uint64_t StoreImpl::WantedBytesLocked(uint8_t tier, double mark) const {
  const TierConfig& config = options_.tiers[tier];
  const TierUsage usage = config.tier->Usage();
  auto share = [&](double of) { return static_cast<uint64_t>(of * static_cast<double>(usage.capacity_bytes)); };
  uint64_t wanted = usage.used_bytes > share(config.high_watermark) ? usage.used_bytes - share(mark) : 0;
  uint64_t demand = tiers_[tier].demand_bytes;
  uint64_t waiting = 0;
  for (const RoomWaiter& waiter : room_waiters_) {
    if (EntryTier(waiter.bytes, 0) == tier) waiting += waiter.bytes;
  }
  demand = std::max(demand, waiting);
  demand = std::min(demand, usage.capacity_bytes);
  uint64_t free = usage.capacity_bytes - std::min(usage.used_bytes, usage.capacity_bytes);
  if (demand > free) wanted = std::max(wanted, demand - free);
  uint64_t leaving = tiers_[tier].leaving_bytes;
  return wanted > leaving ? wanted - leaving : 0;
}

void StoreImpl::RaiseDemandLocked(uint8_t tier, uint64_t bytes) {
  TierUsage usage = options_.tiers[tier].tier->Usage();
  uint64_t free = usage.capacity_bytes - std::min(usage.used_bytes, usage.capacity_bytes);
  // Beyond what looks free: those bytes did not serve, being of other sizes.
  uint64_t demand = std::min(usage.capacity_bytes, free + bytes);
  tiers_[tier].demand_bytes = std::max(tiers_[tier].demand_bytes, demand);
}

bool StoreImpl::HeldHereLocked(EntryId id) const {
  const Entry& e = table_.entry(id);
  if (e.pins > 0 || (e.flags & Entry::kMoving)) return true;
  return e.live_until_s != 0 && e.live_until_s > NowSeconds();
}

bool StoreImpl::ProtectedLocked(EntryId id, uint8_t tier, Children children) const {
  if (HeldHereLocked(id)) return true;
  EntryId child = children == Children::kNone ? kNoEntry : table_.entry(id).first_child;
  for (; child != kNoEntry; child = table_.entry(child).next_sibling) {
    if (children == Children::kStaying && (table_.entry(child).flags & (Entry::kRecent | Entry::kMoving))) continue;
    if (table_.HottestTier(child) <= tier) return true;
  }
  return false;
}

std::optional<RunMask> StoreImpl::DegradeStepLocked(const Entry& e, uint8_t tier, const CopyPtr& copy) const {
  const TierConfig& config = options_.tiers[tier];
  if (!config.tier->narrows_in_place()) return std::nullopt;
  RunMask runs = copy->Runs();
  ClassPair floor = Finer(namespaces_[e.ns].plan.floor, config.least);
  if (config.least.Min() == PrecisionClass::kNone && config.precision.Min() == PrecisionClass::kExact) {
    // A tier of exact blocks that was given no lower bound does not degrade the codes that were promoted into it.
    return std::nullopt;
  }
  // One plane a step, K and V together, so that every block loses p8 before any loses p4.
  for (RunKind kind : {RunKind::kP8, RunKind::kP4}) {
    PrecisionClass left = kind == RunKind::kP8 ? PrecisionClass::k4Bit : PrecisionClass::k2Bit;
    RunMask dropped;
    for (Part part : kParts) {
      PrecisionClass least = part == Part::kK ? floor.k : floor.v;
      if (runs.Has(kind, part) && least <= left) dropped |= RunMask::Of(kind, part);
    }
    if (!dropped.Empty()) return runs - dropped;
  }
  return std::nullopt;
}

uint64_t StoreImpl::DegradeColdestLocked(uint8_t tier, uint64_t wanted, Aftermath* after) {
  uint64_t freed = 0;
  while (freed < wanted) {
    std::vector<NodeId> victims;
    policy_->Coldest(
        tier, NodeKind::kDegradable, kDegradesABatch,
        [&](NodeId node) {
          const Entry& e = table_.entry(table_.copy(node).entry);
          bool spared = e.pins > 0 || (e.flags & Entry::kMoving);
          return spared ? Verdict::kSkip : Verdict::kTake;
        },
        &victims);
    if (victims.empty()) break;
    bool any = false;
    for (NodeId node : victims) {
      if (freed >= wanted) return freed;
      EntryId id = table_.copy(node).entry;
      const CopyPtr copy = table_.copy(node).copy;
      auto keep = DegradeStepLocked(table_.entry(id), tier, copy);
      if (!keep.has_value()) {  // Its namespace's floor was raised since it was filed.
        policy_->ChangeKind(node, NodeKind::kNarrow);
        any = true;
        continue;
      }
      uint64_t before = copy->StoredBytes();
      if (NarrowLocked(id, tier, *keep, after).ok()) {
        freed += before - table_.copy(node).copy->StoredBytes();
        any = true;
      } else {
        // An error limit stops it: as narrow as it may get.
        policy_->ChangeKind(node, NodeKind::kNarrow);
      }
    }
    if (!any) break;
  }
  return freed;
}

std::optional<uint8_t> StoreImpl::DemotionTargetLocked(uint8_t from, uint64_t bytes) const {
  for (size_t tier = from + 1u; tier < options_.tiers.size(); ++tier) {
    const Tier& medium = *options_.tiers[tier].tier;
    if (medium.available() && medium.Usage().capacity_bytes >= bytes) return static_cast<uint8_t>(tier);
  }
  return std::nullopt;
}

NodeId StoreImpl::ColdestLocked(uint8_t tier, absl::FunctionRef<Verdict(NodeId)> judge) const {
  std::vector<NodeId> coldest;
  for (NodeKind kind : {NodeKind::kNarrow, NodeKind::kDegradable}) {
    if (coldest.empty()) policy_->Coldest(tier, kind, 1, judge, &coldest);
  }
  return coldest.empty() ? kNoNode : coldest[0];
}

NodeId StoreImpl::ColdestToMoveLocked(uint8_t tier, Children children, bool* spared) {
  return ColdestLocked(tier, [&](NodeId node) {
    EntryId id = table_.copy(node).entry;
    if (ProtectedLocked(id, tier, children)) return Verdict::kSkip;
    Entry& e = table_.entry(id);
    if (e.importance <= kImportanceSpares) return Verdict::kTake;
    e.importance *= kImportanceDecay;
    *spared = true;
    return Verdict::kSkip;
  });
}

StoreImpl::Taken StoreImpl::DemoteColdestLocked(uint8_t tier, uint64_t wanted, Aftermath* after) {
  Taken taken;
  // Where nothing is colder, moving is losing.
  const bool lost = !DemotionTargetLocked(tier, 1).has_value();
  while (taken.bytes < wanted && moves_in_flight_ < options_.moves_in_flight_max) {
    bool spared = false;
    NodeId victim = ColdestToMoveLocked(tier, lost ? Children::kAll : Children::kStaying, &spared);
    // What is on its way out may be all that is needed, and its parents may follow it.
    const bool waits = spared || tiers_[tier].leaving_bytes > 0;
    if (victim == kNoNode && !lost && !waits) victim = ColdestToMoveLocked(tier, Children::kNone, &spared);
    if (victim == kNoNode) {
      taken.spent = !waits && !spared;
      if (!taken.spent && taken.bytes == 0 && tiers_[tier].leaving_bytes == 0) ++tiers_[tier].found_nothing;
      break;
    }
    const HeldCopy& held = table_.copy(victim);
    EntryId id = held.entry;
    uint64_t bytes = held.copy->StoredBytes();
    std::optional<uint8_t> to = DemotionTargetLocked(tier, bytes / 8);
    ClassPair target = to.has_value() ? TargetForLocked(table_.entry(id), *to, FinestHeld(held)) : ClassPair{};
    // A colder copy as fine as the one that would be made: dropping this one is the demotion.
    bool below = false;
    for (NodeId node = held.next; node != kNoNode; node = table_.copy(node).next) {
      const HeldCopy& colder = table_.copy(node);
      below = below || (FinestHeld(colder).AtLeast(target) && colder.served.AtLeast(Coarser(target, held.served)));
    }
    if (below) {
      DropCopyLocked(id, tier, after);
      NodeId next = table_.entry(id).first_copy;
      EmitLocked(EventKind::kDemoted, table_.entry(id), table_.copy(next).tier, table_.copy(next).served, after);
    } else if (!to.has_value()) {
      EvictLocked(id, tier, after);
    } else {
      // Room below was asked for and is not there yet, or the medium failed just now: the next pump tries again.
      if (options_.clock->NowNs() < tiers_[*to].retry_at_ns || tiers_[*to].demand_bytes > 0) break;
      auto move = std::make_unique<Move>();
      move->entry = id;
      move->from = tier;
      move->to = *to;
      move->target = target;
      StartMoveLocked(std::move(move), after);
    }
    taken.bytes += bytes;
    if (below || !to.has_value()) ScheduleRoomWaitersLocked();
  }
  return taken;
}

void StoreImpl::EvictLocked(EntryId id, uint8_t tier, Aftermath* after) {
  ++tiers_[tier].evictions;
  DropCopyLocked(id, tier, after);
  if (table_.entry(id).first_copy != kNoNode) return;
  Digest key = table_.entry(id).key;
  RemoveBlockLocked(table_.entry(id).ns, key, after);
}

StoreImpl::Taken StoreImpl::EvictColdestLocked(uint8_t tier, uint64_t wanted, Aftermath* after) {
  Taken taken;
  while (taken.bytes < wanted) {
    NodeId victim = ColdestLocked(tier, [&](NodeId node) {
      return ProtectedLocked(table_.copy(node).entry, tier, Children::kAll) ? Verdict::kSkip : Verdict::kTake;
    });
    taken.spent = victim == kNoNode;
    if (taken.spent) break;
    taken.bytes += table_.copy(victim).copy->StoredBytes();
    EvictLocked(table_.copy(victim).entry, tier, after);
  }
  return taken;
}

uint64_t StoreImpl::EvictBelowColdestLocked(uint8_t tier, Aftermath* after) {
  EntryId last = kNoEntry;
  uint32_t looks = 0;
  // The way down from a block to one without children, or as far as one may look under the lock.
  auto judge = [&](NodeId node) {
    if (++looks > kDescentsMax) return Verdict::kSkip;
    last = table_.copy(node).entry;
    for (uint32_t steps = 0; steps < kDescentMax && !HeldHereLocked(last); ++steps) {
      EntryId child = table_.entry(last).first_child;
      if (child == kNoEntry) break;
      last = child;
    }
    return HeldHereLocked(last) ? Verdict::kSkip : Verdict::kTake;
  };
  if (ColdestLocked(tier, judge) == kNoNode) return 0;
  uint64_t freed = 0;
  for (NodeId node = table_.entry(last).first_copy; node != kNoNode; node = table_.copy(node).next) {
    ++tiers_[table_.copy(node).tier].evictions;
    freed += table_.copy(node).copy->StoredBytes();
  }
  Digest key = table_.entry(last).key;
  RemoveBlockLocked(table_.entry(last).ns, key, after);
  ScheduleRoomWaitersLocked();
  return freed;
}

StoreImpl::Taken StoreImpl::TakeColdestLocked(uint8_t tier, uint64_t wanted, Aftermath* after) {
  uint64_t freed = DegradeColdestLocked(tier, wanted, after);
  if (freed > 0) ScheduleRoomWaitersLocked();
  if (freed >= wanted) return {.bytes = freed, .spent = false};
  Taken taken;
  if (tier + 1u == options_.tiers.size()) {
    taken = EvictColdestLocked(tier, wanted - freed, after);
    if (taken.bytes > 0) ScheduleRoomWaitersLocked();
  } else {
    taken = DemoteColdestLocked(tier, wanted - freed, after);
  }
  taken.bytes += freed;
  return taken;
}

void StoreImpl::PumpTierLocked(uint8_t tier, Aftermath* after) {
  const TierConfig& config = options_.tiers[tier];
  TierUsage usage = config.tier->Usage();
  uint64_t wanted = WantedBytesLocked(tier, config.low_watermark);
  uint64_t free = usage.capacity_bytes - std::min(usage.used_bytes, usage.capacity_bytes);
  if (tiers_[tier].demand_bytes <= free) tiers_[tier].demand_bytes = 0;
  if (usage.used_bytes <= usage.capacity_bytes) tiers_[tier].outgrown_bytes = 0;
  // A log makes its own room by reclaiming segments; it asks back what they are worth.
  if (wanted == 0 || config.tier->persistent()) return;
  KeepWindowsShareLocked(tier);
  Taken taken = TakeColdestLocked(tier, wanted, after);
  if (!taken.spent || taken.bytes >= wanted) return;
  // Nothing is left but recent windows: of these no more than must be. What was taken is not free before the lock is.
  uint64_t still = WantedBytesLocked(tier, config.high_watermark);
  still -= std::min(still, taken.bytes);
  bool spent = true;
  for (uint32_t round = 0; still > 0 && spent && round < kRoundsMax && BreakWindowsLocked(tier, still, true); ++round) {
    Taken more = TakeColdestLocked(tier, still, after);
    spent = more.spent;
    taken.bytes += more.bytes;
    still -= std::min(still, more.bytes);
  }
  bool last = tier + 1u == options_.tiers.size();
  for (uint32_t i = 0; last && still > 0 && spent && i < kEvictionsABatch; ++i) {
    uint64_t more = EvictBelowColdestLocked(tier, after);
    if (more == 0) break;
    taken.bytes += more;
    still -= std::min(still, more);
  }
  if (still > 0 && taken.bytes == 0) ++tiers_[tier].found_nothing;
}

void StoreImpl::Pump() {
  for (;;) {
    {
      Aftermath after(this);
      std::lock_guard lock(mu_);
      if (pumping_) {
        pump_again_ = true;
        return;
      }
      pumping_ = true;
      pump_again_ = false;
      for (size_t tier = options_.tiers.size(); tier-- > 0;) PumpTierLocked(static_cast<uint8_t>(tier), &after);
    }
    std::lock_guard lock(mu_);
    pumping_ = false;
    if (!pump_again_) return;
  }
}

void StoreImpl::ExpireLocked(Aftermath* after) {
  int64_t now = options_.clock->UnixMs();
  while (!expiries_.empty() && expiries_.top().at_unix_ms <= now) {
    Expiry due = expiries_.top();
    expiries_.pop();
    EntryId id = table_.Find(due.name);
    if (id == kNoEntry || table_.entry(id).generation != due.generation || !ExpiredLocked(table_.entry(id))) continue;
    ++totals_.expired;
    RemoveBlockLocked(due.name.ns, due.name.key, after);
  }
}

absl::Status StoreImpl::SetCapacity(uint8_t tier, uint64_t bytes) {
  if (tier >= options_.tiers.size()) {
    return InvalidArgument("tier {} was named; this daemon has tiers 0 to {}", tier, options_.tiers.size() - 1);
  }
  {
    std::lock_guard lock(mu_);
    FIRN_RETURN_IF_ERROR(options_.tiers[tier].tier->SetCapacity(bytes));
    TierUsage usage = options_.tiers[tier].tier->Usage();
    tiers_[tier].outgrown_bytes = usage.used_bytes > usage.capacity_bytes ? usage.used_bytes : 0;
    ScheduleRoomWaitersLocked();
  }
  Pump();
  return absl::OkStatus();
}

void StoreImpl::Tick() {
  {
    Aftermath after(this);
    std::lock_guard lock(mu_);
    ExpireLocked(&after);
    RecentWindows::Changed changed;
    windows_.Expire(NowSeconds(), kExpiredATick, &changed);
    RefileLocked(changed);
    ScheduleRoomWaitersLocked();
  }
  EndLateGets();
  EndLateMeasuring();
  ScrubOn();
  Pump();
}

}  // namespace firn
