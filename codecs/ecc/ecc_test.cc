// Both codes: what is fixed, what is found, what is left alone, on every path and over any pieces; and their bytes.

#include "codecs/ecc/ecc.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/bytes.h"
#include "base/units.h"
#include "codecs/ecc/ecc_test_util.h"
#include "codecs/ecc/reed_solomon.h"
#include "codecs/ecc/secded.h"
#include "hwy/targets.h"

namespace firn {
namespace {

constexpr EccCode kCodes[] = {EccCode::kSecded, EccCode::kReedSolomon};

TEST(EccPolicy, PacksAndPrints) {
  std::set<uint8_t> packed;
  uint32_t unknown = 0;
  for (uint32_t bits = 0; bits < 256; ++bits) {
    auto policy = EccPolicy::Unpack(static_cast<uint8_t>(bits));
    if (!policy.ok()) {
      EXPECT_EQ(policy.status().code(), absl::StatusCode::kDataLoss);
      ++unknown;
      continue;
    }
    EXPECT_EQ(policy->Packed(), bits);
    packed.insert(policy->Packed());
  }
  EXPECT_EQ(packed.size(), 81u);  // Three codes for each of four classes.
  EXPECT_EQ(unknown, 256u - 81);
  EXPECT_EQ(EccPolicy().ToString(), "none");
  EXPECT_EQ(EccPolicy::Uniform(EccCode::kSecded).ToString(), "secded");
  EXPECT_EQ(EccPolicy::Graded(EccCode::kReedSolomon).ToString(), "meta=rs,base=rs,p4=none,p8=none");
  EXPECT_EQ(EccPolicy::Graded(EccCode::kSecded).Packed(), 0x05);
  EXPECT_EQ(EccPolicy().With(ProtectionClass::kP8, EccCode::kReedSolomon).Packed(), 0x80);
  EXPECT_FALSE(EccPolicy().any());
}

TEST(Secded, ColumnsAreOddApartAndBalanced) {
  std::set<uint8_t> seen;
  std::array<int, 8> ones{};
  for (uint8_t column : secded::kColumns) {
    EXPECT_EQ(std::popcount(column) % 2, 1);
    EXPECT_GT(std::popcount(column), 1);
    seen.insert(column);
    for (uint32_t bit = 0; bit < 8; ++bit) ones[bit] += column >> bit & 1;
  }
  EXPECT_EQ(seen.size(), 64u);
  for (int count : ones) EXPECT_EQ(count, 26);
}

TEST(Secded, OneFlipIsFixedTwoAreFoundThreeDeceive) {
  Rng rng(1);
  const Bytes bytes = RandomBytes(8, &rng);
  Protected word(EccCode::kSecded, bytes);
  const Bytes check = word.parity.bytes();
  auto restore = [&] { word = Protected(EccCode::kSecded, bytes); };
  uint32_t triples = 0, deceived = 0;
  for (uint32_t a = 0; a < 72; ++a) {
    word.Flip(a);
    EXPECT_FALSE(word.Agrees());
    EXPECT_EQ(word.Correct().corrected, 1u) << a;
    EXPECT_EQ(word.data.bytes(), bytes) << a;
    EXPECT_EQ(word.parity.bytes(), check) << a;
    for (uint32_t b = a + 1; b < 72; ++b) {
      restore();
      word.Flip(a), word.Flip(b);
      const Bytes before = word.data.bytes();
      EXPECT_FALSE(word.Agrees());
      const EccOutcome outcome = word.Correct();
      EXPECT_TRUE(outcome.corrected == 0 && outcome.uncorrectable == 1) << a << " " << b;
      EXPECT_EQ(word.data.bytes(), before);
      for (uint32_t c = b + 1; c < 72; ++c, ++triples) {
        restore();
        word.Flip(a), word.Flip(b), word.Flip(c);
        EXPECT_FALSE(word.Agrees());
        deceived += static_cast<uint32_t>(word.Correct().corrected);
      }
    }
    restore();
  }
  // Why checksums judge, and not this code.
  const double share = static_cast<double>(deceived) / triples;
  RecordProperty("triples_miscorrected_percent", std::to_string(100 * share));
  EXPECT_GT(share, 0.55);
  EXPECT_LT(share, 0.59);
}

TEST(Secded, ABitOfThePaddingIsNotThereToBeWrong) {
  const Bytes bytes = {1, 2, 3};
  for (uint32_t bit = 24; bit < 64; ++bit) {
    Protected tail(EccCode::kSecded, bytes);
    tail.parity[0] ^= secded::kColumns[bit];
    const EccOutcome outcome = tail.Correct();
    EXPECT_TRUE(outcome.corrected == 0 && outcome.uncorrectable == 1) << bit;
    EXPECT_EQ(tail.data.bytes(), bytes);
  }
}

// The table-driven definition once more, bit by bit.
Bytes ChecksBitByBit(const Bytes& bytes) {
  Bytes checks((bytes.size() + 7) / 8);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    if (bytes[bit / 8] >> bit % 8 & 1) checks[bit / 64] ^= secded::kColumns[bit % 64];
  }
  return checks;
}

TEST(Secded, PathsAreEqual) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Rng rng(seed);
  EXPECT_EQ(secded::Paths().back() == secded::Path::kGfni, secded::HasGfni());
  for (int round = 0; round < 60; ++round) {
    const Bytes bytes = RandomBytes(rng() % (round % 3 == 0 ? 300 : round % 3 == 1 ? 5000 : 200 * kKiB), &rng);
    const Bytes expected = ChecksBitByBit(bytes);
    Pieces data(bytes, &rng), parity(Bytes(expected.size()), &rng);
    auto compare = [&](secded::Path path, int64_t target) {
      SCOPED_TRACE(testing::Message() << secded::PathName(path) << " on " << target << ", " << bytes.size()
                                      << " bytes");
      for (size_t i = 0; i < expected.size(); i += 1 + expected.size() / 64) parity[i] ^= 0x55;
      secded::ComputeParity(path, data.run(), parity.run());
      ASSERT_EQ(parity.bytes(), expected);
      EXPECT_TRUE(secded::ParityAgrees(path, data.run(), parity.run()));
      if (bytes.empty()) return;
      const size_t bit = rng() % (8 * bytes.size());
      data[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
      EXPECT_FALSE(secded::ParityAgrees(path, data.run(), parity.run()));
      EXPECT_EQ(secded::CorrectInPlace(path, data.run(), parity.run()).corrected, 1u);
      ASSERT_EQ(data.bytes(), bytes);
    };
    for (secded::Path path : secded::Paths()) {
      if (path != secded::Path::kVectors) compare(path, 0);
    }
    for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
      hwy::SetSupportedTargetsForTest(target);
      compare(secded::Path::kVectors, target);
    }
    hwy::SetSupportedTargetsForTest(0);
  }
}

