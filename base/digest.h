// SHA-256 digests: the names of namespaces, block keys and artifacts.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace firn {

struct Digest {
  std::array<uint8_t, 32> bytes{};

  auto operator<=>(const Digest&) const = default;
  bool IsZero() const { return *this == Digest{}; }
  // The first eight bytes: already uniform, so good as a hash.
  uint64_t Prefix() const { return LoadLe<uint64_t>(bytes.data()); }
  ByteSpan span() const { return bytes; }
  std::string Hex() const;
  static std::optional<Digest> FromHex(std::string_view hex);
  static std::optional<Digest> FromBytes(ByteSpan bytes);  // Nothing unless exactly 32 bytes.

  template <typename H>
  friend H AbslHashValue(H h, const Digest& d) {
    return H::combine(std::move(h), d.Prefix());
  }
};

Digest Sha256(ByteSpan bytes);

}  // namespace firn
