// What coded keys or values of one KV head do to the attention over a captured window: the measure by which precisions
// are given out.
//
// Queries are real ones of the window's second half, evenly spaced; each attends to itself and to all tokens before it.
// The first `exact_first` tokens and the newest `exact_recent` before a query count as exact, as sinks and what an
// engine has not put yet are. Sums are over queries and query heads, so that heads add up. Ownership: rows are the
// caller's and outlive the object. Memory: 8 bytes a (query, query head, token). Threads: Of... may run at the same
// time. Not validated: values must be finite, or the errors are not. Arithmetic is FP32 of a fixed order, sums are
// FP64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace firn {

// Values of one head, token by token.
struct TokenRows {
  const float* first = nullptr;
  size_t stride = 0;  // Floats from one token to the next.
  const float* operator[](uint32_t token) const { return first + token * stride; }
};

struct AttentionWindow {
  uint32_t tokens = 0;
  uint32_t group = 1;  // Query heads of this KV head, side by side in a row of queries.
  uint32_t k_width = 0, v_width = 0;
  TokenRows queries, keys, values;
  double scale = 0;  // Of logits.
  // [query head][v_width][v_width], W^T W of the head's columns of the output projection: errors are then measured
  // behind it. Null: before it.
  const float* output_gram = nullptr;
};

struct AttentionErrors {
  double output = 0;     // Sum of ||o^ - o||^2.
  double attention = 0;  // Sum of KL(p || p^), nats; 0 for values.
  void Add(const AttentionErrors& other) { output += other.output, attention += other.attention; }
  bool operator==(const AttentionErrors&) const = default;
};

class AttentionMeasure {
 public:
  struct Options {
    uint32_t exact_first = 4;
    uint32_t exact_recent = 128;
    uint32_t queries_max = 256;
  };
  AttentionMeasure(const AttentionWindow& window, const Options& options);

  AttentionErrors OfKeys(TokenRows coded) const;
  AttentionErrors OfValues(TokenRows coded) const;
  // Sum of ||o||^2, and how many outputs that is.
  double output_norm() const { return output_norm_; }
  uint64_t outputs() const { return uint64_t{window_.group} * queries_.size(); }
  const std::vector<uint32_t>& queries() const { return queries_; }

 private:
  // Tokens [exact_first, CodedEnd) are read coded by the query at `token`.
  uint32_t CodedEnd(uint32_t token) const;
  size_t RowAt(size_t query, uint32_t head) const { return (query * window_.group + head) * window_.tokens; }
  double Norm(uint32_t head, const float* output) const;

  AttentionWindow window_;
  Options options_;
  std::vector<uint32_t> queries_;              // Tokens.
  std::vector<float> logits_, probabilities_;  // [query][query head][token]
  std::vector<float> outputs_;                 // [query][query head][v_width]
  double output_norm_ = 0;
};

}  // namespace firn
