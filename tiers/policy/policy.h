// Which copies leave a tier first: the seam behind which policies live. Pure: no I/O, no clock, no allocation per
// decision.
//
// A policy orders the copies of each tier by worth. It knows them only as node ids that the store gives out, small and
// reused, and asks the store who a node's parent is. The store asks for the coldest nodes and judges each one itself
// (pins, moves in flight, hotter children), so that protection rules live in one place and policies only order.
// Threads: not thread-safe; the store calls it under its lock. Limits: 8 tiers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"

namespace firn {

using NodeId = uint32_t;
inline constexpr NodeId kNoNode = 0xFFFFFFFFu;
inline constexpr size_t kTiersMax = 8;

class PolicyView {
 public:
  virtual ~PolicyView() = default;
  // The node of the parent block's copy in the same tier, or kNoNode.
  virtual NodeId ParentNode(NodeId node) const = 0;
};

// What may be done with a node: copies that still have planes to give are apart from those that have not, since planes
// go before blocks do; and copies of blocks in a recent window, of either sort, are apart from both, since they go
// last.
enum class NodeKind : uint8_t { kDegradable = 0, kNarrow = 1, kRecent = 2 };
inline constexpr NodeKind kNodeKinds[] = {NodeKind::kDegradable, NodeKind::kNarrow, NodeKind::kRecent};

enum class Verdict : uint8_t {
  kTake,  // A victim.
  kSkip,  // Protected now; look at it again after everything else.
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;

  virtual void Insert(uint8_t tier, NodeId node, NodeKind kind) = 0;
  virtual void Remove(NodeId node) = 0;
  // The copy lost its spare planes (or got some), or its block entered or left a window. What leaves one is filed with
  // its chain: next to its parent, where that is among the nodes of its new kind.
  virtual void ChangeKind(NodeId node, NodeKind kind) = 0;
  virtual NodeKind KindOf(NodeId node) const = 0;
  // A use of the block through this copy.
  virtual void Access(NodeId node) = 0;
  // The worker says that it will not come back soon.
  virtual void Cool(NodeId node) = 0;

  // Appends up to `limit` nodes of the tier to `victims`, coldest first, that `judge` takes. Looks at each node at most
  // once.
  virtual void Coldest(uint8_t tier, NodeKind kind, size_t limit, absl::FunctionRef<Verdict(NodeId)> judge,
                       std::vector<NodeId>* victims) = 0;
  virtual size_t Count(uint8_t tier, NodeKind kind) const = 0;
  // Every node of a list, coldest first: for audits and tests.
  virtual std::vector<NodeId> Order(uint8_t tier, NodeKind kind) const = 0;
};

}  // namespace firn
