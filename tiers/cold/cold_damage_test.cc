// Damage found when reading: cut, zeroed, flipped and swapped bytes. What is lost is a miss and is given back once.
#include <gmock/gmock.h>

#include "tiers/cold/cold_test_util.h"

namespace firn {
namespace {

constexpr RunMask kP8 = RunMask::Both(RunKind::kP8);

// The names of the segment files, and where a block's extents lie in them.
std::vector<std::string> Files(ColdRig* rig) {
  std::vector<std::string> names;
  std::vector<FileEntry> files = *rig->memory.List();
  for (const FileEntry& entry : files) names.push_back(entry.name);
  return names;
}

enum class Damage { kHalf, kZero, kOneByteShort, kZeroed };

TEST(ColdTier, C22_damagedSegmentsAreMissesAndGiveTheirPlaceBackOnce) {
  for (Damage damage : {Damage::kHalf, Damage::kZero, Damage::kOneByteShort, Damage::kZeroed}) {
    SCOPED_TRACE(static_cast<int>(damage));
    ColdRig rig;
    ASSERT_TRUE(rig.Open().ok());
    std::vector<std::pair<EncodedBlock, CopyPtr>> all;
    for (uint64_t i = 0; i < 60; ++i) {
      EncodedBlock block = ColdBlock(i, 40);
      all.emplace_back(block, *rig.Put(block));
    }
    std::string victim = Files(&rig)[0];
    uint64_t size = rig.memory.Peek(victim).size();
    if (damage == Damage::kHalf) rig.memory.Shorten(victim, size / 2);
    if (damage == Damage::kZero) rig.memory.Shorten(victim, 0);
    if (damage == Damage::kOneByteShort) rig.memory.Shorten(victim, size - 1);
    if (damage == Damage::kZeroed) rig.memory.Poke(victim, 0, std::vector<uint8_t>(size));
    size_t misses = 0;
    for (auto& [block, copy] : all) {
      auto read = rig.Get(copy, block);
      if (read.ok()) {
        EXPECT_TRUE(SameBlock(*read, block));
      } else {
        ++misses;
      }
    }
    EXPECT_GE(misses, damage == Damage::kOneByteShort ? 0u : 1u);
    EXPECT_LT(misses, all.size());
    EXPECT_EQ(rig.events.wholes(), misses);
    EXPECT_EQ(rig.tier().Usage().copies, all.size() - misses);
    // A second round finds the same, and tells nobody again.
    size_t again = 0;
    for (auto& [block, copy] : all) again += rig.Get(copy, block).ok() ? 0 : 1;
    EXPECT_EQ(again, misses);
    EXPECT_EQ(rig.events.wholes(), misses);
    // The tier works on.
    for (uint64_t i = 1000; i < 1100; ++i) {
      EncodedBlock block = ColdBlock(i, 40);
      auto copy = rig.Put(block);
      ASSERT_TRUE(copy.ok()) << copy.status();
      ASSERT_TRUE(rig.Get(*copy, block).ok());
    }
    rig.Kill();
    ASSERT_TRUE(rig.Open().ok());
    for (const RecoveredCopy& copy : rig.recovered) {
      auto read = rig.Get(copy.copy, copy.identity);
      EXPECT_TRUE(read.ok()) << read.status();
    }
  }
}

TEST(ColdTier, C38_aDamagedPlaneCostsPrecisionAndDamagedMetadataTheBlock) {
  ColdRig rig;
  ASSERT_TRUE(rig.Open().ok());
  EncodedBlock block = ColdBlock(1, 512);
  CopyPtr copy = *rig.Put(block);
  // Break the header of the p8 extent: wherever it is, it starts at the second block of a segment other than the
  // base's.
  std::vector<std::string> files = Files(&rig);
  ASSERT_GE(files.size(), 3u);
  uint64_t p8_bytes = block.Layout(kP8).TotalBytes();
  std::string p8_file;
  for (const std::string& name : files) {
    std::vector<uint8_t> bytes = rig.memory.Peek(name);
    auto segment = ParseSegmentHeader(bytes);
    if (segment.ok() && segment->stream == Stream::kP8) p8_file = name;
  }
  ASSERT_FALSE(p8_file.empty());
  rig.memory.Poke(p8_file, kIoAlignment + 20, std::vector<uint8_t>{0xff});
  auto read = rig.Get(copy, block);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->present, block.present - kP8);
  EXPECT_TRUE(SameBlock(*read, block.Narrowed(block.present - kP8)));
  EXPECT_EQ(copy->Runs(), block.present - kP8);
  ASSERT_EQ(rig.events.lost.size(), 1u);
  EXPECT_EQ(rig.events.lost[0].runs, kP8);
  EXPECT_FALSE(rig.events.lost[0].whole);
  EXPECT_LE(copy->StoredBytes(), block.Layout(RunMask::All()).TotalBytes() - p8_bytes + 16 * kKiB);
  // Lost planes stay lost across a restart.
  rig.Kill();
  ASSERT_TRUE(rig.Open().ok());
  ASSERT_EQ(rig.recovered.size(), 1u);
  EXPECT_EQ(rig.recovered[0].copy->Runs(), block.present - kP8);
  EXPECT_EQ(rig.recovered[0].stored_class, ClassOf(*block.header, block.present - kP8));
  EXPECT_EQ(rig.recovered[0].encoded_class, ClassOf(*block.header, block.present));
}

TEST(ColdTier, C38_flipsSwapsAndStaleBytesAreNeverServed) {
  ColdRig rig;
  ASSERT_TRUE(rig.Open().ok());
  std::vector<std::pair<EncodedBlock, CopyPtr>> all;
  for (uint64_t i = 0; i < 24; ++i) {
    EncodedBlock block = ColdBlock(i, i % 3 == 0 ? 300 : 12);
    all.emplace_back(block, *rig.Put(block));
  }
  std::mt19937_64 random(38);
  std::vector<std::string> files = Files(&rig);
  for (int round = 0; round < 300; ++round) {
    const std::string& name = files[random() % files.size()];
    std::vector<uint8_t> image = rig.memory.Peek(name);
    std::vector<uint8_t> before = image;
    uint64_t at = random() % image.size();
    if (round % 3 == 0) {
      image[at] ^= static_cast<uint8_t>(1u << random() % 8);
    } else if (round % 3 == 1) {
      // One block's bytes where another's belong.
      uint64_t from = random() % (image.size() / 4096) * 4096, to = random() % (image.size() / 4096) * 4096;
      std::copy_n(before.begin() + static_cast<ptrdiff_t>(from), 4096, image.begin() + static_cast<ptrdiff_t>(to));
    } else {
      std::fill_n(image.begin() + static_cast<ptrdiff_t>(at / 512 * 512), 512, uint8_t{0});
    }
    rig.memory.Poke(name, 0, image);
    for (auto& [block, copy] : all) {
      auto read = rig.Get(copy, block);
      if (!read.ok()) continue;
      RunMask intact = IntactRuns(*read);
      EXPECT_TRUE(SameBlock(read->Narrowed(intact), block.Narrowed(intact))) << "round " << round;
    }
    rig.memory.Poke(name, 0, before);
  }
}

}  // namespace
}  // namespace firn
