// The C interface: every kind of coding goes through it, and what it refuses it says why.

#include "codecs/capi/c_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <random>
#include <vector>

namespace {

using testing::HasSubstr;

constexpr uint32_t kHeads = 2, kTokens = 64, kWidth = 64, kIntToken = 32, kIntChannel = 33, kNuqChannel = 40,
                   kNuqToken = 41, kFp8E4m3 = 2, kUnknown = 999;
constexpr uint64_t kValues = uint64_t{kHeads} * kTokens * kWidth;

struct FreeArtifact {
  void operator()(firn_artifact* artifact) const { firn_artifact_free(artifact); }
};
using ArtifactPtr = std::unique_ptr<firn_artifact, FreeArtifact>;

std::vector<float> Normal(uint64_t seed, uint64_t count = kValues) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& x : values) x = normal(rng);
  return values;
}

double RelativeError(const std::vector<float>& x, const std::vector<float>& y) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < x.size(); ++i) error += std::pow(x[i] - y[i], 2), norm += std::pow(x[i], 2);
  return std::sqrt(error / norm);
}

firn_round_trip_options Options(uint32_t bits) {
  firn_round_trip_options options = {};
  options.heads = kHeads, options.tokens = kTokens, options.k_width = options.v_width = kWidth;
  options.dtype = FIRN_FP16;
  options.k.bits = options.v.bits = bits;
  return options;
}

firn_round_trip_options Coded(uint32_t bits, uint32_t codec, uint32_t group, uint32_t flags = 0,
                              const firn_artifact* artifact = nullptr) {
  firn_round_trip_options options = Options(bits);
  uint32_t code_bits = codec == kFp8E4m3 ? 0 : bits;
  options.k.coding = {codec, code_bits, group, 0, flags, artifact};
  options.v.coding = options.k.coding;
  return options;
}

struct Trip {
  int result = -1;
  std::vector<float> k, v;
  firn_coded_sizes sizes = {};
};
Trip RoundTrip(const firn_round_trip_options& options, const std::vector<float>& k, const std::vector<float>& v) {
  Trip trip{.result = 0, .k = std::vector<float>(kValues), .v = std::vector<float>(kValues), .sizes = {}};
  trip.result = firn_round_trip(&options, k.data(), v.data(), trip.k.data(), trip.v.data(), &trip.sizes);
  return trip;
}

firn_artifact_sections Sections() {
  firn_artifact_sections sections = {};
  sections.layers = 1, sections.heads = kHeads, sections.width = kWidth;
  return sections;
}

ArtifactPtr MakeRope() {
  std::vector<double> frequencies;
  for (uint32_t i = 0; i < kWidth / 2; ++i) frequencies.push_back(std::pow(10000.0, -2.0 * i / kWidth));
  firn_artifact_sections sections = Sections();
  sections.rope_frequencies = frequencies.data(), sections.rope_pairs = kWidth / 2;
  return ArtifactPtr(firn_artifact_create(&sections));
}

ArtifactPtr MakeNuq(bool values, uint64_t seed) {
  firn_nuq_options options = {};
  options.layers = 1, options.heads = kHeads, options.width = kWidth, options.values = values, options.outliers = 10;
  firn_nuq_calibrator* calibrator = firn_nuq_calibrator_create(&options);
  EXPECT_NE(calibrator, nullptr) << firn_last_error();
  std::vector<float> tokens = Normal(seed);
  EXPECT_EQ(firn_nuq_calibrator_add(calibrator, 0, kTokens, tokens.data(), nullptr), 0) << firn_last_error();
  ArtifactPtr artifact(firn_nuq_calibrator_finish(calibrator));
  firn_nuq_calibrator_free(calibrator);
  return artifact;
}

TEST(CApi, IntegersHaveTheBitsThatTheirFormatSays) {
  std::vector<float> k = Normal(1), v = Normal(2);
  double error_before = 0;
  for (uint32_t bits : {8u, 4u, 3u, 2u}) {
    SCOPED_TRACE(bits);
    Trip trip = RoundTrip(Coded(bits, kIntToken, 32), k, v);
    ASSERT_EQ(trip.result, 0) << firn_last_error();
    EXPECT_EQ(trip.sizes.k_coded_bytes * 8, kValues * (bits + 1));  // A scale and a minimum of 16 bits for 32 values.
    EXPECT_EQ(trip.sizes.v_coded_bytes, trip.sizes.k_coded_bytes);
    EXPECT_EQ(trip.sizes.exact_bytes, 0u);
    double error = RelativeError(k, trip.k);
    EXPECT_GT(error, error_before);
    EXPECT_LT(error, 2.2 / ((1u << bits) - 1));
    error_before = error;
  }
}

