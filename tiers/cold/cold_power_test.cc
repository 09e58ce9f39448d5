// Power cuts at any moment. What must survive each: every acknowledged block, whole and with its own bytes, unless it
// was forgotten or reclaimed; every acknowledged fact. What must not come back: a block whose forgetting was flushed,
// and anything torn. What was under way may be there or not, but never in part. A failure prints its seed.
//
// FIRN_POWER_CUT_SEEDS sets how many seeds are tried.
#include <cstdlib>

#include "tiers/cold/cold_test_util.h"

namespace firn {
namespace {

class PowerCutRun {
 public:
  explicit PowerCutRun(uint64_t seed)
      : seed_(seed), random_(seed), rig_(seed % 3 == 0 ? 13 * kMiB : 48 * kMiB, kMiB, seed) {
    rig_.options.staging_bytes = rig_.options.read_bytes = 16 * kMiB;
    rig_.options.relocate_fraction = 0.4;
    constexpr EccPolicy kPolicies[] = {EccPolicy(), EccPolicy::Uniform(EccCode::kSecded),
                                       EccPolicy::Graded(EccCode::kReedSolomon)};
    rig_.options.ecc = kPolicies[seed / 3 % 3];
    rig_.events.judge = [](const Identity& identity, RunMask) {
      return identity.key.bytes[0] % 4 == 0 ? ReclaimVerdict::kRelocate : ReclaimVerdict::kDrop;
    };
  }

  void Run() {
    ASSERT_TRUE(rig_.Open().ok());
    for (int cut = 0; cut < 3; ++cut) {
      Work();
      if (testing::Test::HasFatalFailure()) return;
      Cut();
      ASSERT_TRUE(rig_.Open().ok()) << "seed " << seed_;
      Check(cut);
      if (testing::Test::HasFailure()) {
        ADD_FAILURE() << "seed " << seed_ << ", cut " << cut;
        return;
      }
      Settle();
    }
  }

 private:
  enum class State { kUnderWay, kStored, kForgetting, kForgotten, kLost };
  struct Tracked {
    EncodedBlock block;
    CopyPtr copy;
    State state = State::kUnderWay;
    bool gone_before = false;
    bool failed = false;  // The tier said so, while the medium worked.
  };
  struct Fact {
    std::vector<uint8_t> acknowledged;
    std::vector<std::vector<uint8_t>> since;
  };

  uint64_t Below(uint64_t limit) { return random_() % limit; }

  void Work() {
    rig_.faulty.HoldCompletions(Below(2) == 0, false);
    uint64_t crash_after = 1 + Below(120);
    rig_.faulty.CrashAfter(crash_after);
    for (int step = 0; step < 400 && !rig_.faulty.crashed(); ++step) {
      switch (Below(8)) {
        case 0:
        case 1:
        case 2:
          Put();
          break;
        case 3:
          Forget();
          break;
        case 4:
          PutFact();
          break;
        case 5:
          Flush();
          break;
        default:
          for (uint64_t i = Below(30); i > 0; --i) {
            if (Below(3) == 0) rig_.faulty.ReleaseOne();
            rig_.executor.RunOne();
          }
      }
      NoteLost();
    }
  }

  void Put() {
    uint64_t number = next_number_++;
    uint32_t kib = Below(4) == 0 ? 200 + static_cast<uint32_t>(Below(200)) : 1 + static_cast<uint32_t>(Below(20));
    EncodedBlock block = ColdBlock(number, kib);
    auto draft = rig_.cold->Reserve(block.Layout(RunMask::All()));
    if (!draft.ok()) return;
    rig_.cold->Fill(draft->get(), block);
    CommitOptions commit;
    if (Below(4) == 0) commit.protect = RunMask::Of(RunKind::kP4, Part::kK);
    tracked_[number].block = block;
    rig_.cold->Commit(*std::move(draft), block.header, commit, [this, number](absl::StatusOr<CopyPtr> copy) {
      // What completes only because everything fails says nothing about what is on the medium.
      if (rig_.faulty.crashed() && !copy.ok()) return;
      Tracked& tracked = tracked_[number];
      tracked.failed = !copy.ok();
      if (!copy.ok()) return;
      tracked.copy = *copy;
      tracked.state = State::kStored;
    });
  }

  void Forget() {
    for (auto& [number, tracked] : tracked_) {
      if (tracked.state != State::kStored || Below(4) != 0) continue;
      rig_.cold->Forget(tracked.copy, tracked.block.header->identity);
      tracked.state = State::kForgetting;
      return;
    }
  }

  void PutFact() {
    std::string name(1, static_cast<char>('a' + Below(3)));
    std::vector<uint8_t> value(1 + Below(3000), static_cast<uint8_t>(random_()));
    facts_[name].since.push_back(value);
    rig_.cold->PutFact({"plan", name, value}, [this, name, value](absl::Status status) {
      if (!status.ok()) return;
      Fact& fact = facts_[name];
      fact.acknowledged = value;
      while (!fact.since.empty() && fact.since.front() != value) fact.since.erase(fact.since.begin());
      if (!fact.since.empty()) fact.since.erase(fact.since.begin());
    });
  }

  void Flush() {
    std::vector<uint64_t> forgetting;
    for (auto& [number, tracked] : tracked_) {
      if (tracked.state == State::kForgetting) forgetting.push_back(number);
    }
    rig_.cold->Flush([this, forgetting](absl::Status status) {
      if (!status.ok() || rig_.faulty.crashed()) return;
      for (uint64_t number : forgetting) tracked_[number].state = State::kForgotten;
    });
  }

