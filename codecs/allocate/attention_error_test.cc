// The measure against plain attention in double precision.

#include "codecs/allocate/attention_error.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace firn {
namespace {

struct Made {
  uint32_t tokens, group, k_width, v_width;
  std::vector<float> q, k, v, k_coded, v_coded, gram;
  AttentionWindow window() const {
    return {.tokens = tokens,
            .group = group,
            .k_width = k_width,
            .v_width = v_width,
            .queries = {q.data(), size_t{group} * k_width},
            .keys = {k.data(), k_width},
            .values = {v.data(), v_width},
            .scale = 1 / std::sqrt(double(k_width)),
            .output_gram = gram.empty() ? nullptr : gram.data()};
  }
};

Made Make(uint64_t seed, uint32_t tokens, uint32_t group, uint32_t k_width, uint32_t v_width, bool projected) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  auto fill = [&](size_t count, float size) {
    std::vector<float> out(count);
    for (float& value : out) value = size * normal(rng);
    return out;
  };
  Made made;
  made.tokens = tokens, made.group = group, made.k_width = k_width, made.v_width = v_width;
  made.q = fill(size_t{tokens} * group * k_width, 2), made.k = fill(size_t{tokens} * k_width, 2);
  made.v = fill(size_t{tokens} * v_width, 1);
  made.k_coded = made.k, made.v_coded = made.v;
  for (float& value : made.k_coded) value += 0.2f * normal(rng);
  for (float& value : made.v_coded) value += 0.2f * normal(rng);
  if (projected) {
    std::vector<float> w = fill(size_t{group} * 7 * v_width, 1);  // [head][7 outputs][v_width]
    for (uint32_t h = 0; h < group; ++h) {
      for (uint32_t i = 0; i < v_width; ++i) {
        for (uint32_t j = 0; j < v_width; ++j) {
          double sum = 0;
          for (uint32_t o = 0; o < 7; ++o) {
            sum += double{w[(h * 7 + o) * v_width + i]} * w[(h * 7 + o) * v_width + j];
          }
          made.gram.push_back(static_cast<float>(sum));
        }
      }
    }
  }
  return made;
}

struct Reference {
  AttentionErrors keys, values;
  double norm = 0;
};

Reference ReferenceOf(const Made& m, const AttentionMeasure::Options& options, const std::vector<uint32_t>& queries) {
  Reference reference;
  for (uint32_t at : queries) {
    for (uint32_t h = 0; h < m.group; ++h) {
      auto attention = [&](bool coded) {
        std::vector<double> p(at + 1);
        double sum = 0;
        for (uint32_t t = 0; t <= at; ++t) {
          bool exact = !coded || t < options.exact_first || at - t < options.exact_recent;
          const std::vector<float>& k = exact ? m.k : m.k_coded;
          double dot = 0;
          for (uint32_t c = 0; c < m.k_width; ++c) {
            dot += double{m.q[(size_t{at} * m.group + h) * m.k_width + c]} * k[size_t{t} * m.k_width + c];
          }
          p[t] = std::exp(dot / std::sqrt(double(m.k_width)));
          sum += p[t];
        }
        for (double& value : p) value /= sum;
        return p;
      };
      std::vector<double> p = attention(false), q = attention(true);
      std::vector<double> output(m.v_width), by_keys(m.v_width), by_values(m.v_width);
      for (uint32_t t = 0; t <= at; ++t) {
        reference.keys.attention += p[t] * std::log(p[t] / q[t]);
        bool exact = t < options.exact_first || at - t < options.exact_recent;
        for (uint32_t c = 0; c < m.v_width; ++c) {
          double v = m.v[size_t{t} * m.v_width + c];
          output[c] += p[t] * v;
          by_keys[c] += (q[t] - p[t]) * v;
          if (!exact) by_values[c] += p[t] * (m.v_coded[size_t{t} * m.v_width + c] - v);
        }
      }
      auto norm = [&](const std::vector<double>& x) {
        double total = 0;
        for (uint32_t i = 0; i < m.v_width; ++i) {
          for (uint32_t j = 0; j < m.v_width; ++j) {
            double factor = m.gram.empty() ? i == j : m.gram[(h * m.v_width + i) * m.v_width + j];
            total += factor * x[i] * x[j];
          }
        }
        return total;
      };
      reference.norm += norm(output);
      reference.keys.output += norm(by_keys);
      reference.values.output += norm(by_values);
    }
  }
  return reference;
}

TEST(AttentionError, IsThatOfPlainAttention) {
  uint64_t seed = 0;
  for (auto [tokens, group, k_width, v_width] :
       {std::array<uint32_t, 4>{1, 1, 4, 4}, {40, 2, 16, 16}, {65, 1, 5, 12}, {200, 4, 32, 8}}) {
    for (bool projected : {false, true}) {
      for (AttentionMeasure::Options options :
           {AttentionMeasure::Options{0, 0, 1000}, {4, 16, 1000}, {1, 1, 7}, {3, 500, 10}}) {
        SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << tokens << " tokens");
        Made made = Make(seed++, tokens, group, k_width, v_width, projected);
        AttentionMeasure measure(made.window(), options);
        Reference expected = ReferenceOf(made, options, measure.queries());
        AttentionErrors keys = measure.OfKeys({made.k_coded.data(), k_width});
        AttentionErrors values = measure.OfValues({made.v_coded.data(), v_width});
        EXPECT_NEAR(measure.output_norm(), expected.norm, 1e-4 * expected.norm);
        EXPECT_NEAR(keys.output, expected.keys.output, 1e-3 * expected.keys.output + 1e-9);
        EXPECT_NEAR(keys.attention, expected.keys.attention, 1e-3 * expected.keys.attention + 1e-6);
        EXPECT_NEAR(values.output, expected.values.output, 1e-3 * expected.values.output + 1e-9);
        EXPECT_EQ(values.attention, 0);
      }
    }
  }
}

TEST(AttentionError, QueriesAreOfTheSecondHalfAndEvenlySpaced) {
  Made made = Make(5, 100, 1, 8, 8, false);
  EXPECT_EQ(AttentionMeasure(made.window(), {0, 0, 5}).queries(), (std::vector<uint32_t>{59, 69, 79, 89, 99}));
  EXPECT_EQ(AttentionMeasure(made.window(), {0, 0, 1000}).queries().size(), 50u);
  EXPECT_EQ(AttentionMeasure(made.window(), {0, 0, 1}).queries(), (std::vector<uint32_t>{99}));
}

TEST(AttentionError, ExactValuesHaveNoError) {
  Made made = Make(6, 64, 2, 16, 16, false);
  AttentionMeasure measure(made.window(), {0, 0, 16});
  EXPECT_LT(measure.OfKeys({made.k.data(), 16}).output, 1e-12);
  EXPECT_LT(measure.OfKeys({made.k.data(), 16}).attention, 1e-5);
  EXPECT_EQ(measure.OfValues({made.v.data(), 16}).output, 0);
}

}  // namespace
}  // namespace firn
