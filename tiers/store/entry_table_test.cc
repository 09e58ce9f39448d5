#include "tiers/store/entry_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace firn {
namespace {

class PlainCopy final : public Copy {
 public:
  RunMask Runs() const override { return RunMask::All(); }
  uint64_t StoredBytes() const override { return 1; }
};

EntryName Name(uint32_t n) { return {n % 3, static_cast<uint16_t>(n % 2), Sha256(AsBytes(std::to_string(n / 6)))}; }
constexpr ClassPair kExactPair{PrecisionClass::kExact, PrecisionClass::kExact};

TEST(EntryTable, CopiesAreOrderedHotToCold) {
  EntryTable table;
  EntryId id = table.Insert(Name(1));
  EXPECT_EQ(table.HottestTier(id), kTiersMax);
  table.AddCopy(id, 2, std::make_shared<PlainCopy>(), kExactPair);
  table.AddCopy(id, 0, std::make_shared<PlainCopy>(), kExactPair);
  table.AddCopy(id, 1, std::make_shared<PlainCopy>(), kExactPair);
  EXPECT_EQ(table.HottestTier(id), 0);
  EXPECT_NE(table.RemoveCopy(id, 0), nullptr);
  EXPECT_EQ(table.HottestTier(id), 1);
  EXPECT_EQ(table.FindCopy(id, 0), nullptr);
  table.RemoveCopy(id, 2);
  table.RemoveCopy(id, 1);
  table.Erase(id);
  EXPECT_EQ(table.Find(Name(1)), kNoEntry);
  EXPECT_EQ(table.size(), 0u);
  EXPECT_EQ(table.copies(), 0u);
}

TEST(EntryTable, RanksAreCountedAndGoWithTheirEntry) {
  EntryTable table;
  EntryId id = table.Insert(Name(1)), other = table.Insert(Name(2));
  const uint64_t empty = table.MemoryBytes();
  auto ranks = std::make_shared<const std::vector<uint8_t>>(1000, 7);
  table.SetRanks(id, ranks);
  EXPECT_EQ(table.RanksOf(id), ranks);
  EXPECT_EQ(table.RanksOf(other), nullptr);
  const uint64_t one = table.MemoryBytes();
  EXPECT_GE(one, empty + 1000);
  table.SetRanks(other, std::make_shared<const std::vector<uint8_t>>(500, 1));
  EXPECT_GE(table.MemoryBytes(), one + 500);
  table.SetRanks(other, nullptr);
  table.SetRanks(id, std::make_shared<const std::vector<uint8_t>>(10, 1));
  EXPECT_LE(table.MemoryBytes(), one - 900) << "but for a larger map";
  table.Erase(id);
  EXPECT_EQ(table.Insert(Name(1)), id);
  EXPECT_EQ(table.RanksOf(id), nullptr) << "an id that is used again";
  EXPECT_LT(table.MemoryBytes(), empty + 500);
}

TEST(EntryTable, ErasingAParentLeavesOrphans) {
  EntryTable table;
  EntryId parent = table.Insert(Name(0)), a = table.Insert(Name(6)), b = table.Insert(Name(12)),
          c = table.Insert(Name(18));
  for (EntryId child : {a, b, c}) table.LinkParent(child, parent);
  table.Erase(b);
  EXPECT_EQ(table.entry(parent).first_child, c);
  EXPECT_EQ(table.entry(c).next_sibling, a);
  table.Erase(parent);
  EXPECT_EQ(table.entry(a).parent, kNoEntry);
  EXPECT_EQ(table.entry(c).next_sibling, kNoEntry);
}

TEST(EntryTable, AgreesWithAMapUnderRandomUse) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 rng(seed);
  EntryTable table;
  std::map<uint32_t, EntryId> model;
  for (int step = 0; step < 50000; ++step) {
    uint32_t n = rng() % 600;
    auto it = model.find(n);
    if (it == model.end()) {
      ASSERT_EQ(table.Find(Name(n)), kNoEntry);
      model[n] = table.Insert(Name(n));
      if (!model.empty() && rng() % 2) {
        EntryId parent = std::next(model.begin(), static_cast<long>(rng() % model.size()))->second;
        if (parent != model[n]) table.LinkParent(model[n], parent);
      }
    } else {
      ASSERT_EQ(table.Find(Name(n)), it->second);
      table.Erase(it->second);
      model.erase(it);
    }
  }
  EXPECT_EQ(table.size(), model.size());
  size_t links = 0, children = 0;
  for (auto& [n, id] : model) {
    ASSERT_EQ(table.Find(Name(n)), id);
    if (table.entry(id).parent != kNoEntry) ++links;
    for (EntryId child = table.entry(id).first_child; child != kNoEntry; child = table.entry(child).next_sibling) {
      ++children;
      ASSERT_EQ(table.entry(child).parent, id);
    }
  }
  EXPECT_EQ(links, children);
}

}  // namespace
}  // namespace firn
