#include "base/block_key.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/status.h"

namespace firn {
namespace {

// The encoding written out by hand: the test does not share code with the implementation.
std::string Encoding(std::string model, std::optional<Digest> parent, std::vector<uint32_t> tokens,
                     std::vector<std::string> extras) {
  auto u32 = [](uint32_t v) { return std::string(reinterpret_cast<char*>(&v), 4); };
  std::string out("firn.key.v1\0", 12);
  out += "M" + u32(static_cast<uint32_t>(model.size())) + model + "P";
  out += parent ? "\1" + std::string(AsText(parent->span())) : std::string("\0", 1);
  out += "T" + u32(static_cast<uint32_t>(tokens.size()));
  for (uint32_t t : tokens) out += u32(t);
  out += "X" + u32(static_cast<uint32_t>(extras.size()));
  for (const auto& e : extras) out += u32(static_cast<uint32_t>(e.size())) + e;
  return out;
}

Digest Key(std::string_view model, std::optional<Digest> parent, const std::vector<uint32_t>& tokens,
           const std::vector<std::string_view>& extras = {}) {
  return ChainedBlockKey({.model_fingerprint = AsBytes(model), .parent = parent, .tokens = tokens, .extras = extras});
}

TEST(BlockKey, C43_key_hash_vectors) {
  std::vector<uint32_t> sixteen(16);
  std::iota(sixteen.begin(), sixteen.end(), 1);
  for (const auto& tokens : std::vector<std::vector<uint32_t>>{{}, {0}, sixteen, {0x80000000u, 0xFFFFFFFFu}}) {
    Digest key = Key("model", std::nullopt, tokens);
    EXPECT_EQ(key, Sha256(AsBytes(Encoding("model", std::nullopt, tokens, {}))));
    EXPECT_EQ(Key("model", key, tokens, {"lora-7", ""}),
              Sha256(AsBytes(Encoding("model", key, tokens, {"lora-7", ""}))));
  }
}

TEST(BlockKey, C44_no_two_inputs_share_an_encoding) {
  EXPECT_NE(Key("ab", {}, {1}, {"c"}), Key("a", {}, {1}, {"bc"}));
  EXPECT_NE(Key("m", {}, {1}, {"ab", "c"}), Key("m", {}, {1}, {"a", "bc"}));
  EXPECT_NE(Key("m", {}, {1}, {"X", ""}), Key("m", {}, {1}, {"", "X"}));
  EXPECT_NE(Key("m", {}, {1}), Key("m", Digest{}, {1}));
  EXPECT_NE(Key("m", {}, {1, 2}), Key("m", Key("m", {}, {1}), {2}));
}

TEST(BlockKey, ChainsOverASequence) {
  std::vector<uint32_t> tokens(40);
  std::iota(tokens.begin(), tokens.end(), 100);
  auto keys = ChainedBlockKeys(AsBytes("m"), tokens, 16, {}, true);
  ASSERT_EQ(keys.size(), 3u);
  EXPECT_EQ(keys[0], Key("m", {}, {tokens.begin(), tokens.begin() + 16}));
  EXPECT_EQ(keys[2], Key("m", keys[1], {tokens.begin() + 32, tokens.end()}));
  EXPECT_EQ(ChainedBlockKeys(AsBytes("m"), tokens, 16, {}, false).size(), 2u);
}

TEST(BlockKey, C46_opaque_keys_are_bounded_and_distinct) {
  EXPECT_FALSE(OpaqueBlockKey({}).ok());
  std::string longest(kOpaqueKeyBytesMax, 'k');
  EXPECT_TRUE(OpaqueBlockKey(AsBytes(longest)).ok());
  auto over = OpaqueBlockKey(AsBytes(longest + "k"));
  EXPECT_EQ(over.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(Message(over.status()).find("4097"), std::string::npos);
  EXPECT_NE(Message(over.status()).find("4096"), std::string::npos);
  std::string a(300, 'a'), b = a;
  b.back() = 'b';
  EXPECT_NE(*OpaqueBlockKey(AsBytes(a)), *OpaqueBlockKey(AsBytes(b)));
  std::string nul("a\0b", 3), slash("../x\n\xff");
  EXPECT_NE(*OpaqueBlockKey(AsBytes(nul)), *OpaqueBlockKey(AsBytes("a")));
  EXPECT_TRUE(OpaqueBlockKey(AsBytes(slash)).ok());
}

TEST(Digest, HexRoundTrips) {
  Digest digest = Sha256(AsBytes("abc"));
  EXPECT_EQ(digest.Hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(*Digest::FromHex(digest.Hex()), digest);
  EXPECT_EQ(Digest::FromHex("abc"), std::nullopt);
  EXPECT_EQ(Digest::FromHex(std::string(64, 'g')), std::nullopt);
}

}  // namespace
}  // namespace firn
