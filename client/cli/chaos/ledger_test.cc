#include "client/cli/chaos/ledger.h"

#include "base/status.h"
#include "gtest/gtest.h"

namespace firn::cli {
namespace {

using firnkv::Precision;

const absl::Status kFound;
const absl::Status kMiss = absl::NotFoundError("miss");

TEST(Ledger, ADurableBlockIsKeptAsFineAsItWasAcknowledged) {
  Ledger ledger(4);
  EXPECT_EQ(ledger.Judge(1, kMiss, Precision::kNone, false), Verdict::kFine) << "was never put";
  Moment began = ledger.Now();
  ledger.PutBegins(1);
  ledger.PutDone(1, began, true, Precision::kInt4);
  ledger.MemoryLost();
  EXPECT_EQ(ledger.Judge(1, kMiss, Precision::kNone, false), Verdict::kLost);
  EXPECT_EQ(ledger.Judge(1, kFound, Precision::kInt2, false), Verdict::kLost);
  EXPECT_EQ(ledger.Judge(1, kFound, Precision::kInt8, false), Verdict::kFine);
  EXPECT_EQ(ledger.Judge(1, kFound, Precision::kInt8, true), Verdict::kWrongBytes);
  EXPECT_EQ(ledger.Judge(1, absl::UnavailableError("starting"), Precision::kNone, false), Verdict::kFine);
  EXPECT_EQ(ledger.Promised(), std::vector<uint64_t>{1});
}

TEST(Ledger, DamageExcusesWhatWasStoredBeforeIt) {
  Ledger ledger(4);
  ledger.PutDone(1, ledger.Now(), true, Precision::kInt4);
  Moment before = ledger.Now();
  ledger.Damaged();
  ledger.PutDone(2, before, true, Precision::kInt4);         // It may have been written before the damage.
  ledger.PutDone(3, ledger.Now(), true, Precision::kInt4);   // All of it is newer.
  ledger.PutDone(1, ledger.Now(), false, Precision::kInt4);  // It lies where it lay.
  EXPECT_EQ(ledger.Judge(1, kMiss, Precision::kNone, false), Verdict::kLostToDamage);
  EXPECT_EQ(ledger.Judge(2, kMiss, Precision::kNone, false), Verdict::kLostToDamage);
  EXPECT_EQ(ledger.Judge(3, kMiss, Precision::kNone, false), Verdict::kLost);
  EXPECT_EQ(ledger.Judge(1, kFound, Precision::kInt4, true), Verdict::kWrongBytes) << "damage excuses no wrong bytes";
}

// The daemon keeps the coarser copy on disk when a finer block is put, and answers that it is durable.
TEST(Ledger, AFinerBlockLeavesTheCopyThatMayBeDamaged) {
  Ledger ledger(4);
  ledger.PutDone(1, ledger.Now(), true, Precision::kInt4);
  ledger.Damaged();
  ledger.PutDone(1, ledger.Now(), true, Precision::kInt4);
  EXPECT_EQ(ledger.Judge(1, kMiss, Precision::kNone, false), Verdict::kLostToDamage);
  ledger.Missed(1);
  ledger.PutDone(1, ledger.Now(), true, Precision::kInt4);
  EXPECT_EQ(ledger.Judge(1, kMiss, Precision::kNone, false), Verdict::kLost);
}

TEST(Ledger, WhatWasDeletedStaysAwayUntilItIsPutAgain) {
  Ledger ledger(4);
  ledger.PutDone(1, ledger.Now(), true, Precision::kInt4);
  ledger.DeleteBegins(1);
  EXPECT_EQ(ledger.Judge(1, kMiss, Precision::kNone, false), Verdict::kFine);
  EXPECT_EQ(ledger.Judge(1, kFound, Precision::kInt4, false), Verdict::kFine);
  ledger.DeleteDone(1, ledger.Now());
  EXPECT_EQ(ledger.Judge(1, kMiss, Precision::kNone, false), Verdict::kFine);
  EXPECT_EQ(ledger.Judge(1, kFound, Precision::kInt4, false), Verdict::kCameBack);
  ledger.PutBegins(1);
  EXPECT_EQ(ledger.Judge(1, kFound, Precision::kInt4, false), Verdict::kFine);
}

TEST(Ledger, AFlushPromisesWhatThisDaemonStored) {
  Ledger ledger(4);
  ledger.PutDone(1, ledger.Now(), true, Precision::kNone);
  ledger.MemoryLost();  // A kill: it was in memory alone.
  ledger.PutDone(2, ledger.Now(), true, Precision::kNone);
  ledger.FlushDone(0, 4, ledger.Now());
  EXPECT_EQ(ledger.Judge(1, kMiss, Precision::kNone, false), Verdict::kFine);
  EXPECT_EQ(ledger.Judge(2, kMiss, Precision::kNone, false), Verdict::kLost);
  Moment began = ledger.Now();
  ledger.PutDone(3, began, true, Precision::kNone);
  ledger.MemoryLost();  // While the flush went on: who knows which daemon answered.
  ledger.FlushDone(0, 4, began);
  EXPECT_EQ(ledger.Judge(3, kMiss, Precision::kNone, false), Verdict::kFine);
}

}  // namespace
}  // namespace firn::cli
