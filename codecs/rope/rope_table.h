// Cosines and sines of the rotary embedding, the same on every machine (docs/formats/rope.md).
//
// The C library's functions differ from version to version; these are FP64 arithmetic of a fixed order, rounded to
// FP32. Threads: immutable once made. Memory: 8 bytes a pair and token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codecs/artifact.h"

namespace firn {

// cos and sin of `position * frequency` radians.
struct Turn {
  float cosine, sine;
};
Turn TurnOf(uint32_t position, double frequency);

// Of `tokens` consecutive positions, or of any list of them.
class RopeTable {
 public:
  RopeTable(const Rope& rope, uint32_t first_position, uint32_t tokens);
  // The positions are `first_position` + each of `offsets`.
  RopeTable(const Rope& rope, uint32_t first_position, std::span<const uint32_t> offsets);
  uint32_t pairs() const { return pairs_; }
  bool interleaved() const { return interleaved_; }
  // Of the position number `token`: `pairs` values.
  const float* Cosines(uint32_t token) const { return cosines_.data() + size_t{token} * pairs_; }
  const float* Sines(uint32_t token) const { return sines_.data() + size_t{token} * pairs_; }

 private:
  void Add(const Rope& rope, uint32_t position);

  uint32_t pairs_;
  bool interleaved_;
  std::vector<float> cosines_, sines_;  // [token][pair]
};

}  // namespace firn
