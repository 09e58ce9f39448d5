#include "tiers/store/recent_windows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace firn {
namespace {

constexpr uint32_t kBlockTokens = 16;

// A table with chains of blocks of 16 tokens, and its windows.
struct Chains {
  EntryId Add(EntryId parent, uint32_t tokens = kBlockTokens, uint32_t ns = 0) {
    EntryId id = table.Insert({ns, 0, Sha256(AsBytes(std::to_string(++last)))});
    Entry& e = table.entry(id);
    e.tokens = tokens;
    if (parent == kNoEntry) return id;
    e.first_token = table.entry(parent).first_token + table.entry(parent).tokens;
    table.LinkParent(id, parent);
    return id;
  }
  // As a put does: the block and its use.
  EntryId Put(EntryId parent, uint32_t window_tokens, uint32_t tokens = kBlockTokens) {
    EntryId id = Add(parent, tokens);
    windows.Use(id, window_tokens, now_s, &changed);
    return id;
  }
  std::vector<EntryId> PutChain(uint32_t blocks, uint32_t window_tokens, EntryId parent = kNoEntry) {
    std::vector<EntryId> ids;
    for (uint32_t i = 0; i < blocks; ++i) ids.push_back(Put(ids.empty() ? parent : ids.back(), window_tokens));
    return ids;
  }
  void Erase(EntryId id) {
    windows.Remove(id, &changed);
    table.Erase(id);
  }
  bool Recent(EntryId id) const { return (table.entry(id).flags & Entry::kRecent) != 0; }
  std::string Recent(const std::vector<EntryId>& ids) const {
    std::string out;
    for (EntryId id : ids) out += Recent(id) ? 'r' : '.';
    return out;
  }
  void ExpectConsistent() const {
    for (const std::string& finding : windows.Audit()) ADD_FAILURE() << finding;
  }

