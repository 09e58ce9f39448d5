// SECDED(72,64): one check byte for each eight bytes (docs/formats/ecc.md).
//
// Words are eight bytes, little-endian, the last one padded with zeros; check byte i belongs to word i. Every path
// gives the same bytes; the reference defines them. Threads: pure functions. Source: Hsiao, A Class of Optimal Minimum
// Odd-weight-column SEC-DED Codes, IBM J. Res. Dev. 14 (1970).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "codecs/ecc/ecc.h"

namespace firn::secded {

inline constexpr uint32_t kWordBytes = 8;
// How far ahead the fast paths ask for data, needed or not: processors themselves stop at the end of each 4 KiB.
// Measured on a Sapphire Rapids core, it makes a pass over memory a third faster.
inline constexpr size_t kPrefetchBytes = 4096;

// The syndrome of each data bit, and so its part of the check byte. Persistent: first the 56 bytes that have three
// ones, ascending, then 0x1F turned left by 0 to 7. Every check bit sums up 26 data bits.
inline constexpr std::array<uint8_t, 64> kColumns = [] {
  std::array<uint8_t, 64> columns{};
  size_t count = 0;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    if (std::popcount(byte) == 3) columns[count++] = static_cast<uint8_t>(byte);
  }
  for (int turn = 0; turn < 8; ++turn) columns[count++] = std::rotl(uint8_t{0x1F}, turn);
  return columns;
}();

// The ways to compute check bytes.
enum class Path : uint8_t {
  kReference,  // Tables by the byte.
  kVectors,    // Tables by the half byte, in whatever vectors there are.
  kGfni,       // A matrix product by the byte.
};
std::string_view PathName(Path path);
// Those that this processor has, slowest first.
const std::vector<Path>& Paths();

// Check bytes of `words` whole words, which may lie anywhere.
using EncodeWords = void (*)(const uint8_t* data, size_t words, uint8_t* checks);
EncodeWords EncoderOf(Path path);
void EncodeReference(const uint8_t* data, size_t words, uint8_t* checks);
void EncodeVectors(const uint8_t* data, size_t words, uint8_t* checks);
bool HasGfni();
void EncodeGfni(const uint8_t* data, size_t words, uint8_t* checks);  // Only where HasGfni().

// As in ecc.h, by one path.
uint64_t ParityBytes(uint64_t data_bytes);
void ComputeParity(Path path, const RunBytes& data, const MutableRunBytes& parity);
bool ParityAgrees(Path path, const RunBytes& data, const RunBytes& parity);
EccOutcome CorrectInPlace(Path path, const MutableRunBytes& data, const MutableRunBytes& parity);

}  // namespace firn::secded
