// Allocations against every choice there is, greedy ones against exact ones.

#include "codecs/allocate/allocation.h"

#include <gtest/gtest.h>

#include <random>

namespace firn {
namespace {

std::vector<AllocationUnit> RandomUnits(std::mt19937_64* rng, size_t units, bool convex) {
  std::vector<AllocationUnit> out(units);
  for (AllocationUnit& unit : out) {
    double scale = std::exp(std::normal_distribution<double>(0, 2)(*rng)), slope = scale;
    uint64_t bytes = 1 + (*rng)() % 5;
    double error = 6 * scale;
    size_t rungs = 1 + (*rng)() % 4;
    for (size_t r = 0; r < rungs; ++r) {
      unit.rungs.push_back({bytes, std::max(error, 0.0)});
      uint64_t step = 1 + (*rng)() % 6;
      bytes += step;
      slope *= 0.4;
      error = convex ? error - slope * static_cast<double>(step)
                     : scale * std::uniform_real_distribution<double>(0, 6)(*rng);
    }
    std::shuffle(unit.rungs.begin(), unit.rungs.end(), *rng);
  }
  return out;
}

uint64_t LeastBytes(const std::vector<AllocationUnit>& units, bool most = false) {
  uint64_t total = 0;
  for (const AllocationUnit& unit : units) {
    uint64_t chosen = unit.rungs[0].bytes;
    for (const Rung& rung : unit.rungs) chosen = most ? std::max(chosen, rung.bytes) : std::min(chosen, rung.bytes);
    total += chosen;
  }
  return total;
}

// The least error of all choices within the budget.
double BruteForce(const std::vector<AllocationUnit>& units, uint64_t budget, size_t from = 0) {
  if (from == units.size()) return 0;
  double best = HUGE_VAL;
  for (const Rung& rung : units[from].rungs) {
    if (rung.bytes <= budget) {
      best = std::min(best, rung.error + BruteForce(units, budget - rung.bytes, from + 1));
    }
  }
  return best;
}

void ExpectConsistent(const std::vector<AllocationUnit>& units, uint64_t budget, const Allocation& chosen) {
  uint64_t bytes = 0;
  double error = 0;
  ASSERT_EQ(chosen.rung.size(), units.size());
  for (size_t i = 0; i < units.size(); ++i) {
    ASSERT_LT(chosen.rung[i], units[i].rungs.size());
    bytes += units[i].rungs[chosen.rung[i]].bytes;
    error += units[i].rungs[chosen.rung[i]].error;
  }
  EXPECT_EQ(chosen.bytes, bytes);
  EXPECT_EQ(chosen.error, error);
  EXPECT_LE(bytes, budget);
}

TEST(Allocation, ExactIsTheBestOfAllChoices) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 rng(seed);
    auto units = RandomUnits(&rng, 1 + rng() % 7, seed % 2 == 0);
    uint64_t least = LeastBytes(units), most = LeastBytes(units, true);
    uint64_t budget = least + rng() % (most - least + 3);
    auto exact = AllocateExactly(units, budget);
    ASSERT_TRUE(exact.ok()) << exact.status();
    ExpectConsistent(units, budget, *exact);
    double best = BruteForce(units, budget);
    EXPECT_NEAR(exact->error, best, 1e-9 * (1 + best));
  }
}

// Greedy choices are within one step's gain of the optimum, and never better.
TEST(Allocation, GreedyIsWithinOneStepOfExact) {
  size_t same = 0, all = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 rng(seed);
    auto units = RandomUnits(&rng, 20 + rng() % 20, seed % 2 == 0);
    uint64_t least = LeastBytes(units), most = LeastBytes(units, true);
    uint64_t budget = least + rng() % (most - least + 1);
    auto exact = AllocateExactly(units, budget), greedy = AllocateGreedily(units, budget);
    ASSERT_TRUE(exact.ok() && greedy.ok());
    ExpectConsistent(units, budget, *greedy);
    EXPECT_GE(greedy->error, exact->error * (1 - 1e-12));
    double step = 0;
    for (const AllocationUnit& unit : units) {
      double worst = 0, best = HUGE_VAL;
      for (const Rung& rung : unit.rungs) worst = std::max(worst, rung.error), best = std::min(best, rung.error);
      step = std::max(step, worst - best);
    }
    EXPECT_LE(greedy->error, exact->error + step);
    same += greedy->error <= exact->error * 1.05 + 1e-12;
    ++all;
  }
  EXPECT_GT(same, all / 2) << "greedy is seldom near the optimum";
}

// As heads are: the same costs everywhere. Greedy then spends the budget to the last step and is the optimum.
TEST(Allocation, GreedyIsExactWhereCostsAreAlikeAndCurvesConvex) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 rng(seed);
    std::vector<AllocationUnit> units(64);
    for (AllocationUnit& unit : units) {
      double size = std::exp(std::normal_distribution<double>(0, 2)(rng));
      unit.rungs = {{36, size}, {68, size / 15}, {100, size / 200}};
    }
    uint64_t budget = 64 * 36 + 32 * (rng() % 129);
    EXPECT_NEAR(AllocateGreedily(units, budget)->error, AllocateExactly(units, budget)->error, 1e-12);
  }
}

TEST(Allocation, TheSameUnitsGiveTheSameChoice) {
  std::vector<AllocationUnit> units(6, {{{10, 4}, {20, 1}, {20, 1}}});
  auto exact = AllocateExactly(units, 80), greedy = AllocateGreedily(units, 80);
  ASSERT_TRUE(exact.ok() && greedy.ok());
  EXPECT_EQ(greedy->rung, (std::vector<uint32_t>{1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(exact->error, greedy->error);
  EXPECT_EQ(exact->rung, AllocateExactly(units, 80)->rung);
}

TEST(Allocation, WrongInputsAreRefused) {
  std::vector<AllocationUnit> units = {{{{10, 1}}}, {{{5, 1}, {7, 0}}}};
  auto message = [](const auto& result) { return std::string(result.status().message()); };
  for (auto allocate : {AllocateGreedily, AllocateExactly}) {
    EXPECT_EQ(message(allocate(units, 14)), "a budget of 14 bytes; the coarsest precision of everything needs 15");
    EXPECT_TRUE(allocate(units, 15).ok());
    EXPECT_EQ(message(allocate({}, 14)).substr(0, 19), "0 units to allocate");
    std::vector<AllocationUnit> none = {{}};
    EXPECT_EQ(message(allocate(none, 14)), "unit 0 has 0 precisions, 1 to 16");
    for (double error : {-1.0, HUGE_VAL, std::nan("")}) {
      std::vector<AllocationUnit> wrong = {{{{1, error}}}};
      EXPECT_EQ(allocate(wrong, 14).status().code(), absl::StatusCode::kInvalidArgument) << error;
    }
  }
}

TEST(Allocation, WhatIsTooLargeForTheExactWayIsDoneGreedily) {
  std::mt19937_64 rng(1);
  std::vector<AllocationUnit> units(4000);
  for (AllocationUnit& unit : units) {
    unit.rungs = {{1 + rng() % 100000, 2.0 + static_cast<double>(rng() % 1000)},
                  {200000 + rng() % 100000, 1.0 + static_cast<double>(rng() % 1000) / 1000}};
  }
  uint64_t budget = 4000 * uint64_t{150000};
  bool exact = true;
  auto chosen = Allocate(units, budget, &exact);
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_FALSE(exact);
  ExpectConsistent(units, budget, *chosen);
  ASSERT_TRUE(Allocate(std::span(units).first(10), budget, &exact).ok());
  EXPECT_TRUE(exact);
}

}  // namespace
}  // namespace firn
