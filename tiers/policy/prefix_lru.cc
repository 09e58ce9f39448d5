#include "tiers/policy/prefix_lru.h"

#include "base/check.h"

namespace firn {

void PrefixLru::Unlink(NodeId node) {
  Link& link = links_[node];
  FIRN_CHECK(link.list != kNoList);
  List& list = lists_[link.list];
  (link.warmer == kNoNode ? list.warmest : links_[link.warmer].colder) = link.colder;
  (link.colder == kNoNode ? list.coldest : links_[link.colder].warmer) = link.warmer;
  --list.count;
  link.warmer = link.colder = kNoNode;
  link.list = kNoList;
}

void PrefixLru::LinkWarmest(uint8_t list_index, NodeId node) {
  List& list = lists_[list_index];
  Link& link = links_[node];
  FIRN_CHECK(link.list == kNoList);
  link.list = list_index;
  link.colder = list.warmest;
  (list.warmest == kNoNode ? list.coldest : links_[list.warmest].warmer) = node;
  list.warmest = node;
  ++list.count;
}

void PrefixLru::LinkColdest(uint8_t list_index, NodeId node) {
  List& list = lists_[list_index];
  Link& link = links_[node];
  FIRN_CHECK(link.list == kNoList);
  link.list = list_index;
  link.warmer = list.coldest;
  (list.coldest == kNoNode ? list.warmest : links_[list.coldest].colder) = node;
  list.coldest = node;
  ++list.count;
}

void PrefixLru::LinkBehind(NodeId warmer, NodeId node) {
  Link& before = links_[warmer];
  if (before.colder == kNoNode) {
    LinkColdest(before.list, node);
    return;
  }
  Link& link = links_[node];
  FIRN_CHECK(link.list == kNoList);
  link.list = before.list;
  link.warmer = warmer;
  link.colder = before.colder;
  links_[before.colder].warmer = node;
  before.colder = node;
  ++lists_[link.list].count;
}

void PrefixLru::Insert(uint8_t tier, NodeId node, NodeKind kind) {
  FIRN_CHECK(tier < kTiersMax);
  if (node >= links_.size()) links_.resize(static_cast<size_t>(node) + 1);
  LinkWarmest(ListOf(tier, kind), node);
  links_[node].stamp = uses_ - kFreshUses - 1;  // Not fresh: Access files it where it belongs.
  Access(node);
}

void PrefixLru::Remove(NodeId node) {
  FIRN_CHECK(node < links_.size());
  Unlink(node);
}

void PrefixLru::ChangeKind(NodeId node, NodeKind kind) {
  const uint8_t before = links_[node].list, tier = static_cast<uint8_t>(before / std::size(kNodeKinds));
  const uint8_t list = ListOf(tier, kind);
  if (before == list) return;
  Unlink(node);
  NodeId parent = before == ListOf(tier, NodeKind::kRecent) ? view_->ParentNode(node) : kNoNode;
  if (parent != kNoNode && parent < links_.size() && links_[parent].list == list) return LinkBehind(parent, node);
  // A degraded copy was the coldest of its kind; among the narrow ones it is filed as just degraded, which keeps the
  // order in which the planes were taken.
  LinkWarmest(list, node);
}

void PrefixLru::Access(NodeId node) {
  FIRN_CHECK(node < links_.size() && links_[node].list != kNoList);
  path_.clear();
  NodeId at = node;
  while (at != kNoNode && (at == node || !IsFresh(at))) {
    path_.push_back(at);
    at = view_->ParentNode(at);
    if (at != kNoNode && (at >= links_.size() || links_[at].list == kNoList)) at = kNoNode;
  }
  NodeId warmer = at;  // The nearest ancestor used just now, or nobody.
  if (warmer == kNoNode) ++uses_;
  while (!path_.empty()) {
    NodeId moved = path_.back();
    path_.pop_back();
    uint8_t list = links_[moved].list;
    Unlink(moved);
    if (warmer != kNoNode && links_[warmer].list == list) {
      LinkBehind(warmer, moved);
    } else {
      LinkWarmest(list, moved);
    }
    links_[moved].stamp = warmer == kNoNode ? uses_ : links_[warmer].stamp;
    warmer = moved;
  }
}

void PrefixLru::Cool(NodeId node) {
  uint8_t list = links_[node].list;
  Unlink(node);
  LinkColdest(list, node);
  links_[node].stamp = uses_ - kFreshUses - 1;
}

void PrefixLru::Coldest(uint8_t tier, NodeKind kind, size_t limit, absl::FunctionRef<Verdict(NodeId)> judge,
                        std::vector<NodeId>* victims) {
  uint8_t list_index = ListOf(tier, kind);
  NodeId at = lists_[list_index].coldest;
  size_t looks = lists_[list_index].count;
  for (size_t taken = 0; taken < limit && looks > 0 && at != kNoNode; --looks) {
    NodeId next = links_[at].warmer;
    if (judge(at) == Verdict::kTake) {
      victims->push_back(at);
      ++taken;
    } else if (next != kNoNode) {
      // Protected: out of the way, so that the next search does not start with it again.
      Unlink(at);
      LinkWarmest(list_index, at);
    }
    at = next;
  }
}

size_t PrefixLru::Count(uint8_t tier, NodeKind kind) const { return lists_[ListOf(tier, kind)].count; }

std::vector<NodeId> PrefixLru::Order(uint8_t tier, NodeKind kind) const {
  std::vector<NodeId> order;
  for (NodeId at = lists_[ListOf(tier, kind)].coldest; at != kNoNode; at = links_[at].warmer) order.push_back(at);
  return order;
}

}  // namespace firn