TEST(CApi, KeysAndValuesAreCodedApart) {
  std::vector<float> k = Normal(3), v = Normal(4);
  firn_round_trip_options options = Options(16);
  options.v.bits = 2, options.v.coding = {kIntToken, 2, 64, 0, 0, nullptr};
  Trip trip = RoundTrip(options, k, v);
  ASSERT_EQ(trip.result, 0) << firn_last_error();
  EXPECT_LT(RelativeError(k, trip.k), 1e-3);  // FP16.
  EXPECT_GT(RelativeError(v, trip.v), 0.1);
  EXPECT_EQ(trip.sizes.k_coded_bytes, kValues * 2);
  EXPECT_EQ(trip.sizes.v_coded_bytes * 8, kValues * 2 + kValues / 2);
}

TEST(CApi, FirstTokensAreKeptExactAndCountedApart) {
  std::vector<float> k = Normal(5), v = Normal(6);
  firn_round_trip_options options = Coded(2, kIntToken, 64);
  options.keep_first_tokens = 4;
  Trip trip = RoundTrip(options, k, v);
  ASSERT_EQ(trip.result, 0) << firn_last_error();
  EXPECT_EQ(trip.sizes.exact_bytes, 2 * kHeads * 4 * kWidth * 2);
  for (uint32_t i = 0; i < 4 * kWidth; ++i) EXPECT_NEAR(trip.k[i], k[i], 2e-3);
  options.first_token = 4;  // A block behind the sinks has none.
  EXPECT_EQ(RoundTrip(options, k, v).sizes.exact_bytes, 0u);
}

TEST(CApi, TheMostImportantTokensAreKeptExact) {
  std::vector<float> k = Normal(18), v = Normal(19), importance(kTokens, 1.0f);
  const uint32_t wanted[] = {3, 17, 40, 41, 63};
  for (uint32_t token : wanted) importance[token] = 5.0f + static_cast<float>(token);
  firn_round_trip_options options = Coded(3, kIntToken, 64);
  options.important_fraction = 5.0f / kTokens;
  EXPECT_EQ(RoundTrip(options, k, v).sizes.exact_bytes, 0u) << "which ones was not said";
  options.importance = importance.data();
  Trip trip = RoundTrip(options, k, v);
  ASSERT_EQ(trip.result, 0) << firn_last_error();
  EXPECT_EQ(trip.sizes.exact_bytes, 2 * kHeads * std::size(wanted) * kWidth * 2);
  EXPECT_EQ(trip.sizes.k_coded_bytes * 8, kHeads * (kTokens - std::size(wanted)) * kWidth * 7 / 2);
  for (uint32_t head = 0; head < kHeads; ++head) {
    for (uint32_t token = 0; token < kTokens; ++token) {
      auto row = [&](const std::vector<float>& values) {
        auto from = values.begin() + static_cast<std::ptrdiff_t>((head * kTokens + token) * kWidth);
        return std::vector<float>(from, from + kWidth);
      };
      bool exact = std::find(std::begin(wanted), std::end(wanted), token) != std::end(wanted);
      for (double error : {RelativeError(row(k), row(trip.k)), RelativeError(row(v), row(trip.v))}) {
        EXPECT_EQ(error < 1e-3, exact) << "token " << token << " of head " << head;
      }
    }
  }
}

