#include <algorithm>
#include <array>

#include "base/checksum.h"
#include "tests/fuzz/fuzz_target.h"

namespace firn::fuzz {
namespace {

constexpr size_t kBytesMax = 1 << 20;

uint64_t EdgeNumber(std::mt19937_64& random) {
  constexpr std::array<uint64_t, 12> kEdges = {0,      1,      2,       0x7F,     0x80,       0xFF,
                                               0x7FFF, 0xFFFF, 0x10000, 1u << 31, 0xFFFFFFFF, UINT64_MAX};
  return kEdges[random() % kEdges.size()] + random() % 3 - 1;
}

void OverwriteNumber(Bytes& bytes, std::mt19937_64& random) {
  size_t width = size_t{1} << random() % 4;
  if (bytes.size() < width) return;
  uint64_t number = EdgeNumber(random);
  size_t at = random() % (bytes.size() - width + 1);
  for (size_t i = 0; i < width; ++i) bytes[at + i] = static_cast<uint8_t>(number >> (8 * i));
}

void ChangeStretch(Bytes& bytes, std::mt19937_64& random) {
  size_t at = random() % bytes.size(), count = 1 + random() % std::min<size_t>(bytes.size() - at, 64);
  auto first = bytes.begin() + static_cast<ptrdiff_t>(at), last = first + static_cast<ptrdiff_t>(count);
  switch (random() % 4) {
    case 0:
      bytes.erase(first, last);
      return;
    case 1:
      if (bytes.size() + count > kBytesMax) return;
      {
        Bytes twice(first, last);
        bytes.insert(first, twice.begin(), twice.end());
      }
      return;
    case 2:
      std::generate(first, last, [&] { return static_cast<uint8_t>(random()); });
      return;
    default:
      std::copy_n(Bytes(first, last).begin(), count,
                  bytes.begin() + static_cast<ptrdiff_t>(random() % (bytes.size() - count + 1)));
  }
}

}  // namespace

void Mutate(Bytes* bytes, std::mt19937_64* random) {
  for (uint64_t left = 1 + (*random)() % 8; left > 0; --left) {
    if (bytes->empty()) bytes->push_back(0);
    size_t at = (*random)() % bytes->size();
    switch ((*random)() % 6) {
      case 0:
      case 1:
        (*bytes)[at] ^= static_cast<uint8_t>(1u << (*random)() % 8);
        break;
      case 2:
        (*bytes)[at] = static_cast<uint8_t>((*random)());
        break;
      case 3:
        OverwriteNumber(*bytes, *random);
        break;
      case 4:
        ChangeStretch(*bytes, *random);
        break;
      default:
        if ((*random)() % 8 == 0) bytes->resize(at);
    }
  }
}

void MendCrc(MutableByteSpan bytes, uint64_t seed) {
  if (bytes.size() < 8) return;
  StoreLe<uint64_t>(bytes.data() + bytes.size() - 8, Crc64(bytes.first(bytes.size() - 8), seed));
}

}  // namespace firn::fuzz
