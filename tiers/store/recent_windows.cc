#include "tiers/store/recent_windows.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace firn {
namespace {

int64_t EndOf(const Entry& e) { return int64_t{e.first_token} + e.tokens; }

}  // namespace

bool RecentWindows::Within(EntryId id, EntryId end, uint32_t tokens) const {
  return EndOf(table_->entry(end)) - EndOf(table_->entry(id)) < tokens;
}

uint32_t RecentWindows::WindowEndingAt(EntryId id) const {
  auto held = held_.find(id);
  if (held == held_.end()) return kNone;
  for (uint32_t m = held->second.first; m != kNone; m = members_[m].next) {
    if (members_[m].newer == kNone) return members_[m].window;
  }
  return kNone;
}

void RecentWindows::Use(EntryId id, uint32_t tokens, uint32_t now_s, Changed* changed) {
  const Entry& e = table_->entry(id);
  uint32_t window = WindowEndingAt(id);
  if (tokens == 0) {
    if (window != kNone) End(window, changed);
    return;
  }
  if (e.first_child != kNoEntry) {
    // Blocks may be linked out of order: what was an end then is none any more.
    if (window != kNone) End(window, changed);
    uint32_t above = e.parent == kNoEntry ? kNone : WindowEndingAt(e.parent);
    if (above != kNone) End(above, changed);
    return;
  }
  if (e.parent == kNoEntry) return;
  if (window == kNone) {
    window = WindowEndingAt(e.parent);
    if (window == kNone) {
      window = windows_.Allocate();
    } else {
      UnlinkUsed(window);
    }
    AddNewest(window, id, changed);
  } else {
    UnlinkUsed(window);
  }
  windows_[window].until_s = now_s + kGrowingSeconds;
  LinkUsed(window);
  Reach(window, tokens, changed);
  while (members_.in_use() > kMembersMax && longest_unused_ != window) End(longest_unused_, changed);
}

void RecentWindows::Reach(uint32_t window, uint32_t tokens, Changed* changed) {
  const EntryId end = members_[windows_[window].newest].entry;
  while (windows_[window].blocks > 1 && (windows_[window].blocks > kWindowBlocksMax ||
                                         !Within(members_[windows_[window].oldest].entry, end, tokens))) {
    DropOldest(window, changed);
  }
  while (windows_[window].blocks < kWindowBlocksMax) {
    EntryId above = table_->entry(members_[windows_[window].oldest].entry).parent;
    if (above == kNoEntry || !Within(above, end, tokens)) return;
    auto held = held_.find(above);
    if (held != held_.end() && held->second.windows >= kWindowsOfABlockMax) return;
    AddOldest(window, above, changed);
  }
}

uint32_t RecentWindows::AddMember(uint32_t window, EntryId id, Changed* changed) {
  uint32_t member = members_.Allocate();
  Held& held = held_[id];
  members_[member] = {.entry = id, .window = window, .next = held.first};
  held.first = member;
  if (++held.windows == 1) {
    table_->entry(id).flags |= Entry::kRecent;
    changed->push_back(id);
  }
  ++windows_[window].blocks;
  return member;
}

void RecentWindows::AddNewest(uint32_t window, EntryId id, Changed* changed) {
  uint32_t member = AddMember(window, id, changed);
  Window& w = windows_[window];
  members_[member].older = w.newest;
  (w.newest == kNone ? w.oldest : members_[w.newest].newer) = member;
  w.newest = member;
}

void RecentWindows::AddOldest(uint32_t window, EntryId id, Changed* changed) {
  uint32_t member = AddMember(window, id, changed);
  Window& w = windows_[window];
  members_[member].newer = w.oldest;
  (w.oldest == kNone ? w.newest : members_[w.oldest].older) = member;
  w.oldest = member;
}

void RecentWindows::DropMember(uint32_t member, Changed* changed) {
  const Member m = members_[member];
  Window& w = windows_[m.window];
  (m.older == kNone ? w.oldest : members_[m.older].newer) = m.newer;
  (m.newer == kNone ? w.newest : members_[m.newer].older) = m.older;
  --w.blocks;
  auto held = held_.find(m.entry);
  FIRN_CHECK(held != held_.end());
  uint32_t* link = &held->second.first;
  while (*link != member) link = &members_[*link].next;
  *link = m.next;
  members_.Free(member);
  if (--held->second.windows > 0) return;
  held_.erase(held);
  table_->entry(m.entry).flags &= static_cast<uint16_t>(~Entry::kRecent);
  changed->push_back(m.entry);
}

void RecentWindows::DropOldest(uint32_t window, Changed* changed) { DropMember(windows_[window].oldest, changed); }

void RecentWindows::DropThrough(uint32_t member, Changed* changed) {
  const uint32_t window = members_[member].window;
  if (members_[member].newer == kNone) return End(window, changed);
  for (bool last = false; !last;) {
    last = windows_[window].oldest == member;
    DropOldest(window, changed);
  }
}

void RecentWindows::End(uint32_t window, Changed* changed) {
  UnlinkUsed(window);
  while (windows_[window].oldest != kNone) DropOldest(window, changed);
  windows_.Free(window);
}

