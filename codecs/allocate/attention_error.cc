#include "codecs/allocate/attention_error.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace firn {
namespace {

// Eight sums side by side: a fixed order that compilers make vectors of.
float Dot(const float* a, const float* b, uint32_t width) {
  constexpr uint32_t kLanes = 8;
  float sums[kLanes] = {};
  uint32_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  float total = 0;
  for (float sum : sums) total += sum;
  for (; i < width; ++i) total += a[i] * b[i];
  return total;
}

void AddScaled(const float* row, float factor, uint32_t width, float* to) {
  for (uint32_t i = 0; i < width; ++i) to[i] += factor * row[i];
}

// Turns logits into probabilities, in place of `out`; returns the logarithm of the sum of exponentials.
double Softmax(const float* logits, uint32_t count, float* out) {
  float most = *std::max_element(logits, logits + count);
  double sum = 0;
  for (uint32_t i = 0; i < count; ++i) {
    out[i] = std::exp(logits[i] - most);
    sum += double{out[i]};
  }
  auto factor = static_cast<float>(1 / sum);
  for (uint32_t i = 0; i < count; ++i) out[i] *= factor;
  return std::log(sum) + double{most};
}

std::vector<uint32_t> SpacedQueries(uint32_t tokens, uint32_t queries_max) {
  uint32_t first = tokens / 2, span = tokens - first, count = std::min(span, queries_max);
  std::vector<uint32_t> queries;
  for (uint32_t i = 0; i < count; ++i) {
    queries.push_back(first + static_cast<uint32_t>((uint64_t{i} + 1) * span / count) - 1);
  }
  return queries;
}

}  // namespace

AttentionMeasure::AttentionMeasure(const AttentionWindow& window, const Options& options)
    : window_(window), options_(options), queries_(SpacedQueries(window.tokens, options.queries_max)) {
  FIRN_CHECK(window.tokens > 0 && window.group > 0 && window.k_width > 0 && window.v_width > 0);
  logits_.resize(queries_.size() * window.group * window.tokens);
  probabilities_.resize(logits_.size());
  outputs_.resize(queries_.size() * window.group * window.v_width);
  auto scale = static_cast<float>(window.scale);
  for (size_t i = 0; i < queries_.size(); ++i) {
    uint32_t visible = queries_[i] + 1;
    for (uint32_t head = 0; head < window.group; ++head) {
      const float* query = window.queries[queries_[i]] + size_t{head} * window.k_width;
      float* logits = logits_.data() + RowAt(i, head);
      float* probabilities = probabilities_.data() + RowAt(i, head);
      for (uint32_t t = 0; t < visible; ++t) logits[t] = scale * Dot(query, window.keys[t], window.k_width);
      Softmax(logits, visible, probabilities);
      float* output = outputs_.data() + (i * window.group + head) * window.v_width;
      for (uint32_t t = 0; t < visible; ++t) AddScaled(window.values[t], probabilities[t], window.v_width, output);
      output_norm_ += Norm(head, output);
    }
  }
}

uint32_t AttentionMeasure::CodedEnd(uint32_t token) const {
  uint32_t visible = token + 1;
  return visible > options_.exact_recent ? visible - options_.exact_recent : 0;
}

double AttentionMeasure::Norm(uint32_t head, const float* output) const {
  uint32_t width = window_.v_width;
  double norm = 0;
  if (window_.output_gram == nullptr) {
    for (uint32_t i = 0; i < width; ++i) norm += double{output[i]} * output[i];
    return norm;
  }
  const float* gram = window_.output_gram + size_t{head} * width * width;
  for (uint32_t i = 0; i < width; ++i) norm += double{output[i]} * Dot(gram + size_t{i} * width, output, width);
  return std::max(norm, 0.0);
}

AttentionErrors AttentionMeasure::OfKeys(TokenRows coded) const {
  AttentionErrors errors;
  auto scale = static_cast<float>(window_.scale);
  std::vector<float> logits(window_.tokens), probabilities(window_.tokens), difference(window_.v_width);
  for (size_t i = 0; i < queries_.size(); ++i) {
    uint32_t visible = queries_[i] + 1, end = CodedEnd(queries_[i]);
    if (end <= options_.exact_first) continue;
    for (uint32_t head = 0; head < window_.group; ++head) {
      const float* query = window_.queries[queries_[i]] + size_t{head} * window_.k_width;
      const float *exact = logits_.data() + RowAt(i, head), *expected = probabilities_.data() + RowAt(i, head);
      std::copy_n(exact, visible, logits.begin());
      for (uint32_t t = options_.exact_first; t < end; ++t) logits[t] = scale * Dot(query, coded[t], window_.k_width);
      double log_sum = Softmax(logits.data(), visible, probabilities.data());
      // KL = sum p (log p - log p^), with log p = logit - log of the sum of exponentials.
      double divergence = 0, expected_log_sum = 0, mass = 0;
      for (uint32_t t = 0; t < visible; ++t) {
        divergence += double{expected[t]} * (double{exact[t]} - logits[t]);
        mass += double{expected[t]};
      }
      double most = *std::max_element(exact, exact + visible);
      for (uint32_t t = 0; t < visible; ++t) expected_log_sum += std::exp(double{exact[t]} - most);
      errors.attention += std::max(0.0, divergence / mass + log_sum - (std::log(expected_log_sum) + most));
      std::fill(difference.begin(), difference.end(), 0.0f);
      for (uint32_t t = 0; t < visible; ++t) {
        AddScaled(window_.values[t], probabilities[t] - expected[t], window_.v_width, difference.data());
      }
      errors.output += Norm(head, difference.data());
    }
  }
  return errors;
}

AttentionErrors AttentionMeasure::OfValues(TokenRows coded) const {
  AttentionErrors errors;
  std::vector<float> difference(window_.v_width);
  for (size_t i = 0; i < queries_.size(); ++i) {
    uint32_t end = CodedEnd(queries_[i]);
    for (uint32_t head = 0; head < window_.group; ++head) {
      const float* probabilities = probabilities_.data() + RowAt(i, head);
      std::fill(difference.begin(), difference.end(), 0.0f);
      for (uint32_t t = options_.exact_first; t < end; ++t) {
        const float *from = coded[t], *exact = window_.values[t];
        for (uint32_t c = 0; c < window_.v_width; ++c) difference[c] += probabilities[t] * (from[c] - exact[c]);
      }
      errors.output += Norm(head, difference.data());
    }
  }
  return errors;
}

}  // namespace firn
