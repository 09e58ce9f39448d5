#include "base/digest.h"

#include <openssl/sha.h>

#include <algorithm>

namespace firn {

std::string Digest::Hex() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(64);
  for (uint8_t byte : bytes) {
    out.push_back(kDigits[byte >> 4]);
    out.push_back(kDigits[byte & 15]);
  }
  return out;
}

std::optional<Digest> Digest::FromHex(std::string_view hex) {
  if (hex.size() != 64) return std::nullopt;
  auto value = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  Digest out;
  for (size_t i = 0; i < 32; ++i) {
    int high = value(hex[2 * i]), low = value(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    out.bytes[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return out;
}

std::optional<Digest> Digest::FromBytes(ByteSpan bytes) {
  if (bytes.size() != 32) return std::nullopt;
  Digest out;
  std::copy(bytes.begin(), bytes.end(), out.bytes.begin());
  return out;
}

Digest Sha256(ByteSpan bytes) {
  Digest out;
  SHA256(bytes.data(), bytes.size(), out.bytes.data());
  return out;
}

}  // namespace firn
