// Codebook codes: outliers on ties, damaged entries, ranges; and the calibrator that fits their levels.

#include <gtest/gtest.h>

#include <numeric>

#include "codecs/codec_table.h"
#include "codecs/nuq/nuq_calibrator.h"
#include "codecs/nuq/nuq_codec.h"
#include "codecs/nuq/nuq_format.h"
#include "codecs/tile_test_util.h"

namespace firn {
namespace {

PartCoding Coding(CodecId codec, uint8_t bits, uint8_t outliers, MetaType type = MetaType::kFp16) {
  PartCoding coding;
  coding.codec = codec;
  coding.meta_type = type;
  coding.bits = bits;
  coding.outliers = outliers;
  return coding;
}

// FP32 values through a row and back.
struct Coded {
  TileMemory memory;
  std::vector<float> values;
};
std::vector<float> Decode(const PartCoding& coding, const TileMemory& memory, uint32_t width, uint32_t tokens,
                          uint32_t heads) {
  TestModel model(coding);
  std::vector<float> values(uint64_t{width} * tokens * heads);
  DecodeTile decode{.coding = &coding,
                    .width = width,
                    .tokens = tokens,
                    .heads = heads,
                    .out = DType::kFp32,
                    .target = reinterpret_cast<uint8_t*>(values.data()),
                    .transform = {},
                    .model = model.view()};
  memory.Attach(&decode);
  FindCodec(coding.codec)->decode(decode);
  return values;
}
Coded Code(const PartCoding& coding, const std::vector<float>& x, uint32_t width, uint32_t tokens, uint32_t heads = 1) {
  const CodecRow& row = *FindCodec(coding.codec);
  TestModel model(coding);
  Coded coded;
  coded.memory = TileMemory(row, coding, DType::kFp16, width, tokens, heads);
  EncodeTile tile{.coding = &coding,
                  .width = width,
                  .tokens = tokens,
                  .heads = heads,
                  .in = DType::kFp32,
                  .source = reinterpret_cast<const uint8_t*>(x.data()),
                  .transform = {},
                  .model = model.view()};
  coded.memory.Attach(&tile);
  row.encode(tile);
  coded.values = Decode(coding, coded.memory, width, tokens, heads);
  return coded;
}

std::vector<uint32_t> Indices(const std::vector<uint8_t>& meta, size_t first, size_t count, size_t entry_bytes) {
  std::vector<uint32_t> indices;
  for (size_t i = 0; i < count; ++i) indices.push_back(LoadLe<uint16_t>(meta.data() + first + i * entry_bytes));
  return indices;
}

TEST(Nuq, ExactlyAsManyOutliersOnTies) {
  // All alike: the first ones are taken, and the bytes are what the accounting says.
  std::vector<float> same(200, 0.75f);
  Coded keys = Code(Coding(CodecId::kNuqChannel, 4, 10), same, 200, 1);
  EXPECT_EQ(keys.memory.runs[0].size(), 2 * 4u);
  EXPECT_EQ(keys.memory.runs[5].size(), 100u);
  EXPECT_EQ(Indices(keys.memory.runs[0], 0, 2, 4), (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(keys.values[0], 0.75f);
  EXPECT_EQ(keys.values[1], 0.75f);
  Coded values = Code(Coding(CodecId::kNuqToken, 4, 20), same, 100, 1, 2);
  EXPECT_EQ(values.memory.runs[0].size(), 4 + 4 * 4u);
  EXPECT_EQ(Indices(values.memory.runs[0], 4, 4, 4), (std::vector<uint32_t>{0, 1, 2, 3}));
  EXPECT_EQ(values.values, same) << "a token of one value comes back";
  // Zeros too, and every count is ceil(outliers * n / 1000).
  for (uint8_t outliers : {0, 1, 10, 50}) {
    PartCoding coding = Coding(CodecId::kNuqChannel, 2, outliers);
    Coded zeros = Code(coding, std::vector<float>(390, 0.0f), 130, 3);
    uint32_t count = (130u * outliers + 999) / 1000;
    EXPECT_EQ(zeros.memory.runs[0].size(), 3 * count * 4u);
    std::vector<uint32_t> first(count);
    std::iota(first.begin(), first.end(), 0u);
    EXPECT_EQ(Indices(zeros.memory.runs[0], size_t{2} * count * 4, count, 4), first);
  }
}

TEST(Nuq, OutliersAreExactAndSortedByPlace) {
  std::mt19937_64 rng(3);
  std::normal_distribution<float> normal;
  std::vector<float> x(256);
  for (float& value : x) value = HalfToFloat(FloatToHalf(normal(rng) * 0.2f));
  x[200] = 50, x[3] = -60, x[77] = 40;
  Coded keys = Code(Coding(CodecId::kNuqChannel, 3, 10), x, 256, 1);  // 3 of 256.
  EXPECT_EQ(Indices(keys.memory.runs[0], 0, 3, 4), (std::vector<uint32_t>{3, 77, 200}));
  for (size_t i : {3, 77, 200}) EXPECT_EQ(keys.values[i], x[i]);
  // By token: the two largest and the smallest, whichever head they are in; the rest is coded by its own range.
  Coded values = Code(Coding(CodecId::kNuqToken, 3, 10), x, 64, 1, 4);
  EXPECT_EQ(Indices(values.memory.runs[0], 4, 3, 4), (std::vector<uint32_t>{3, 77, 200}));
  for (size_t i : {3, 77, 200}) EXPECT_EQ(values.values[i], x[i]);
  float reach = HalfToFloat(LoadLe<uint16_t>(values.memory.runs[0].data() + 2));
  EXPECT_LT(reach, 0.9f);
  EXPECT_GT(reach, 0.3f);
}

// Outliers of a group of tokens lie where they are, however they are spread over its tokens; a shorter last group has
// its own share.
TEST(Nuq, AGroupOfTokensSharesItsOutliers) {
  const uint32_t width = 40, tokens = 70, group = 32;
  PartCoding coding = Coding(CodecId::kNuqChannel, 3, 10);
  coding.group = group;
  std::vector<float> x(size_t{tokens} * width);
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.25f + static_cast<float>(i % 7) * 0.0625f;
  // 13 of each whole group, 3 of the last: all in one token, where a token's own share would be one.
  std::vector<uint32_t> places;
  for (uint32_t i = 0; i < 13; ++i) places.push_back(5 * width + 3 * i);
  for (uint32_t i = 0; i < 13; ++i) places.push_back(63 * width + i);
  for (uint32_t i : {0u, 39u, 239u}) places.push_back(64 * width + i);
  for (uint32_t i : places) x[i] = (i % 2 == 0 ? 20.0f : -30.0f) + static_cast<float>(i % 5);
  Coded coded = Code(coding, x, width, tokens);
  EXPECT_EQ(coded.memory.runs[0].size(), (13 + 13 + 3) * 4u);
  std::vector<uint32_t> found;
  for (auto [first, count, begin] : {std::tuple(0u, 13u, 0u), {13u, 13u, 32u}, {26u, 3u, 64u}}) {
    for (uint32_t i : Indices(coded.memory.runs[0], first * 4, count, 4)) found.push_back(begin * width + i);
  }
  EXPECT_EQ(found, places);
  for (uint32_t i : places) EXPECT_EQ(coded.values[i], x[i]) << i;

  // Rows from the middle of a tile: the tile's metadata, their own codes.
  TestModel model(coding);
  for (auto [first, count] : {std::pair(0u, 1u), {5u, 1u}, {31u, 1u}, {4u, 9u}}) {
    std::vector<float> rows(size_t{count} * width);
    DecodeTile decode{.coding = &coding,
                      .width = width,
                      .tokens = count,
                      .first_token = first,
                      .encoded_tokens = group,
                      .out = DType::kFp32,
                      .target = reinterpret_cast<uint8_t*>(rows.data()),
                      .transform = {},
                      .model = model.view()};
    coded.memory.Attach(&decode);
    decode.runs[5] = coded.memory.runs[5].data() + first * 15;
    for (auto* function : {FindCodec(coding.codec)->decode, FindCodec(coding.codec)->decode_reference}) {
      function(decode);
      EXPECT_EQ(rows, std::vector<float>(coded.values.begin() + first * width,
                                         coded.values.begin() + (first + count) * width));
    }
  }
}

TEST(Nuq, AGroupOfOneTokenIsNone) {
  std::mt19937_64 rng(6);
  std::normal_distribution<float> normal;
  std::vector<float> x(130 * 9);
  for (float& value : x) value = HalfToFloat(FloatToHalf(normal(rng) * 2));
  PartCoding one = Coding(CodecId::kNuqChannel, 2, 20), none = one;
  one.group = 1;
  EXPECT_EQ(Code(one, x, 130, 9).memory, Code(none, x, 130, 9).memory);
}

// Groups of more than 65,536 values have wider indices; ties go to the first.
TEST(Nuq, LongGroupsMatchTheReference) {
  std::mt19937_64 rng(12);
  for (uint32_t tokens : {64u, 700u}) {
    const uint32_t width = 128;
    std::vector<float> x(size_t{tokens} * width);
    for (float& value : x) value = static_cast<float>(static_cast<int>(rng() % 9) - 4) * 0.5f;
    PartCoding coding = Coding(CodecId::kNuqChannel, 4, 15);
    coding.group = static_cast<uint16_t>(tokens);
    Coded coded = Code(coding, x, width, tokens);
    const uint32_t count = (tokens * width * 15 + 999) / 1000;
    EXPECT_EQ(coded.memory.runs[0].size(), count * (tokens == 64 ? 4u : 6u));
    TestModel model(coding);
    TileMemory memory(*FindCodec(coding.codec), coding, DType::kFp16, width, tokens, 1);
    EncodeTile tile{.coding = &coding,
                    .width = width,
                    .tokens = tokens,
                    .in = DType::kFp32,
                    .source = reinterpret_cast<const uint8_t*>(x.data()),
                    .transform = {},
                    .model = model.view()};
    memory.Attach(&tile);
    FindCodec(coding.codec)->encode_reference(tile);
    EXPECT_EQ(memory, coded.memory);
  }
}

TEST(Nuq, DamagedIndicesWriteNothingOutside) {
  PartCoding coding = Coding(CodecId::kNuqChannel, 4, 50);
  std::vector<float> x(200, 0.5f);
  Coded coded = Code(coding, x, 100, 2);
  TileMemory damaged = coded.memory;
  for (size_t i = 0; i < damaged.runs[0].size(); i += 4) StoreLe<uint16_t>(damaged.runs[0].data() + i, 65535);
  std::vector<float> values = Decode(coding, damaged, 100, 2, 1);
  EXPECT_NE(values, coded.values);
  for (float value : values) EXPECT_TRUE(std::isfinite(value));
}

TEST(Nuq, EqualDistancesGoToTheLowerLevel) {
  PartCoding coding = Coding(CodecId::kNuqChannel, 2, 0);
  const float levels[] = {-1, -0.5f, 0.5f, 1};
  ModelData model{.levels = levels, .decoded = levels};
  nuq::Thresholds thresholds(model, coding);
  EXPECT_EQ(nuq::CodeOf(-0.75f, thresholds), 0);
  EXPECT_EQ(nuq::CodeOf(0.0f, thresholds), 1);
  EXPECT_EQ(nuq::CodeOf(0.75f, thresholds), 2);
  EXPECT_EQ(nuq::CodeOf(0.76f, thresholds), 3);
  EXPECT_EQ(nuq::CodeOf(NAN, thresholds), 0);
}

// The worked bytes of the format's page.
TEST(Nuq, WorkedBytes) {
  const float levels[] = {-1, -0.5f, 0.5f, 1}, x[] = {1, -8, 0.5f, -1}, mean[] = {0, 0, 0, 0},
              half[] = {.5f, .5f, .5f, .5f};
  struct Row {
    CodecId id;
    std::vector<uint8_t> meta, codes;
  };
  for (const Row& worked : {Row{CodecId::kNuqChannel, {1, 0, 0, 0xC8}, {0x62}},
                            Row{CodecId::kNuqToken, {0x80, 0xC3, 0x40, 0x44, 0, 0, 0, 0x3C}, {0xB3}}}) {
    PartCoding coding = Coding(worked.id, 2, 10);
    const CodecRow& row = *FindCodec(worked.id);
    TileMemory memory(row, coding, DType::kFp16, 4, 1);
    EncodeTile tile{.coding = &coding,
                    .width = 4,
                    .tokens = 1,
                    .in = DType::kFp32,
                    .source = reinterpret_cast<const uint8_t*>(x),
                    .transform = {mean, half, half, 1},
                    .model = {.levels = levels, .decoded = levels}};
    memory.Attach(&tile);
    row.encode(tile);
    EXPECT_EQ(memory.runs[0], worked.meta);
    EXPECT_EQ(memory.runs[5], worked.codes);
  }
}

TEST(Nuq, WhatIsTakenDoesNotDependOnHow) {
  std::mt19937_64 rng(9);
  for (uint32_t size : {1u, 7u, 100u, 5000u}) {
    std::vector<uint32_t> keys(size);
    for (uint32_t& key : keys) key = static_cast<uint32_t>(rng() % 50 + 1);
    uint32_t count = std::max(1u, size / 3);
    std::vector<uint32_t> one = keys, other = keys, taken(count), expected;
    nuq::TakeLargest(one.data(), size, count, taken.data());
    for (uint32_t i = 0; i < count; ++i) {
      auto at = std::max_element(other.begin(), other.end());
      expected.push_back(static_cast<uint32_t>(at - other.begin()));
      *at = 0;
    }
    std::sort(taken.begin(), taken.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(taken, expected);
    EXPECT_EQ(one, other);
  }
}

// A token of 4,096 values has 205 outliers: more than are looked for one by one.
TEST(Nuq, LongVectorsMatchTheReference) {
  std::mt19937_64 rng(4);
  std::normal_distribution<float> normal;
  std::vector<float> x(4096 * 2);
  for (float& value : x) value = std::round(normal(rng) * 8) / 8;
  for (MetaType type : {MetaType::kFp16, MetaType::kFp32}) {
    PartCoding coding = Coding(CodecId::kNuqToken, 4, 50, type);
    Coded coded = Code(coding, x, 512, 2, 8);
    const CodecRow& row = *FindCodec(CodecId::kNuqToken);
    TestModel model(coding);
    TileMemory memory(row, coding, DType::kFp16, 512, 2, 8);
    EncodeTile tile{.coding = &coding,
                    .width = 512,
                    .tokens = 2,
                    .heads = 8,
                    .in = DType::kFp32,
                    .source = reinterpret_cast<const uint8_t*>(x.data()),
                    .transform = {},
                    .model = model.view()};
    memory.Attach(&tile);
    row.encode_reference(tile);
    EXPECT_EQ(memory, coded.memory);
  }
  // Vectors of more than 65,536 values have wider indices.
  EXPECT_EQ(nuq::IndexBytes(65536), 2u);
  EXPECT_EQ(nuq::IndexBytes(65537), 4u);
  std::vector<float> wide(70000, 0.25f);
  wide[69999] = 9, wide[2] = -8;
  PartCoding coding = Coding(CodecId::kNuqChannel, 2, 1);
  Coded coded = Code(coding, wide, 70000, 1);
  EXPECT_EQ(coded.memory.runs[0].size(), 70 * 6u);
  EXPECT_EQ(coded.values[69999], 9);
  EXPECT_EQ(coded.values[2], -8);
}

std::vector<nuq::Sample> Sorted(std::vector<nuq::Sample> samples) {
  std::sort(samples.begin(), samples.end(), [](auto& a, auto& b) { return a.value < b.value; });
  return samples;
}

TEST(NuqLevels, NeverCostMoreThanTheUniformGrid) {
  std::mt19937_64 rng(8);
  std::normal_distribution<double> normal;
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<nuq::Sample> samples;
    size_t count = trial < 5 ? trial : 1 + rng() % 3000;
    double spread = std::pow(2.0, static_cast<double>(rng() % 8) - 6), shift = normal(rng) * 0.3;
    bool coarse = trial % 4 == 0, weighted = trial % 3 == 0;
    for (size_t i = 0; i < count; ++i) {
      double x = std::clamp(normal(rng) * spread + shift, -1.0, 1.0);
      if (coarse) x = std::round(x * 3) / 3;
      samples.push_back({x, weighted ? std::exp(normal(rng) * 3) : 1});
    }
    if (trial % 7 == 0) {
      for (auto& sample : samples) sample.weight = 0;
    }
    samples = Sorted(samples);
    for (uint32_t bits : {2u, 3u, 4u}) {
      std::vector<float> levels = nuq::FitLevels(samples, bits);
      ASSERT_EQ(levels.size(), size_t{1} << bits);
      for (size_t i = 1; i < levels.size(); ++i) ASSERT_LT(levels[i - 1], levels[i]) << trial;
      for (bool with_ends : {true, false}) {
        EXPECT_LE(nuq::LevelCost(samples, levels), nuq::LevelCost(samples, nuq::UniformLevels(bits, with_ends)));
      }
      EXPECT_EQ(levels, nuq::FitLevels(samples, bits));
    }
  }
}

TEST(NuqLevels, FindClustersAndFollowWeights) {
  std::vector<nuq::Sample> samples;
  for (int i = 0; i < 400; ++i) {
    const double centres[] = {-0.9, -0.1, 0.2, 0.7};
    samples.push_back({centres[i % 4] + (i % 5 - 2) * 0.01, 1});
  }
  std::vector<float> levels = nuq::FitLevels(Sorted(samples), 2);
  EXPECT_NEAR(levels[0], -0.9, 1e-3);
  EXPECT_NEAR(levels[1], -0.1, 1e-3);
  EXPECT_NEAR(levels[2], 0.2, 1e-3);
  EXPECT_NEAR(levels[3], 0.7, 1e-3);
  // Weight moves a level to where errors count.
  for (auto& sample : samples) sample.weight = sample.value > 0.705 ? 1000 : 1;
  EXPECT_GT(nuq::FitLevels(Sorted(samples), 2)[3], 0.709f);
}

struct Tokens {
  uint32_t count, heads, width;
  std::vector<float> values;
};
Tokens MakeTokens(uint64_t seed) {
  Tokens tokens{3000, 2, 24, {}};
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  for (uint32_t i = 0; i < tokens.count * 48; ++i) {
    uint32_t c = i % 48;
    tokens.values.push_back(normal(rng) * (c % 5 == 0 ? 8.0f : 1.0f) + static_cast<float>(c % 3));
  }
  return tokens;
}

TEST(NuqCalibration, OneCallOrFortyGiveTheSameSections) {
  Tokens tokens = MakeTokens(1);
  for (Part part : kParts) {
    NuqOptions options{.layers = 1, .heads = 2, .width = 24, .part = part, .tokens_max = 512};
    auto whole = *NuqCalibrator::Create(options), pieces = whole;
    ASSERT_TRUE(whole.Add(0, tokens.count, tokens.values, {}).ok());
    for (uint32_t t = 0; t < tokens.count; t += 75) {
      ASSERT_TRUE(pieces.Add(0, 75, std::span(tokens.values).subspan(t * 48, 75 * 48), {}).ok());
    }
    ArtifactSections a = *whole.Finish(), b = *pieces.Finish();
    EXPECT_EQ(a, b);
    EXPECT_EQ(a.centre.empty(), part == Part::kV);
    EXPECT_EQ(a.codebooks.size(), 3u);
    EXPECT_TRUE(Artifact::Create(a).ok());
  }
}

TEST(NuqCalibration, ChannelsGetTheirPercentiles) {
  Tokens tokens = MakeTokens(2);
  auto calibrator = *NuqCalibrator::Create({.layers = 1, .heads = 2, .width = 24, .tokens_max = 4096});
  ASSERT_TRUE(calibrator.Add(0, tokens.count, tokens.values, {}).ok());
  ArtifactSections sections = *calibrator.Finish();
  for (uint32_t c = 0; c < 48; ++c) {
    float size = c % 5 == 0 ? 8.0f : 1.0f;
    EXPECT_NEAR(sections.centre[c], static_cast<float>(c % 3), 0.25f * size);
    EXPECT_NEAR(sections.reach[c], 2.576f * size, 0.3f * size);  // 99.5 % of a normal distribution.
    uint32_t beyond = 0;
    for (uint32_t t = 0; t < tokens.count; ++t) {
      beyond += std::fabs(tokens.values[t * 48 + c] - sections.centre[c]) > sections.reach[c] * 1.0001f;
    }
    EXPECT_NEAR(beyond, 30, 2);
  }
}

TEST(NuqCalibration, QNormBringsMeanAndDeviationBack) {
  Tokens tokens = MakeTokens(3);
  std::span<const float> values = std::span(tokens.values).first(2000 * 48);
  NuqOptions options{.layers = 1, .heads = 2, .width = 24, .bits = {2}, .q_norm = true};
  auto calibrator = *NuqCalibrator::Create(options);
  ASSERT_TRUE(calibrator.Add(0, 2000, values, {}).ok());
  ArtifactSections sections = *calibrator.Finish();
  const Codebook& book = sections.codebooks[0];
  nuq::Thresholds thresholds({.levels = book.levels.data(), .decoded = nullptr}, Coding(CodecId::kNuqChannel, 2, 0));
  struct Moments {
    double sum = 0, squares = 0, count = 0;
    void Add(double x) { sum += x, squares += x * x, ++count; }
    double Mean() const { return sum / count; }
    double Deviation() const { return std::sqrt(squares / count - Mean() * Mean()); }
  } before, by_levels, decoded;
  for (size_t i = 0; i < values.size(); ++i) {
    float a = (values[i] - sections.centre[i % 48]) / sections.reach[i % 48];
    if (std::fabs(a) > 1) continue;
    uint8_t code = nuq::CodeOf(a, thresholds);
    before.Add(a), by_levels.Add(book.levels[code]), decoded.Add(book.decoded[code]);
  }
  EXPECT_NEAR(decoded.Mean(), before.Mean(), 1e-4);
  EXPECT_NEAR(decoded.Deviation(), before.Deviation(), 1e-4);
  // Means of what is nearest to them shrink the spread.
  EXPECT_LT(by_levels.Deviation(), 0.98 * before.Deviation());
  options.q_norm = false;
  auto plain = *NuqCalibrator::Create(options);
  ASSERT_TRUE(plain.Add(0, 2000, values, {}).ok());
  EXPECT_EQ(plain.Finish()->codebooks[0].decoded, book.levels);
}

TEST(NuqCalibration, WhatMeansNothingIsRefused) {
  auto code = [](NuqOptions options) { return NuqCalibrator::Create(std::move(options)).status().code(); };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code({.layers = 0, .heads = 1, .width = 1}), kInvalid);
  EXPECT_EQ(code({.layers = 1, .heads = 1, .width = 1, .outliers = 51}), kInvalid);
  EXPECT_EQ(code({.layers = 1, .heads = 1, .width = 1, .bits = {5}}), kInvalid);
  EXPECT_EQ(code({.layers = 1, .heads = 1, .width = 1, .bits = {3, 3}}), kInvalid);
  EXPECT_EQ(code({.layers = 1, .heads = 1, .width = 1, .bits = {}}), kInvalid);
  EXPECT_EQ(code({.layers = 1, .heads = 1, .width = 1, .tokens_max = 3}), kInvalid);
  auto calibrator = *NuqCalibrator::Create({.layers = 1, .heads = 1, .width = 2});
  EXPECT_EQ(calibrator.Finish().status().code(), absl::StatusCode::kFailedPrecondition);
  const float values[] = {1, 2, NAN, 4}, good[] = {1, 2, 3, 4}, negative[] = {1, -1, 1, 1};
  EXPECT_EQ(calibrator.Add(0, 2, values, {}).code(), kInvalid);
  EXPECT_EQ(calibrator.Add(1, 2, good, {}).code(), kInvalid);
  EXPECT_EQ(calibrator.Add(0, 1, good, {}).code(), kInvalid);
  EXPECT_EQ(calibrator.Add(0, 2, good, negative).code(), kInvalid);
  EXPECT_TRUE(calibrator.Add(0, 2, good, good).ok());
  EXPECT_EQ(calibrator.Add(0, 2, good, {}).code(), kInvalid);
  EXPECT_TRUE(calibrator.Finish().ok());
}

// Constant channels and tokens give an artifact that is valid and that brings them back.
TEST(NuqCalibration, ConstantChannelsHaveAReach) {
  std::vector<float> values(100 * 4);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = i % 4 == 0 ? 0.0f : i % 4 == 1 ? 7.0f : static_cast<float>(i % 9);
  for (Part part : kParts) {
    auto calibrator = *NuqCalibrator::Create({.layers = 1, .heads = 1, .width = 4, .part = part});
    ASSERT_TRUE(calibrator.Add(0, 100, values, {}).ok());
    EXPECT_TRUE(Artifact::Create(*calibrator.Finish()).ok());
  }
}

}  // namespace
}  // namespace firn
