// What a persistent tier tells the store: what survived, what it is about to reclaim, what it lost, what it moved.
#include <algorithm>
#include <utility>

#include "base/status.h"
#include "tiers/store/store_impl.h"

namespace firn {

void StoreImpl::RecoverFacts(const std::vector<RecoveredFact>& facts) {
  std::lock_guard lock(mu_);
  // Artifacts first: plans name them.
  for (const RecoveredFact& fact : facts) {
    if (fact.kind != "artifact") continue;
    auto artifact = Artifact::Parse(fact.value);
    if (!artifact.ok()) continue;
    saved_artifacts_.insert((*artifact)->digest());
    artifacts_.Add(*std::move(artifact));
  }
  for (const RecoveredFact& fact : facts) {
    if (fact.kind != "namespace") continue;
    auto parsed = ParseNamespace(fact.value);
    if (!parsed.ok() || NamespaceFingerprint(parsed->first).Hex() != fact.name) continue;
    auto& [its_facts, plan] = *parsed;
    // A plan that was fine when it was written, and is refused or lacks its artifact now, is no reason to lose the
    // namespace's blocks: they go on under the default plan, no coarser than was promised.
    // The plan that was written stays in the log.
    if (!CheckPlanLocked(its_facts, plan).ok()) {
      ClassPair floor = plan.floor;
      plan = PrecisionPlan();
      plan.floor = floor;
    }
    if (!CheckPlanLocked(its_facts, plan).ok()) plan = PrecisionPlan();
    NamespaceId id = 0;
    AddNamespaceLocked(its_facts, plan, &id);
    namespaces_[id].saved = true;
  }
}

void StoreImpl::RecoverCopies(uint8_t tier, std::vector<RecoveredCopy> copies) {
  Aftermath after(this);
  std::lock_guard lock(mu_);
  std::vector<std::pair<EntryId, std::optional<Digest>>> unlinked;
  for (RecoveredCopy& copy : copies) {
    last_generation_ = std::max(last_generation_, copy.identity.generation);
    auto ns = namespace_by_fingerprint_.find(copy.identity.namespace_fingerprint);
    bool expired = copy.expires_unix_ms != 0 && copy.expires_unix_ms <= options_.clock->UnixMs();
    if (ns == namespace_by_fingerprint_.end() || expired || copy.stored_class.Min() == PrecisionClass::kNone) {
      after.Forget(tier, std::move(copy.copy), copy.identity);
      continue;
    }
    EntryName name{ns->second, copy.identity.shard, copy.identity.key};
    EntryId id = table_.Find(name);
    if (id != kNoEntry && table_.entry(id).generation > copy.identity.generation) {
      after.Forget(tier, std::move(copy.copy), copy.identity);
      continue;
    }
    if (id != kNoEntry && table_.entry(id).generation < copy.identity.generation) {
      while (table_.entry(id).first_copy != kNoNode) DropCopyLocked(id, table_.HottestTier(id), &after);
    }
    if (id == kNoEntry) id = table_.Insert(name);
    Entry& e = table_.entry(id);
    e.generation = copy.identity.generation;
    e.first_token = copy.first_token;
    e.tokens = copy.tokens;
    e.expires_unix_ms = copy.expires_unix_ms;
    if (e.expires_unix_ms != 0) expiries_.push({e.expires_unix_ms, name, e.generation});
    LinkParentLocked(id, copy.parent);
    if (e.parent == kNoEntry && copy.parent.has_value()) unlinked.emplace_back(id, copy.parent);
    if (table_.FindCopy(id, tier) != nullptr) DropCopyLocked(id, tier, &after);
    HoldCopyLocked(id, tier, std::move(copy.copy), copy.stored_class);
  }
  // Parents that came after their children.
  for (auto& [id, parent] : unlinked) {
    if (table_.entry(id).flags & Entry::kUsed) LinkParentLocked(id, parent);
  }
}

ReclaimVerdict StoreImpl::JudgeReclaim(const Identity& identity, RunMask leaving) {
  std::lock_guard lock(mu_);
  EntryId id = FindByIdentityLocked(identity);
  if (id == kNoEntry) return ReclaimVerdict::kDrop;
  const Entry& e = table_.entry(id);
  if (ExpiredLocked(e)) return ReclaimVerdict::kDrop;
  if (e.pins > 0) return ReclaimVerdict::kKeep;
  RunMask base = RunMask::Both(RunKind::kMeta) | RunMask::Both(RunKind::kExact) | RunMask::Both(RunKind::kP2) |
                 RunMask::Both(RunKind::kWhole);
  if ((leaving & base).Empty()) {
    // Planes: gone with their segment, unless a floor keeps them.
    RunMask floor = WantedRuns(namespaces_[e.ns].plan.floor);
    return (leaving & floor).Empty() ? ReclaimVerdict::kDrop : ReclaimVerdict::kRelocate;
  }
  if (e.live_until_s != 0 && e.live_until_s > options_.clock->NowNs() / 1'000'000'000) return ReclaimVerdict::kRelocate;
  // A parent of blocks that are still here is worth its bytes: without it none of them can be hit by prefix.
  return e.first_child != kNoEntry ? ReclaimVerdict::kRelocate : ReclaimVerdict::kDrop;
}

bool StoreImpl::LetGo(const Identity& identity, RunMask leaving, bool whole) {
  Aftermath after(this);
  std::lock_guard lock(mu_);
  EntryId id = FindByIdentityLocked(identity);
  if (id == kNoEntry) return true;
  if (table_.entry(id).pins > 0) return false;
  LoseRunsLocked(id, leaving, whole, &after);
  return true;
}

void StoreImpl::OnRunsLost(const Identity& identity, RunMask lost, bool whole) {
  Aftermath after(this);
  std::lock_guard lock(mu_);
  EntryId id = FindByIdentityLocked(identity);
  if (id != kNoEntry) LoseRunsLocked(id, lost, whole, &after);
}

void StoreImpl::LoseRunsLocked(EntryId id, RunMask lost, bool whole, Aftermath* after) {
  for (uint8_t tier = 0; tier < static_cast<uint8_t>(options_.tiers.size()); ++tier) {
    if (!options_.tiers[tier].tier->persistent()) continue;
    NodeId node = table_.FindCopyNode(id, tier);
    if (node == kNoNode) continue;
    if (whole) {
      ++tiers_[tier].evictions;
      after->Release(TakeCopyLocked(id, tier));  // The tier knows.
      if (table_.entry(id).first_copy == kNoNode) {
        // Its descendants cannot be hit by prefix any more; they age out like any block that nobody asks for.
        RemoveBlockLocked(table_.entry(id).ns, Digest(table_.entry(id).key), after);
      }
      return;
    }
    HeldCopy& held = table_.copy(node);
    ClassPair now = held.served;
    RunMask left = held.copy->Runs() - lost;
    for (Part part : kParts) {
      PrecisionClass& c = part == Part::kK ? now.k : now.v;
      if (lost.Has(RunKind::kP8, part)) c = std::min(c, PrecisionClass::k4Bit);
      if (!left.Has(RunKind::kP4, part) && lost.Has(RunKind::kP4, part)) c = std::min(c, PrecisionClass::k2Bit);
    }
    if (now == held.served) return;
    --tiers_[tier].by_class[static_cast<size_t>(held.served.Min())];
    held.served = now;
    ++tiers_[tier].by_class[static_cast<size_t>(now.Min())];
    ++tiers_[tier].degrades;
    EmitLocked(EventKind::kDegraded, table_.entry(id), tier, now, after);
    return;
  }
}

void StoreImpl::OnTierLost(uint8_t tier) {
  // In batches, so that others get the lock between them.
  constexpr size_t kBatch = 1024, kLookedAtMax = 65536;
  for (EntryId at = 0;;) {
    Aftermath after(this);
    std::lock_guard lock(mu_);
    size_t dropped = 0, looked_at = 0;
    for (; at < table_.end() && dropped < kBatch && looked_at < kLookedAtMax; ++at, ++looked_at) {
      if (!(table_.entry(at).flags & Entry::kUsed)) continue;
      const HeldCopy* held = table_.FindCopy(at, tier);
      if (held == nullptr || !held->copy->Runs().Empty()) continue;
      DropCopyLocked(at, tier, &after);
      ++tiers_[tier].evictions;
      ++dropped;
      if (table_.entry(at).first_copy != kNoNode) continue;
      RemoveBlockLocked(table_.entry(at).ns, Digest(table_.entry(at).key), &after);
    }
    if (at >= table_.end()) break;
  }
  Pump();
}

void StoreImpl::OnRelocated(const Identity& identity, const CopyPtr& copy) {
  Aftermath after(this);
  std::lock_guard lock(mu_);
  EntryId id = FindByIdentityLocked(identity);
  if (id == kNoEntry) return;
  for (uint8_t tier = 0; tier < static_cast<uint8_t>(options_.tiers.size()); ++tier) {
    if (!options_.tiers[tier].tier->persistent()) continue;
    HeldCopy* held = table_.FindCopy(id, tier);
    if (held == nullptr) continue;
    after.Release(std::exchange(held->copy, copy));
    return;
  }
}

}  // namespace firn
