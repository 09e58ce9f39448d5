#include "tiers/policy/prefix_lru.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace firn {
namespace {

class FakeView final : public PolicyView {
 public:
  NodeId ParentNode(NodeId node) const override {
    auto it = parents.find(node);
    return it == parents.end() ? kNoNode : it->second;
  }
  std::map<NodeId, NodeId> parents;
};

std::vector<NodeId> TakeAll(PrefixLru& lru, uint8_t tier, size_t limit = 1000) {
  std::vector<NodeId> victims;
  lru.Coldest(
      tier, NodeKind::kNarrow, limit, [](NodeId) { return Verdict::kTake; }, &victims);
  return victims;
}

TEST(PrefixLru, ColdestFirst) {
  FakeView view;
  PrefixLru lru(&view);
  for (NodeId n : {0, 1, 2}) lru.Insert(0, n, NodeKind::kNarrow);
  EXPECT_EQ(TakeAll(lru, 0), (std::vector<NodeId>{0, 1, 2}));
  lru.Access(0);
  EXPECT_EQ(TakeAll(lru, 0), (std::vector<NodeId>{1, 2, 0}));
  EXPECT_EQ(TakeAll(lru, 0, 1), (std::vector<NodeId>{1}));
}

TEST(PrefixLru, LeavesOfAChainGoBeforeTheirParents) {
  FakeView view;
  view.parents = {{1, 0}, {2, 1}, {3, 2}};
  PrefixLru lru(&view);
  for (NodeId n : {0, 1, 2, 3}) lru.Insert(0, n, NodeKind::kNarrow);
  EXPECT_EQ(TakeAll(lru, 0), (std::vector<NodeId>{3, 2, 1, 0}));
  lru.Insert(0, 10, NodeKind::kNarrow);
  EXPECT_EQ(TakeAll(lru, 0), (std::vector<NodeId>{3, 2, 1, 0, 10}));
  for (NodeId n = 20; n < 60; ++n) lru.Insert(0, n, NodeKind::kNarrow);  // The chain grows stale.
  lru.Access(3);  // A use of the leaf alone is a use of its whole prefix.
  auto order = TakeAll(lru, 0);
  EXPECT_EQ(std::vector<NodeId>(order.end() - 4, order.end()), (std::vector<NodeId>{3, 2, 1, 0}));
}

TEST(PrefixLru, SkippedNodesAreLookedAtOnceAndMoveAway) {
  FakeView view;
  PrefixLru lru(&view);
  for (NodeId n = 0; n < 10; ++n) lru.Insert(0, n, NodeKind::kNarrow);
  std::map<NodeId, int> looks;
  std::vector<NodeId> victims;
  lru.Coldest(
      0, NodeKind::kNarrow, 2,
      [&](NodeId n) {
        ++looks[n];
        return n < 5 ? Verdict::kSkip : Verdict::kTake;
      },
      &victims);
  EXPECT_EQ(victims, (std::vector<NodeId>{5, 6}));
  for (auto& [node, count] : looks) EXPECT_EQ(count, 1) << node;
  EXPECT_EQ(lru.Order(0, NodeKind::kNarrow).front(), 5u);
  victims.clear();
  lru.Coldest(
      0, NodeKind::kNarrow, 2, [](NodeId) { return Verdict::kSkip; }, &victims);
  EXPECT_TRUE(victims.empty());
  EXPECT_EQ(lru.Count(0, NodeKind::kNarrow), 10u);
}

TEST(PrefixLru, KindsAndTiersAreApart) {
  FakeView view;
  PrefixLru lru(&view);
  lru.Insert(0, 0, NodeKind::kDegradable);
  lru.Insert(1, 1, NodeKind::kDegradable);
  EXPECT_TRUE(TakeAll(lru, 0).empty());
  lru.ChangeKind(0, NodeKind::kNarrow);
  EXPECT_EQ(TakeAll(lru, 0), (std::vector<NodeId>{0}));
  EXPECT_EQ(lru.Count(1, NodeKind::kDegradable), 1u);
  lru.Remove(0);
  EXPECT_EQ(lru.Count(0, NodeKind::kNarrow), 0u);
}

TEST(PrefixLru, WhatLeavesAWindowIsFiledWithItsChain) {
  FakeView view;
  view.parents = {{1, 0}, {2, 1}, {3, 2}, {21, 20}};
  PrefixLru lru(&view);
  for (NodeId n : {0, 1}) lru.Insert(0, n, NodeKind::kNarrow);
  for (NodeId n : {2, 3}) lru.Insert(0, n, NodeKind::kRecent);
  lru.Insert(0, 10, NodeKind::kNarrow);
  EXPECT_EQ(lru.Order(0, NodeKind::kRecent), (std::vector<NodeId>{3, 2})) << "leaves first there, too";
  EXPECT_EQ(TakeAll(lru, 0), (std::vector<NodeId>{1, 0, 10})) << "apart from what may go";
  lru.ChangeKind(2, NodeKind::kNarrow);
  lru.ChangeKind(3, NodeKind::kNarrow);
  EXPECT_EQ(TakeAll(lru, 0), (std::vector<NodeId>{3, 2, 1, 0, 10}));
  lru.Insert(0, 21, NodeKind::kRecent);  // Its parent is not here.
  lru.ChangeKind(21, NodeKind::kNarrow);
  EXPECT_EQ(TakeAll(lru, 0).back(), 21u);
}

TEST(PrefixLru, ListsStayWholeUnderRandomUse) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 rng(seed);
  FakeView view;
  PrefixLru lru(&view);
  std::map<NodeId, std::pair<uint8_t, NodeKind>> model;
  for (int step = 0; step < 20000; ++step) {
    NodeId node = rng() % 200;
    auto it = model.find(node);
    switch (rng() % 6) {
      case 0:
      case 1:
        if (it == model.end()) {
          if (rng() % 2) view.parents[node] = node / 2 == node ? kNoNode : node / 2;
          auto where = std::pair<uint8_t, NodeKind>(rng() % 3, NodeKind(rng() % 3));
          lru.Insert(where.first, node, where.second);
          model[node] = where;
        }
        break;
      case 2:
        if (it != model.end()) lru.Access(node);
        break;
      case 3:
        if (it != model.end()) {
          lru.Remove(node);
          model.erase(it);
        }
        break;
      case 4:
        if (it != model.end()) lru.ChangeKind(node, it->second.second = NodeKind(rng() % 3));
        break;
      default:
        if (it != model.end()) lru.Cool(node);
    }
  }
  std::set<NodeId> seen;
  for (uint8_t tier = 0; tier < 3; ++tier) {
    for (NodeKind kind : kNodeKinds) {
      auto order = lru.Order(tier, kind);
      EXPECT_EQ(order.size(), lru.Count(tier, kind));
      for (NodeId node : order) {
        EXPECT_TRUE(seen.insert(node).second) << node;
        EXPECT_EQ(model.at(node), std::pair(tier, kind));
      }
    }
  }
  EXPECT_EQ(seen.size(), model.size());
}

}  // namespace
}  // namespace firn
