// Measures the statistics of keys and queries that an artifact of means and balance weights is made of.
//
// Streaming: tokens may come in any number of calls; sums are kept in double precision. Not thread-safe.
// Source: docs/formats/artifact.md; w = sqrt(std(k) / rms(q)) minimises the expected error of logits for given code
// noise. MiKV (arXiv 2402.18096): keys times sqrt(max |q| / max |k|), which is a division by Balancing::kMaximum's w.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "codecs/artifact.h"

namespace firn {

// What the weights of an artifact balance.
enum class Balancing : uint8_t {
  kSpread = 0,   // w = sqrt(std(k) / rms(q)), with the means of the keys.
  kMaximum = 1,  // w = sqrt(max |k| / max |q|), with means of 0.
};

class KeyCalibrator {
 public:
  // InvalidArgument for shapes beyond the artifact's limits, or for query heads that do not divide among KV heads.
  static absl::StatusOr<KeyCalibrator> Create(uint32_t layers, uint32_t kv_heads, uint32_t query_heads, uint32_t width);

  // Adds tokens of one layer. `keys` is [token][KV head][channel] after RoPE, as they are stored; `queries` is
  // [token][query head][channel] after RoPE, or empty. InvalidArgument for wrong sizes or values that are not finite.
  absl::Status Add(uint32_t layer, uint32_t tokens, std::span<const float> keys, std::span<const float> queries);

  // The same for plain arrays of that many values; `queries` may be null.
  absl::Status AddArrays(uint32_t layer, uint32_t tokens, const float* keys, const float* queries) {
    std::span<const float> given =
        queries == nullptr ? std::span<const float>() : std::span(queries, size_t{tokens} * query_heads_ * width_);
    return Add(layer, tokens, {keys, size_t{tokens} * kv_heads_ * width_}, given);
  }

  // The artifact. A head that has seen queries is balanced by both; one that has not takes their size as 1, so its keys
  // are divided by the square root of their own. Weights have a geometric mean of 1 a head. FailedPrecondition where a
  // layer has had fewer than two tokens.
  absl::StatusOr<std::shared_ptr<const Artifact>> Finish(Balancing balancing = Balancing::kSpread) const;

 private:
  struct Head {
    uint64_t keys = 0, queries = 0;             // How many vectors.
    std::vector<double> key_mean, key_squares;  // Of each channel: mean, and sum of squared distances to it.
    std::vector<double> query_squares;          // Sum over the query heads of the group.
    std::vector<float> key_most, query_most;    // The largest absolute values.
  };
  KeyCalibrator(uint32_t layers, uint32_t kv_heads, uint32_t query_heads, uint32_t width);
  std::vector<double> Weights(const Head& head, Balancing balancing) const;

  uint32_t layers_, kv_heads_, query_heads_, width_;
  std::vector<Head> heads_;  // [layer][KV head]
};

}  // namespace firn
