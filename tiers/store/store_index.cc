// The only code that changes entries and the copies they hold, so that the policy, the class counters, the events and
// the references of what leaves are always changed together.
#include <utility>

#include "tiers/store/store_impl.h"

namespace firn {

NodeKind StoreImpl::KindOfLocked(const Entry& e, uint8_t tier, const CopyPtr& copy) const {
  if (e.flags & Entry::kRecent) return NodeKind::kRecent;
  return DegradeStepLocked(e, tier, copy).has_value() ? NodeKind::kDegradable : NodeKind::kNarrow;
}

uint64_t StoreImpl::WindowBytes(uint8_t tier, const Copy& copy) const {
  return options_.tiers[tier].tier->persistent() ? 0 : copy.StoredBytes();
}

void StoreImpl::HoldCopyLocked(EntryId id, uint8_t tier, CopyPtr copy, ClassPair served) {
  NodeKind kind = KindOfLocked(table_.entry(id), tier, copy);
  NodeId node = table_.AddCopy(id, tier, std::move(copy), served);
  policy_->Insert(tier, node, kind);
  ++tiers_[tier].by_class[static_cast<size_t>(served.Min())];
  if (kind == NodeKind::kRecent) tiers_[tier].recent_bytes += WindowBytes(tier, *table_.copy(node).copy);
}

CopyPtr StoreImpl::TakeCopyLocked(EntryId id, uint8_t tier) {
  NodeId node = table_.FindCopyNode(id, tier);
  FIRN_CHECK(node != kNoNode);
  if (policy_->KindOf(node) == NodeKind::kRecent)
    tiers_[tier].recent_bytes -= WindowBytes(tier, *table_.copy(node).copy);
  policy_->Remove(node);
  --tiers_[tier].by_class[static_cast<size_t>(table_.copy(node).served.Min())];
  CopyPtr copy = table_.RemoveCopy(id, tier);
  SetRanksLocked(id, table_.RanksOf(id));
  return copy;
}

void StoreImpl::SetRanksLocked(EntryId id, TokenRanks ranks) {
  if (ranks != nullptr && !RanksMatterLocked(id)) ranks = nullptr;
  if (ranks != table_.RanksOf(id)) table_.SetRanks(id, std::move(ranks));
}

bool StoreImpl::RanksMatterLocked(EntryId id) const {
  const Entry& e = table_.entry(id);
  const NamespaceFacts& facts = namespaces_[e.ns].facts;
  // Only from source bytes are tokens set apart.
  bool coded = facts.dtype != DType::kBytes && (e.flags & Entry::kNonFinite) == 0;
  return coded && e.first_copy != kNoNode && ServesLocked(id, SourceClass(facts.dtype, facts.Shape(e.tokens)));
}

void StoreImpl::DropCopyLocked(EntryId id, uint8_t tier, Aftermath* after) {
  after->Forget(tier, TakeCopyLocked(id, tier), IdentityOfLocked(table_.entry(id)));
}

void StoreImpl::ReplaceCopyLocked(EntryId id, uint8_t tier, CopyPtr copy, ClassPair served, Aftermath* after) {
  NodeId node = table_.FindCopyNode(id, tier);
  FIRN_CHECK(node != kNoNode);
  HeldCopy& held = table_.copy(node);
  --tiers_[tier].by_class[static_cast<size_t>(held.served.Min())];
  CopyPtr old = std::exchange(held.copy, std::move(copy));
  if (policy_->KindOf(node) == NodeKind::kRecent) {
    tiers_[tier].recent_bytes += WindowBytes(tier, *held.copy);
    tiers_[tier].recent_bytes -= WindowBytes(tier, *old);
  }
  held.served = served;
  ++tiers_[tier].by_class[static_cast<size_t>(served.Min())];
  policy_->ChangeKind(node, KindOfLocked(table_.entry(id), tier, held.copy));
  SetRanksLocked(id, table_.RanksOf(id));
  after->Forget(tier, std::move(old), IdentityOfLocked(table_.entry(id)));
}

void StoreImpl::EraseEntryLocked(EntryId id, Aftermath* after) {
  while (table_.entry(id).first_copy != kNoNode) DropCopyLocked(id, table_.HottestTier(id), after);
  Entry& e = table_.entry(id);
  if (e.pins != 0) {
    // Whoever pinned it finds it gone; the pins go with it.
    for (auto& [session, state] : sessions_) {
      auto it = state.pins.find(NameOf(e));
      if (it == state.pins.end()) continue;
      pins_ -= it->second;
      state.pins.erase(it);
    }
  }
  ++totals_.removed;
  EmitLocked(EventKind::kRemoved, e, 0, {}, after);
  if (e.flags & Entry::kRecent) {
    RecentWindows::Changed changed;
    windows_.Remove(id, &changed);
    RefileLocked(changed);
  }
  table_.Erase(id);
}

uint64_t StoreImpl::RemoveBlockLocked(NamespaceId ns, const Digest& key, Aftermath* after) {
  uint64_t copies = 0;
  for (uint32_t shard = 0; shard < namespaces_[ns].facts.shards; ++shard) {
    EntryName name{ns, static_cast<uint16_t>(shard), key};
    EntryId id = table_.Find(name);
    if (id == kNoEntry) continue;
    for (NodeId node = table_.entry(id).first_copy; node != kNoNode; node = table_.copy(node).next) ++copies;
    EraseEntryLocked(id, after);
  }
  return copies;
}

void StoreImpl::LinkParentLocked(EntryId id, const std::optional<Digest>& parent) {
  Entry& e = table_.entry(id);
  if (!parent.has_value() || e.parent != kNoEntry) return;
  EntryId parent_id = table_.Find({e.ns, e.shard, *parent});
  // Positions must grow along a chain: that is what keeps hostile or mistaken parents from forming a ring.
  if (parent_id == kNoEntry || table_.entry(parent_id).first_token >= e.first_token) return;
  table_.LinkParent(id, parent_id);
}

void StoreImpl::LinkFamilyLocked(EntryId id, const std::optional<Digest>& parent,
                                 const std::vector<EntryName>& followers) {
  LinkParentLocked(id, parent);
  const Entry& e = table_.entry(id);
  if (parent.has_value() && e.parent == kNoEntry) {
    auto put = puts_.find({e.ns, e.shard, *parent});
    if (put != puts_.end()) put->second.followers.push_back(NameOf(e));
  }
  std::vector<EntryId> linked;
  for (const EntryName& name : followers) {
    EntryId follower = table_.Find(name);
    if (follower == kNoEntry) continue;
    LinkParentLocked(follower, e.key);
    linked.push_back(follower);
  }
  UseInWindowLocked(id);
  constexpr uint32_t kStepsMax = 64;  // More are not in flight at once.
  for (EntryId end : linked) {
    for (uint32_t step = 0; step < kStepsMax && table_.entry(end).first_child != kNoEntry; ++step) {
      end = table_.entry(end).first_child;
    }
    UseInWindowLocked(end);
  }
}

ClassPair StoreImpl::BestClassLocked(EntryId id) const {
  ClassPair best;
  for (NodeId node = table_.entry(id).first_copy; node != kNoNode; node = table_.copy(node).next) {
    const ClassPair& served = table_.copy(node).served;
    if (served.Min() > best.Min() || (served.Min() == best.Min() && served.AtLeast(best))) best = served;
  }
  return best;
}

bool StoreImpl::ServesLocked(EntryId id, ClassPair least) const {
  for (NodeId node = table_.entry(id).first_copy; node != kNoNode; node = table_.copy(node).next) {
    if (table_.copy(node).served.AtLeast(least)) return true;
  }
  return false;
}

void StoreImpl::EmitLocked(EventKind kind, const Entry& e, uint8_t tier, ClassPair now, Aftermath* after) {
  BlockEvent event;
  event.kind = kind;
  event.ns = e.ns;
  event.key = e.key;
  event.shard = e.shard;
  event.tier = tier;
  event.now = now;
  events_.Add(event);
  for (Task& wake : events_.TakeDue()) after->Then(std::move(wake));
}

EntryId StoreImpl::FindByIdentityLocked(const Identity& identity) const {
  auto ns = namespace_by_fingerprint_.find(identity.namespace_fingerprint);
  if (ns == namespace_by_fingerprint_.end()) return kNoEntry;
  EntryId id = table_.Find({ns->second, identity.shard, identity.key});
  if (id == kNoEntry || table_.entry(id).generation != identity.generation) return kNoEntry;
  return id;
}

}  // namespace firn