void RecentWindows::Remove(EntryId id, Changed* changed) {
  const Entry& e = table_->entry(id);
  // The block before it is the sequence's end now, unless others follow that.
  bool alone = e.parent != kNoEntry && table_->entry(e.parent).first_child == id && e.next_sibling == kNoEntry;
  for (auto held = held_.find(id); held != held_.end(); held = held_.find(id)) {
    uint32_t member = held->second.first;
    if (members_[member].newer == kNone && members_[member].older != kNone && alone) {
      DropMember(member, changed);
    } else {
      DropThrough(member, changed);
    }
  }
}

void RecentWindows::Release(EntryId id, Changed* changed) {
  for (auto held = held_.find(id); held != held_.end(); held = held_.find(id)) {
    DropThrough(held->second.first, changed);
  }
}

void RecentWindows::EndAllWith(EntryId id, Changed* changed) {
  for (auto held = held_.find(id); held != held_.end(); held = held_.find(id)) {
    End(members_[held->second.first].window, changed);
  }
}

EntryId RecentWindows::OldestWith(EntryId id) const {
  auto held = held_.find(id);
  FIRN_CHECK(held != held_.end());
  return members_[windows_[members_[held->second.first].window].oldest].entry;
}

void RecentWindows::Expire(uint32_t now_s, uint32_t members_max, Changed* changed) {
  for (uint32_t members = 0; longest_unused_ != kNone && members < members_max;) {
    const Window& w = windows_[longest_unused_];
    if (w.until_s > now_s) return;
    members += w.blocks;
    End(longest_unused_, changed);
  }
}

bool RecentWindows::Fit(uint32_t ns, uint32_t tokens, uint32_t members_max, uint32_t* at, Changed* changed) {
  for (uint32_t members = 0; *at < windows_.size(); ++*at) {
    if (members >= members_max) return true;
    ++members;
    const Window& w = windows_[*at];
    if (w.newest == kNone || table_->entry(members_[w.newest].entry).ns != ns) continue;
    members += w.blocks;
    tokens == 0 ? End(*at, changed) : Reach(*at, tokens, changed);
  }
  return false;
}

void RecentWindows::LinkUsed(uint32_t window) {
  Window& w = windows_[window];
  w.longer_unused = last_used_;
  (last_used_ == kNone ? longest_unused_ : windows_[last_used_].used_later) = window;
  last_used_ = window;
}

void RecentWindows::UnlinkUsed(uint32_t window) {
  Window& w = windows_[window];
  (w.longer_unused == kNone ? longest_unused_ : windows_[w.longer_unused].used_later) = w.used_later;
  (w.used_later == kNone ? last_used_ : windows_[w.used_later].longer_unused) = w.longer_unused;
  w.longer_unused = w.used_later = kNone;
}

uint64_t RecentWindows::MemoryBytes() const {
  return members_.MemoryBytes() + windows_.MemoryBytes() +
         held_.capacity() * (sizeof(std::pair<const EntryId, Held>) + 1);
}

std::vector<std::string> RecentWindows::Audit() const {
  std::vector<std::string> findings;
  auto expect = [&findings](bool holds, std::string finding) {
    if (!holds) findings.push_back(std::move(finding));
  };
  size_t windows = 0, members = 0, flagged = 0, held = 0;
  uint32_t before = kNone;
  for (uint32_t w = longest_unused_; w != kNone && windows <= windows_.in_use();
       before = w, w = windows_[w].used_later) {
    ++windows;
    expect(windows_[w].longer_unused == before, "windows: the list of uses is not linked both ways");
    expect(windows_[w].blocks <= kWindowBlocksMax, fmt::format("windows: one has {} blocks", windows_[w].blocks));
    uint32_t blocks = 0, older = kNone;
    for (uint32_t m = windows_[w].oldest; m != kNone && blocks <= windows_[w].blocks;
         older = m, m = members_[m].newer) {
      ++blocks;
      const Entry& e = table_->entry(members_[m].entry);
      expect(members_[m].window == w && members_[m].older == older, "windows: a member of another window");
      expect((e.flags & Entry::kUsed) && (e.flags & Entry::kRecent), "windows: a member that is not recent");
      expect(older == kNone || e.parent == members_[older].entry,
             "windows: a member does not follow the one before it");
    }
    expect(blocks == windows_[w].blocks,
           fmt::format("windows: {} blocks counted, {} found", windows_[w].blocks, blocks));
    members += blocks;
  }
  expect(windows == windows_.in_use(), fmt::format("windows: {} counted, {} found", windows_.in_use(), windows));
  expect(members == members_.in_use(),
         fmt::format("windows: {} members counted, {} found", members_.in_use(), members));
  for (const auto& [id, row] : held_) {
    uint32_t found = 0;
    for (uint32_t m = row.first; m != kNone && found <= row.windows; m = members_[m].next) {
      ++found;
      expect(members_[m].entry == id, "windows: a member of another block");
    }
    expect(found == row.windows, fmt::format("windows: {} of a block counted, {} found", row.windows, found));
    held += found;
  }
  expect(held == members, fmt::format("windows: {} members by block, {} by window", held, members));
  table_->ForEach([&](EntryId id) { flagged += (table_->entry(id).flags & Entry::kRecent) != 0 ? 1 : 0; });
  expect(flagged == held_.size(), fmt::format("recent blocks: counted {}, recounted {}", held_.size(), flagged));
  return findings;
}

}  // namespace firn
