// Block keys: which tokens, after which tokens, under which model. The same digest from any process, language or
// machine.
//
// A chained key is SHA-256 over a canonical encoding, every field tagged and length-prefixed, so that no two different
// inputs share an encoding ("ab"+"c" is not "a"+"bc"). The tenant is not in it; the daemon adds the tenant from the
// connection's identity. A caller may bring an opaque key instead; it lives in another domain and never equals a
// chained one.
//
// Encoding of a chained key (docs/formats/block_key.md has worked bytes; integers little-endian):
//   "firn.key.v1\0"  'M' u32 length, model fingerprint bytes   'P' u8 has_parent [32 bytes]
//   'T' u32 count, count * u32 token ids   'X' u32 count, then for each extra: u32 length, bytes
// Encoding of an opaque key: "firn.opq.v1\0"  'O' u32 length, bytes.
// Threads: any. Limits: kOpaqueKeyBytesMax.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/digest.h"

namespace firn {

inline constexpr size_t kOpaqueKeyBytesMax = 4096;

struct BlockKeyInput {
  ByteSpan model_fingerprint;
  std::optional<Digest> parent;              // Nothing for a sequence's first block.
  std::span<const uint32_t> tokens;          // The block's own token ids, not the prefix's.
  std::span<const std::string_view> extras;  // Adapter, image hash, salt: order matters.
};

Digest ChainedBlockKey(const BlockKeyInput& input);

// The keys of all blocks of a token sequence: full blocks of `block_tokens`, and the tail if `with_tail`.
std::vector<Digest> ChainedBlockKeys(ByteSpan model_fingerprint, std::span<const uint32_t> tokens,
                                     uint32_t block_tokens, std::span<const std::string_view> extras, bool with_tail);

// InvalidArgument for an empty key or one over kOpaqueKeyBytesMax.
absl::StatusOr<Digest> OpaqueBlockKey(ByteSpan key);

}  // namespace firn
