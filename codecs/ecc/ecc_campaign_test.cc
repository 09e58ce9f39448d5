// Random flips by the million: one is fixed, two are found, and of three to 64 none passes the checksum.
//
// FIRN_ECC_FLIPS is the number of damaged code words (a billion in the long run), FIRN_ECC_SEED repeats a run.

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/checksum.h"
#include "codecs/ecc/ecc_test_util.h"

namespace firn {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

uint64_t Words() { return FromEnvironment("FIRN_ECC_FLIPS", 300'000); }

uint64_t Seed() { return FromEnvironment("FIRN_ECC_SEED", std::random_device()()); }

// A third one flip, a third two, a third three to 64.
uint32_t FlipCount(Rng* rng) {
  const uint64_t kind = (*rng)() % 3;
  return kind < 2 ? static_cast<uint32_t>(kind) + 1 : 3 + static_cast<uint32_t>((*rng)() % 62);
}

// `count` different numbers below `bits`.
std::vector<uint64_t> ChooseBits(uint64_t bits, uint32_t count, Rng* rng) {
  std::vector<uint64_t> chosen;
  while (chosen.size() < count) {
    const uint64_t bit = (*rng)() % bits;
    if (std::find(chosen.begin(), chosen.end(), bit) == chosen.end()) chosen.push_back(bit);
  }
  return chosen;
}

// A run as a medium has it: with the checksum of its record.
struct Judged {
  Bytes data, parity;
  uint64_t checksum;

  Judged(EccCode code, size_t bytes, Rng* rng)
      : data(RandomBytes(bytes, rng)), parity(ParityBytes(code, bytes)), checksum(Crc64(data, 7)) {
    ComputeParity(code, RunBytes(ByteSpan(data)), MutableRunBytes(MutableByteSpan(parity)));
  }
  bool Agrees(EccCode code) const { return ParityAgrees(code, RunBytes(ByteSpan(data)), RunBytes(ByteSpan(parity))); }
  EccOutcome Correct(EccCode code) {
    return CorrectInPlace(code, MutableRunBytes(MutableByteSpan(data)), MutableRunBytes(MutableByteSpan(parity)));
  }
};

struct Tally {
  uint64_t restored = 0, found = 0, stopped_by_checksum = 0, silent = 0;

  // After a correction: what a reader would get, who compares the checksum.
  void Add(const Judged& good, const Judged& now, const EccOutcome& outcome) {
    if (now.data == good.data) {
      ++restored;
    } else if (Crc64(now.data, 7) == good.checksum) {
      ++silent;
    } else if (outcome.uncorrectable > 0) {
      ++found;
    } else {
      ++stopped_by_checksum;
    }
  }
};

TEST(EccCampaign, Secded) {
  const uint64_t seed = Seed(), words = Words();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Rng rng(seed);
  Tally tally;
  constexpr EccCode kCode = EccCode::kSecded;
  constexpr uint32_t kRunWords = 16;
  Judged good(kCode, kRunWords * 8, &rng);
  for (uint64_t i = 0; i < words; ++i) {
    if (i % 1000 == 0) good = Judged(kCode, kRunWords * 8, &rng);
    Judged run = good;
    const uint64_t word = rng() % kRunWords;
    const uint32_t count = FlipCount(&rng);
    for (uint64_t bit : ChooseBits(72, count, &rng)) {
      (bit < 64 ? run.data[word * 8 + bit / 8] : run.parity[word]) ^= static_cast<uint8_t>(1u << bit % 8);
    }
    const Judged damaged = run;
    const bool agreed = run.Agrees(kCode);
    const EccOutcome outcome = run.Correct(kCode);
    ASSERT_EQ(agreed, outcome.clean());
    if (count == 1) {
      ASSERT_TRUE(outcome.corrected == 1 && run.data == good.data && run.parity == good.parity);
    } else if (count == 2) {
      ASSERT_TRUE(outcome.corrected == 0 && outcome.uncorrectable == 1 && run.data == damaged.data);
    }
    tally.Add(good, run, outcome);
  }
  EXPECT_EQ(tally.silent, 0u);
  std::printf("SECDED, seed %llu: %llu words, %llu restored, %llu found, %llu stopped by the checksum, %llu silent\n",
              static_cast<unsigned long long>(seed), static_cast<unsigned long long>(words),
              static_cast<unsigned long long>(tally.restored), static_cast<unsigned long long>(tally.found),
              static_cast<unsigned long long>(tally.stopped_by_checksum),
              static_cast<unsigned long long>(tally.silent));
}

TEST(EccCampaign, ReedSolomon) {
  const uint64_t seed = Seed(), stripes = Words() / 50 + 1;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Rng rng(seed);
  Tally tally;
  constexpr EccCode kCode = EccCode::kReedSolomon;
  Judged good(kCode, 1, &rng);
  for (uint64_t i = 0; i < stripes; ++i) {
    if (i % 20 == 0) good = Judged(kCode, 1 + rng() % (i % 100 == 0 ? 65536 : 3000), &rng);
    Judged run = good;
    const uint32_t count = FlipCount(&rng);
    const uint64_t data_bits = run.data.size() * 8;
    for (uint64_t bit : ChooseBits(data_bits + run.parity.size() * 8, count, &rng)) {
      const uint64_t in_parity = bit - data_bits;  // Only where it is not in the data.
      (bit < data_bits ? run.data[bit / 8] : run.parity[in_parity / 8]) ^= static_cast<uint8_t>(1u << bit % 8);
    }
    const Judged damaged = run;
    ASSERT_FALSE(run.Agrees(kCode));
    const EccOutcome outcome = run.Correct(kCode);
    // One or two flips are in one or two shards. More are repaired as a whole or left alone.
    ASSERT_TRUE(count > 2 || outcome.uncorrectable == 0);
    const Judged& expected = outcome.uncorrectable == 0 ? good : damaged;
    ASSERT_TRUE(run.data == expected.data && run.parity == expected.parity);
    tally.Add(good, run, outcome);
  }
  EXPECT_EQ(tally.silent + tally.stopped_by_checksum, 0u);
  std::printf("Reed-Solomon, seed %llu: %llu stripes, %llu restored, %llu found\n",
              static_cast<unsigned long long>(seed), static_cast<unsigned long long>(stripes),
              static_cast<unsigned long long>(tally.restored), static_cast<unsigned long long>(tally.found));
}

}  // namespace
}  // namespace firn