TEST(CApi, KeysAreBalancedByTheirLargestMagnitudes) {
  // Channel 0 of the keys is large and that of the queries small: as the others, once it is balanced.
  std::vector<float> keys = Normal(20), queries = Normal(21);
  for (uint64_t i = 0; i < kValues; i += kWidth) keys[i] *= 64, queries[i] /= 64;
  ArtifactPtr artifacts[2];
  for (uint32_t balancing : {FIRN_BALANCE_SPREAD, FIRN_BALANCE_MAXIMUM}) {
    firn_calibrator* calibrator = firn_calibrator_create(1, kHeads, kHeads, kWidth);
    ASSERT_EQ(firn_calibrator_add(calibrator, 0, kTokens, keys.data(), queries.data()), 0) << firn_last_error();
    artifacts[balancing].reset(firn_calibrator_finish(calibrator, balancing));
    ASSERT_NE(artifacts[balancing], nullptr) << firn_last_error();
    EXPECT_EQ(firn_calibrator_finish(calibrator, 2), nullptr);
    EXPECT_THAT(firn_last_error(), HasSubstr("balancing 2, 0 or 1"));
    firn_calibrator_free(calibrator);
  }
  uint64_t lengths[2];
  const uint8_t* bytes[] = {firn_artifact_bytes(artifacts[0].get(), &lengths[0]),
                            firn_artifact_bytes(artifacts[1].get(), &lengths[1])};
  EXPECT_NE(std::vector(bytes[0], bytes[0] + lengths[0]), std::vector(bytes[1], bytes[1] + lengths[1]));

  std::vector<float> k = Normal(22), v = Normal(23);
  for (uint64_t i = 0; i < kValues; i += kWidth) k[i] *= 64;
  auto error_of_others = [&](uint32_t flags, const firn_artifact* artifact) {
    firn_round_trip_options options = Coded(3, kIntToken, 64);
    options.k.coding.flags = flags, options.k.coding.artifact = artifact;
    Trip trip = RoundTrip(options, k, v);
    EXPECT_EQ(trip.result, 0) << firn_last_error();
    std::vector<float> exact = k;
    for (uint64_t i = 0; i < kValues; i += kWidth) exact[i] = trip.k[i] = 0;
    return RelativeError(exact, trip.k);
  };
  EXPECT_LT(error_of_others(FIRN_BALANCED, artifacts[FIRN_BALANCE_MAXIMUM].get()), 0.3);
  EXPECT_GT(error_of_others(0, nullptr), 0.8);
}

TEST(CApi, RotaryEmbeddingIsTakenBackAtTheTokensPositions) {
  ArtifactPtr rope = MakeRope();
  ASSERT_NE(rope, nullptr) << firn_last_error();
  // Keys that are alike before the rotary embedding at positions 1000, ...: their groups of tokens are constant.
  std::vector<float> k(kValues), v = Normal(7), before = Normal(8, kWidth);
  for (uint64_t i = 0; i < kValues; ++i) {
    uint64_t channel = i % kWidth, pair = channel % (kWidth / 2), token = i / kWidth % kTokens;
    double angle = static_cast<double>(1000 + token) * std::pow(10000.0, -2.0 * pair / kWidth);
    float a = before[pair], b = before[pair + kWidth / 2];
    k[i] = static_cast<float>(channel < kWidth / 2 ? a * std::cos(angle) - b * std::sin(angle)
                                                   : b * std::cos(angle) + a * std::sin(angle));
  }
  firn_round_trip_options options = Options(2);
  options.k.coding = {kIntChannel, 2, 32, 0, FIRN_PRE_ROPE, rope.get()};
  options.first_token = 1000;
  EXPECT_LT(RelativeError(k, RoundTrip(options, k, v).k), 2e-3);
  options.k.coding.flags = 0;
  EXPECT_GT(RelativeError(k, RoundTrip(options, k, v).k), 0.1);

  // Ranges about those keys: at other positions nothing lies in them.
  std::vector<float> centre = before, reach(size_t{kHeads} * kWidth, 1e-3f);
  centre.insert(centre.end(), before.begin(), before.end());
  const float levels[] = {-1, -0.5f, 0.5f, 1};
  firn_codebook book = {2, levels, nullptr};
  firn_artifact_sections sections = Sections();
  sections.centre = centre.data(), sections.reach = reach.data(), sections.codebooks = &book;
  sections.codebook_count = 1;
  ArtifactPtr ranges(firn_artifact_create(&sections));
  const firn_artifact* parts[] = {ranges.get(), rope.get()};
  ArtifactPtr keys(firn_artifact_merge(parts, 2));
  ASSERT_NE(keys, nullptr) << firn_last_error();
  options.k.coding = {kNuqChannel, 2, 0, 0, FIRN_PRE_ROPE, keys.get()};
  EXPECT_LT(RelativeError(k, RoundTrip(options, k, v).k), 2e-3);
  options.first_token = 0;
  EXPECT_GT(RelativeError(k, RoundTrip(options, k, v).k), 0.1);
}

