// The vectors that every language's implementation is tested with are true of this one.

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/block_key.h"

namespace firn {
namespace {

nlohmann::json Vectors() {
  std::ifstream file(std::string(FIRN_SOURCE_DIR) + "/tests/golden/block_key_vectors.json");
  return nlohmann::json::parse(file);
}

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

TEST(BlockKeyVectors, C43_chained_keys) {
  std::set<std::string> keys;
  size_t count = 0;
  const nlohmann::json vectors = Vectors();
  for (const auto& vector : vectors["chained"]) {
    SCOPED_TRACE(vector["name"].get<std::string>());
    std::string model = FromHex(vector["model_fingerprint_hex"]);
    std::optional<Digest> parent;
    if (!vector["parent"].is_null()) parent = Digest::FromHex(vector["parent"].get<std::string>());
    auto tokens = vector["tokens"].get<std::vector<uint32_t>>();
    std::vector<std::string> extras;
    for (const auto& extra : vector["extras_hex"]) extras.push_back(FromHex(extra));
    std::vector<std::string_view> views(extras.begin(), extras.end());
    Digest key =
        ChainedBlockKey({.model_fingerprint = AsBytes(model), .parent = parent, .tokens = tokens, .extras = views});
    EXPECT_EQ(key.Hex(), vector["key"].get<std::string>());
    keys.insert(key.Hex());
    ++count;
  }
  EXPECT_GE(count, 15u);
  EXPECT_EQ(keys.size(), count) << "C44: no two inputs of the list share a key";
}

TEST(BlockKeyVectors, C43_sequences) {
  size_t count = 0;
  const nlohmann::json vectors = Vectors();
  for (const auto& vector : vectors["sequences"]) {
    SCOPED_TRACE(vector["name"].get<std::string>());
    std::string model = FromHex(vector["model_fingerprint_hex"]);
    auto tokens = vector["tokens"].get<std::vector<uint32_t>>();
    std::vector<std::string> got;
    for (const Digest& key : ChainedBlockKeys(AsBytes(model), tokens, vector["block_tokens"].get<uint32_t>(), {},
                                              vector["with_tail"].get<bool>())) {
      got.push_back(key.Hex());
    }
    EXPECT_EQ(got, vector["keys"].get<std::vector<std::string>>());
    ++count;
  }
  EXPECT_GE(count, 2u);
}

TEST(BlockKeyVectors, C46_opaque_keys) {
  size_t count = 0;
  const nlohmann::json vectors = Vectors();
  for (const auto& vector : vectors["opaque"]) {
    std::string bytes = FromHex(vector["bytes_hex"]);
    auto key = OpaqueBlockKey(AsBytes(bytes));
    ASSERT_TRUE(key.ok()) << key.status();
    EXPECT_EQ(key->Hex(), vector["key"].get<std::string>());
    ++count;
  }
  EXPECT_GE(count, 4u);
}

}  // namespace
}  // namespace firn
