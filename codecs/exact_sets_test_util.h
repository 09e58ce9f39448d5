// Test support: sets of exact tokens by spec, and what a block becomes without those tokens.
#pragma once

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "codecs/block_test_util.h"
#include "codecs/exact_tokens.h"

namespace firn {

// Any set of positions, in random order of importance, seldom a leading one.
inline std::vector<uint32_t> RandomPositions(uint32_t tokens, uint32_t count, std::mt19937_64& random) {
  std::vector<uint32_t> all(tokens);
  for (uint32_t i = 0; i < tokens; ++i) all[i] = i;
  std::shuffle(all.begin(), all.end(), random);
  all.resize(count);
  std::sort(all.begin(), all.end());
  return all;
}

// Has a spec keep just these tokens exact.
inline void KeepExact(const std::vector<uint32_t>& positions, uint32_t tokens, EncodeSpec* spec) {
  std::vector<uint8_t> ranks(tokens, 7);
  for (uint32_t position : positions) ranks[position] = 250;
  spec->keep_first_tokens = 0;
  spec->important_fraction = static_cast<float>(positions.size()) / static_cast<float>(tokens);
  spec->importance = std::make_shared<const std::vector<uint8_t>>(std::move(ranks));
}

// The rows of some tokens of a part, [layer][head][token][channel], as bytes.
inline std::vector<uint8_t> RowsOf(RawBlock raw, Part part, const std::vector<uint32_t>& positions) {
  PartShape shape = raw.shape.part(part);
  uint64_t row_bytes = uint64_t{shape.width} * DTypeBytes(raw.dtype);
  std::vector<uint8_t> rows;
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (uint32_t head = 0; head < shape.heads; ++head) {
      for (uint32_t token : positions) {
        auto from = raw.part(part).begin() +
                    static_cast<ptrdiff_t>(raw.Index(part, layer, head, token, 0) * DTypeBytes(raw.dtype));
        rows.insert(rows.end(), from, from + static_cast<ptrdiff_t>(row_bytes));
      }
    }
  }
  return rows;
}

// The block of the other tokens alone.
inline RawBlock Without(const RawBlock& raw, const std::vector<uint32_t>& positions) {
  std::vector<uint32_t> others;
  for (uint32_t t = 0; t < raw.shape.tokens; ++t) {
    if (!std::binary_search(positions.begin(), positions.end(), t)) others.push_back(t);
  }
  RawBlock rest = raw;
  rest.shape.tokens = static_cast<uint32_t>(others.size());
  for (Part part : kParts) rest.part(part) = RowsOf(raw, part, others);
  return rest;
}

}  // namespace firn