TEST(CApi, CodebooksAreMeasuredMergedAndUsed) {
  ArtifactPtr ranges = MakeNuq(false, 9), rope = MakeRope(), values = MakeNuq(true, 10);
  const firn_artifact* parts[] = {ranges.get(), rope.get()};
  ArtifactPtr keys(firn_artifact_merge(parts, 2));
  ASSERT_NE(keys, nullptr) << firn_last_error();
  firn_round_trip_options options = Options(3);
  options.k.coding = {kNuqChannel, 3, 0, 10, FIRN_PRE_ROPE, keys.get()};
  options.v.coding = {kNuqToken, 3, 0, 10, 0, values.get()};
  std::vector<float> k = Normal(11), v = Normal(12);
  v[77] = 1000;  // An outlier, kept exactly.
  Trip trip = RoundTrip(options, k, v);
  ASSERT_EQ(trip.result, 0) << firn_last_error();
  EXPECT_LT(RelativeError(k, trip.k), 0.25);
  EXPECT_EQ(trip.v[77], 1000);
  v[77] = trip.v[77] = 0;
  EXPECT_LT(RelativeError(v, trip.v), 0.25);
  EXPECT_EQ(trip.sizes.k_coded_bytes, kHeads * kTokens * (kWidth * 3 / 8 + 4));

  EXPECT_EQ(firn_artifact_merge(parts, 0), nullptr);
  parts[1] = values.get();
  EXPECT_EQ(firn_artifact_merge(parts, 2), nullptr);
  EXPECT_THAT(firn_last_error(), HasSubstr("codebooks"));
  options.k.coding.artifact = rope.get();
  EXPECT_EQ(RoundTrip(options, k, v).result, -1);
}

TEST(CApi, CalibratedScalesAreUsed) {
  std::vector<float> tokens(size_t{kTokens} * kHeads * kWidth, 0.5f), k(kValues, 4.0f), v(kValues, 0.25f);
  firn_scale_calibrator* calibrator = firn_scale_calibrator_create(1, kHeads, kWidth, 448);
  ASSERT_NE(calibrator, nullptr) << firn_last_error();
  ASSERT_EQ(firn_scale_calibrator_add(calibrator, 0, kTokens, tokens.data()), 0) << firn_last_error();
  ArtifactPtr scales(firn_scale_calibrator_finish(calibrator));
  firn_scale_calibrator_free(calibrator);
  ASSERT_NE(scales, nullptr) << firn_last_error();
  Trip trip = RoundTrip(Coded(8, kFp8E4m3, 0, FIRN_CALIBRATED, scales.get()), k, v);
  ASSERT_EQ(trip.result, 0) << firn_last_error();
  EXPECT_NEAR(trip.k[0], 0.5, 1e-6);  // Saturated at what was seen.
  EXPECT_NEAR(trip.v[0], 0.25, 1e-6);
  EXPECT_EQ(trip.sizes.k_coded_bytes, kValues);
}

TEST(CApi, HeadsHaveClassesOfTheirOwn) {
  std::vector<float> k = Normal(13), v = Normal(14);
  const uint8_t head_bits[kHeads] = {2, 8};
  firn_round_trip_options mixed = Options(0), fine = Options(8), coarse = Options(2);
  mixed.k.head_bits = mixed.v.head_bits = head_bits;
  for (firn_round_trip_options* o : {&mixed, &fine, &coarse}) o->ladder = FIRN_LADDER_TRELLIS;
  Trip trip = RoundTrip(mixed, k, v), at8 = RoundTrip(fine, k, v), at2 = RoundTrip(coarse, k, v);
  ASSERT_EQ(trip.result, 0) << firn_last_error();
  auto half = static_cast<std::ptrdiff_t>(kValues / 2);
  for (auto part : {&Trip::k, &Trip::v}) {
    EXPECT_TRUE(std::equal((trip.*part).begin(), (trip.*part).begin() + half, (at2.*part).begin()));
    EXPECT_TRUE(std::equal((trip.*part).begin() + half, (trip.*part).end(), (at8.*part).begin() + half));
  }
  EXPECT_EQ(trip.sizes.v_coded_bytes * 2, at8.sizes.v_coded_bytes + at2.sizes.v_coded_bytes);
}

