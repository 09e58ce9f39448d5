// Independent flips of stored bits at a given rate, in time that goes by the flips and not by the bits.
//
// The distance from one flip to the next is geometric, so it is drawn at once. DrawSome draws given that at least one
// bit flips, exactly: the first flip's place has the geometric distribution cut off at the end. What happens at 1e-9,
// where nearly every record stays whole, is then known from a few hundred damaged ones and their exact share, any().
// Threads: an object belongs to one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

namespace firn::bench {

class BitFlips {
 public:
  // 0 < rate < 1.
  BitFlips(double rate, uint64_t bits)
      : log_keep_(std::log1p(-rate)), bits_(bits), any_(-std::expm1(log_keep_ * static_cast<double>(bits))) {}

  // The share of draws with a flip at all.
  double any() const { return any_; }

  // Calls `flip` with the places of flipped bits, ascending.
  template <typename Flip>
  void Draw(std::mt19937_64* random, Flip flip) const {
    DrawFrom(0, random, flip);
  }
  // The same, given that there is at least one.
  template <typename Flip>
  void DrawSome(std::mt19937_64* random, Flip flip) const {
    const uint64_t first = std::min(Gap(any_ * Uniform(random)), bits_ - 1);  // The end by rounding alone.
    flip(first);
    DrawFrom(first + 1, random, flip);
  }

 private:
  static double Uniform(std::mt19937_64* random) { return static_cast<double>((*random)() >> 11) * 0x1p-53; }
  // Bits that stay before the next that flips.
  uint64_t Gap(double uniform) const {
    const double gap = std::floor(std::log1p(-uniform) / log_keep_);
    return gap < 0x1p62 ? static_cast<uint64_t>(gap) : uint64_t{1} << 62;
  }
  template <typename Flip>
  void DrawFrom(uint64_t at, std::mt19937_64* random, Flip flip) const {
    for (at += Gap(Uniform(random)); at < bits_; at += 1 + Gap(Uniform(random))) flip(at);
  }

  const double log_keep_;
  const uint64_t bits_;
  const double any_;
};

}  // namespace firn::bench
