// What `firn verify` and the randomized tests ask: does every counter equal a recount?
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/status.h"
#include "tiers/store/store_impl.h"

namespace firn {

AuditReport StoreImpl::Audit() const {
  std::lock_guard lock(mu_);
  AuditReport report;
  auto expect = [&report](bool holds, std::string finding) {
    if (holds) return;
    report.consistent = false;
    report.findings.push_back(std::move(finding));
  };
  std::vector<uint64_t> copies(options_.tiers.size()), bytes(options_.tiers.size());
  std::vector<std::array<uint64_t, 17>> by_class(options_.tiers.size());
  std::vector<uint64_t> recent(options_.tiers.size()), recent_bytes(options_.tiers.size());
  for (std::string& finding : windows_.Audit()) expect(false, std::move(finding));
  uint64_t pins = 0, moving = 0;
  table_.ForEach([&](EntryId id) {
    const Entry& e = table_.entry(id);
    pins += e.pins;
    if (e.flags & Entry::kMoving) ++moving;
    expect(table_.Find(NameOf(e)) == id, fmt::format("block {} is not found under its own name", e.key.Hex()));
    TokenRanks ranks = table_.RanksOf(id);
    expect(ranks == nullptr || (ranks->size() == e.tokens && RanksMatterLocked(id)),
           fmt::format("block {} keeps ranks of tokens that it has no use for", e.key.Hex()));
    expect(e.first_copy != kNoNode, fmt::format("block {} has no copy", e.key.Hex()));
    int previous = -1;
    for (NodeId node = e.first_copy; node != kNoNode; node = table_.copy(node).next) {
      const HeldCopy& held = table_.copy(node);
      if (e.flags & Entry::kRecent) ++recent[held.tier], recent_bytes[held.tier] += WindowBytes(held.tier, *held.copy);
      expect(held.used && held.entry == id, fmt::format("copy {} does not belong to its block", node));
      expect(held.tier > previous, fmt::format("block {} lists its copies out of order", e.key.Hex()));
      previous = held.tier;
      ++copies[held.tier];
      bytes[held.tier] += held.copy->StoredBytes();
      ++by_class[held.tier][static_cast<size_t>(held.served.Min())];
    }
    if (e.parent != kNoEntry) {
      expect((table_.entry(e.parent).flags & Entry::kUsed) != 0,
             fmt::format("block {} has a parent that is gone", e.key.Hex()));
    }
  });
  uint64_t session_pins = 0;
  for (const auto& [id, session] : sessions_) {
    for (const auto& [name, count] : session.pins) session_pins += count;
  }
  expect(pins == pins_, fmt::format("pins: counted {}, recounted {}", pins_, pins));
  expect(session_pins == pins_, fmt::format("pins: counted {}, held by sessions {}", pins_, session_pins));
  expect(moving <= moves_in_flight_, fmt::format("moves: counted {}, blocks moving {}", moves_in_flight_, moving));
  uint64_t put_bytes = 0;
  for (const auto& [name, put] : puts_) put_bytes += put.bytes;
  expect(put_bytes == totals_.puts_in_flight_bytes,
         fmt::format("bytes of puts in flight: counted {}, recounted {}", totals_.puts_in_flight_bytes, put_bytes));
  for (size_t i = 0; i < options_.tiers.size(); ++i) {
    const std::string& name = options_.tiers[i].name;
    uint8_t tier = static_cast<uint8_t>(i);
    size_t listed = 0;
    for (NodeKind kind : kNodeKinds) listed += policy_->Count(tier, kind);
    expect(listed == copies[i],
           fmt::format("tier \"{}\": the policy lists {} copies, the index {}", name, listed, copies[i]));
    size_t apart = policy_->Count(tier, NodeKind::kRecent);
    expect(apart == recent[i],
           fmt::format("tier \"{}\": the policy lists {} recent copies, the index {}", name, apart, recent[i]));
    expect(recent_bytes[i] == tiers_[i].recent_bytes,
           fmt::format("tier \"{}\": {} bytes of recent copies counted, {} recounted", name, tiers_[i].recent_bytes,
                       recent_bytes[i]));
    expect(by_class[i] == tiers_[i].by_class,
           fmt::format("tier \"{}\": the counts by class do not equal a recount", name));
    TierUsage usage = options_.tiers[i].tier->Usage();
    expect(usage.used_bytes <= std::max(usage.capacity_bytes, tiers_[i].outgrown_bytes),
           fmt::format("tier \"{}\": {} bytes used of {}", name, usage.used_bytes, usage.capacity_bytes));
    expect(bytes[i] <= usage.used_bytes,
           fmt::format("tier \"{}\": its copies have {} bytes, it counts {}", name, bytes[i], usage.used_bytes));
    if (moves_in_flight_ == 0 && puts_.empty() && readers_ == 0 && flights_.empty()) {
      expect(usage.copies == copies[i],
             fmt::format("tier \"{}\": it counts {} copies, the index {}", name, usage.copies, copies[i]));
      expect(tiers_[i].leaving_bytes == 0,
             fmt::format("tier \"{}\": {} bytes leave it while nothing moves", name, tiers_[i].leaving_bytes));
    }
  }
  return report;
}

}  // namespace firn
