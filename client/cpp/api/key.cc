#include "firnkv/key.h"

#include "base/block_key.h"
#include "base/check.h"
#include "base/status.h"

namespace firnkv {

static_assert(kOpaqueKeyBytesMax == firn::kOpaqueKeyBytesMax);

std::string Digest::Hex() const { return firn::Digest{bytes}.Hex(); }

std::optional<Digest> Digest::FromHex(std::string_view hex) {
  auto digest = firn::Digest::FromHex(hex);
  if (!digest.has_value()) return std::nullopt;
  return Digest{digest->bytes};
}

std::optional<Digest> Digest::FromBytes(std::string_view bytes) {
  auto digest = firn::Digest::FromBytes(firn::AsBytes(bytes));
  if (!digest.has_value()) return std::nullopt;
  return Digest{digest->bytes};
}

BlockKey BlockKey::Opaque(std::string_view bytes) {
  BlockKey key;
  key.opaque_ = bytes;
  return key;
}

absl::StatusOr<Digest> BlockKey::ToDigest() const {
  if (digest_.has_value()) return *digest_;
  FIRN_ASSIGN_OR_RETURN(firn::Digest digest, firn::OpaqueBlockKey(firn::AsBytes(opaque_)));
  return Digest{digest.bytes};
}

std::vector<Digest> ChainedKeys(const KeyChain& chain) {
  FIRN_CHECK(chain.block_tokens > 0);
  std::vector<Digest> keys;
  firn::BlockKeyInput input{
      .model_fingerprint = chain.model_fingerprint, .parent = {}, .tokens = {}, .extras = chain.extras};
  if (chain.parent.has_value()) input.parent = firn::Digest{chain.parent->bytes};
  for (size_t at = 0; at < chain.tokens.size(); at += chain.block_tokens) {
    size_t count = std::min<size_t>(chain.block_tokens, chain.tokens.size() - at);
    if (count < chain.block_tokens && !chain.with_tail) break;
    input.tokens = chain.tokens.subspan(at, count);
    input.parent = firn::ChainedBlockKey(input);
    keys.push_back(Digest{input.parent->bytes});
  }
  return keys;
}

}  // namespace firnkv
