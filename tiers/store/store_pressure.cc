// Making room: planes of the coldest blocks first, then the coldest blocks themselves, one tier down or out.
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
constexpr size_t kEvictionsABatch = 64;
// An importance hint spares a block once and is worth less each time.
constexpr float kImportanceDecay = 0.5f;
constexpr float kImportanceSpares = 0.25f;

}  // namespace

uint64_t StoreImpl::WantedBytesLocked(uint8_t tier, const TierUsage& usage) const {
  const TierConfig& config = options_.tiers[tier];
  auto share = [&](double mark) { return static_cast<uint64_t>(mark * static_cast<double>(usage.capacity_bytes)); };
  uint64_t wanted =
      usage.used_bytes > share(config.high_watermark) ? usage.used_bytes - share(config.low_watermark) : 0;
  uint64_t demand = tiers_[tier].demand_bytes;
  if (tier == 0) {
    uint64_t waiting = 0;
    for (const RoomWaiter& waiter : room_waiters_) waiting += waiter.bytes;
    demand = std::max(demand, waiting);
  }
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

bool StoreImpl::ProtectedLocked(EntryId id, uint8_t tier) const {
  const Entry& e = table_.entry(id);
  if (e.pins > 0 || (e.flags & Entry::kMoving)) return true;
  if (e.live_until_s != 0 && e.live_until_s > options_.clock->NowNs() / 1'000'000'000) return true;
  // A parent is never colder than its child: while a child is here or hotter, the parent stays.
  for (EntryId child = e.first_child; child != kNoEntry; child = table_.entry(child).next_sibling) {
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
    if (options_.tiers[tier].tier->Usage().capacity_bytes >= bytes) return static_cast<uint8_t>(tier);
  }
  return std::nullopt;
}

uint64_t StoreImpl::DemoteColdestLocked(uint8_t tier, uint64_t wanted, Aftermath* after) {
  uint64_t leaving = 0;
  while (leaving < wanted && moves_in_flight_ < options_.moves_in_flight_max) {
    std::vector<NodeId> victims;
    for (NodeKind kind : {NodeKind::kNarrow, NodeKind::kDegradable}) {
      if (!victims.empty()) break;
      policy_->Coldest(
          tier, kind, 1,
          [&](NodeId node) {
            EntryId id = table_.copy(node).entry;
            if (ProtectedLocked(id, tier)) return Verdict::kSkip;
            Entry& e = table_.entry(id);
            if (e.importance > kImportanceSpares) {
              e.importance *= kImportanceDecay;
              return Verdict::kSkip;
            }
            return Verdict::kTake;
          },
          &victims);
    }
    if (victims.empty()) {
      if (leaving == 0 && tiers_[tier].leaving_bytes == 0) ++tiers_[tier].found_nothing;
      break;
    }
    EntryId id = table_.copy(victims[0]).entry;
    const HeldCopy& held = table_.copy(victims[0]);
    uint64_t bytes = held.copy->StoredBytes();
    std::optional<uint8_t> to = DemotionTargetLocked(tier, bytes / 8);
    ClassPair target = to.has_value() ? TargetForLocked(table_.entry(id), *to, FinestHeld(held)) : ClassPair{};
    // A colder copy as fine as the one that would be made: dropping this one is the demotion.
    bool below = false;
    for (NodeId node = held.next; node != kNoNode; node = table_.copy(node).next) {
      const HeldCopy& colder = table_.copy(node);
      below = below || (FinestHeld(colder).AtLeast(target) && colder.served.AtLeast(Coarser(target, held.served)));
    }
    if (below || !to.has_value()) {
      DropCopyLocked(id, tier, after);
      leaving += bytes;
      if (below) {
        NodeId next = table_.entry(id).first_copy;
        EmitLocked(EventKind::kDemoted, table_.entry(id), table_.copy(next).tier, table_.copy(next).served, after);
      } else {
        ++tiers_[tier].evictions;
        if (table_.entry(id).first_copy == kNoNode) {
          Digest key = table_.entry(id).key;
          RemoveBlockLocked(table_.entry(id).ns, key, after);
        }
      }
      ScheduleRoomWaitersLocked();
      continue;
    }
    // Room below was asked for and is not there yet, or the medium failed just now: the next pump tries again.
    if (options_.clock->NowNs() < tiers_[*to].retry_at_ns || tiers_[*to].demand_bytes > 0) break;
    auto move = std::make_unique<Move>();
    move->entry = id;
    move->from = tier;
    move->to = *to;
    move->target = target;
    StartMoveLocked(std::move(move), after);
    leaving += bytes;
  }
  return leaving;
}

uint64_t StoreImpl::EvictColdestLocked(uint8_t tier, uint64_t wanted, Aftermath* after) {
  uint64_t freed = 0;
  while (freed < wanted) {
    std::vector<NodeId> victims;
    for (NodeKind kind : {NodeKind::kNarrow, NodeKind::kDegradable}) {
      if (!victims.empty()) break;
      policy_->Coldest(
          tier, kind, 1,
          [&](NodeId node) { return ProtectedLocked(table_.copy(node).entry, tier) ? Verdict::kSkip : Verdict::kTake; },
          &victims);
    }
    if (victims.empty()) {
      if (freed == 0) ++tiers_[tier].found_nothing;
      break;
    }
    EntryId id = table_.copy(victims[0]).entry;
    freed += table_.copy(victims[0]).copy->StoredBytes();
    ++tiers_[tier].evictions;
    DropCopyLocked(id, tier, after);
    if (table_.entry(id).first_copy == kNoNode) {
      Digest key = table_.entry(id).key;
      RemoveBlockLocked(table_.entry(id).ns, key, after);
    }
  }
  return freed;
}

void StoreImpl::PumpTierLocked(uint8_t tier, Aftermath* after) {
  TierUsage usage = options_.tiers[tier].tier->Usage();
  uint64_t wanted = WantedBytesLocked(tier, usage);
  uint64_t free = usage.capacity_bytes - std::min(usage.used_bytes, usage.capacity_bytes);
  if (tiers_[tier].demand_bytes <= free) tiers_[tier].demand_bytes = 0;
  if (usage.used_bytes <= usage.capacity_bytes) tiers_[tier].outgrown_bytes = 0;
  // A log makes its own room by reclaiming segments; it asks back what they are worth.
  if (wanted == 0 || options_.tiers[tier].tier->persistent()) return;
  uint64_t freed = DegradeColdestLocked(tier, wanted, after);
  if (freed > 0) ScheduleRoomWaitersLocked();
  if (freed >= wanted) return;
  wanted -= freed;
  if (tier + 1u == options_.tiers.size()) {
    if (EvictColdestLocked(tier, wanted, after) > 0) ScheduleRoomWaitersLocked();
  } else {
    DemoteColdestLocked(tier, wanted, after);
  }
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
    ScheduleRoomWaitersLocked();
  }
  EndLateGets();
  EndLateMeasuring();
  Pump();
}

}  // namespace firn