TEST(ReedSolomon, StripesAreCutAsDocumented) {
  struct Case {
    uint64_t bytes;
    uint32_t shard_bytes, data_shards, last_bytes;
  };
  for (const Case& c : {Case{1, 64, 1, 1}, Case{64, 64, 1, 64}, Case{200, 256, 1, 200}, Case{1025, 1088, 1, 1025},
                        Case{4096, 4096, 1, 4096}, Case{4097, 4096, 2, 1}, Case{40000, 4096, 10, 3136},
                        Case{65535, 4096, 16, 4095}, Case{65536, 4096, 16, 4096}, Case{1 << 20, 4096, 16, 4096}}) {
    const rs::StripeShape shape = rs::StripeShape::Of(c.bytes);
    EXPECT_EQ(shape.shard_bytes, c.shard_bytes) << c.bytes;
    EXPECT_EQ(shape.data_shards, c.data_shards) << c.bytes;
    EXPECT_EQ(shape.BytesOf(shape.data_shards - 1), c.last_bytes) << c.bytes;
  }
  EXPECT_EQ(ParityBytes(EccCode::kReedSolomon, 65536), 8336u);
  EXPECT_EQ(ParityBytes(EccCode::kReedSolomon, 65537), 8336u + 152);
  EXPECT_EQ(ParityBytes(EccCode::kReedSolomon, 0), 0u);
}

