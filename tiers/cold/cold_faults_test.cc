// Faults of the medium while the tier runs. A miss is safe, wrong bytes never; what was good stays good.
#include <gmock/gmock.h>

#include <cerrno>

#include "tiers/cold/cold_test_util.h"

namespace firn {
namespace {

// Every block either reads back as it was written, or not at all.
void ExpectRightOrMissing(ColdRig* rig, const CopyPtr& copy, const EncodedBlock& block) {
  auto read = rig->Get(copy, block);
  if (!read.ok()) return;
  EXPECT_TRUE(SameBlock(*read, block.Narrowed(read->present)));
}

// The names of the segment files, and where a block's extents lie in them.
std::vector<std::string> Files(ColdRig* rig) {
  std::vector<std::string> names;
  std::vector<FileEntry> files = *rig->memory.List();
  for (const FileEntry& entry : files) names.push_back(entry.name);
  return names;
}

bool IsDataWrite(const RawIo& io) { return io.kind == IoKind::kWrite && io.offset >= kIoAlignment; }

TEST(ColdTier, C19_aFailedWriteIsWithdrawnAndTheOthersStay) {
  for (int64_t error : {int64_t{-EIO}, int64_t{-ENOSPC}, int64_t{0}}) {
    SCOPED_TRACE(error);
    ColdRig rig;
    ASSERT_TRUE(rig.Open().ok());
    int writes = 0;
    rig.faulty.SetHook([&](const RawIo& io) -> std::optional<int64_t> {
      if (!IsDataWrite(io)) return std::nullopt;
      ++writes;
      if (error < 0) return writes == 3 ? std::optional<int64_t>(error) : std::nullopt;
      return writes >= 3 && writes < 40 ? std::optional<int64_t>(1)
                                        : std::nullopt;  // A write that comes up short for good.
    });
    std::vector<EncodedBlock> blocks;
    std::map<size_t, CopyPtr> copies;
    size_t failed = 0;
    for (uint64_t i = 0; i < 10; ++i) {
      blocks.push_back(ColdBlock(i, 30));
      auto copy = rig.Put(blocks.back());
      if (!copy.ok() && error == -ENOSPC && copy.status().code() == absl::StatusCode::kResourceExhausted &&
          failed > 0) {
        // The tier turned read-only, as a full medium asks; it comes back by itself.
        rig.clock.AdvanceMs(10'000);
        rig.cold->Tick();
        rig.Run();
        copy = rig.Put(blocks.back());
      }
      if (copy.ok()) {
        copies[i] = *copy;
      } else {
        ++failed;
      }
    }
    rig.faulty.SetHook(nullptr);
    // A short write is finished by pwrite in the end.
    EXPECT_EQ(failed, error < 0 ? 1u : 0u);
    EXPECT_EQ(rig.tier().Counters().commit_failures, failed);
    for (auto& [i, copy] : copies) {
      auto read = rig.Get(copy, blocks[i]);
      ASSERT_TRUE(read.ok()) << i << ": " << read.status();
      EXPECT_TRUE(SameBlock(*read, blocks[i]));
    }
    // Neither with the index nor without it does the failed one come back.
    for (bool lose_index : {false, true}) {
      rig.Kill();
      if (lose_index) rig.index.Clear();
      ASSERT_TRUE(rig.Open().ok());
      EXPECT_EQ(rig.recovered.size(), copies.size());
      for (auto& [i, copy] : copies) EXPECT_NE(rig.Recovered(blocks[i].header->identity), nullptr) << i;
    }
  }
}

TEST(ColdTier, C19_onePlaneThatFailsWithdrawsTheWholeBlock) {
  ColdRig rig;
  ASSERT_TRUE(rig.Open().ok());
  EncodedBlock good = ColdBlock(1, 512), bad = ColdBlock(2, 512);
  ASSERT_TRUE(rig.Put(good).ok());
  // Large blocks have three extents; the last write of this one fails, after the others are durable.
  int writes = 0;
  rig.faulty.SetHook([&](const RawIo& io) -> std::optional<int64_t> {
    if (!IsDataWrite(io) || io.length < 64 * kKiB) return std::nullopt;
    return ++writes == 4 ? std::optional<int64_t>(-EIO) : std::nullopt;
  });
  EXPECT_FALSE(rig.Put(bad).ok());
  EXPECT_GE(writes, 4);
  rig.faulty.SetHook(nullptr);
  EXPECT_EQ(rig.cold->Health().state, ColdState::kDegraded);
  for (bool lose_index : {false, true}) {
    rig.Kill();
    if (lose_index) rig.index.Clear();
    ASSERT_TRUE(rig.Open().ok());
    ASSERT_EQ(rig.recovered.size(), 1u) << lose_index;
    EXPECT_EQ(rig.recovered[0].identity, good.header->identity);
  }
}

TEST(ColdTier, AFileOfSomebodyElseIsLeftAloneAndItsNameNotUsed) {
  ColdRig rig;
  ASSERT_TRUE(rig.Open().ok());
  std::vector<std::string> strangers;
  for (uint32_t id = 1; id <= 20; ++id) {
    if (rig.memory.Create(SegmentFileName(id), kIoAlignment).ok()) strangers.push_back(SegmentFileName(id));
  }
  ASSERT_FALSE(strangers.empty());
  for (uint64_t i = 0; i < 10; ++i) {
    EncodedBlock block = ColdBlock(i, 30);
    auto copy = rig.Put(block);
    ASSERT_TRUE(copy.ok()) << copy.status();
    EXPECT_TRUE(rig.Get(*copy, block).ok());
  }
  std::vector<std::string> there = Files(&rig);
  for (const std::string& name : strangers) EXPECT_THAT(there, testing::Contains(name));
}

// A caller must never take what the file system says of a file for what the store says of a block.
TEST(ColdTier, AWriteThatFailsIsUnavailableWhateverTheFileSystemCallsIt) {
  for (int64_t error : {EEXIST, ENOENT, EPERM, EIO, EINVAL}) {
    SCOPED_TRACE(error);
    ColdRig rig;
    ASSERT_TRUE(rig.Open().ok());
    rig.faulty.SetHook(
        [&](const RawIo& io) { return io.kind == IoKind::kWrite ? std::optional<int64_t>(-error) : std::nullopt; });
    absl::Status failed = rig.Put(ColdBlock(1, 30)).status();
    EXPECT_EQ(failed.code(), absl::StatusCode::kUnavailable) << failed;
  }
}

TEST(ColdTier, AFailedSyncIsNeverTrustedAgain) {
  ColdRig rig;
  ASSERT_TRUE(rig.Open().ok());
  EncodedBlock before = ColdBlock(1, 30), during = ColdBlock(2, 30), after = ColdBlock(3, 30);
  CopyPtr kept = *rig.Put(before);
  bool fail = true;
  std::string failed_file;
  rig.faulty.SetHook([&](const RawIo& io) -> std::optional<int64_t> {
    if (io.kind != IoKind::kSync || !fail) return std::nullopt;
    fail = false;
    failed_file = io.file->name();
    return -EIO;
  });
  EXPECT_FALSE(rig.Put(during).ok());
  std::vector<std::string> written;
  rig.faulty.SetHook([&](const RawIo& io) -> std::optional<int64_t> {
    if (io.kind == IoKind::kWrite) written.push_back(io.file->name());
    return std::nullopt;
  });
  ASSERT_TRUE(rig.Put(after).ok());
  for (const std::string& name : written)
    EXPECT_NE(name, failed_file) << "a segment whose sync failed was written to again";
  EXPECT_TRUE(SameBlock(*rig.Get(kept, before), before));
  rig.faulty.SetHook(nullptr);
  for (bool lose_index : {false, true}) {
    rig.Kill();
    if (lose_index) rig.index.Clear();
    ASSERT_TRUE(rig.Open().ok());
    EXPECT_EQ(rig.Recovered(during.header->identity), nullptr);
    EXPECT_NE(rig.Recovered(after.header->identity), nullptr);
  }
}

TEST(ColdTier, EIOThenEROFSMakesTheTierReadOnlyUntilTheMediumIsBack) {
  ColdRig rig;
  ASSERT_TRUE(rig.Open().ok());
  EncodedBlock old = ColdBlock(1, 30);
  CopyPtr copy = *rig.Put(old);
  int64_t error = -EIO;
  rig.faulty.SetHook([&](const RawIo& io) -> std::optional<int64_t> {
    return io.kind == IoKind::kRead ? std::nullopt : std::optional<int64_t>(error);
  });
  for (uint64_t i = 2; i < 5; ++i) EXPECT_FALSE(rig.Put(ColdBlock(i, 30)).ok());
  EXPECT_EQ(rig.cold->Health().state, ColdState::kFailed);
  EXPECT_EQ(rig.Put(ColdBlock(7, 30)).status().code(), absl::StatusCode::kUnavailable);
  error = -EROFS;
  rig.clock.AdvanceMs(6000);
  rig.cold->Tick();
  rig.Run();
  EXPECT_NE(rig.cold->Health().state, ColdState::kOk);
  auto read = rig.Get(copy, old);
  ASSERT_TRUE(read.ok()) << "reads go on";
  EXPECT_TRUE(SameBlock(*read, old));
  rig.faulty.SetHook(nullptr);
  rig.clock.AdvanceMs(6000);
  rig.cold->Tick();
  rig.Run();
  EXPECT_EQ(rig.cold->Health().state, ColdState::kOk) << rig.cold->Health().reason;
  EXPECT_TRUE(rig.Put(ColdBlock(9, 30)).ok());
}

TEST(ColdTier, C25_aFullMediumRefusesWritesAndComesBackByItself) {
  for (bool empty_index : {false, true}) {
    ColdRig rig;
    ASSERT_TRUE(rig.Open().ok());
    std::vector<std::pair<EncodedBlock, CopyPtr>> kept;
    for (uint64_t i = 0; i < 4 && !empty_index; ++i) {
      EncodedBlock block = ColdBlock(i, 30);
      kept.emplace_back(block, *rig.Put(block));
    }
    rig.memory.SetCapacity(rig.memory.UsedBytes());
    rig.index.SetFailing(ErrnoStatus(ENOSPC, "write the index"));
    absl::Status refused;
    for (uint64_t i = 100; i < 400 && refused.ok(); ++i) refused = rig.Put(ColdBlock(i, 100)).status();
    // The first to notice says what it noticed; after that the tier answers by itself.
    refused = rig.Put(ColdBlock(500, 100)).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
    EXPECT_EQ(rig.cold->Health().state, ColdState::kReadOnly);
    for (auto& [block, copy] : kept) {
      auto read = rig.Get(copy, block);
      ASSERT_TRUE(read.ok());
      EXPECT_TRUE(SameBlock(*read, block));
    }
    rig.memory.SetCapacity(256 * kMiB);
    rig.index.SetFailing(absl::OkStatus());
    int64_t waited_ms = 0;
    while (waited_ms < 30'000 && rig.cold->Health().state != ColdState::kOk) {
      rig.clock.AdvanceMs(1000);
      waited_ms += 1000;
      rig.cold->Tick();
      rig.Run();
    }
    EXPECT_EQ(rig.cold->Health().state, ColdState::kOk) << rig.cold->Health().reason;
    EncodedBlock last = ColdBlock(900, 30);
    ASSERT_TRUE(rig.Put(last).ok());
    ASSERT_TRUE(rig.Close().ok());
    ASSERT_TRUE(rig.Open().ok());
    EXPECT_NE(rig.Recovered(last.header->identity), nullptr);
    for (auto& [block, copy] : kept) EXPECT_NE(rig.Recovered(block.header->identity), nullptr);
  }
}

TEST(ColdTier, ABrokenIndexLosesNothingThatTheLogHas) {
  ColdRig rig;
  ASSERT_TRUE(rig.Open().ok());
  rig.index.SetFailing(Unavailable("broken"));
  EncodedBlock block = ColdBlock(1, 30), forgotten = ColdBlock(2, 30);
  ASSERT_TRUE(rig.Put(block).ok());
  CopyPtr gone = *rig.Put(forgotten);
  rig.tier().Forget(gone, forgotten.header->identity);
  rig.Run();
  EXPECT_EQ(rig.cold->Health().state, ColdState::kDegraded);
  rig.Kill();
  rig.index.SetFailing(absl::OkStatus());
  ASSERT_TRUE(rig.index.Reopen().ok());
  ASSERT_TRUE(rig.Open().ok());
  EXPECT_NE(rig.Recovered(block.header->identity), nullptr);
  EXPECT_EQ(rig.Recovered(forgotten.header->identity), nullptr);
}

TEST(ColdTier, C22_aTransientReadErrorDeletesNothingAndAPersistentOneEnds) {
  ColdRig rig;
  ASSERT_TRUE(rig.Open().ok());
  EncodedBlock block = ColdBlock(1, 30);
  CopyPtr copy = *rig.Put(block);
  int errors = 2;
  uint64_t refused_from = 0;
  rig.faulty.SetHook([&](const RawIo& io) -> std::optional<int64_t> {
    bool refused = io.kind == IoKind::kRead && io.offset >= refused_from && errors-- > 0;
    return refused ? std::optional<int64_t>(-EIO) : std::nullopt;
  });
  auto read = rig.Get(copy, block);
  ASSERT_TRUE(read.ok()) << "retried: " << read.status();
  errors = 3;
  EXPECT_EQ(rig.Get(copy, block).status().code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(rig.Get(copy, block).ok()) << "a read that failed has deleted nothing";
  EXPECT_EQ(rig.tier().Usage().copies, 1u);
  errors = 1'000'000;
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(rig.Get(copy, block).ok());
  rig.Run();
  EXPECT_EQ(rig.tier().Usage().copies, 1u) << "a medium that gives nothing at all has not lost this";
  refused_from = kSegmentHeaderBytes;
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(rig.Get(copy, block).ok());
  rig.Run();
  EXPECT_EQ(rig.tier().Usage().copies, 0u) << "the medium gives the rest: it is this that is lost";
  EXPECT_EQ(rig.events.wholes(), 1u);
}

TEST(ColdTier, C22_aFailedReadDoesNotDeleteANewerVersion) {
  ColdRig rig;
  ASSERT_TRUE(rig.Open().ok());
  EncodedBlock old = ColdBlock(1, 30);
  CopyPtr old_copy = *rig.Put(old);
  std::string file = Files(&rig)[0];
  rig.faulty.HoldCompletions(true);
  std::optional<absl::StatusOr<EncodedBlock>> old_read;
  rig.memory.Poke(file, kIoAlignment, std::vector<uint8_t>(512));
  rig.tier().Read(old_copy, old.header->identity, RunMask::All(),
                  [&](auto read) { old_read.emplace(std::move(read)); });
  rig.faulty.HoldCompletions(false);
  // A newer version of the same block arrives before the failed read is judged.
  EncodedBlock fresh = old;
  auto header = std::make_shared<RecordHeader>(*old.header);
  header->identity.generation += 1;
  ComputeChecks(header.get(), header->encoded, fresh.runs);
  fresh.header = header;
  CopyPtr fresh_copy = *rig.Put(fresh);
  rig.Run();
  ASSERT_TRUE(old_read.has_value());
  EXPECT_FALSE(old_read->ok());
  EXPECT_TRUE(SameBlock(*rig.Get(fresh_copy, fresh), fresh));
  rig.Kill();
  ASSERT_TRUE(rig.Open().ok());
  ASSERT_EQ(rig.recovered.size(), 1u);
  EXPECT_EQ(rig.recovered[0].identity, fresh.header->identity);
}

TEST(ColdTier, C27_shortTransfersAreInvisible) {
  ColdRig rig(64 * kMiB, kMiB, 27);
  ASSERT_TRUE(rig.Open().ok());
  FaultRates rates;
  rates.short_transfer = 0.5;
  rates.interrupted = rates.again = 0.1;
  rig.faulty.SetRates(rates);
  std::vector<std::pair<EncodedBlock, CopyPtr>> all;
  for (uint64_t i = 0; i < 40; ++i) {
    EncodedBlock block = ColdBlock(i, static_cast<uint32_t>(1 + i * 13 % 400));
    auto copy = rig.Put(block);
    ASSERT_TRUE(copy.ok()) << copy.status();
    all.emplace_back(block, *copy);
  }
  for (auto& [block, copy] : all) {
    auto read = rig.Get(copy, block);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(SameBlock(*read, block));
  }
}

TEST(ColdTier, C20_aReadThatFailsInTheMiddlePublishesNothing) {
  ColdRig rig;
  ASSERT_TRUE(rig.Open().ok());
  EncodedBlock block = ColdBlock(1, 900);
  CopyPtr copy = *rig.Put(block);
  int reads = 0;
  rig.faulty.SetHook([&](const RawIo& io) -> std::optional<int64_t> {
    if (io.kind != IoKind::kRead) return std::nullopt;
    return reads++ >= 1 ? std::optional<int64_t>(-EIO) : std::nullopt;
  });
  for (int i = 0; i < 2; ++i) ExpectRightOrMissing(&rig, copy, block);
  rig.faulty.SetHook(nullptr);
  auto read = rig.Get(copy, block);
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(SameBlock(*read, block));
}

TEST(ColdTier, C21_nothingIsVisibleBeforeItIsWhole) {
  ColdRig rig;
  ASSERT_TRUE(rig.Open().ok());
  EncodedBlock block = ColdBlock(1, 900);
  auto draft = *rig.tier().Reserve(block.Layout(RunMask::All()));
  rig.tier().Fill(draft.get(), block);
  rig.faulty.HoldCompletions(true);
  bool done = false;
  rig.tier().Commit(std::move(draft), block.header, {}, [&](auto copy) { done = copy.ok(); });
  for (int steps = 0; steps < 1000 && !done; ++steps) {
    rig.Run();
    EXPECT_EQ(rig.tier().Usage().copies, done ? 1u : 0u);
    if (!rig.faulty.ReleaseOne()) rig.Run();
  }
  EXPECT_TRUE(done);
  EXPECT_EQ(rig.tier().Usage().copies, 1u);
  rig.faulty.HoldCompletions(false);
}

}  // namespace
}  // namespace firn
