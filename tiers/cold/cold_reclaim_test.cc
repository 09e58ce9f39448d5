// Space: what goes first, what is moved, and that the budget holds.
#include <gmock/gmock.h>

#include "tiers/cold/cold_test_util.h"

namespace firn {
namespace {

constexpr RunMask kP4 = RunMask::Both(RunKind::kP4);
constexpr RunMask kP8 = RunMask::Both(RunKind::kP8);

using Written = std::vector<std::pair<EncodedBlock, CopyPtr>>;

// Puts blocks until `bytes` are written; refusals are answered by letting the tier work.
Written Fill(ColdRig* rig, uint64_t first, uint64_t bytes, uint32_t kib, RunMask protect = {}) {
  Written written;
  uint64_t done = 0;
  for (uint64_t i = first; done < bytes; ++i) {
    EncodedBlock block = ColdBlock(i, kib);
    auto copy = rig->Put(block, protect);
    EXPECT_TRUE(copy.ok()) << copy.status();
    if (!copy.ok()) return written;
    done += block.Layout(RunMask::All()).TotalBytes();
    written.emplace_back(std::move(block), *copy);
  }
  return written;
}

TEST(ColdTier, ReclaimingTakesP8ThenP4ThenBlocks) {
  ColdRig rig(32 * kMiB);
  ASSERT_TRUE(rig.Open().ok());
  Written first = Fill(&rig, 0, 24 * kMiB, 400);
  EXPECT_TRUE(rig.events.lost.empty());
  Written more = Fill(&rig, 1000, 14 * kMiB, 400);
  rig.Run();
  // The oldest have lost p8, by now nobody has lost a block.
  ASSERT_FALSE(rig.events.lost.empty());
  EXPECT_EQ(rig.events.wholes(), 0u);
  EXPECT_EQ(rig.events.lost[0].runs, kP8);
  uint64_t relocated = rig.cold->ReclaimCounters().relocated_bytes;
  EXPECT_EQ(relocated, 0u) << "degrading by reclaiming rewrites nothing";
  size_t narrower = 0;
  for (auto& [block, copy] : first) {
    auto read = rig.Get(copy, block);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(SameBlock(*read, block.Narrowed(copy->Runs())));
    narrower += copy->Runs() == block.present ? 0 : 1;
  }
  EXPECT_GT(narrower, 0u);
  // Much more: in the end whole blocks go, the oldest first, and the budget has held.
  Written last = Fill(&rig, 2000, 60 * kMiB, 400);
  EXPECT_GT(rig.events.wholes(), 0u);
  EXPECT_LE(rig.memory.UsedBytes(), 32 * kMiB);
  for (Written* part : {&first, &more, &last}) {
    for (auto& [block, copy] : *part) {
      auto read = rig.Get(copy, block);
      if (!read.ok()) continue;
      EXPECT_TRUE(SameBlock(*read, block.Narrowed(read->present)));
    }
  }
  EXPECT_TRUE(rig.Get(last.back().second, last.back().first).ok());
  // What is lost stays lost, and what was narrowed stays narrow, with the index and without it.
  std::map<Digest, RunMask> expected;
  for (Written* part : {&first, &more, &last}) {
    for (auto& [block, copy] : *part) {
      if (!copy->Runs().Empty() && rig.Get(copy, block).ok()) expected[block.header->identity.key] = copy->Runs();
    }
  }
  for (bool lose_index : {false, true}) {
    rig.Kill();
    if (lose_index) rig.index.Clear();
    ASSERT_TRUE(rig.Open().ok());
    EXPECT_EQ(rig.recovered.size(), expected.size());
    for (const RecoveredCopy& copy : rig.recovered) {
      auto found = expected.find(copy.identity.key);
      ASSERT_NE(found, expected.end());
      EXPECT_EQ(copy.copy->Runs(), found->second);
      EXPECT_TRUE(rig.Get(copy.copy, copy.identity).ok());
    }
  }
}

TEST(ColdTier, ProtectedPlanesOutliveTheOthers) {
  ColdRig rig(32 * kMiB);
  ASSERT_TRUE(rig.Open().ok());
  EncodedBlock keys = ColdBlock(1, 400), all = ColdBlock(2, 400), plane = ColdBlock(3, 400);
  RunMask protect_keys = RunMask::Of(RunKind::kP4, Part::kK) | RunMask::Of(RunKind::kP8, Part::kK);
  CopyPtr keys_copy = *rig.Put(keys, protect_keys);
  CopyPtr all_copy = *rig.Put(all, kP4 | kP8);
  CopyPtr plane_copy = *rig.Put(plane, kP4);
  for (auto& [block, copy] : Written{{keys, keys_copy}, {all, all_copy}, {plane, plane_copy}}) {
    auto read = rig.Get(copy, block);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(SameBlock(*read, block));
  }
  // Until p8 of everything else has gone.
  for (uint64_t i = 1000; i < 4000 && plane_copy->Runs() == plane.present; ++i)
    rig.Put(ColdBlock(i, 400)).IgnoreError();
  EXPECT_EQ(plane_copy->Runs(), plane.present - kP8);
  EXPECT_EQ(keys_copy->Runs(), keys.present - RunMask::Of(RunKind::kP8, Part::kV));
  EXPECT_EQ(all_copy->Runs(), all.present);
  EXPECT_TRUE(SameBlock(*rig.Get(keys_copy, keys), keys.Narrowed(keys_copy->Runs())));
  rig.Kill();
  rig.index.Clear();
  ASSERT_TRUE(rig.Open().ok());
  ASSERT_NE(rig.Recovered(keys.header->identity), nullptr);
  EXPECT_EQ(rig.Recovered(keys.header->identity)->stored_class,
            ClassOf(*keys.header, keys.present - RunMask::Of(RunKind::kP8, Part::kV)));
}

TEST(ColdTier, HotBlocksAreMovedWithinTheBudgetAndDegradeOnTheWay) {
  ColdRig rig(32 * kMiB);
  rig.options.relocate_fraction = 0.3;
  ASSERT_TRUE(rig.Open().ok());
  Written hot;
  for (uint64_t i = 0; i < 10; ++i) {
    EncodedBlock block = ColdBlock(i, 16);
    hot.emplace_back(block, *rig.Put(block));
  }
  absl::flat_hash_map<uint64_t, bool> is_hot;
  for (auto& [block, copy] : hot) is_hot[block.header->identity.key.Prefix()] = true;
  // Blocks are kept; their planes may go, but for one that is pinned.
  uint64_t pinned = hot[0].first.header->identity.key.Prefix();
  rig.events.judge = [&](const Identity& identity, RunMask leaving) {
    if (identity.key.Prefix() == pinned) return ReclaimVerdict::kRelocate;
    bool planes_only = (leaving - kP4 - kP8).Empty();
    return is_hot.contains(identity.key.Prefix()) && !planes_only ? ReclaimVerdict::kRelocate : ReclaimVerdict::kDrop;
  };
  Written cold = Fill(&rig, 1000, 80 * kMiB, 16);
  EXPECT_GT(rig.events.wholes(), 0u);
  EXPECT_FALSE(rig.events.relocated.empty());
  ColdCounters counters = rig.cold->ReclaimCounters();
  EXPECT_LE(counters.relocated_bytes, counters.reclaimed_segments * 3 * kMiB / 10);
  for (auto& [block, copy] : hot) {
    auto read = rig.Get(copy, block);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(SameBlock(*read, block.Narrowed(copy->Runs())));
  }
  EXPECT_EQ(hot[0].second->Runs(), hot[0].first.present);
  EXPECT_EQ(hot[1].second->Runs(), hot[1].first.present - kP4 - kP8);
  for (bool lose_index : {false, true}) {
    rig.Kill();
    if (lose_index) rig.index.Clear();
    ASSERT_TRUE(rig.Open().ok());
    for (auto& [block, copy] : hot) {
      const RecoveredCopy* found = rig.Recovered(block.header->identity);
      ASSERT_NE(found, nullptr) << "index lost: " << lose_index;
      EXPECT_EQ(found->copy->Runs(), copy->Runs());
      EXPECT_EQ(found->stored_class, ClassOf(*block.header, copy->Runs()));
      auto read = rig.Get(found->copy, found->identity);
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_TRUE(SameBlock(*read, block.Narrowed(copy->Runs())));
    }
  }
}

// A pin is kept whatever the budget says, also one that comes between the verdict and the end; a segment that is mostly
// pinned is left alone.
TEST(ColdTier, C30_PinnedBlocksAreNeverReclaimed) {
  for (bool late : {false, true}) {
    SCOPED_TRACE(late ? "pinned after the verdict" : "pinned before");
    ColdRig rig(32 * kMiB);
    rig.options.relocate_fraction = 0.1;
    ASSERT_TRUE(rig.Open().ok());
    Written pinned;
    absl::flat_hash_map<uint64_t, bool> is_pinned;
    auto put_pinned = [&](uint64_t number) {
      EncodedBlock block = ColdBlock(number, 16);
      pinned.emplace_back(block, *rig.Put(block));
      is_pinned[block.header->identity.key.Prefix()] = true;
    };
    rig.events.judge = [&](const Identity& identity, RunMask) {
      return !late && is_pinned.contains(identity.key.Prefix()) ? ReclaimVerdict::kKeep : ReclaimVerdict::kDrop;
    };
    rig.events.let_go = [&](const Identity& identity, RunMask) { return !is_pinned.contains(identity.key.Prefix()); };
    for (uint64_t i = 0; i < 3; ++i) put_pinned(i);  // Few in their segment.
    Written between = Fill(&rig, 500, 2 * kMiB, 16);
    for (uint64_t i = 10; i < 70; ++i) put_pinned(i);  // A segment's worth.
    Written cold = Fill(&rig, 1000, 80 * kMiB, 16);
    EXPECT_GT(rig.events.wholes(), 0u);
    for (auto& [block, copy] : pinned) {
      CopyPtr now = copy;
      for (auto& [identity, moved] : rig.events.relocated) {
        if (identity == block.header->identity) now = moved;
      }
      auto read = rig.Get(now, block);
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(now->Runs(), block.present);
    }
    for (const auto& one : rig.events.lost) EXPECT_FALSE(is_pinned.contains(one.identity.key.Prefix()));
  }
}

// Segments whose footers could not be written: the index says what lies in them, and what is wanted is moved all the
// same.
TEST(ColdTier, WhatIsWantedIsMovedOutOfSegmentsWithoutFooters) {
  ColdRig rig(32 * kMiB);
  ASSERT_TRUE(rig.Open().ok());
  Written kept;
  absl::flat_hash_map<uint64_t, bool> is_kept;
  auto put_kept = [&](uint64_t number) {
    EncodedBlock block = ColdBlock(number, 16);
    kept.emplace_back(block, *rig.Put(block));
    is_kept[block.header->identity.key.Prefix()] = true;
  };
  rig.events.judge = [&](const Identity& identity, RunMask) {
    return is_kept.contains(identity.key.Prefix()) ? ReclaimVerdict::kRelocate : ReclaimVerdict::kDrop;
  };
  for (uint64_t i = 0; i < 5; ++i) put_kept(i);
  const std::vector<FileEntry> files = *rig.memory.List();
  // Reads of what lies behind the data: where footers are looked for.
  uint64_t refused = 0;
  rig.faulty.SetHook([&refused, files](const RawIo& io) -> std::optional<int64_t> {
    bool old = std::any_of(files.begin(), files.end(), [&](const auto& file) { return file.name == io.file->name(); });
    bool footer = io.kind == IoKind::kRead && io.offset + io.length == io.file->size() && io.length == kTrailerBytes;
    if (!old || !footer) return std::nullopt;
    ++refused;
    return -EIO;
  });
  Fill(&rig, 1000, 80 * kMiB, 16);
  EXPECT_GT(refused, 0u);
  EXPECT_GT(rig.cold->ReclaimCounters().relocated_records, 0u);
  for (auto& [block, copy] : kept) {
    auto read = rig.Get(copy, block);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(SameBlock(*read, block.Narrowed(read->present)));
  }
}

// A flush whose tombstones find no room waits for it, and says so when none comes.
TEST(ColdTier, AFlushWaitsForRoomForItsTombstones) {
  for (bool room_comes : {true, false}) {
    SCOPED_TRACE(room_comes ? "room comes" : "no room comes");
    ColdRig rig(32 * kMiB);
    ASSERT_TRUE(rig.Open().ok());
    rig.events.judge = [](const Identity&, RunMask) { return ReclaimVerdict::kKeep; };
    rig.events.let_go = [](const Identity&, RunMask) { return false; };
    Written blocks = Fill(&rig, 0, 16 * kMiB, 16);
    ASSERT_TRUE(rig.cold->SetCapacity(12 * kMiB).ok());  // Less than is there, and all of it is pinned.
    rig.Run();
    rig.cold->Forget(blocks[0].second, blocks[0].first.header->identity);
    std::optional<absl::Status> flushed;
    rig.cold->Flush([&](absl::Status status) { flushed = std::move(status); });
    rig.Run();
    ASSERT_FALSE(flushed.has_value()) << *flushed;
    if (room_comes) {
      ASSERT_TRUE(rig.cold->SetCapacity(32 * kMiB).ok());
    } else {
      rig.clock.AdvanceMs(11'000);
    }
    rig.cold->Tick();
    rig.Run();
    ASSERT_TRUE(flushed.has_value());
    EXPECT_EQ(flushed->code(), room_comes ? absl::StatusCode::kOk : absl::StatusCode::kUnavailable) << *flushed;
  }
}

TEST(ColdTier, ABlockForgottenWhileItMovesStaysForgotten) {
  ColdRig rig(32 * kMiB);
  rig.options.relocate_fraction = 0.9;
  ASSERT_TRUE(rig.Open().ok());
  Written hot;
  for (uint64_t i = 0; i < 12; ++i) {
    EncodedBlock block = ColdBlock(i, 16);
    hot.emplace_back(block, *rig.Put(block));
  }
  absl::flat_hash_map<uint64_t, CopyPtr> by_key;
  for (auto& [block, copy] : hot) by_key[block.header->identity.key.Prefix()] = copy;
  std::vector<std::pair<CopyPtr, Identity>> to_forget;
  rig.events.judge = [&](const Identity& identity, RunMask) {
    auto found = by_key.find(identity.key.Prefix());
    if (found == by_key.end()) return ReclaimVerdict::kDrop;
    to_forget.emplace_back(found->second, identity);
    return ReclaimVerdict::kRelocate;
  };
  uint64_t number = 1000;
  while (to_forget.empty() && number < 10'000) {
    auto draft = rig.cold->Reserve(ColdBlock(number, 16).Layout(RunMask::All()));
    EncodedBlock block = ColdBlock(number++, 16);
    if (!draft.ok()) {
      rig.Run();
      continue;
    }
    rig.cold->Fill(draft->get(), block);
    rig.cold->Commit(*std::move(draft), block.header, {}, [](auto) {});
    while (to_forget.empty() && rig.executor.RunOne()) {
    }
  }
  ASSERT_FALSE(to_forget.empty());
  // They are on their way: forget them all now.
  for (auto& [copy, identity] : to_forget) rig.cold->Forget(copy, identity);
  rig.Run();
  rig.Flush();
  for (bool lose_index : {false, true}) {
    rig.Kill();
    if (lose_index) rig.index.Clear();
    ASSERT_TRUE(rig.Open().ok());
    for (auto& [copy, identity] : to_forget) EXPECT_EQ(rig.Recovered(identity), nullptr) << lose_index;
  }
}

TEST(ColdTier, C23_theBudgetHoldsThroughKillsAndRestarts) {
  for (uint32_t kib : {12u, 300u}) {
    ColdRig rig(32 * kMiB);
    ASSERT_TRUE(rig.Open().ok());
    uint64_t number = 0;
    for (int round = 0; round < 5; ++round) {
      for (uint64_t written = 0; written < 48 * kMiB;) {
        EncodedBlock block = ColdBlock(number++ % 5000, kib);
        auto copy = rig.Put(block);
        ASSERT_TRUE(copy.ok()) << copy.status();
        written += block.Layout(RunMask::All()).TotalBytes();
        ASSERT_LE(rig.memory.UsedBytes(), 32 * kMiB);
      }
      if (round % 2 == 0) {
        rig.Kill();
      } else {
        ASSERT_TRUE(rig.Close().ok());
      }
      ASSERT_TRUE(rig.Open().ok());
      TierUsage usage = rig.tier().Usage();
      EXPECT_LE(rig.memory.UsedBytes(), 32 * kMiB);
      EXPECT_GE(usage.used_bytes, rig.memory.UsedBytes());
      EXPECT_GT(rig.recovered.size(), 0u);
    }
  }
}

TEST(ColdTier, C23_aKeyWrittenAgainCountsOnce) {
  ColdRig rig;
  ASSERT_TRUE(rig.Open().ok());
  EncodedBlock block = ColdBlock(1, 30);
  ASSERT_TRUE(rig.Put(block).ok());
  rig.Kill();
  ASSERT_TRUE(rig.Open().ok());
  uint64_t stored = rig.recovered[0].copy->StoredBytes();
  CopyPtr again = *rig.Put(block);
  rig.cold->Forget(rig.recovered[0].copy, block.header->identity);
  rig.recovered.clear();
  rig.Run();
  TierUsage usage = rig.tier().Usage();
  EXPECT_EQ(usage.copies, 1u);
  EXPECT_EQ(usage.used_bytes - usage.overhead_bytes, stored);
}

TEST(ColdTier, C23_aLowerCapacityEvictsDown) {
  ColdRig rig(64 * kMiB);
  ASSERT_TRUE(rig.Open().ok());
  Written written = Fill(&rig, 0, 50 * kMiB, 100);
  EXPECT_GT(rig.memory.UsedBytes(), 40 * kMiB);
  EXPECT_EQ(rig.cold->SetCapacity(kMiB).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(rig.cold->SetCapacity(24 * kMiB).ok());
  rig.Run();
  EXPECT_LE(rig.memory.UsedBytes(), 24 * kMiB);
  EXPECT_TRUE(rig.Put(ColdBlock(9999, 100)).ok());
  size_t left = 0;
  for (auto& [block, copy] : written) left += rig.Get(copy, block).ok() ? 1 : 0;
  EXPECT_GT(left, 0u);
  EXPECT_EQ(rig.tier().Usage().copies, left + 1);
}

// A record larger than what reclaiming keeps free by itself.
TEST(ColdTier, ALargeRecordIsMadeRoomFor) {
  ColdRig rig(32 * kMiB);
  ASSERT_TRUE(rig.Open().ok());
  Fill(&rig, 0, 40 * kMiB, 100);
  for (uint64_t i = 0; i < 12; ++i) {
    EncodedBlock large = ColdBlock(5000 + i, 7000);
    ASSERT_GT(large.Layout(RunMask::All()).TotalBytes(), 6 * kMiB);
    absl::StatusOr<CopyPtr> copy = rig.Put(large);
    for (int tries = 0; tries < 3 && !copy.ok(); ++tries) {
      EXPECT_EQ(copy.status().code(), absl::StatusCode::kResourceExhausted);
      rig.Run();
      copy = rig.Put(large);
    }
    ASSERT_TRUE(copy.ok()) << i << ": " << copy.status();
    EXPECT_TRUE(rig.Get(*copy, large).ok());
    ASSERT_LE(rig.memory.UsedBytes(), 32 * kMiB);
  }
  EXPECT_GT(rig.events.wholes(), 0u);
}

TEST(ColdTier, NothingIsGivenUpForWhatCannotFitOrWasGivenUp) {
  ColdRig rig(32 * kMiB);
  ASSERT_TRUE(rig.Open().ok());
  Fill(&rig, 0, 20 * kMiB, 100);
  EXPECT_FALSE(rig.cold->Reserve(ColdBlock(5000, 40'000).Layout(RunMask::All())).ok());
  rig.Run();
  EXPECT_TRUE(rig.events.lost.empty());
  // Asked for once and never again: the room is made, and not kept for ever.
  EXPECT_FALSE(rig.cold->Reserve(ColdBlock(5001, 16'000).Layout(RunMask::All())).ok());
  rig.Run();
  EXPECT_FALSE(rig.events.lost.empty());
  rig.clock.AdvanceMs(60'000);
  size_t lost = rig.events.lost.size();
  Fill(&rig, 1000, 6 * kMiB, 100);
  EXPECT_EQ(rig.events.lost.size(), lost);
}

TEST(ColdTier, ASegmentIsNotRemovedUnderAReader) {
  ColdRig rig(32 * kMiB);
  ASSERT_TRUE(rig.Open().ok());
  EncodedBlock block = ColdBlock(1, 30);
  CopyPtr copy = *rig.Put(block);
  std::string file;
  {
    std::vector<FileEntry> files = *rig.memory.List();
    file = files[0].name;
  }
  rig.faulty.SetHook([&](const RawIo&) { return std::optional<int64_t>(); });
  bool held = false;
  std::optional<absl::StatusOr<EncodedBlock>> read;
  rig.faulty.HoldCompletions(true);
  rig.tier().Read(copy, block.header->identity, RunMask::All(), [&](auto result) { read.emplace(std::move(result)); });
  // While the read hangs, everything around it is written over; other completions go on.
  uint64_t number = 1000;
  auto exists = [&] {
    std::vector<FileEntry> files = *rig.memory.List();
    return std::any_of(files.begin(), files.end(), [&](const FileEntry& entry) { return entry.name == file; });
  };
  held = exists();
  EXPECT_TRUE(held);
  rig.cold->Forget(copy, block.header->identity);
  for (int i = 0; i < 50; ++i) rig.Run();
  EXPECT_TRUE(exists());
  rig.faulty.HoldCompletions(false);
  rig.Run();
  ASSERT_TRUE(read.has_value());
  ASSERT_TRUE(read->ok()) << read->status();
  EXPECT_TRUE(SameBlock(**read, block));
  read.reset();
  Fill(&rig, number, 40 * kMiB, 100);
  EXPECT_FALSE(exists());
}

// Forgets as fast as is written, and replaces one fact over and over.
void ChurnFacts(ColdRig* rig) {
  for (uint64_t i = 0; i < 4000; ++i) {
    EncodedBlock block = ColdBlock(i, 12);
    auto copy = rig->Put(block);
    ASSERT_TRUE(copy.ok()) << copy.status();
    rig->cold->Forget(*copy, block.header->identity);
    if (i % 40 == 0) {
      Awaited<absl::Status> put;
      rig->cold->PutFact({"plan", "replaced", std::vector<uint8_t>(40'000, static_cast<uint8_t>(i))}, put.Done());
      ASSERT_TRUE(put.Wait(rig)->ok());
    }
  }
  rig->Flush();
}

void PutKeptFact(ColdRig* rig) {
  Awaited<absl::Status> kept;
  rig->cold->PutFact({"plan", "kept", {1, 2, 3}}, kept.Done());
  ASSERT_TRUE(kept.Wait(rig)->ok());
}

TEST(ColdTier, FactsAndTombstonesDoNotPileUp) {
  ColdRig rig(32 * kMiB);
  ASSERT_TRUE(rig.Open().ok());
  PutKeptFact(&rig);
  ChurnFacts(&rig);
  size_t facts_segments = 0;
  std::vector<FileEntry> files = *rig.memory.List();
  for (const FileEntry& entry : files) {
    auto header = ParseSegmentHeader(rig.memory.Peek(entry.name));
    if (header.ok() && header->stream == Stream::kFacts) ++facts_segments;
  }
  EXPECT_LE(facts_segments, 6u);
  rig.Kill();
  rig.index.Clear();
  ASSERT_TRUE(rig.Open().ok());
  EXPECT_EQ(rig.facts.size(), 2u);
  EXPECT_TRUE(rig.recovered.empty());
}

// The log's copy of a fact cannot be read any more when its segment is reclaimed: the index has it, and it is written
// anew.
TEST(ColdTier, AFactThatCannotBeReadIsWrittenAnewFromTheIndex) {
  ColdRig rig(32 * kMiB);
  ASSERT_TRUE(rig.Open().ok());
  PutKeptFact(&rig);
  std::string name;
  const std::vector<FileEntry> files = *rig.memory.List();
  for (const FileEntry& entry : files) {
    auto header = ParseSegmentHeader(rig.memory.Peek(entry.name));
    if (header.ok() && header->stream == Stream::kFacts) name = entry.name;
  }
  ASSERT_FALSE(name.empty());
  uint64_t refused = 0;
  rig.faulty.SetHook([&](const RawIo& io) -> std::optional<int64_t> {
    if (io.kind != IoKind::kRead || io.file->name() != name) return std::nullopt;
    ++refused;
    return -EIO;
  });
  ChurnFacts(&rig);
  EXPECT_GT(refused, 0u);
  const std::vector<FileEntry> left = *rig.memory.List();
  EXPECT_TRUE(std::none_of(left.begin(), left.end(), [&](const FileEntry& entry) { return entry.name == name; }));
  rig.faulty.SetHook(nullptr);
  rig.Kill();
  rig.index.Clear();
  ASSERT_TRUE(rig.Open().ok());
  ASSERT_EQ(rig.facts.size(), 2u);
  EXPECT_TRUE(std::any_of(rig.facts.begin(), rig.facts.end(), [](const RecoveredFact& fact) {
    return fact.name == "kept" && fact.value == std::vector<uint8_t>{1, 2, 3};
  }));
}

}  // namespace
}  // namespace firn
