// Bytes for tests of payloads. Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

namespace firnkv {

// Bytes that tell their place.
inline std::vector<uint8_t> Pattern(uint64_t bytes, uint32_t salt) {
  std::vector<uint8_t> out(bytes);
  for (uint64_t i = 0; i < bytes; ++i) out[i] = static_cast<uint8_t>((i * 2654435761u + salt * 40503u) >> 13);
  return out;
}

// The same as FP16 that are all finite and between 2^-7 and 2.
inline std::vector<uint8_t> HalfPattern(uint64_t bytes, uint32_t salt) {
  std::vector<uint8_t> out = Pattern(bytes, salt);
  for (uint64_t i = 1; i < bytes; i += 2) out[i] = static_cast<uint8_t>((out[i] & 0x9F) | 0x20);
  return out;
}

}  // namespace firnkv
