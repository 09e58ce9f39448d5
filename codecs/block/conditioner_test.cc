// Rotary embeddings taken back and rows transformed outside the codec: against the definition, and on every target.

#include "codecs/block/conditioner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "codecs/nested/nested_format.h"
#include "codecs/tile_test_util.h"
#include "hwy/highway.h"
#include "hwy/targets.h"

namespace firn {
namespace {

Rope RopeOf(uint32_t pairs, bool interleaved) {
  Rope rope{.interleaved = interleaved, .frequencies = {}};
  for (uint32_t i = 0; i < pairs; ++i) rope.frequencies.push_back(std::pow(10000.0, -double(i) / pairs));
  return rope;
}

TEST(RopeTable, TurnsAreThoseOfTheLibrary) {
  std::mt19937_64 rng(5);
  double worst = 0;
  for (int i = 0; i < 200000; ++i) {
    uint32_t position = static_cast<uint32_t>(rng() % (i < 100000 ? 4096 : 100'000'000));
    double frequency = std::pow(10000.0, -static_cast<double>(rng() % 64) / 64);
    Turn turn = TurnOf(position, frequency);
    double angle = static_cast<double>(position) * frequency;
    worst = std::max({worst, std::fabs(turn.cosine - std::cos(angle)), std::fabs(turn.sine - std::sin(angle))});
  }
  EXPECT_LT(worst, 6.1e-8);  // Half a unit in the last place of an FP32 number just below 1, and no more.
}

TEST(RopeTable, WorkedTurns) {
  EXPECT_EQ(TurnOf(0, 1.0).cosine, 1.0f);
  EXPECT_EQ(TurnOf(0, 1.0).sine, 0.0f);
  EXPECT_EQ(TurnOf(1, 1.0).cosine, 0x1.14a280p-1f);
  EXPECT_EQ(TurnOf(1, 1.0).sine, 0x1.aed548p-1f);
  EXPECT_EQ(TurnOf(1000, 1.0).cosine, 0x1.1ff026p-1f);
  EXPECT_EQ(TurnOf(1000000, 0.5).sine, 0x1.6c32c4p-3f);
}

struct Case {
  uint32_t width, pairs;
  bool interleaved, transformed, channels;
};

TEST(Conditioning, EveryTargetGivesTheBytesOfTheReferenceAndTakesThemBack) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    for (uint32_t width : {1u, 3u, 16u, 48u, 64u, 80u, 128u, 132u, 576u, 2048u}) {
      for (bool interleaved : {false, true}) {
        for (bool transformed : {false, true}) {
          for (uint8_t flags : {+PartCoding::kRotated, 7, +PartCoding::kCentred}) {
            SCOPED_TRACE(
                fmt::format("width {} interleaved {} transformed {} flags {}", width, interleaved, transformed, flags));
            const uint32_t tokens = 5, first_token = 2;
            RopeTable table(RopeOf(width / 2, interleaved), 1000, tokens + first_token);
            TestTransform channels(width, flags, width);
            ChannelTransform view = channels.view();
            Conditioning conditioning{.rope = width > 1 ? &table : nullptr,
                                      .transform = transformed ? &view : nullptr,
                                      .rotation = (flags & PartCoding::kRotated) != 0 ? nested::RotationSize(width) : 1,
                                      .width = width};
            std::vector<float> values(tokens * width);
            std::mt19937_64 rng(width);
            std::normal_distribution<float> normal;
            for (float& v : values) v = normal(rng);
            std::vector<float> reference = values, actual = values;
            ConditionRowsReference(conditioning, first_token, tokens, reference.data());
            ConditionRows(conditioning, first_token, tokens, actual.data());
            ASSERT_EQ(reference, actual);
            RestoreRowsReference(conditioning, first_token, tokens, reference.data());
            RestoreRows(conditioning, first_token, tokens, actual.data());
            ASSERT_EQ(reference, actual);
            for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], actual[i], 1e-4f);
          }
        }
      }
    }
    hwy::SetSupportedTargetsForTest(0);
  }
}

// What coding made of values near the end of FP32's range may pass it on the way back: it saturates, Inf too, on every
// target alike.
TEST(Conditioning, EveryTargetSaturatesOnTheWayBack) {
  constexpr float kLargest = std::numeric_limits<float>::max(), kInfinity = std::numeric_limits<float>::infinity();
  const float given[] = {3e38f, -3e38f, 1.0f, kLargest, -kLargest, kInfinity, -kInfinity, 0.0f};
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    for (uint32_t width : {1u, 3u, 48u, 64u, 131u}) {
      for (bool interleaved : {false, true}) {
        for (bool transformed : {false, true}) {
          RopeTable table(RopeOf(width / 2, interleaved), 1000, 7);
          TestTransform channels(width, PartCoding::kCentred | PartCoding::kBalanced, width);
          ChannelTransform view = channels.view();
          Conditioning conditioning{.rope = width > 1 ? &table : nullptr,
                                    .transform = transformed || width == 1 ? &view : nullptr,
                                    .width = width};
          std::vector<float> reference(7 * width);
          // Without a transform nothing has brought Inf back before the embedding meets it.
          for (size_t i = 0; i < reference.size(); ++i) reference[i] = given[i % (transformed ? 8 : 5)];
          std::vector<float> actual = reference;
          RestoreRowsReference(conditioning, 0, 7, reference.data());
          RestoreRows(conditioning, 0, 7, actual.data());
          ASSERT_EQ(reference, actual);
          for (float value : actual) ASSERT_LE(std::fabs(value), kLargest);
        }
      }
    }
    hwy::SetSupportedTargetsForTest(0);
  }
}

TEST(Conditioning, EveryTargetFindsWhatIsBeyondTheLimitWhereverItIs) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    for (size_t count : {0, 1, 7, 16, 37, 64}) {
      std::vector<float> values(count, -2.0f);
      EXPECT_TRUE(RowsWithin(values.data(), count, 2.0f));
      for (size_t at = 0; at < count; ++at) {
        for (float beyond : {2.1f, -2.1f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
          values[at] = beyond;
          EXPECT_FALSE(RowsWithin(values.data(), count, 2.0f)) << count << " values, " << beyond << " at " << at;
        }
        values[at] = 2.0f;
      }
    }
    hwy::SetSupportedTargetsForTest(0);
  }
}

// Keys before the embedding, embedded by the model's own formula, come back.
TEST(Conditioning, TakesBackWhatAModelDid) {
  const uint32_t width = 8, tokens = 3, first_position = 4000;
  Rope rope = RopeOf(width / 2, false);
  RopeTable table(rope, first_position, tokens);
  std::vector<float> before(tokens * width), after(tokens * width);
  for (uint32_t t = 0; t < tokens; ++t) {
    for (uint32_t i = 0; i < width / 2; ++i) {
      double a = 0.25 * (t + i) - 1, b = 2.0 - i, angle = (first_position + t) * rope.frequencies[i];
      before[t * width + i] = static_cast<float>(a), before[t * width + i + 4] = static_cast<float>(b);
      after[t * width + i] = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
      after[t * width + i + 4] = static_cast<float>(b * std::cos(angle) + a * std::sin(angle));
    }
  }
  ConditionRows({.rope = &table, .width = width}, 0, tokens, after.data());
  for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(before[i], after[i], 1e-6f) << i;
}

}  // namespace
}  // namespace firn
