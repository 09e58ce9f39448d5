// How recent windows bear on the index and on pressure: their copies are in lists of their own, which are taken from
// when nothing else is left, or when they have more than their share.
#include <algorithm>

#include "tiers/store/store_impl.h"

namespace firn {
namespace {

// What recent windows may keep of a tier before others: the rest is for what is new, and for who has no window.
constexpr double kWindowsShare = 0.5;
constexpr uint64_t kWindowsABatch = 64;

}  // namespace

void StoreImpl::UseInWindowLocked(EntryId id, Use use) {
  const Entry& e = table_.entry(id);
  const uint32_t tokens = use == Use::kLast ? 0 : namespaces_[e.ns].plan.recent_tokens;
  if (tokens == 0 && (e.flags & Entry::kRecent) == 0) return;
  RecentWindows::Changed changed;
  windows_.Use(id, tokens, NowSeconds(), &changed);
  RefileLocked(changed);
}

void StoreImpl::RefileLocked(const RecentWindows::Changed& changed) {
  for (EntryId id : changed) {
    const Entry& e = table_.entry(id);
    for (NodeId node = e.first_copy; node != kNoNode; node = table_.copy(node).next) {
      const HeldCopy& held = table_.copy(node);
      NodeKind kind = KindOfLocked(e, held.tier, held.copy);
      uint64_t& recent_bytes = tiers_[held.tier].recent_bytes;
      // Once for each change, of which a block may have several here.
      bool was = policy_->KindOf(node) == NodeKind::kRecent, is = kind == NodeKind::kRecent;
      if (was != is) recent_bytes += is ? WindowBytes(held.tier, *held.copy) : -WindowBytes(held.tier, *held.copy);
      policy_->ChangeKind(node, kind);
    }
  }
}

void StoreImpl::FitWindows(NamespaceId id) {
  constexpr uint32_t kBlocksAHold = 4096;  // Before others get the lock.
  uint32_t at = 0;
  for (bool more = true; more;) {
    std::lock_guard lock(mu_);
    RecentWindows::Changed changed;
    more = windows_.Fit(id, namespaces_[id].plan.recent_tokens, kBlocksAHold, &at, &changed);
    RefileLocked(changed);
  }
  Pump();
}

void StoreImpl::KeepWindowsShareLocked(uint8_t tier) {
  if (tiers_[tier].recent_bytes == 0) return;
  const auto capacity_bytes = static_cast<double>(options_.tiers[tier].tier->Usage().capacity_bytes);
  const auto most = static_cast<uint64_t>(kWindowsShare * capacity_bytes);
  if (tiers_[tier].recent_bytes > most) BreakWindowsLocked(tier, tiers_[tier].recent_bytes - most, false);
}

bool StoreImpl::BreakWindowsLocked(uint8_t tier, uint64_t wanted, bool next) {
  const bool last = tier + 1u == options_.tiers.size();
  uint64_t broken = 0;
  // No more than can leave now, where they are to leave.
  const uint64_t slots =
      options_.moves_in_flight_max - std::min<uint64_t>(moves_in_flight_, options_.moves_in_flight_max);
  const uint64_t windows_max = last || !next ? kWindowsABatch : std::max<uint64_t>(slots, 1);
  for (uint64_t windows = 0; windows < windows_max && broken < wanted; ++windows) {
    std::vector<NodeId> coldest;
    policy_->Coldest(
        tier, NodeKind::kRecent, 1,
        [&](NodeId node) { return HeldHereLocked(table_.copy(node).entry) ? Verdict::kSkip : Verdict::kTake; },
        &coldest);
    if (coldest.empty()) break;
    EntryId id = table_.copy(coldest[0]).entry;
    // A window shrinks from its old side, as far as the first block that is here. Where blocks are lost the newest goes
    // first, as without a window: nothing after a gap can be hit by prefix.
    for (bool found = false; !found && (table_.entry(id).flags & Entry::kRecent);) {
      RecentWindows::Changed changed;
      last ? windows_.EndAllWith(id, &changed) : windows_.Release(windows_.OldestWith(id), &changed);
      RefileLocked(changed);
      for (EntryId each : changed) {
        NodeId node = table_.FindCopyNode(each, tier);
        if (node == kNoNode) continue;
        if (next) policy_->Cool(node);
        broken += table_.copy(node).copy->StoredBytes();
        ++tiers_[tier].recent_broken;
        found = true;
      }
    }
  }
  return broken > 0;
}

}  // namespace firn