// The stripes of a run with the place of each, to destroy what one pleases.
struct StripeAt {
  rs::StripeShape shape;
  uint64_t data, parity;
};
std::vector<StripeAt> StripesOf(uint64_t bytes) {
  std::vector<StripeAt> stripes;
  for (uint64_t at = 0, parity = 0; at < bytes;) {
    stripes.push_back({rs::StripeShape::Of(bytes - at), at, parity});
    at += stripes.back().shape.data_bytes;
    parity += stripes.back().shape.parity_bytes();
  }
  return stripes;
}

// Changes one to all bytes of a shard, and with `checksum` its checksum too.
void Destroy(const StripeAt& stripe, uint32_t shard, bool checksum, Protected* run, Rng* rng) {
  const rs::StripeShape& shape = stripe.shape;
  const bool is_data = shard < shape.data_shards;
  const uint64_t start = is_data ? stripe.data + uint64_t{shard} * shape.shard_bytes
                                 : stripe.parity + uint64_t{shard - shape.data_shards} * shape.shard_bytes;
  const uint32_t bytes = shape.BytesOf(shard), count = 1 + static_cast<uint32_t>((*rng)() % bytes);
  const uint32_t first = static_cast<uint32_t>((*rng)() % (bytes - count + 1));
  for (uint32_t i = first; i < first + count; ++i) {
    (is_data ? run->data : run->parity)[start + i] ^= static_cast<uint8_t>(1 + (*rng)() % 255);
  }
  if (checksum) run->parity[stripe.parity + rs::kParityShards * shape.shard_bytes + shard * 8 + (*rng)() % 8] ^= 1;
}

TEST(ReedSolomon, AnyTwoShardsOfEachStripeComeBackAndThreeAreLeft) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Rng rng(seed);
  for (uint64_t bytes : {1ull, 63ull, 64ull, 65ull, 130ull, 1000ull, 1025ull, 20000ull, 65535ull, 65536ull, 70000ull}) {
    const std::vector<StripeAt> stripes = StripesOf(bytes);
    const Bytes original = RandomBytes(bytes, &rng);
    const uint32_t shards = stripes[0].shape.shards();
    for (uint32_t a = 0; a < shards; ++a) {
      for (uint32_t b = a + 1; b < shards; ++b) {
        SCOPED_TRACE(testing::Message() << bytes << " bytes, shards " << a << " and " << b);
        Protected run(EccCode::kReedSolomon, original, &rng);
        const Bytes parity = run.parity.bytes();
        for (const StripeAt& stripe : stripes) {
          for (uint32_t shard : {a, b}) {
            if (shard < stripe.shape.shards()) Destroy(stripe, shard, rng() % 4 == 0, &run, &rng);
          }
        }
        EXPECT_FALSE(run.Agrees());
        const EccOutcome outcome = run.Correct();
        EXPECT_GE(outcome.corrected, 2u);
        EXPECT_EQ(outcome.uncorrectable, 0u);
        ASSERT_EQ(run.data.bytes(), original);
        ASSERT_EQ(run.parity.bytes(), parity);
        EXPECT_TRUE(run.Agrees());

        const uint32_t c = (b + 1) % shards == a ? (a + 1) % shards : (b + 1) % shards;
        if (shards < 3 || c == a || c == b) continue;
        for (uint32_t shard : {a, b, c}) Destroy(stripes[0], shard, false, &run, &rng);
        const Bytes data_before = run.data.bytes(), parity_before = run.parity.bytes();
        const EccOutcome refused = run.Correct();
        EXPECT_TRUE(refused.corrected == 0 && refused.uncorrectable == 3);
        ASSERT_EQ(run.data.bytes(), data_before);
        ASSERT_EQ(run.parity.bytes(), parity_before);
      }
    }
  }
}

