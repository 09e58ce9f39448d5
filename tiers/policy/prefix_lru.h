// Prefix-aware LRU: least recently used first, and of one use of a chain the leaves before their parents.
//
// A block is only useful while its whole prefix is there, so a use of a block is a use of its ancestors. Moving a whole
// chain to the front at every access would cost its length; instead a block used right after its parent is filed just
// behind it, and ancestors are moved only when they have grown stale. A chain used in order costs O(1) a block. Memory:
// 16 bytes a node id.
#pragma once

#include <array>
#include <iterator>
#include <memory>
#include <vector>

#include "tiers/policy/policy.h"

namespace firn {

class PrefixLru final : public Policy {
 public:
  explicit PrefixLru(const PolicyView* view) : view_(view) {}  // Not owned.

  std::string_view name() const override { return "prefix-lru"; }
  void Insert(uint8_t tier, NodeId node, NodeKind kind) override;
  void Remove(NodeId node) override;
  void ChangeKind(NodeId node, NodeKind kind) override;
  NodeKind KindOf(NodeId node) const override {
    return static_cast<NodeKind>(links_[node].list % std::size(kNodeKinds));
  }
  void Access(NodeId node) override;
  void Cool(NodeId node) override;
  void Coldest(uint8_t tier, NodeKind kind, size_t limit, absl::FunctionRef<Verdict(NodeId)> judge,
               std::vector<NodeId>* victims) override;
  size_t Count(uint8_t tier, NodeKind kind) const override;
  std::vector<NodeId> Order(uint8_t tier, NodeKind kind) const override;

 private:
  static constexpr uint8_t kNoList = 0xFF;
  // How many other chains may have been used since a parent was, for it to count as just used.
  static constexpr uint32_t kFreshUses = 16;

  struct Link {
    NodeId warmer = kNoNode;
    NodeId colder = kNoNode;
    uint32_t stamp = 0;
    uint8_t list = kNoList;
  };
  struct List {
    NodeId warmest = kNoNode;
    NodeId coldest = kNoNode;
    size_t count = 0;
  };

  static uint8_t ListOf(uint8_t tier, NodeKind kind) {
    return static_cast<uint8_t>(tier * std::size(kNodeKinds) + static_cast<uint8_t>(kind));
  }
  void Unlink(NodeId node);
  void LinkWarmest(uint8_t list, NodeId node);
  void LinkColdest(uint8_t list, NodeId node);
  void LinkBehind(NodeId warmer, NodeId node);
  bool IsFresh(NodeId node) const { return uses_ - links_[node].stamp <= kFreshUses; }

  const PolicyView* view_;
  std::vector<Link> links_;  // By node id.
  std::array<List, kTiersMax * std::size(kNodeKinds)> lists_;
  std::vector<NodeId> path_;  // Scratch of Access.
  uint32_t uses_ = 0;         // Wraps; only differences are looked at.
};

}  // namespace firn