TEST(CApi, ALayerOfAnArtifactHasItsShareOfEverySection) {
  constexpr uint32_t kLayers = 3;
  std::vector<float> centre = Normal(15, kLayers * kHeads * kWidth), reach(centre.size(), 1.0f), scales, levels;
  for (uint32_t i = 0; i < kLayers * kHeads; ++i) scales.push_back(1.0f + static_cast<float>(i));
  for (uint32_t i = 0; i < kLayers * 4; ++i)
    levels.push_back(static_cast<float>(i % 4) + static_cast<float>(i) * 0.01f);
  firn_codebook whole_book = {2, levels.data(), nullptr}, part_book = {2, levels.data() + 4, nullptr};
  const double frequencies[] = {1.0, 0.5};
  firn_artifact_sections whole = Sections();
  whole.layers = kLayers, whole.centre = centre.data(), whole.reach = reach.data(), whole.scales = scales.data();
  whole.codebooks = &whole_book, whole.codebook_count = 1, whole.rope_frequencies = frequencies, whole.rope_pairs = 2;
  whole.rope_interleaved = 1;
  firn_artifact_sections part = whole;
  part.layers = 1, part.codebooks = &part_book, part.scales = scales.data() + kHeads;
  part.centre = centre.data() + kHeads * kWidth;
  ArtifactPtr all(firn_artifact_create(&whole)), expected(firn_artifact_create(&part));
  ASSERT_NE(all, nullptr) << firn_last_error();
  ArtifactPtr layer(firn_artifact_layer(all.get(), 1));
  ASSERT_NE(layer, nullptr) << firn_last_error();
  uint64_t length = 0, expected_length = 0;
  const uint8_t *bytes = firn_artifact_bytes(layer.get(), &length),
                *expected_bytes = firn_artifact_bytes(expected.get(), &expected_length);
  EXPECT_EQ(std::vector(bytes, bytes + length), std::vector(expected_bytes, expected_bytes + expected_length));
  EXPECT_EQ(firn_artifact_layer(all.get(), kLayers), nullptr);
  EXPECT_THAT(firn_last_error(), HasSubstr("layer 3 of an artifact of 3"));
}

TEST(CApi, SaysWhyItRefuses) {
  std::vector<float> k = Normal(16), v = Normal(17);
  auto reason = [&](const firn_round_trip_options& options) {
    EXPECT_EQ(RoundTrip(options, k, v).result, -1);
    return std::string(firn_last_error());
  };
  EXPECT_THAT(reason(Options(5)), HasSubstr("5 bits; 16, 8, 4, 3 or 2"));
  EXPECT_THAT(reason(Coded(4, kUnknown, 32)), HasSubstr("999"));
  EXPECT_THAT(reason(Coded(4, 70000, 32)), HasSubstr("70000, at most 65535"));
  firn_round_trip_options options = Coded(4, kIntToken, 32);
  options.k.coding.outliers = 51;
  EXPECT_THAT(reason(options), HasSubstr("outliers 51, at most 50"));
  options = Coded(4, kIntToken, 32);
  const uint8_t head_bits[kHeads] = {2, 8};
  options.v.head_bits = head_bits;
  EXPECT_THAT(reason(options), HasSubstr("classes of heads"));
  options = Options(4);
  options.key_method = FIRN_KEYS_BALANCED_ROTATED;
  EXPECT_THAT(reason(options), HasSubstr("artifact"));
  options = Options(4);
  options.important_fraction = 1.5f;
  EXPECT_THAT(reason(options), HasSubstr("important fraction 1.5, 0 to 1"));
  std::vector<float> importance(kTokens, -1.0f);
  options.important_fraction = 0.5f, options.importance = importance.data();
  EXPECT_THAT(reason(options), HasSubstr("importance[0] is -1"));
  options = Options(4);
  options.heads = 5000;
  EXPECT_THAT(reason(options), HasSubstr("heads 5000, at most 4096"));
}

}  // namespace