TEST(ReedSolomon, SwappedShardsAndStripesAreSeen) {
  Rng rng(3);
  const Bytes original = RandomBytes(3 * 65536, &rng);
  Protected run(EccCode::kReedSolomon, original);
  // Two shards with their checksums.
  for (uint32_t i = 0; i < 4096; ++i) std::swap(run.data[4096 * 3 + i], run.data[4096 * 9 + i]);
  for (uint32_t i = 0; i < 8; ++i) std::swap(run.parity[8192 + 3 * 8 + i], run.parity[8192 + 9 * 8 + i]);
  EXPECT_EQ(run.Correct().corrected, 2u);
  EXPECT_EQ(run.data.bytes(), original);
  // Two stripes with their parity: every shard of both is in the wrong place.
  for (uint32_t i = 0; i < 65536; ++i) std::swap(run.data[i], run.data[65536 + i]);
  for (uint32_t i = 0; i < 8336; ++i) std::swap(run.parity[i], run.parity[8336 + i]);
  EXPECT_EQ(run.Correct().uncorrectable, 36u);
}

TEST(Ecc, AnyOneFlipInTinyRunsIsFixedAlsoInParity) {
  Rng rng(4);
  for (EccCode code : kCodes) {
    EXPECT_TRUE(Protected(code, {}).Agrees());
    for (uint32_t bytes = 1; bytes <= 200; ++bytes) {
      const Bytes original = RandomBytes(bytes, &rng);
      Protected run(code, original, &rng);
      const Bytes parity = run.parity.bytes();
      EXPECT_TRUE(run.Agrees());
      EXPECT_TRUE(run.Correct().clean());
      for (uint64_t bit = rng() % 7; bit < run.bits(); bit += 1 + rng() % 13) {
        run.Flip(bit);
        EXPECT_FALSE(run.Agrees()) << EccCodeName(code) << " " << bytes << " " << bit;
        const EccOutcome outcome = run.Correct();
        EXPECT_TRUE(outcome.corrected == 1 && outcome.uncorrectable == 0);
        ASSERT_EQ(run.data.bytes(), original);
        ASSERT_EQ(run.parity.bytes(), parity);
      }
    }
  }
}

TEST(Ecc, BytesAreWhatTheyWere) {
  Bytes all;
  uint64_t state = 12345;
  for (uint64_t bytes : {1, 8, 13, 200, 5000, 70000}) {
    Bytes data(bytes);
    for (uint8_t& byte : data) {
      byte = static_cast<uint8_t>((state = state * 6364136223846793005u + 1442695040888963407u) >> 56);
    }
    for (EccCode code : kCodes) {
      const Bytes parity = Protected(code, data).parity.bytes();
      all.resize(all.size() + 4);
      StoreLe<uint32_t>(all.data() + all.size() - 4, static_cast<uint32_t>(parity.size()));
      all.insert(all.end(), parity.begin(), parity.end());
    }
  }
  const std::filesystem::path path = std::filesystem::path(FIRN_SOURCE_DIR) / "tests/golden/ecc_v1.bin";
  if (std::getenv("FIRN_WRITE_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(all.data()), static_cast<std::streamsize>(all.size()));
    GTEST_SKIP() << "wrote " << path;
  }
  std::ifstream in(path, std::ios::binary);
  ASSERT_TRUE(in.good()) << path << " is missing";
  const Bytes expected{std::istreambuf_iterator<char>(in), {}};
  ASSERT_EQ(expected.size(), all.size());
  const auto [was, is] = std::mismatch(expected.begin(), expected.end(), all.begin());
  EXPECT_TRUE(was == expected.end()) << "byte " << was - expected.begin() << " was " << int{*was} << ", is "
                                     << int{*is};
}

}  // namespace
}  // namespace firn
