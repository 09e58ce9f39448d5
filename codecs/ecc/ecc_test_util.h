// Test support: runs in pieces that lie apart, so that a step outside a piece is seen by AddressSanitizer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "codecs/ecc/ecc.h"

namespace firn {

using Rng = std::mt19937_64;
using Bytes = std::vector<uint8_t>;

inline Bytes RandomBytes(size_t count, Rng* rng) {
  Bytes bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>((*rng)());
  return bytes;
}

class Pieces {
 public:
  explicit Pieces(const Bytes& bytes) : starts_{0}, pieces_{bytes} {}
  // Cut at random, from single bytes to all of it.
  Pieces(const Bytes& bytes, Rng* rng) {
    const size_t longest = size_t{1} << (*rng)() % 18;
    for (size_t at = 0; at < bytes.size();) {
      const size_t count = std::min(bytes.size() - at, size_t{1} + (*rng)() % longest);
      pieces_.emplace_back(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                           bytes.begin() + static_cast<std::ptrdiff_t>(at + count));
      starts_.push_back(at);
      at += count;
    }
  }
  MutableRunBytes run() {
    MutableRunBytes run;
    for (Bytes& piece : pieces_) run.Append(piece);
    return run;
  }
  Bytes bytes() const {
    Bytes all;
    for (const Bytes& piece : pieces_) all.insert(all.end(), piece.begin(), piece.end());
    return all;
  }
  uint8_t& operator[](size_t at) {
    const auto after = std::upper_bound(starts_.begin(), starts_.end(), at);
    return pieces_[static_cast<size_t>(after - starts_.begin()) - 1][at - *(after - 1)];
  }

 private:
  std::vector<size_t> starts_;
  std::vector<Bytes> pieces_;
};

// Data and its parity; bits count through both.
struct Protected {
  EccCode code;
  Pieces data, parity;

  Protected(EccCode with, const Bytes& bytes)
      : code(with), data(bytes), parity(Bytes(ParityBytes(with, bytes.size()))) {
    ComputeParity(code, data.run(), parity.run());
  }
  Protected(EccCode with, const Bytes& bytes, Rng* rng)
      : code(with), data(bytes, rng), parity(Bytes(ParityBytes(with, bytes.size())), rng) {
    ComputeParity(code, data.run(), parity.run());
  }
  bool Agrees() { return ParityAgrees(code, data.run(), parity.run()); }
  EccOutcome Correct() { return CorrectInPlace(code, data.run(), parity.run()); }
  void Flip(uint64_t bit) {
    const size_t byte = bit / 8, data_bytes = data.run().size();
    (byte < data_bytes ? data[byte] : parity[byte - data_bytes]) ^= static_cast<uint8_t>(1u << bit % 8);
  }
  uint64_t bits() { return 8 * (data.run().size() + parity.run().size()); }
};

}  // namespace firn
