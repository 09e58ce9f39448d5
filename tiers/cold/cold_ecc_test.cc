// A log with parity: flips, lost sectors and damaged headers are read back as they were written, also after a restart,
// and what is moved is mended on the way.
#include <gmock/gmock.h>

#include "tiers/cold/cold_test_util.h"

namespace firn {
namespace {

absl::StatusOr<EncodedBlock> GetCorrected(ColdRig* rig, const CopyPtr& copy, const EncodedBlock& block) {
  Awaited<absl::StatusOr<EncodedBlock>> result;
  rig->cold->ReadCorrected(copy, block.header->identity, RunMask::All(), result.Done());
  auto read = result.Wait(rig);
  return read.has_value() ? *std::move(read) : InternalError("the read never completed");
}

// Flips a bit of everything that a block wrote, at steps of `step` bytes: bytes that are not zero in its segments.
void FlipEvery(ColdRig* rig, uint64_t step, uint64_t from = kSegmentHeaderBytes) {
  std::vector<FileEntry> files = *rig->memory.List();
  for (const FileEntry& entry : files) {
    std::vector<uint8_t> image = rig->memory.Peek(entry.name);
    for (uint64_t at = from; at < image.size(); at += step) {
      if (image[at] != 0) image[at] ^= static_cast<uint8_t>(1u << at / step % 8);
    }
    rig->memory.Poke(entry.name, 0, image);
  }
}

TEST(ColdEcc, C38_flipsAreCorrectedWhereverTheyAre) {
  for (uint32_t kib : {8u, 40u, 512u}) {
    SCOPED_TRACE(kib);
    ColdRig rig;
    rig.options.ecc = EccPolicy::Uniform(EccCode::kSecded);
    ASSERT_TRUE(rig.Open().ok());
    EncodedBlock block = ColdBlock(1, kib);
    CopyPtr copy = *rig.Put(block);
    // Clean first: nothing is corrected.
    auto clean = GetCorrected(&rig, copy, block);
    ASSERT_TRUE(clean.ok()) << clean.status();
    EXPECT_FALSE(clean->corrected);
    EXPECT_TRUE(SameBlock(*clean, block));
    // A flip in each 1,000 bytes: no code word has two.
    FlipEvery(&rig, 1000);
    auto read = GetCorrected(&rig, copy, block);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(read->corrected);
    EXPECT_TRUE(SameBlock(*read, block));
    EXPECT_GT(rig.cold->Counters().ecc_corrected, 0u);
    EXPECT_EQ(rig.cold->Counters().ecc_uncorrectable, 0u);
  }
}

// What a lost sector is: the device refuses all reads that touch it.
TEST(ColdEcc, ALostSectorCostsNothing) {
  ColdRig rig;
  rig.options.ecc = EccPolicy::Uniform(EccCode::kReedSolomon);
  ASSERT_TRUE(rig.Open().ok());
  EncodedBlock block = ColdBlock(1, 512);
  CopyPtr copy = *rig.Put(block);
  std::vector<FileEntry> files = *rig.memory.List();
  uint64_t tried = 0, salvaged = 0;
  for (const FileEntry& entry : files) {
    std::vector<uint8_t> image = rig.memory.Peek(entry.name);
    for (uint64_t sector = kSegmentHeaderBytes; sector < image.size(); sector += kIoAlignment) {
      auto begin = image.begin() + static_cast<ptrdiff_t>(sector);
      if (std::all_of(begin, begin + kIoAlignment, [](uint8_t byte) { return byte == 0; })) continue;
      rig.faulty.SetHook([&](const RawIo& io) -> std::optional<int64_t> {
        bool touches = io.kind == IoKind::kRead && io.file->name() == entry.name && io.offset < sector + kIoAlignment &&
                       io.offset + io.length > sector;
        return touches ? std::optional<int64_t>(-EIO) : std::nullopt;
      });
      ++tried;
      auto read = GetCorrected(&rig, copy, block);
      ASSERT_TRUE(read.ok()) << entry.name << " at " << sector << ": " << read.status();
      EXPECT_EQ(IntactRuns(*read), block.present) << entry.name << " at " << sector;
      EXPECT_TRUE(SameBlock(*read, block));
      salvaged += read->corrected ? 1 : 0;
    }
  }
  rig.faulty.SetHook(nullptr);
  EXPECT_GT(tried, 100u);
  EXPECT_GT(salvaged, 100u);
  EXPECT_EQ(copy->Runs(), block.present) << "nothing was given up";
}

// Makes garbage of the parity of a block's header and runs, wherever the log has it.
void SpoilParity(ColdRig* rig, const EncodedBlock& block, EccCode code) {
  std::vector<uint8_t> header = SerializeHeader(*block.header);
  std::vector<RunBytes> protectees = {RunBytes(ByteSpan(header))};
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (block.present.Has(i)) protectees.push_back(block.runs[i]);
  }
  std::vector<FileEntry> files = *rig->memory.List();
  uint64_t spoilt = 0;
  for (const FileEntry& entry : files) {
    std::vector<uint8_t> image = rig->memory.Peek(entry.name);
    for (const RunBytes& data : protectees) {
      std::vector<uint8_t> parity(ParityBytes(code, data.size()));
      ComputeParity(code, data, MutableRunBytes(MutableByteSpan(parity)));
      auto at = std::search(image.begin(), image.end(), parity.begin(), parity.end());
      if (parity.empty() || at == image.end()) continue;
      for (size_t i = 0; i < parity.size(); ++i) at[static_cast<ptrdiff_t>(i)] ^= static_cast<uint8_t>(i * 37 + 11);
      ++spoilt;
    }
    rig->memory.Poke(entry.name, 0, image);
  }
  ASSERT_EQ(spoilt, protectees.size());
}

TEST(ColdEcc, DamagedParitySpoilsNothing) {
  for (EccCode code : {EccCode::kSecded, EccCode::kReedSolomon}) {
    for (uint32_t kib : {16u, 512u}) {
      SCOPED_TRACE(kib);
      ColdRig rig;
      rig.options.ecc = EccPolicy::Uniform(code);
      ASSERT_TRUE(rig.Open().ok());
      EncodedBlock block = ColdBlock(1, kib);
      CopyPtr copy = *rig.Put(block);
      SpoilParity(&rig, block, code);
      auto read = GetCorrected(&rig, copy, block);
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_TRUE(read->corrected) << "it is to be written anew";
      EXPECT_TRUE(SameBlock(*read, block));
      EXPECT_EQ(copy->Runs(), block.present);
    }
  }
}

// Without sectors of a plane, or of everything: what is lost is what is refused again and again, and no more.
TEST(ColdEcc, WhatIsRefusedOnceIsNotLost) {
  for (bool everything : {false, true}) {
    for (EccPolicy policy : {EccPolicy(), EccPolicy::Graded(EccCode::kReedSolomon)}) {
      SCOPED_TRACE(policy.ToString() + (everything ? ", all" : ", p8"));
      ColdRig rig;
      rig.options.ecc = policy;
      ASSERT_TRUE(rig.Open().ok());
      EncodedBlock block = ColdBlock(1, 512);
      CopyPtr copy = *rig.Put(block);
      const ByteSpan plane = block.runs[RunIndex(RunKind::kP8, Part::kK)].spans()[0];
      std::string name;
      const std::vector<FileEntry> files = *rig.memory.List();
      for (const FileEntry& entry : files) {
        std::vector<uint8_t> image = rig.memory.Peek(entry.name);
        if (std::search(image.begin(), image.end(), plane.begin(), plane.end()) != image.end()) name = entry.name;
      }
      rig.faulty.SetHook([&](const RawIo& io) -> std::optional<int64_t> {
        bool refused = io.kind == IoKind::kRead && (everything || io.file->name() == name);
        return refused ? std::optional<int64_t>(-EIO) : std::nullopt;
      });
      const RunMask p8 = RunMask::Both(RunKind::kP8);
      auto read = [&] { return policy.any() ? GetCorrected(&rig, copy, block) : rig.Get(copy, block); };
      for (int i = 0; i < 2; ++i) {
        auto got = read();
        if (everything) {
          EXPECT_TRUE(absl::IsUnavailable(got.status())) << got.status();
        } else {
          ASSERT_TRUE(got.ok()) << got.status();
          EXPECT_EQ(got->present, block.present - p8) << "not there, rather than wrong";
        }
        EXPECT_EQ(copy->Runs(), block.present);
      }
      static_cast<void>(read());
      rig.Run();
      EXPECT_EQ(copy->Runs(), everything ? block.present : block.present - p8)
          << "a medium that gives nothing is not it";
      EXPECT_EQ(rig.events.wholes(), 0u);
    }
  }
}

// Headers with a map of exact tokens are longer than the runs alone tell, and so is their parity: at every size there
// is room for it, also where that ends just with a chunk of memory.
TEST(ColdEcc, HeadersWithMapsHaveRoomForTheirParity) {
  for (EccCode code : {EccCode::kNone, EccCode::kSecded, EccCode::kReedSolomon}) {
    ColdRig rig;
    rig.options.ecc = EccPolicy::Uniform(code);
    rig.options.chunk_bytes = 4 * kKiB;
    ASSERT_TRUE(rig.Open().ok());
    for (uint32_t tokens = 20; tokens < 520; tokens += 3) {
      SCOPED_TRACE(testing::Message() << EccCodeName(code) << ", " << tokens << " tokens");
      TestBlockSpec spec{.name = "map",
                         .shape = {.layers = 1, .heads = 1, .k_width = 16, .v_width = 16, .tokens = tokens},
                         .family = CodecFamily::kNested,
                         .exact_tokens = 3,
                         .dtype = DType::kFp16,
                         .exact_last = true};
      EncodedBlock block = MakeTestBlock(spec, TestIdentity(tokens), tokens);
      ASSERT_FALSE(block.header->exact_map.empty());
      auto copy = rig.Put(block);
      ASSERT_TRUE(copy.ok()) << copy.status();
      auto read = rig.Get(*copy, block);
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(IntactRuns(*read), block.present);
      EXPECT_TRUE(SameBlock(*read, block));
    }
  }
}

TEST(ColdEcc, DamageToAnExtentsHeaderCostsNothing) {
  for (EccCode code : {EccCode::kSecded, EccCode::kReedSolomon}) {
    ColdRig rig;
    rig.options.ecc = EccPolicy::Graded(code);
    ASSERT_TRUE(rig.Open().ok());
    EncodedBlock block = ColdBlock(1, 512);
    CopyPtr copy = *rig.Put(block);
    std::vector<FileEntry> files = *rig.memory.List();
    for (const FileEntry& entry : files) {
      rig.memory.Poke(entry.name, kSegmentHeaderBytes, std::vector<uint8_t>(48, 0xA5));
    }
    auto read = GetCorrected(&rig, copy, block);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(read->corrected);
    EXPECT_TRUE(SameBlock(*read, block));
  }
}

TEST(ColdEcc, BeyondTheCodeItIsDamageAsEver) {
  ColdRig rig;
  rig.options.ecc = EccPolicy::Graded(EccCode::kSecded);
  ASSERT_TRUE(rig.Open().ok());
  EncodedBlock block = ColdBlock(1, 512);
  CopyPtr copy = *rig.Put(block);
  FlipEvery(&rig, 4);
  // A read that does not correct takes nothing away; one that does finds the header beyond its code.
  EXPECT_FALSE(rig.Get(copy, block).ok());
  EXPECT_EQ(copy->Runs(), block.present);
  EXPECT_TRUE(absl::IsDataLoss(GetCorrected(&rig, copy, block).status()));
  EXPECT_TRUE(copy->Runs().Empty() || rig.events.wholes() == 1u);
}

TEST(ColdEcc, PoliciesChangeFromStartToStart) {
  ColdRig rig;
  std::vector<std::pair<EncodedBlock, EccPolicy>> written;
  uint64_t number = 0;
  for (EccPolicy policy :
       {EccPolicy(), EccPolicy::Uniform(EccCode::kSecded), EccPolicy::Graded(EccCode::kReedSolomon)}) {
    rig.options.ecc = policy;
    ASSERT_TRUE(rig.Open().ok());
    for (uint32_t kib : {8u, 300u}) {
      EncodedBlock block = ColdBlock(++number, kib);
      ASSERT_TRUE(rig.Put(block).ok());
      written.emplace_back(block, policy);
    }
    rig.Flush();
    number % 4 == 0 ? rig.Kill() : static_cast<void>(rig.Close());
  }
  for (bool lose_index : {false, true}) {
    if (lose_index) rig.index.Clear();
    rig.options.ecc = {};
    ASSERT_TRUE(rig.Open().ok());
    ASSERT_EQ(rig.recovered.size(), written.size());
    for (const auto& [block, policy] : written) {
      const RecoveredCopy* copy = rig.Recovered(block.header->identity);
      ASSERT_NE(copy, nullptr);
      auto read = rig.Get(copy->copy, block);
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_TRUE(SameBlock(*read, block));
      auto corrected = GetCorrected(&rig, copy->copy, block);
      EXPECT_EQ(corrected.ok(), policy.any()) << corrected.status();
      EXPECT_EQ(absl::IsUnimplemented(corrected.status()), !policy.any());
    }
    ASSERT_TRUE(rig.Close().ok());
  }
}

enum class Damage { kFlips, kParity, kSector };

void ExpectMendedWhenMoved(Damage damage) {
  ColdRig rig(32 * kMiB);
  rig.options.ecc = EccPolicy::Uniform(damage == Damage::kSector ? EccCode::kReedSolomon : EccCode::kSecded);
  if (damage == Damage::kSector) rig.options.relocate_fraction = 0.5;
  ASSERT_TRUE(rig.Open().ok());
  std::vector<std::pair<EncodedBlock, CopyPtr>> kept;
  absl::flat_hash_map<Digest, bool> moves;
  // A sector that is lost is a shard of a run of several.
  for (uint64_t i = 0; i < (damage == Damage::kSector ? 2u : 10u); ++i) {
    EncodedBlock block = ColdBlock(i, damage == Damage::kSector ? 100 : 16);
    moves[block.header->identity.key] = true;
    kept.emplace_back(block, *rig.Put(block));
  }
  rig.events.judge = [&](const Identity& identity, RunMask leaving) {
    // Planes stay too.
    return moves.contains(identity.key) && !leaving.Empty() ? ReclaimVerdict::kRelocate : ReclaimVerdict::kDrop;
  };
  rig.Flush();
  if (damage == Damage::kFlips) FlipEvery(&rig, 5000);
  for (const auto& [block, copy] : kept) {
    if (damage == Damage::kParity) SpoilParity(&rig, block, EccCode::kSecded);
  }
  uint64_t refused = 0;
  if (damage == Damage::kSector) {
    const std::vector<FileEntry> files = *rig.memory.List();
    rig.faulty.SetHook([&refused, files](const RawIo& io) -> std::optional<int64_t> {
      const uint64_t at = 12 * kIoAlignment;
      bool old =
          std::any_of(files.begin(), files.end(), [&](const auto& file) { return file.name == io.file->name(); });
      if (!old || io.kind != IoKind::kRead || io.offset > at || io.offset + io.length <= at) return std::nullopt;
      ++refused;
      return -EIO;
    });
  }
  for (uint64_t i = 1000; rig.cold->ReclaimCounters().relocated_records < kept.size() && i < 20'000; ++i) {
    rig.Put(ColdBlock(i, 16)).IgnoreError();
  }
  EXPECT_GE(rig.cold->ReclaimCounters().relocated_records, kept.size());
  EXPECT_GT(rig.cold->Counters().ecc_corrected, 0u);
  EXPECT_EQ(refused > 0, damage == Damage::kSector);
  for (const auto& [block, copy] : kept) {
    auto read = rig.Get(copy, block);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(IntactRuns(*read), block.present);
    EXPECT_TRUE(SameBlock(*read, block));
    auto corrected = GetCorrected(&rig, copy, block);
    EXPECT_TRUE(corrected.ok() && !corrected->corrected) << "its parity is right again";
  }
}

TEST(ColdEcc, WhatIsMovedIsMendedOnTheWay) { ExpectMendedWhenMoved(Damage::kFlips); }
TEST(ColdEcc, ParityIsMadeAnewOnTheWay) { ExpectMendedWhenMoved(Damage::kParity); }
TEST(ColdEcc, ASectorThatIsRefusedIsMadeOnTheWay) { ExpectMendedWhenMoved(Damage::kSector); }

}  // namespace
}  // namespace firn