  EntryTable table;
  RecentWindows windows{&table};
  RecentWindows::Changed changed;
  uint32_t now_s = 100;
  uint64_t last = 0;
};

TEST(RecentWindows, HoldWholeBlocksOfTheLastTokens) {
  struct Case {
    uint32_t tokens;
    const char* recent;
  };
  for (const Case& c : {Case{0, "......"},
                        {1, ".....r"},
                        {16, ".....r"},
                        {17, "....rr"},
                        {32, "....rr"},
                        {33, "...rrr"},
                        {96, "rrrrrr"},
                        {1 << 20, "rrrrrr"}}) {
    Chains chains;
    EXPECT_EQ(chains.Recent(chains.PutChain(6, c.tokens)), c.recent) << c.tokens;
    chains.ExpectConsistent();
  }
}

TEST(RecentWindows, ABlockWithoutParentOrChildrenIsInNone) {
  Chains chains;
  EntryId alone = chains.Put(kNoEntry, 64);
  EXPECT_FALSE(chains.Recent(alone)) << "nothing says that it is part of a sequence";
  EXPECT_EQ(chains.windows.MemoryBytes(), 0u);
  EntryId second = chains.Put(alone, 64);
  EXPECT_TRUE(chains.Recent(alone) && chains.Recent(second));
  chains.ExpectConsistent();
}

TEST(RecentWindows, EveryEndOfABranchHasItsOwn) {
  Chains chains;
  auto stem = chains.PutChain(4, 48);
  auto left = chains.PutChain(1, 48, stem.back());
  auto right = chains.PutChain(3, 48, stem.back());
  EXPECT_EQ(chains.Recent(stem), "..rr") << "as near to the end on the left as the window is long";
  EXPECT_EQ(chains.Recent(left) + chains.Recent(right), "rrrr");
  chains.Erase(left[0]);
  EXPECT_EQ(chains.Recent(stem), "....");
  chains.ExpectConsistent();
}

TEST(RecentWindows, MoveOnWhereBlocksAreLinkedOutOfOrder) {
  Chains chains;
  auto chain = chains.PutChain(4, 32);
  EntryId missing = chains.Add(kNoEntry), next = chains.Add(kNoEntry);  // `next` came first; its end as well.
  chains.table.entry(missing).first_token = 64;
  chains.table.entry(next).first_token = 80;
  EntryId end = chains.Put(next, 32);
  chains.table.LinkParent(next, missing);
  chains.table.LinkParent(missing, chain.back());
  chains.windows.Use(missing, 32, chains.now_s, &chains.changed);
  EXPECT_EQ(chains.Recent(chain), "....");
  EXPECT_TRUE(chains.Recent(next) && chains.Recent(end));
  EXPECT_EQ(chains.windows.windows(), 1u);
  chains.ExpectConsistent();
}

TEST(RecentWindows, EndAMinuteAfterTheLastUse) {
  Chains chains;
  auto idle = chains.PutChain(3, 32), used = chains.PutChain(3, 32);
  chains.now_s += RecentWindows::kGrowingSeconds - 1;
  chains.windows.Expire(chains.now_s, 100, &chains.changed);
  EXPECT_EQ(chains.windows.windows(), 2u);
  chains.windows.Use(used.back(), 32, chains.now_s, &chains.changed);
  chains.windows.Use(idle.front(), 32, chains.now_s, &chains.changed);  // No end: says nothing about the sequence.
  chains.now_s += 1;
  chains.windows.Expire(chains.now_s, 100, &chains.changed);
  EXPECT_EQ(chains.Recent(idle) + chains.Recent(used), "....rr");
  chains.windows.Use(idle.back(), 32, chains.now_s, &chains.changed);  // Read again.
  EXPECT_EQ(chains.Recent(idle), ".rr");
  chains.ExpectConsistent();
}

TEST(RecentWindows, ShrinkFromTheOldSide) {
  Chains chains;
  auto chain = chains.PutChain(6, 64);
  EXPECT_EQ(chains.Recent(chain), "..rrrr");
  chains.changed.clear();
  EntryId oldest = chains.windows.OldestWith(chain.back());
  EXPECT_EQ(oldest, chain[2]);
  chains.windows.Release(oldest, &chains.changed);
  EXPECT_EQ(chains.changed, (RecentWindows::Changed{chain[2]}));
  EXPECT_EQ(chains.Recent(chain), "...rrr");
  chains.windows.Release(chain[4], &chains.changed);
  EXPECT_EQ(chains.Recent(chain), ".....r");
  chains.windows.EndAllWith(chain[5], &chains.changed);
  EXPECT_EQ(chains.windows.windows(), 0u);
  chains.ExpectConsistent();
}

TEST(RecentWindows, FollowTheEndWhenItGoes) {
  Chains chains;
  auto chain = chains.PutChain(6, 48);
  chains.Erase(chain.back());
  chain.pop_back();
  EXPECT_EQ(chains.Recent(chain), "...rr") << "what was let go of is not taken back";
  EntryId next = chains.Put(chain.back(), 48);
  EXPECT_EQ(chains.Recent(chain), "...rr");
  EXPECT_TRUE(chains.Recent(next));
  chains.Erase(chain[4]);  // A gap.
  EXPECT_TRUE(chains.Recent(next));
  EXPECT_FALSE(chains.Recent(chain[3]));
  chains.ExpectConsistent();
}

TEST(RecentWindows, AreFittedToAnotherPlan) {
  Chains chains;
  auto chain = chains.PutChain(6, 64), other = chains.PutChain(6, 64);
  for (EntryId id : other) chains.table.entry(id).ns = 1;
  uint32_t at = 0, calls = 1;
  while (chains.windows.Fit(0, 32, 1, &at, &chains.changed)) ++calls;
  EXPECT_GT(calls, 1u) << "in steps";
  EXPECT_EQ(chains.Recent(chain) + chains.Recent(other), "....rr..rrrr");
  at = 0;
  EXPECT_FALSE(chains.windows.Fit(0, 80, 1000, &at, &chains.changed));
  EXPECT_EQ(chains.Recent(chain), ".rrrrr");
  at = 0;
  EXPECT_FALSE(chains.windows.Fit(0, 0, 1000, &at, &chains.changed));
  EXPECT_EQ(chains.Recent(chain) + chains.Recent(other), "........rrrr");
  chains.ExpectConsistent();
}

TEST(RecentWindows, HaveLimits) {
  Chains chains;
  // One window has no more blocks than that, however short they are.
  EntryId at = chains.Add(kNoEntry, 1);
  std::vector<EntryId> chain = {at};
  for (uint32_t i = 0; i < RecentWindows::kWindowBlocksMax + 50; ++i) {
    chain.push_back(at = chains.Put(at, 1 << 20, 1));
  }
  EXPECT_EQ(chains.windows.blocks(), RecentWindows::kWindowBlocksMax);
  // Nor is one block in more windows than that.
  auto stem = chains.PutChain(4, 64);
  for (uint32_t i = 0; i < RecentWindows::kWindowsOfABlockMax + 10; ++i) chains.Put(stem.back(), 64);
  EXPECT_EQ(chains.Recent(stem), ".rrr");
  chains.ExpectConsistent();
  // Over the limit of all, those unused longest end.
  for (uint32_t i = 0; i < 20; ++i) {
    auto trunk = chains.PutChain(1000, 1 << 20);
    for (uint32_t fork = 1; fork < RecentWindows::kWindowsOfABlockMax; ++fork) chains.Put(trunk.back(), 1 << 20);
    EXPECT_TRUE(chains.Recent(trunk.front()));
  }
  EXPECT_FALSE(chains.Recent(chain.back()) || chains.Recent(stem.back()));
  chains.ExpectConsistent();
}

// What a window should hold, by looking at the whole tree.
TEST(RecentWindows, AreWhatALookAtTheWholeTreeSays) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 rng(seed);
  for (int round = 0; round < 30; ++round) {
    Chains chains;
    const uint32_t tokens = 1 + rng() % 100;
    std::vector<EntryId> live;
    std::set<EntryId> parents;
    for (int step = 0; step < 120; ++step) {
      EntryId parent =
          live.empty() || rng() % 8 == 0 ? kNoEntry : live[live.size() - 1 - rng() % std::min<size_t>(live.size(), 4)];
      live.push_back(chains.Put(parent, tokens, 1 + rng() % 32));
      if (parent != kNoEntry) parents.insert(parent);
    }
    std::set<EntryId> expected;
    for (EntryId end : live) {
      const Entry& last = chains.table.entry(end);
      if (parents.contains(end) || last.parent == kNoEntry) continue;
      for (EntryId at = end; at != kNoEntry; at = chains.table.entry(at).parent) {
        const Entry& e = chains.table.entry(at);
        if (last.first_token + last.tokens - e.first_token - e.tokens < tokens) expected.insert(at);
      }
    }
    for (EntryId id : live) EXPECT_EQ(chains.Recent(id), expected.contains(id)) << id;
    chains.ExpectConsistent();
    // Changes told one by one come to the same.
    std::set<EntryId> told;
    for (EntryId id : chains.changed) {
      if (!told.insert(id).second) told.erase(id);
    }
    EXPECT_EQ(told, expected);
    // And whatever happens then, nothing dangles.
    for (int step = 0; step < 200 && !live.empty(); ++step) {
      size_t which = rng() % live.size();
      switch (rng() % 6) {
        case 0:
        case 1:
          live.push_back(chains.Put(live[which], tokens, 1 + rng() % 32));
          break;
        case 2:
        case 3:
          chains.Erase(live[which]);
          live.erase(live.begin() + static_cast<long>(which));
          break;
        case 4:
          if (chains.Recent(live[which])) chains.windows.Release(live[which], &chains.changed);
          break;
        default:
          chains.now_s += rng() % 8;
          chains.windows.Expire(chains.now_s, 16, &chains.changed);
      }
      chains.ExpectConsistent();
    }
    for (EntryId id : live) chains.Erase(id);
    EXPECT_EQ(chains.windows.blocks(), 0u);
    EXPECT_EQ(chains.windows.windows(), 0u);
  }
}

}  // namespace
}  // namespace firn
