// Looking up, holding, deleting, and moves that somebody asks for.
#include <algorithm>
#include <utility>

#include "base/status.h"
#include "tiers/store/store_impl.h"

namespace firn {

std::vector<LocatedBlock> StoreImpl::Locate(NamespaceId ns, const std::vector<Digest>& keys, ClassPair least) {
  constexpr uint32_t kEntriesAHold = 4096;  // Looked at before others get the lock.
  std::vector<LocatedBlock> out(keys.size());
  for (size_t i = 0; i < keys.size();) {
    std::lock_guard lock(mu_);
    if (!CheckNamespaceLocked(ns).ok()) break;
    size_t step = std::max(1u, kEntriesAHold / namespaces_[ns].facts.shards);
    for (size_t end = std::min(keys.size(), i + step); i < end; ++i) {
      out[i] = LocateLocked(ns, keys[i], least);
      ++totals_.lookups;
      if (out[i].state == BlockState::kPresent) ++totals_.lookup_hits;
    }
  }
  return out;
}

LocatedBlock StoreImpl::LocateLocked(NamespaceId ns, const Digest& key, ClassPair least) const {
  LocatedBlock located{.state = BlockState::kPresent, .served = {PrecisionClass::kExact, PrecisionClass::kExact}};
  for (uint32_t shard = 0; shard < namespaces_[ns].facts.shards; ++shard) {
    EntryId id = table_.Find({ns, static_cast<uint16_t>(shard), key});
    if (id == kNoEntry || ExpiredLocked(table_.entry(id)) || !ServesLocked(id, least)) return {};
    ClassPair best = BestClassLocked(id);
    // Where the finest copy lacks what was asked for in one part, another has it.
    located.served = Coarser(located.served, best.AtLeast(least) ? best : least);
    located.tier = std::max(located.tier, table_.HottestTier(id));
    located.tokens = table_.entry(id).tokens;
  }
  return located;
}

absl::Status PinnedError(const Digest& key, uint32_t pins) {
  return FailedPrecondition("block {} is pinned {} times; it is demoted and degraded once it is not", key.Hex(), pins);
}

absl::Status StoreImpl::Pin(NamespaceId ns, const Digest& key, SessionId session) {
  std::lock_guard lock(mu_);
  FIRN_RETURN_IF_ERROR(CheckNamespaceLocked(ns));
  auto owner = sessions_.find(session);
  if (owner == sessions_.end()) return FailedPrecondition("session {} is not open; pins belong to a session", session);
  if (owner->second.pins.size() >= options_.pins_per_session_max) {
    return ResourceExhausted("session {} has pinned {} blocks; at most {}", session, owner->second.pins.size(),
                             options_.pins_per_session_max);
  }
  std::vector<EntryId> shards;
  for (uint32_t shard = 0; shard < namespaces_[ns].facts.shards; ++shard) {
    EntryId id = table_.Find({ns, static_cast<uint16_t>(shard), key});
    if (id == kNoEntry || ExpiredLocked(table_.entry(id)))
      return NotFound("miss: block {} (shard {})", key.Hex(), shard);
    shards.push_back(id);
  }
  for (EntryId id : shards) {
    Entry& e = table_.entry(id);
    ++e.pins;
    ++pins_;
    ++owner->second.pins[NameOf(e)];
  }
  return absl::OkStatus();
}

absl::Status StoreImpl::Unpin(NamespaceId ns, const Digest& key, SessionId session) {
  std::lock_guard lock(mu_);
  FIRN_RETURN_IF_ERROR(CheckNamespaceLocked(ns));
  auto owner = sessions_.find(session);
  if (owner == sessions_.end()) return FailedPrecondition("session {} is not open", session);
  bool unpinned = false;
  for (uint32_t shard = 0; shard < namespaces_[ns].facts.shards; ++shard) {
    EntryName name{ns, static_cast<uint16_t>(shard), key};
    auto pin = owner->second.pins.find(name);
    if (pin == owner->second.pins.end()) continue;
    EntryId id = table_.Find(name);
    FIRN_CHECK(id != kNoEntry && table_.entry(id).pins > 0 && pins_ > 0);
    --table_.entry(id).pins;
    --pins_;
    if (--pin->second == 0) owner->second.pins.erase(pin);
    unpinned = true;
  }
  if (!unpinned) return FailedPrecondition("block {} is not pinned by session {}", key.Hex(), session);
  return absl::OkStatus();
}

absl::Status StoreImpl::Touch(NamespaceId ns, const Digest& key, const TouchHint& hint) {
  if (!(hint.importance >= -1 && hint.importance <= 1)) {
    return InvalidArgument("an importance of {} was given; it is -1 to 1", hint.importance);
  }
  constexpr uint32_t kLiveSeconds = 30;
  const auto values = static_cast<uint32_t>(hint.token_importance.size());
  FIRN_RETURN_IF_ERROR(CheckImportance("token_importance", hint.token_importance, values));
  TokenRanks ranks;
  if (values > 0) ranks = std::make_shared<const std::vector<uint8_t>>(RankImportance(hint.token_importance));
  std::lock_guard lock(mu_);
  FIRN_RETURN_IF_ERROR(CheckNamespaceLocked(ns));
  bool found = false;
  for (uint32_t shard = 0; shard < namespaces_[ns].facts.shards; ++shard) {
    EntryId id = table_.Find({ns, static_cast<uint16_t>(shard), key});
    if (id == kNoEntry) continue;
    Entry& e = table_.entry(id);
    if (values > 0 && values != e.tokens) {
      return InvalidArgument("token_importance has {} values for {} tokens; it has one a token, or none", values,
                             e.tokens);
    }
    found = true;
    if (ranks != nullptr) SetRanksLocked(id, ranks);
    e.importance = hint.importance;
    if (hint.live_sequence)
      e.live_until_s = static_cast<uint32_t>(options_.clock->NowNs() / 1'000'000'000) + kLiveSeconds;
    UseInWindowLocked(id, hint.importance < 0 ? Use::kLast : Use::kMore);
    for (NodeId node = e.first_copy; node != kNoNode; node = table_.copy(node).next) {
      hint.importance < 0 ? policy_->Cool(node) : policy_->Access(node);
    }
  }
  return found ? absl::OkStatus() : NotFound("miss: block {}", key.Hex());
}

absl::Status StoreImpl::Delete(NamespaceId ns, const Digest& key) {
  uint64_t copies = 0;
  {
    Aftermath after(this);
    std::lock_guard lock(mu_);
    FIRN_RETURN_IF_ERROR(CheckNamespaceLocked(ns));
    // What is on its way goes too; a block that leaves by itself takes no put with it.
    for (uint32_t shard = 0; shard < namespaces_[ns].facts.shards; ++shard) {
      auto put = puts_.find({ns, static_cast<uint16_t>(shard), key});
      if (put != puts_.end()) put->second.cancelled = true;
    }
    copies = RemoveBlockLocked(ns, key, &after);
    if (copies > 0) ++totals_.deletes;
    ScheduleRoomWaitersLocked();
  }
  return copies > 0 ? absl::OkStatus() : NotFound("miss: block {}", key.Hex());
}

uint64_t StoreImpl::Clear(const ClearScope& scope) {
  Aftermath after(this);
  std::lock_guard lock(mu_);
  return ClearLocked(scope, &after);
}

void StoreImpl::RemoveNamespace(NamespaceId ns, absl::AnyInvocable<void(absl::StatusOr<uint64_t>)> done) {
  absl::Status known;
  bool saved = false;
  absl::AnyInvocable<void(absl::Status)> sync;
  {
    Aftermath after(this);
    std::lock_guard lock(mu_);
    known = CheckNamespaceLocked(ns);
    if (known.ok()) {
      ClearScope scope;
      scope.ns = ns;
      uint64_t copies = ClearLocked(scope, &after);
      Digest fingerprint = namespaces_[ns].fingerprint;
      namespaces_[ns].removed = true;
      namespace_by_fingerprint_.erase(fingerprint);
      sync = [this, copies, done = std::exchange(done, nullptr)](absl::Status written) mutable {
        if (!written.ok()) return done(std::move(written));
        SyncRemovals([copies, done = std::move(done)](absl::Status synced) mutable {
          if (!synced.ok()) return done(std::move(synced));
          done(copies);
        });
      };
      saved = static_cast<bool>(fact_writer_);
      if (saved) QueueFactLocked("namespace", fingerprint.Hex(), {}, std::move(sync));
    }
  }
  if (!known.ok()) return done(std::move(known));
  if (!saved) return sync(absl::OkStatus());
  WriteQueuedFacts();
}

uint64_t StoreImpl::ClearLocked(const ClearScope& scope, Aftermath* after) {
  uint64_t copies = 0;
  std::vector<EntryId> chosen;
  table_.ForEach([&](EntryId id) {
    if (!scope.ns.has_value() || table_.entry(id).ns == *scope.ns) chosen.push_back(id);
  });
  for (EntryId id : chosen) {
    if (scope.tier.has_value()) {
      if (*scope.tier >= options_.tiers.size() || table_.FindCopy(id, *scope.tier) == nullptr) continue;
      DropCopyLocked(id, *scope.tier, after);
      ++copies;
      if (table_.entry(id).first_copy == kNoNode) EraseEntryLocked(id, after);
      continue;
    }
    for (NodeId node = table_.entry(id).first_copy; node != kNoNode; node = table_.copy(node).next) ++copies;
    EraseEntryLocked(id, after);
  }
  if (!scope.tier.has_value() || *scope.tier == 0) {
    for (auto& [name, put] : puts_) {
      if (!scope.ns.has_value() || name.ns == *scope.ns) put.cancelled = true;
    }
  }
  ScheduleRoomWaitersLocked();
  return copies;
}

void StoreImpl::WhenIdleLocked(const Entry& e, Task task) { when_idle_[e.generation].push_back(std::move(task)); }

void StoreImpl::RunAskedMove(const AskedMove& asked, Move::Done done) {
  if (asked.patience_until_ns == 0) return RunAskedMoveOnce(asked, std::move(done));
  {
    std::lock_guard lock(mu_);
    tiers_[asked.to].waiting_moves.emplace_back(asked, std::move(done));
  }
  ServeWaitingMoves();
}

void StoreImpl::ServeWaitingMoves() {
  const uint32_t slots = kPatientMovesPerSlot * options_.moves_in_flight_max;
  std::vector<std::pair<AskedMove, Move::Done>> starting;
  {
    std::lock_guard lock(mu_);
    for (TierState& tier : tiers_) {
      while (!tier.waiting_moves.empty()) {
        // A tier that has just failed gets time, and the list waits behind those under way: codes that find no room are
        // work for nothing. Nothing waits while the store stops.
        bool waits = MayWaitLocked(tier.waiting_moves.front().first) && tier.retry_at_ns > options_.clock->NowNs();
        bool busy = tier.patient_moves >= slots && !stopping_ && !draining_;
        if (waits || busy) break;
        ++tier.patient_moves;
        starting.push_back(std::move(tier.waiting_moves.front()));
        tier.waiting_moves.pop_front();
      }
    }
  }
  for (auto& [asked, done] : starting) {
    RunAskedMoveOnce(asked, [this, asked = asked, done = std::move(done)](absl::StatusOr<ClassPair> moved) mutable {
      {
        std::lock_guard lock(mu_);
        TierState& tier = tiers_[asked.to];
        --tier.patient_moves;
        bool full = moved.status().code() == absl::StatusCode::kResourceExhausted;
        bool again = full && MayWaitLocked(asked);
        if (again) tier.waiting_moves.emplace_front(asked, std::move(done));
        ScheduleRoomWaitersLocked();
        if (again) return;
      }
      done(std::move(moved));
    });
  }
}

bool StoreImpl::MayWaitLocked(const AskedMove& asked) const {
  return !stopping_ && !draining_ && options_.clock->NowNs() < asked.patience_until_ns;
}

void StoreImpl::RunAskedMoveOnce(const AskedMove& asked, Move::Done done) {
  absl::Status refused;
  {
    Aftermath after(this);
    std::lock_guard lock(mu_);
    EntryId id = table_.Find(asked.name);
    if (stopping_) refused = Unavailable("the store is stopping");
    if (refused.ok() && id == kNoEntry) refused = NotFound("miss: block {}", asked.name.key.Hex());
    if (refused.ok()) {
      const Entry& e = table_.entry(id);
      if (e.flags & Entry::kMoving) {
        auto again = [this, asked, done = std::move(done)]() mutable { RunAskedMoveOnce(asked, std::move(done)); };
        WhenIdleLocked(e, std::move(again));
        return;
      }
      bool lowers = asked.event == EventKind::kDemoted || asked.event == EventKind::kDegraded;
      if (lowers && e.pins > 0) refused = PinnedError(asked.name.key, e.pins);
    }
    if (refused.ok()) {
      const Entry& e = table_.entry(id);
      auto move = std::make_unique<Move>();
      move->entry = id;
      move->from = table_.HottestTier(id);
      move->to = asked.to;
      move->event = asked.event;
      ClassPair current = table_.copy(e.first_copy).served, finest = FinestHeld(table_.copy(e.first_copy));
      bool promote = asked.event == EventKind::kPromoted;
      if (promote || asked.event == EventKind::kStored) {
        move->target = promote ? finest : TargetForLocked(e, asked.to, finest);
        move->keep_source = true;
        move->event = promote ? EventKind::kPromoted : EventKind::kDemoted;
      } else if (asked.event == EventKind::kDegraded) {
        move->from = asked.to;
        const HeldCopy* held = table_.FindCopy(id, asked.to);
        if (held == nullptr) {
          refused =
              NotFound("block {} has no copy in tier \"{}\"", asked.name.key.Hex(), options_.tiers[asked.to].name);
        } else {
          ClassPair finest_there = FinestHeld(*held);
          move->target = Coarser(asked.target, finest_there);
          refused = CheckDegradeLocked(e, asked.to, *held, asked.target);
          if (refused.ok() && move->target == finest_there) {
            after.Then([done = std::move(done), now = held->served]() mutable { done(now); });
            return;
          }
        }
      } else {
        // From the finest copy there is, so that no error is added to another's.
        move->target = TargetForLocked(e, asked.to, finest);
        move->drop_hotter = true;
      }
      if (refused.ok() && asked.event != EventKind::kDegraded && move->from == asked.to) {
        ClassPair there = current;
        after.Then([done = std::move(done), there]() mutable { done(there); });
        return;
      }
      if (refused.ok() && promote && move->from < asked.to) {
        refused =
            FailedPrecondition("block {} is in tier \"{}\" already, which is hotter than \"{}\"", asked.name.key.Hex(),
                               options_.tiers[move->from].name, options_.tiers[asked.to].name);
      }
      if (refused.ok() && !promote && move->from > asked.to) {
        refused =
            FailedPrecondition("block {} is in tier \"{}\" already, which is colder than \"{}\"", asked.name.key.Hex(),
                               options_.tiers[move->from].name, options_.tiers[asked.to].name);
      }
      if (refused.ok()) {
        move->done = std::move(done);
        StartMoveLocked(std::move(move), &after);
        return;
      }
    }
  }
  done(std::move(refused));
}

void StoreImpl::RunAskedMoves(NamespaceId ns, const Digest& key, const AskedMove& asked, Move::Done done) {
  struct Join {
    std::mutex mu;
    size_t waiting = 0;
    absl::Status status;
    ClassPair lowest{PrecisionClass::kExact, PrecisionClass::kExact};
    Move::Done done;
  };
  auto join = std::make_shared<Join>();
  join->done = std::move(done);
  absl::Status valid;
  {
    std::lock_guard lock(mu_);
    valid = CheckNamespaceLocked(ns);
    if (valid.ok()) join->waiting = namespaces_[ns].facts.shards;
  }
  if (valid.ok() && asked.to >= options_.tiers.size()) {
    valid = InvalidArgument("tier {} was named; this daemon has tiers 0 to {}", asked.to, options_.tiers.size() - 1);
  }
  if (!valid.ok()) return join->done(valid);
  size_t shards = join->waiting;
  for (size_t shard = 0; shard < shards; ++shard) {
    AskedMove one = asked;
    one.name = {ns, static_cast<uint16_t>(shard), key};
    RunAskedMove(one, [join](absl::StatusOr<ClassPair> moved) {
      bool last = false;
      {
        std::lock_guard lock(join->mu);
        if (!moved.ok() && join->status.ok()) join->status = moved.status();
        if (moved.ok()) join->lowest = Coarser(join->lowest, *moved);
        last = --join->waiting == 0;
      }
      if (!last) return;
      if (join->status.ok()) return join->done(join->lowest);
      join->done(join->status);
    });
  }
}

void StoreImpl::Demote(NamespaceId ns, const Digest& key, uint8_t tier, Move::Done done) {
  AskedMove asked;
  asked.to = tier;
  asked.event = EventKind::kDemoted;
  asked.patience_until_ns = options_.clock->NowNs() + kRoomPatienceNs;
  RunAskedMoves(ns, key, asked, std::move(done));
}

void StoreImpl::Promote(NamespaceId ns, const Digest& key, uint8_t tier, Move::Done done) {
  AskedMove asked;
  asked.to = tier;
  asked.event = EventKind::kPromoted;
  RunAskedMoves(ns, key, asked, std::move(done));
}

void StoreImpl::PromoteShard(const EntryName& name, uint8_t tier, Move::Done done) {
  AskedMove asked;
  asked.name = name;
  asked.to = tier;
  asked.event = EventKind::kPromoted;
  RunAskedMove(asked, std::move(done));
}

absl::Status StoreImpl::CheckDegradeLocked(const Entry& e, uint8_t tier, const HeldCopy& held,
                                           const ClassPair& target) const {
  const NamespaceState& ns = namespaces_[e.ns];
  const TierConfig& config = options_.tiers[tier];
  for (Part part : kParts) {
    auto of = [part](const ClassPair& pair) { return part == Part::kK ? pair.k : pair.v; };
    bool exists = (part == Part::kK ? ns.facts.k_width : ns.facts.v_width) > 0;
    PrecisionClass to = of(target);
    if (!exists || to >= of(held.served)) continue;
    std::string what = fmt::format("degrading {} of block {} from {} to {}", part == Part::kK ? "K" : "V", e.key.Hex(),
                                   PrecisionClassName(of(held.served)), PrecisionClassName(to));
    if (ns.facts.dtype == DType::kBytes) {
      return FailedPrecondition("{}: values of dtype {} are exact or not there", what, DTypeName(ns.facts.dtype));
    }
    if (e.flags & Entry::kNonFinite) return FailedPrecondition("{}: it holds NaN or Inf and stays exact", what);
    if (to < of(config.least)) {
      return FailedPrecondition("{}: tier \"{}\" has least = {}", what, config.name,
                                PrecisionClassName(of(config.least)));
    }
    if (to < of(ns.plan.floor)) {
      return FailedPrecondition("{}: the namespace's floor is {}", what, PrecisionClassName(of(ns.plan.floor)));
    }
    bool planes = held.copy->Runs().Has(RunKind::kP2, part);
    if (!planes && config.tier->narrows_in_place()) {
      return FailedPrecondition(
          "{}: its copy in tier \"{}\" is whole and has no planes to drop; demote it to a tier of lower precision",
          what, config.name);
    }
  }
  return absl::OkStatus();
}

void StoreImpl::Degrade(NamespaceId ns, const Digest& key, uint8_t tier, ClassPair target, Move::Done done) {
  absl::StatusOr<ClassPair> lowest = ClassPair{PrecisionClass::kExact, PrecisionClass::kExact};
  bool in_place = false;
  {
    Aftermath after(this);
    std::lock_guard lock(mu_);
    absl::Status valid = CheckNamespaceLocked(ns);
    if (valid.ok() && tier >= options_.tiers.size()) {
      valid = InvalidArgument("tier {} was named; this daemon has tiers 0 to {}", tier, options_.tiers.size() - 1);
    }
    for (PrecisionClass c : {target.k, target.v}) {
      bool coded = c == PrecisionClass::k8Bit || c == PrecisionClass::k4Bit || c == PrecisionClass::k2Bit;
      bool asks = target.Min() < PrecisionClass::kExact;
      if (!valid.ok() || (coded || (c == PrecisionClass::kExact && asks))) continue;
      valid = InvalidArgument(
          "target = {}; allowed: int8, int4, int2, and exact for one of K and V, which leaves that as it is",
          PrecisionClassName(c));
    }
    if (!valid.ok()) lowest = valid;
    in_place = valid.ok() && options_.tiers[tier].tier->narrows_in_place();
    for (uint32_t shard = 0; in_place && lowest.ok() && shard < namespaces_[ns].facts.shards; ++shard) {
      EntryId id = table_.Find({ns, static_cast<uint16_t>(shard), key});
      const HeldCopy* held = id == kNoEntry ? nullptr : table_.FindCopy(id, tier);
      if (held == nullptr) {
        lowest = NotFound("block {} has no copy in tier \"{}\"", key.Hex(), options_.tiers[tier].name);
        break;
      }
      if (table_.entry(id).pins > 0) {
        lowest = PinnedError(key, table_.entry(id).pins);
        break;
      }
      absl::Status allowed = CheckDegradeLocked(table_.entry(id), tier, *held, target);
      if (!allowed.ok()) {
        lowest = allowed;
        break;
      }
      RunMask keep = WantedRuns(target) & held->copy->Runs();
      auto narrowed =
          keep == held->copy->Runs() ? absl::StatusOr<ClassPair>(held->served) : NarrowLocked(id, tier, keep, &after);
      lowest = narrowed.ok() ? absl::StatusOr<ClassPair>(Coarser(*lowest, *narrowed)) : narrowed;
    }
    ScheduleRoomWaitersLocked();
  }
  if (in_place || !lowest.ok()) return done(std::move(lowest));
  AskedMove asked;
  asked.to = tier;
  asked.event = EventKind::kDegraded;
  asked.target = target;
  asked.patience_until_ns = options_.clock->NowNs() + kRoomPatienceNs;
  RunAskedMoves(ns, key, asked, std::move(done));
}

}  // namespace firn
