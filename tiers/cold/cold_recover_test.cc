// Restarts: what was acknowledged is there, what was deleted is not, whatever is lost of the index or the log.
#include <gmock/gmock.h>

#include <set>

#include "base/checksum.h"
#include "tiers/cold/cold_test_util.h"
#include "tiers/cold/log/segment_reader.h"

namespace firn {
namespace {

struct Stored {
  EncodedBlock block;
  CopyPtr copy;
};

std::vector<Stored> PutMany(ColdRig* rig, uint64_t first, uint64_t count) {
  std::vector<Stored> stored;
  for (uint64_t i = first; i < first + count; ++i) {
    EncodedBlock block = ColdBlock(i, i % 10 == 0 ? 300 : 2 + static_cast<uint32_t>(i % 14));
    auto copy = rig->Put(block);
    EXPECT_TRUE(copy.ok()) << copy.status();
    if (copy.ok()) stored.push_back({std::move(block), *copy});
  }
  return stored;
}

void ExpectAll(ColdRig* rig, const std::vector<Stored>& stored) {
  EXPECT_EQ(rig->recovered.size(), stored.size());
  std::map<Digest, const RecoveredCopy*> by_key;
  for (const RecoveredCopy& copy : rig->recovered) by_key[copy.identity.key] = &copy;
  for (const Stored& one : stored) {
    auto found = by_key.find(one.block.header->identity.key);
    ASSERT_NE(found, by_key.end());
    const RecoveredCopy& copy = *found->second;
    EXPECT_EQ(copy.identity, one.block.header->identity);
    EXPECT_EQ(copy.tokens, one.block.header->shape.tokens);
    EXPECT_EQ(copy.stored_class, ClassOf(*one.block.header, one.block.present));
    auto read = rig->Get(copy.copy, copy.identity);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(SameBlock(*read, one.block));
  }
}

TEST(ColdTier, C24_aRestartKeepsEverything) {
  ColdRig rig(128 * kMiB, 4 * kMiB);
  ASSERT_TRUE(rig.Open().ok());
  std::vector<Stored> stored = PutMany(&rig, 0, 400);
  ASSERT_TRUE(rig.Close().ok());
  ASSERT_TRUE(rig.Open().ok());
  EXPECT_EQ(rig.report.replayed_extents, 0u) << "after a clean stop the index knows all";
  ExpectAll(&rig, stored);
  for (Stored& one : PutMany(&rig, 1000, 100)) stored.push_back(std::move(one));
  rig.Kill();
  ASSERT_TRUE(rig.Open().ok());
  EXPECT_GT(rig.report.replayed_extents, 0u);
  ExpectAll(&rig, stored);
  // Twice in a row, without anything in between.
  rig.Kill();
  ASSERT_TRUE(rig.Open().ok());
  ExpectAll(&rig, stored);
}

TEST(ColdTier, AnIndexThatCannotBeReadDropsNothing) {
  ColdRig rig(128 * kMiB);
  ASSERT_TRUE(rig.Open().ok());
  std::vector<Stored> stored;
  for (uint64_t i = 0; i < 30; ++i) {
    EncodedBlock block = ColdBlock(i, 300);
    auto copy = rig.Put(block);
    ASSERT_TRUE(copy.ok()) << copy.status();
    stored.push_back({std::move(block), *copy});
  }
  // Many records have planes in segments that the index knows whole, and the rest in one that it does not.
  rig.Kill();
  rig.damage_index_gets = true;
  EXPECT_EQ(rig.Open().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(rig.recovered.empty());
  rig.damage_index_gets = false;
  rig.index.Clear();
  ASSERT_TRUE(rig.Open().ok());
  ExpectAll(&rig, stored);
}

TEST(ColdTier, C24_theIndexIsRebuiltFromTheLogAndResurrectsNothing) {
  ColdRig rig(128 * kMiB, 4 * kMiB);
  ASSERT_TRUE(rig.Open().ok());
  std::vector<Stored> stored = PutMany(&rig, 0, 200);
  std::vector<Stored> left;
  for (size_t i = 0; i < stored.size(); ++i) {
    if (i % 3 == 0) {
      rig.cold->Forget(stored[i].copy, stored[i].block.header->identity);
    } else {
      left.push_back(stored[i]);
    }
  }
  Awaited<absl::Status> flushed;
  rig.tier().Flush(flushed.Done());
  ASSERT_TRUE(flushed.Wait(&rig)->ok());
  for (bool clean : {true, false}) {
    if (clean) {
      ASSERT_TRUE(rig.Close().ok());
    } else {
      rig.Kill();
    }
    rig.index.Clear();
    ASSERT_TRUE(rig.Open().ok());
    EXPECT_TRUE(rig.report.rebuilt);
    ExpectAll(&rig, left);
  }
}

TEST(ColdTier, C24_theLogIsDeletedAndTheIndexKept) {
  ColdRig rig;
  ASSERT_TRUE(rig.Open().ok());
  PutMany(&rig, 0, 50);
  Awaited<absl::Status> put;
  rig.cold->PutFact({"plan", "a", {1}}, put.Done());
  ASSERT_TRUE(put.Wait(&rig)->ok());
  rig.Kill();
  std::vector<FileEntry> files = *rig.memory.List();
  for (const FileEntry& entry : files) ASSERT_TRUE(rig.memory.Remove(entry.name).ok());
  ASSERT_TRUE(rig.Open().ok());
  EXPECT_TRUE(rig.recovered.empty());
  EXPECT_EQ(rig.facts.size(), 1u);
  EXPECT_EQ(rig.cold->Health().state, ColdState::kOk);
  std::vector<Stored> stored = PutMany(&rig, 100, 50);
  rig.Kill();
  ASSERT_TRUE(rig.Open().ok());
  ExpectAll(&rig, stored);
}

TEST(ColdTier, C24_theNewerOfTwoVersionsWins) {
  ColdRig rig;
  ASSERT_TRUE(rig.Open().ok());
  EncodedBlock old = ColdBlock(1, 30), fresh = old;
  auto header = std::make_shared<RecordHeader>(*old.header);
  header->identity.generation += 5;
  ComputeChecks(header.get(), header->encoded, fresh.runs);
  fresh.header = header;
  // The older version is written last, as a slow demotion would.
  ASSERT_TRUE(rig.Put(fresh).ok());
  ASSERT_TRUE(rig.Put(old).ok());
  for (bool lose_index : {false, true, true}) {
    rig.Kill();
    if (lose_index) rig.index.Clear();
    ASSERT_TRUE(rig.Open().ok());
    ASSERT_EQ(rig.recovered.size(), 1u);
    EXPECT_EQ(rig.recovered[0].identity, fresh.header->identity);
    EXPECT_EQ(rig.tier().Usage().copies, 1u);
  }
}

TEST(ColdTier, ForgottenNamespacesStayForgotten) {
  ColdRig rig;
  ASSERT_TRUE(rig.Open().ok());
  std::vector<Stored> kept;
  for (uint64_t i = 0; i < 40; ++i) {
    EncodedBlock block = ColdBlock(i, 12, i % 2);
    CopyPtr copy = *rig.Put(block);
    if (i % 2 == 0) kept.push_back({block, copy});
  }
  Awaited<absl::Status> done;
  rig.cold->ForgetNamespace(TestIdentity(0, 1).namespace_fingerprint, done.Done());
  ASSERT_TRUE(done.Wait(&rig)->ok());
  EXPECT_EQ(rig.tier().Usage().copies, 20u);
  EncodedBlock after = ColdBlock(77, 12, 1);
  CopyPtr after_copy = *rig.Put(after);
  kept.push_back({after, after_copy});
  for (bool lose_index : {false, true}) {
    rig.Kill();
    if (lose_index) rig.index.Clear();
    ASSERT_TRUE(rig.Open().ok());
    ExpectAll(&rig, kept);
  }
}

TEST(ColdTier, AJournaledTailIsTornNotTrusted) {
  ColdRig rig;
  ASSERT_TRUE(rig.Open().ok());
  std::vector<Stored> stored = PutMany(&rig, 1, 5);
  // The last extent of the open segment loses its end.
  std::vector<FileEntry> files = *rig.memory.List();
  rig.Kill();
  for (const FileEntry& entry : files) {
    std::vector<uint8_t> bytes = rig.memory.Peek(entry.name);
    auto header = ParseSegmentHeader(bytes);
    if (!header.ok() || header->stream != Stream::kBase) continue;
    uint64_t end = bytes.size();
    while (end > 0 && bytes[end - 1] == 0) --end;
    rig.memory.Poke(entry.name, AlignDown(end - 1, 512), std::vector<uint8_t>(512));
  }
  rig.index.Clear();
  ASSERT_TRUE(rig.Open().ok());
  EXPECT_EQ(rig.report.torn_extents, 1u);
  stored.pop_back();
  ExpectAll(&rig, stored);
}

TEST(ColdTier, ASegmentOfALaterVersionIsLeftAlone) {
  ColdRig rig;
  ASSERT_TRUE(rig.Open().ok());
  PutMany(&rig, 1, 3);
  rig.Kill();
  std::vector<FileEntry> files = *rig.memory.List();
  std::vector<uint8_t> block = rig.memory.Peek(files[0].name);
  block.resize(kSegmentHeaderBytes);
  block[4] = 9;
  // With a CRC of its own, as that version would write it.
  constexpr size_t kCrcAt = 32;
  StoreLe<uint64_t>(block.data() + kCrcAt, Crc64(ByteSpan(block).first(kCrcAt), 0));
  rig.memory.Poke(files[0].name, 0, block);
  absl::Status status = rig.Open();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), ::testing::HasSubstr("version 9"));
  EXPECT_EQ(rig.memory.List()->size(), files.size());
}

TEST(ColdTier, UnreadableSegmentsCountAndAreKept) {
  ColdRig rig;
  ASSERT_TRUE(rig.Open().ok());
  std::vector<Stored> stored = PutMany(&rig, 1, 20);
  ASSERT_TRUE(rig.Close().ok());
  std::vector<FileEntry> files = *rig.memory.List();
  rig.faulty.SetHook([&](const RawIo& io) -> std::optional<int64_t> {
    return io.kind == IoKind::kRead && io.file->name() == files[0].name ? std::optional<int64_t>(-EIO) : std::nullopt;
  });
  ASSERT_TRUE(rig.Open().ok());
  EXPECT_GE(rig.tier().Usage().used_bytes, rig.memory.UsedBytes());
  rig.faulty.SetHook(nullptr);
  ASSERT_TRUE(rig.Close().ok());
  // The medium answers again: nothing was deleted, and the index still knows it; so does the log.
  for (bool lose_index : {false, true}) {
    if (lose_index) rig.index.Clear();
    ASSERT_TRUE(rig.Open().ok());
    ExpectAll(&rig, stored);
    ASSERT_TRUE(rig.Close().ok());
  }
}

// The index is lost, the log has no footers, and the medium will not give a sector of segments of a stream (of all but
// that of facts: 255) at that start: what lies elsewhere is there, and the rest is there again when the medium gives
// it.
TEST(ColdTier, ARebuildThatMeetsARefusedSectorGivesNothingUp) {
  for (EccPolicy policy : {EccPolicy(), EccPolicy::Uniform(EccCode::kReedSolomon)}) {
    uint64_t mended = 0;
    for (auto [sector, stream] : std::vector<std::pair<uint64_t, Stream>>{{1, Stream::kUnassigned},
                                                                          {3, Stream::kUnassigned},
                                                                          {20, Stream::kUnassigned},
                                                                          {60, Stream::kUnassigned},
                                                                          {150, Stream::kUnassigned},
                                                                          {0, Stream::kBase},
                                                                          {1, Stream::kBase},
                                                                          {7, Stream::kBase},
                                                                          {30, Stream::kBase},
                                                                          {0, Stream::kP8},
                                                                          {20, Stream::kP8}}) {
      SCOPED_TRACE(testing::Message() << policy.ToString() << ", sector " << sector << " of stream "
                                      << static_cast<int>(stream));
      ColdRig rig;
      rig.options.ecc = policy;
      ASSERT_TRUE(rig.Open().ok());
      std::vector<Stored> stored = PutMany(&rig, 0, 60);
      rig.Kill();
      rig.index.Clear();
      const uint64_t at = sector * kIoAlignment;
      std::set<std::string> names;
      const std::vector<FileEntry> files = *rig.memory.List();
      for (const FileEntry& entry : files) {
        auto header = ParseSegmentHeader(rig.memory.Peek(entry.name));
        if (header.ok() && (stream == Stream::kUnassigned || header->stream == stream)) names.insert(entry.name);
      }
      uint64_t refused = 0;
      rig.faulty.SetHook([&](const RawIo& io) -> std::optional<int64_t> {
        if (io.kind != IoKind::kRead || io.offset > at || io.offset + io.length <= at) return std::nullopt;
        if (!names.contains(io.file->name())) return std::nullopt;
        ++refused;
        return -EIO;
      });
      ASSERT_TRUE(rig.Open().ok());
      EXPECT_GT(refused, 0u);
      if (at > 0) {
        EXPECT_GE(rig.recovered.size(), stored.size() * 3 / 4) << "most lie elsewhere";
      }
      mended += rig.report.mended_extents;
      rig.faulty.SetHook(nullptr);
      rig.Kill();
      ASSERT_TRUE(rig.Open().ok());
      ExpectAll(&rig, stored);
    }
    EXPECT_EQ(mended > 0, policy.any());
  }
}

// Flips that error correction puts right are none to a rebuild either.
TEST(ColdTier, ARebuildMendsWhatItCan) {
  ColdRig rig;
  rig.options.ecc = EccPolicy::Uniform(EccCode::kSecded);
  ASSERT_TRUE(rig.Open().ok());
  std::vector<Stored> stored = PutMany(&rig, 0, 60);
  rig.Kill();
  rig.index.Clear();
  // In the middle of payloads: an extent's own header has no parity.
  std::vector<FileEntry> files = *rig.memory.List();
  uint64_t flips = 0;
  for (const Stored& one : stored) {
    const ByteSpan run = one.block.runs[RunIndex(RunKind::kP2, Part::kV)].spans()[0];
    for (const FileEntry& entry : files) {
      std::vector<uint8_t> image = rig.memory.Peek(entry.name);
      auto found = std::search(image.begin(), image.end(), run.begin(), run.end());
      if (found == image.end()) continue;
      *found ^= 0x10;
      rig.memory.Poke(entry.name, 0, image);
      ++flips;
      break;
    }
  }
  ASSERT_EQ(flips, stored.size());
  ASSERT_TRUE(rig.Open().ok());
  EXPECT_GT(rig.report.mended_extents, 0u) << "in segments without a footer";
  ASSERT_EQ(rig.recovered.size(), stored.size());
  for (const Stored& one : stored) {
    const RecoveredCopy* copy = rig.Recovered(one.block.header->identity);
    ASSERT_NE(copy, nullptr);
    Awaited<absl::StatusOr<EncodedBlock>> result;
    rig.cold->ReadCorrected(copy->copy, copy->identity, RunMask::All(), result.Done());
    auto read = result.Wait(&rig);
    ASSERT_TRUE(read.has_value() && read->ok());
    EXPECT_TRUE((*read)->corrected);
    EXPECT_TRUE(SameBlock(**read, one.block));
  }
}

}  // namespace
}  // namespace firn
