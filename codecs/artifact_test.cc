#include "codecs/artifact.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/checksum.h"

namespace firn {
namespace {

ArtifactSections Full() {
  ArtifactSections s;
  s.layers = 2, s.heads = 3, s.width = 4;
  for (int i = 0; i < 24; ++i) {
    float x = static_cast<float>(i);
    s.mean.push_back(x - 7), s.weight.push_back(1 + x / 8), s.centre.push_back(-x), s.reach.push_back(2 + x);
  }
  for (int i = 0; i < 6; ++i) s.scales.push_back(0.5f + static_cast<float>(i));
  for (uint32_t bits : {2u, 4u}) {
    Codebook book{.bits = bits, .levels = {}, .decoded = {}};
    for (int layer = 0; layer < 2; ++layer) {
      for (int i = 0; i < (1 << bits); ++i) {
        book.levels.push_back(static_cast<float>(i) / 4 - 1);
        book.decoded.push_back(static_cast<float>(i) / 3 - 1);
      }
    }
    s.codebooks.push_back(book);
  }
  s.rope = {.interleaved = true, .frequencies = {1.0, 0.01}};
  return s;
}

TEST(ArtifactSections, ComeBackFromTheirBytes) {
  auto made = Artifact::Create(Full());
  ASSERT_TRUE(made.ok()) << made.status();
  auto parsed = Artifact::Parse((*made)->serialized());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ((*parsed)->sections(), Full());
  EXPECT_EQ((*parsed)->digest(), (*made)->digest());
  EXPECT_EQ((*parsed)->Reach(1, 2)[3], 25.0f);
  EXPECT_EQ((*parsed)->Scale(1, 0), 3.5f);
  EXPECT_EQ((*parsed)->FindCodebook(4)->levels.size(), 32u);
  EXPECT_EQ((*parsed)->FindCodebook(3), nullptr);
}

// Records name artifacts by digest: means and weights alone keep the bytes that they had before there were sections.
TEST(ArtifactSections, ABalanceIsOfTheFirstKind) {
  auto balance = *Artifact::CreateBalance(1, 1, 2, {0.5f, -1}, {2, 0.5f});
  EXPECT_EQ(balance->digest().Hex(), "258b473f2b1d126a47fac83c80ce37875a6d59c9f448ef5c42a049cf0c58326b");
  EXPECT_TRUE(balance->has_balance());
  EXPECT_FALSE(balance->has_rope());
}

TEST(ArtifactSections, AnyDamageIsFound) {
  std::vector<uint8_t> bytes = (*Artifact::Create(Full()))->serialized();
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::vector<uint8_t> damaged = bytes;
    damaged[i] ^= 0x20;
    EXPECT_FALSE(Artifact::Parse(damaged).ok()) << i;
    EXPECT_FALSE(Artifact::Parse(ByteSpan(bytes).first(i)).ok()) << i;
  }
}

// Counts that lie, under a CRC that fits them: refused without reading or allocating beyond the bytes.
TEST(ArtifactSections, CountsThatLieAreRefused) {
  std::vector<uint8_t> bytes = (*Artifact::Create(Full()))->serialized();
  for (size_t i = 0; i + 8 < bytes.size(); ++i) {
    for (uint8_t value : {0x00, 0x01, 0x7F, 0xFF}) {
      std::vector<uint8_t> forged = bytes;
      if (forged[i] == value) continue;
      forged[i] = value;
      StoreLe<uint64_t>(forged.data() + forged.size() - 8, Crc64(ByteSpan(forged).first(forged.size() - 8), 0));
      auto parsed = Artifact::Parse(forged);
      if (parsed.ok()) {
        EXPECT_EQ((*parsed)->serialized(), forged) << i;
      }
    }
  }
}

TEST(ArtifactSections, WhatCannotBeUsedIsRefused) {
  auto refused = [](auto change) {
    ArtifactSections s = Full();
    change(s);
    return !Artifact::Create(std::move(s)).ok();
  };
  EXPECT_TRUE(refused([](auto& s) {
    s = {};
    s.layers = s.heads = s.width = 1;
  }));
  EXPECT_TRUE(refused([](auto& s) { s.mean.pop_back(); }));
  EXPECT_TRUE(refused([](auto& s) { s.reach.clear(); }));
  EXPECT_TRUE(refused([](auto& s) { s.weight[5] = 0; }));
  EXPECT_TRUE(refused([](auto& s) { s.reach[5] = -1; }));
  EXPECT_TRUE(refused([](auto& s) { s.centre[5] = std::numeric_limits<float>::quiet_NaN(); }));
  EXPECT_TRUE(refused([](auto& s) { s.scales[0] = std::numeric_limits<float>::infinity(); }));
  EXPECT_TRUE(refused([](auto& s) { s.codebooks[0].levels[1] = s.codebooks[0].levels[0]; }));
  EXPECT_TRUE(refused([](auto& s) { std::swap(s.codebooks[0], s.codebooks[1]); }));
  EXPECT_TRUE(refused([](auto& s) { s.codebooks[0].bits = 5; }));
  EXPECT_TRUE(refused([](auto& s) { s.rope.frequencies.push_back(0.001); }));
  EXPECT_TRUE(refused([](auto& s) { s.rope.frequencies[0] = 17; }));
  EXPECT_FALSE(refused([](auto& s) { s.codebooks[1].decoded[0] = -3; }));
}

}  // namespace
}  // namespace firn
