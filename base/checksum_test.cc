#include "base/checksum.h"

#include <gtest/gtest.h>

#include <random>

namespace firn {
namespace {

// Bit by bit, from the polynomial: the definition that the library's fast code must meet.
uint64_t SlowCrc64(ByteSpan bytes, uint64_t seed) {
  constexpr uint64_t kReflected = 0xC96C5795D7870F42ull;
  uint64_t crc = ~seed;
  for (uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? kReflected : 0);
  }
  return ~crc;
}

TEST(Checksum, MatchesTheBitwiseDefinition) {
  std::mt19937_64 rng(7);
  for (size_t size : {0, 1, 7, 8, 9, 63, 64, 65, 255, 1024, 4099}) {
    std::vector<uint8_t> bytes(size);
    for (auto& byte : bytes) byte = static_cast<uint8_t>(rng());
    for (uint64_t seed : {uint64_t{0}, uint64_t{1}, static_cast<uint64_t>(rng())}) {
      EXPECT_EQ(Crc64(bytes, seed), SlowCrc64(bytes, seed)) << "size " << size << " seed " << seed;
    }
  }
  EXPECT_EQ(Crc64(AsBytes("123456789"), 0), 0x995DC9BBDF1939FAull);  // The catalogued check value of CRC-64/XZ.
}

TEST(Checksum, Chains) {
  std::string text = "a block of K and V";
  uint64_t whole = Crc64(AsBytes(text), 99);
  EXPECT_EQ(Crc64(AsBytes(text.substr(5)), Crc64(AsBytes(text.substr(0, 5)), 99)), whole);
}

}  // namespace
}  // namespace firn