  void NoteLost() {
    std::lock_guard lock(rig_.events.mu);
    for (const RecordingEvents::Lost& lost : rig_.events.lost) {
      auto found = tracked_.find(lost.identity.generation);
      if (found == tracked_.end()) continue;
      reclaimed_ = true;
      if (lost.whole && found->second.state == State::kStored) found->second.state = State::kLost;
    }
    rig_.events.lost.clear();
  }

  void Cut() {
    rig_.faulty.CrashAfter(0);
    rig_.borrowed_index->Freeze();
    rig_.faulty.HoldCompletions(false);
    for (auto& [number, tracked] : tracked_) tracked.copy.reset();
    rig_.Stop();
    NoteLost();
    rig_.memory.CutPower(&random_);
    rig_.index.CutPower(&random_);
    if (Below(4) == 0) rig_.index.Clear();
    rig_.faulty.CrashAfter(~uint64_t{0} >> 1);
  }

  void Check(int) {
    std::map<uint64_t, const RecoveredCopy*> found;
    for (const RecoveredCopy& copy : rig_.recovered) {
      uint64_t number = copy.identity.generation;  // TestIdentity makes them the same.
      ASSERT_TRUE(tracked_.contains(number)) << "a block that was never written";
      EXPECT_TRUE(found.emplace(number, &copy).second) << "a block is there twice: " << number;
      const EncodedBlock& block = tracked_[number].block;
      auto read = rig_.Get(copy.copy, copy.identity);
      ASSERT_TRUE(read.ok()) << number << ": " << read.status();
      EXPECT_EQ(IntactRuns(*read), read->present) << number << ": an acknowledged or whole block has damaged runs";
      EXPECT_TRUE(SameBlock(*read, block.Narrowed(read->present))) << number << ": wrong bytes";
      // Planes of what was being forgotten may have gone with their segments.
      bool whole = reclaimed_ || tracked_[number].state == State::kForgetting || read->present == block.present;
      EXPECT_TRUE(whole) << number << ": runs " << (block.present - read->present).bits() << " are missing, state "
                         << static_cast<int>(tracked_[number].state);
      EXPECT_EQ(copy.stored_class, ClassOf(*block.header, read->present)) << number;
    }
    for (auto& [number, tracked] : tracked_) {
      bool there = found.contains(number);
      if (tracked.state == State::kStored) {
        EXPECT_TRUE(there) << number << ": an acknowledged block is gone";
      }
      if (tracked.state == State::kForgotten) {
        EXPECT_FALSE(there) << number << ": a forgotten block is back, "
                            << (tracked.gone_before ? "absent before" : "flushed");
      }
      if (tracked.failed) {
        EXPECT_FALSE(there) << number << ": a failed block is back";
      }
      if (there && tracked.state == State::kLost) {
        EXPECT_TRUE(reclaimed_) << number;
      }
    }
    std::map<std::string, std::vector<uint8_t>> facts;
    for (const RecoveredFact& fact : rig_.facts) facts[fact.name] = fact.value;
    for (auto& [name, fact] : facts_) {
      bool known = facts[name] == fact.acknowledged;
      for (const std::vector<uint8_t>& value : fact.since) known |= facts[name] == value;
      EXPECT_TRUE(known) << "fact " << name << " has a value that nobody gave it";
    }
    TierUsage usage = rig_.tier().Usage();
    EXPECT_LE(rig_.memory.UsedBytes(), usage.capacity_bytes);
    EXPECT_EQ(usage.copies, rig_.recovered.size());
  }

  // What is there now is what counts for the next round.
  void Settle() {
    std::map<uint64_t, Tracked> kept;
    for (const RecoveredCopy& copy : rig_.recovered) {
      Tracked& tracked = kept[copy.identity.generation];
      tracked.block = tracked_[copy.identity.generation].block;
      tracked.copy = copy.copy;
      tracked.state = State::kStored;
    }
    for (auto& [number, tracked] : tracked_) {
      if (kept.contains(number)) continue;
      kept[number].block = tracked.block;
      kept[number].state = tracked.state == State::kLost ? State::kLost : State::kForgotten;
      // Absent from an index and a log that were both whole: whatever it was, it must not come back, except where a
      // reclaimed segment's removal is what was lost, and that cannot be: removals are durable.
    }
    tracked_ = std::move(kept);
    for (const RecoveredFact& fact : rig_.facts) facts_[fact.name] = {fact.value, {}};
  }

  const uint64_t seed_;
  std::mt19937_64 random_;
  ColdRig rig_;
  std::map<uint64_t, Tracked> tracked_;
  std::map<std::string, Fact> facts_;
  uint64_t next_number_ = 1;
  bool reclaimed_ = false;
};

TEST(ColdTier, C21_C24_powerCutsAtAnyMoment) {
  uint64_t seeds = 500;
  if (const char* text = std::getenv("FIRN_POWER_CUT_SEEDS")) seeds = std::strtoull(text, nullptr, 10);
  uint64_t first = 1;
  if (const char* text = std::getenv("FIRN_POWER_CUT_FIRST")) first = std::strtoull(text, nullptr, 10);
  for (uint64_t seed = first; seed < first + seeds && !HasFailure(); ++seed) PowerCutRun(seed).Run();
}

// A segment that was condemned before anything but its header was written to it: it was never removed, and everything
// waited for its room.
TEST(ColdTier, CutsThatOnceLeftTheTierWaitingForEver) {
  for (uint64_t seed : {1326, 2562}) PowerCutRun(seed).Run();
}

}  // namespace
}  // namespace firn
