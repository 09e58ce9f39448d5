#include "base/block_key.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"

namespace firn {
namespace {

constexpr std::string_view kChainedDomain("firn.key.v1\0", 12);
constexpr std::string_view kOpaqueDomain("firn.opq.v1\0", 12);

void WriteSized(ByteWriter* writer, ByteSpan bytes) {
  writer->Write<uint32_t>(static_cast<uint32_t>(bytes.size()));
  writer->WriteBytes(bytes);
}

}  // namespace

Digest ChainedBlockKey(const BlockKeyInput& input) {
  ByteWriter writer;
  writer.WriteBytes(AsBytes(kChainedDomain));
  writer.Write<uint8_t>('M');
  WriteSized(&writer, input.model_fingerprint);
  writer.Write<uint8_t>('P');
  writer.Write<uint8_t>(input.parent.has_value() ? 1 : 0);
  if (input.parent.has_value()) writer.WriteBytes(input.parent->span());
  writer.Write<uint8_t>('T');
  writer.Write<uint32_t>(static_cast<uint32_t>(input.tokens.size()));
  for (uint32_t token : input.tokens) writer.Write<uint32_t>(token);
  writer.Write<uint8_t>('X');
  writer.Write<uint32_t>(static_cast<uint32_t>(input.extras.size()));
  for (std::string_view extra : input.extras) WriteSized(&writer, AsBytes(extra));
  return Sha256(writer.bytes());
}

std::vector<Digest> ChainedBlockKeys(ByteSpan model_fingerprint, std::span<const uint32_t> tokens,
                                     uint32_t block_tokens, std::span<const std::string_view> extras, bool with_tail) {
  FIRN_CHECK(block_tokens > 0);
  std::vector<Digest> keys;
  BlockKeyInput input{.model_fingerprint = model_fingerprint, .parent = {}, .tokens = {}, .extras = extras};
  for (size_t at = 0; at < tokens.size(); at += block_tokens) {
    size_t count = std::min<size_t>(block_tokens, tokens.size() - at);
    if (count < block_tokens && !with_tail) break;
    input.tokens = tokens.subspan(at, count);
    keys.push_back(ChainedBlockKey(input));
    input.parent = keys.back();
  }
  return keys;
}

absl::StatusOr<Digest> OpaqueBlockKey(ByteSpan key) {
  if (key.empty())
    return InvalidArgument("a block key of 0 bytes was given; a key has 1 to {} bytes", kOpaqueKeyBytesMax);
  if (key.size() > kOpaqueKeyBytesMax) {
    return InvalidArgument("a block key of {} bytes was given; a key has 1 to {} bytes", key.size(),
                           kOpaqueKeyBytesMax);
  }
  ByteWriter writer;
  writer.WriteBytes(AsBytes(kOpaqueDomain));
  writer.Write<uint8_t>('O');
  WriteSized(&writer, key);
  return Sha256(writer.bytes());
}

}  // namespace firn
