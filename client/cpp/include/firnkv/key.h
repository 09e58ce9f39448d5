// Block keys: which tokens, after which tokens, under which model.
//
// A chained key is a SHA-256 over (model fingerprint, parent key, the block's token ids, extras) in a canonical, tagged
// encoding; the daemon computes the same. A caller with keys of its own passes them as opaque keys; they are bound to
// the namespace and never equal a chained one. Threads: values.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace firnkv {

// Longest opaque key. A longer or an empty one is refused with INVALID_ARGUMENT, never cut.
inline constexpr size_t kOpaqueKeyBytesMax = 4096;

struct Digest {
  std::array<uint8_t, 32> bytes{};

  auto operator<=>(const Digest&) const = default;
  bool IsZero() const { return *this == Digest{}; }
  std::string Hex() const;
  // Nothing unless `hex` is 64 hexadecimal digits.
  static std::optional<Digest> FromHex(std::string_view hex);
  // Nothing unless `bytes` are exactly 32.
  static std::optional<Digest> FromBytes(std::string_view bytes);
};

class BlockKey {
 public:
  BlockKey() = default;                                // The empty opaque key, which every call refuses.
  BlockKey(const Digest& digest) : digest_(digest) {}  // NOLINT: a digest is a key.
  static BlockKey Opaque(std::string_view bytes);

  // Of a chained key, or of any key that the daemon returned; null for an opaque key.
  const Digest* digest() const { return digest_.has_value() ? &*digest_ : nullptr; }
  const std::string& opaque() const { return opaque_; }
  // What the daemon calls this key: the digest, or the digest of the opaque key. InvalidArgument where the length is
  // refused.
  absl::StatusOr<Digest> ToDigest() const;
  bool operator==(const BlockKey&) const = default;

 private:
  std::optional<Digest> digest_ = {};
  std::string opaque_ = {};
};

// The keys of consecutive blocks of `block_tokens` tokens, the first after `parent`; with the tail if `with_tail`.
// `extras` (adapter, image hash, salt) go into every key; their order and boundaries matter. `block_tokens` must not be
// 0.
struct KeyChain {
  std::span<const uint8_t> model_fingerprint = {};
  std::span<const uint32_t> tokens = {};
  uint32_t block_tokens = 0;
  std::span<const std::string_view> extras = {};
  std::optional<Digest> parent = {};
  bool with_tail = false;
};
std::vector<Digest> ChainedKeys(const KeyChain& chain);

}  // namespace firnkv
