// Surveys of made-up windows: against blocks coded by hand, and whatever the number of threads.

#include "codecs/allocate/class_survey.h"

#include <cmath>
#include <random>

#include "codecs/block_test_util.h"

namespace firn {
namespace {

constexpr PrecisionClass k8 = PrecisionClass::k8Bit, k4 = PrecisionClass::k4Bit, k3 = PrecisionClass::k3Bit,
                         k2 = PrecisionClass::k2Bit;

// Values that FP16 has, so that what is stored is what was given.
struct Made {
  std::vector<float> q, k, v, k_grad, v_grad;
  SurveyWindow window;
};

Made Make(uint64_t seed, uint32_t tokens, uint32_t kv_heads, uint32_t query_heads, uint32_t k_width, uint32_t v_width) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  auto fill = [&](uint64_t count) {
    std::vector<float> out(count);
    for (float& value : out) value = std::nearbyint(normal(rng) * 256) / 256;
    return out;
  };
  Made made{.q = fill(uint64_t{tokens} * query_heads * k_width),
            .k = fill(uint64_t{tokens} * kv_heads * k_width),
            .v = fill(uint64_t{tokens} * kv_heads * v_width),
            .k_grad = fill(uint64_t{tokens} * kv_heads * k_width),
            .v_grad = fill(uint64_t{tokens} * kv_heads * v_width),
            .window = {}};
  made.window = {.tokens = tokens,
                 .kv_heads = kv_heads,
                 .query_heads = query_heads,
                 .k_width = k_width,
                 .v_width = v_width,
                 .queries = made.q,
                 .keys = made.k,
                 .values = made.v,
                 .key_gradients = made.k_grad,
                 .value_gradients = made.v_grad,
                 .output_gram = {}};
  return made;
}

SurveyOptions LadderOptions() {
  SurveyOptions options;
  options.code.classes = {k8, k4, k2};
  options.attention = {.exact_first = 4, .exact_recent = 8, .queries_max = 16};
  return options;
}

std::vector<float> Canonical(const Made& m, Part part) {
  const SurveyWindow& w = m.window;
  uint32_t width = part == Part::kK ? w.k_width : w.v_width;
  const std::vector<float>& values = part == Part::kK ? m.k : m.v;
  std::vector<float> out;
  for (uint32_t h = 0; h < w.kv_heads; ++h) {
    for (uint32_t t = 0; t < w.tokens; ++t) {
      auto at = values.begin() + static_cast<ptrdiff_t>((uint64_t{t} * w.kv_heads + h) * width);
      out.insert(out.end(), at, at + width);
    }
  }
  return out;
}

// One block of the whole window, coded at one class: what a survey with blocks that long must have seen.
DecodedBlock CodedAt(const Made& m, const EncodeSpec& given, PrecisionClass c) {
  const SurveyWindow& w = m.window;
  RawBlock raw{
      .dtype = DType::kFp16,
      .shape = {.layers = 1, .heads = w.kv_heads, .k_width = w.k_width, .v_width = w.v_width, .tokens = w.tokens}};
  for (Part part : kParts) {
    std::vector<float> values = Canonical(m, part);
    raw.part(part).resize(values.size() * 2);
    for (uint64_t i = 0; i < values.size(); ++i) raw.Set(part, i, values[i]);
  }
  EncodeSpec spec = given;
  spec.target = {c, c};
  TestArtifacts artifacts;
  return *DecodeFloats(*EncodeToHeap(raw.Wrap(), spec, artifacts), artifacts);
}

TEST(ClassSurvey, SeesWhatTheCodecDoes) {
  Made made = Make(1, 96, 2, 6, 64, 32);
  SurveyOptions options = LadderOptions();
  options.block_tokens = 96;
  auto survey = SurveyClasses(made.window, options);
  ASSERT_TRUE(survey.ok()) << survey.status();
  EXPECT_EQ(survey->outputs, 16u * 3);
  EXPECT_EQ(survey->gradient_tokens, 96u);
  EncodeSpec spec;
  spec.keep_first_tokens = 4;
  for (size_t c = 0; c < 3; ++c) {
    DecodedBlock decoded = CodedAt(made, spec, options.code.classes[c]);
    for (uint32_t head = 0; head < 2; ++head) {
      AttentionWindow window{.tokens = 96,
                             .group = 3,
                             .k_width = 64,
                             .v_width = 32,
                             .queries = {made.q.data() + head * 3 * 64, 6 * 64},
                             .keys = {made.k.data() + head * 64, 2 * 64},
                             .values = {made.v.data() + head * 32, 2 * 32},
                             .scale = 0.125};
      AttentionMeasure measure(window, options.attention);
      for (Part part : kParts) {
        uint32_t width = part == Part::kK ? 64 : 32;
        TokenRows rows{decoded.part(part).data() + uint64_t{head} * 96 * width, width};
        AttentionErrors expected = part == Part::kK ? measure.OfKeys(rows) : measure.OfValues(rows);
        const HeadErrors& errors = survey->errors[static_cast<size_t>(part)][c * 2 + head];
        EXPECT_EQ(errors.output, expected.output);
        EXPECT_EQ(errors.attention, expected.attention);
        std::vector<float> exact = Canonical(made, part);
        const std::vector<float>& gradients = part == Part::kK ? made.k_grad : made.v_grad;
        double fisher = 0;
        for (uint32_t t = 0; t < 96; ++t) {
          for (uint32_t i = 0; i < width; ++i) {
            uint64_t at = (uint64_t{head} * 96 + t) * width + i;
            double d = gradients[(uint64_t{t} * 2 + head) * width + i] * (double{decoded.part(part)[at]} - exact[at]);
            fisher += d * d;
          }
        }
        EXPECT_NEAR(errors.gradient, fisher, 1e-9 * fisher);
      }
      EXPECT_EQ(survey->output_norm[head], measure.output_norm());
    }
  }
}

TEST(ClassSurvey, FinerClassesLeaveLessAndCostMore) {
  Made made = Make(2, 192, 2, 4, 128, 128);
  for (Ladder ladder : {Ladder::kMinMax, Ladder::kGain, Ladder::kTrellis}) {
    SurveyOptions options = LadderOptions();
    options.code.spec.ladder = ladder;
    options.code.spec.key_method = KeyMethod::kRotated;
    auto survey = SurveyClasses(made.window, options);
    ASSERT_TRUE(survey.ok()) << survey.status();
    uint64_t meta = ladder == Ladder::kMinMax ? 4 : 3;  // Of a token: scale and minimum, or the gain's three bytes.
    for (size_t p : {0, 1}) {
      EXPECT_EQ(survey->head_bytes[p], (std::vector<uint64_t>{64 * (128 + meta), 64 * (64 + meta), 64 * (32 + meta)}));
      for (uint32_t head = 0; head < 2; ++head) {
        const auto& errors = survey->errors[p];
        EXPECT_LT(errors[head].output, errors[2 + head].output * 0.05);
        EXPECT_LT(errors[2 + head].output, errors[4 + head].output * 0.3);
        EXPECT_GT(errors[head].output, 0);
      }
    }
  }
}

TEST(ClassSurvey, IntegersHaveThreeBitsToo) {
  Made made = Make(3, 128, 2, 2, 64, 64);
  SurveyOptions options = LadderOptions();
  options.code.classes = {k8, k4, k3, k2};
  options.code.coding = {PartCoding{.codec = CodecId::kIntChannel, .group = 32},
                         PartCoding{.codec = CodecId::kIntToken, .group = 32}};
  auto survey = SurveyClasses(made.window, options);
  ASSERT_TRUE(survey.ok()) << survey.status();
  for (size_t p : {0, 1}) {
    uint64_t meta = 64 * 64 / 32 * 4, codes = 64 * 64 / 8;
    EXPECT_EQ(survey->head_bytes[p],
              (std::vector<uint64_t>{meta + 8 * codes, meta + 4 * codes, meta + 3 * codes, meta + 2 * codes}));
    for (size_t c = 0; c + 1 < 4; ++c) EXPECT_LT(survey->errors[p][c * 2].output, survey->errors[p][c * 2 + 2].output);
  }
}

TEST(ClassSurvey, ThreadsChangeNothing) {
  Made made = Make(4, 150, 3, 6, 32, 48);
  SurveyOptions options = LadderOptions();
  auto one = SurveyClasses(made.window, options);
  ASSERT_TRUE(one.ok()) << one.status();
  for (uint32_t threads : {2, 3, 8}) {
    options.threads = threads;
    auto many = SurveyClasses(made.window, options);
    ASSERT_TRUE(many.ok());
    EXPECT_TRUE(*many == *one) << threads << " threads";
  }
}

TEST(ClassSurvey, WindowsAddUp) {
  SurveyOptions options = LadderOptions();
  Made a = Make(5, 128, 2, 2, 32, 32), b = Make(6, 128, 2, 2, 32, 32);
  LayerErrors sum;
  auto first = SurveyClasses(a.window, options), second = SurveyClasses(b.window, options);
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_TRUE(sum.Add(*first).ok());
  ASSERT_TRUE(sum.Add(*second).ok());
  EXPECT_EQ(sum.outputs, first->outputs + second->outputs);
  EXPECT_EQ(sum.errors[1][3].output, first->errors[1][3].output + second->errors[1][3].output);
  LayerErrors other = *first;
  other.heads = 1;
  EXPECT_EQ(sum.Add(other).code(), absl::StatusCode::kInvalidArgument);
}

TEST(ClassSurvey, WrongWindowsAreRefused) {
  SurveyOptions options = LadderOptions();
  auto message = [&](const Made& made) { return std::string(SurveyClasses(made.window, options).status().message()); };
  Made made = Make(7, 64, 2, 2, 32, 32);
  made.window.tokens = 1;
  EXPECT_EQ(message(made), "a window of 1 tokens, 2 to 16384");
  made.window.tokens = 63;
  EXPECT_EQ(message(made), "4096 values of queries, 4032 expected");
  made.window.tokens = 64;
  made.window.query_heads = 3;
  EXPECT_EQ(message(made), "3 query heads do not divide among 2 KV heads");
  made.window.query_heads = 2;
  made.k[5] = NAN;
  EXPECT_EQ(message(made), "value 5 of the keys is nan");
  made.k[5] = 0;
  options.code.spec.key_method = KeyMethod::kBalancedRotated;
  EXPECT_EQ(message(made), "balanced keys need an artifact, none is given");
}

TEST(ClassSurvey, ALayerOfAnArtifact) {
  ArtifactSections all;
  all.layers = 3, all.heads = 2, all.width = 4;
  for (int i = 0; i < 24; ++i) {
    all.mean.push_back(static_cast<float>(i)), all.weight.push_back(1 + static_cast<float>(i));
    all.centre.push_back(static_cast<float>(-i)), all.reach.push_back(2 + static_cast<float>(i));
  }
  for (int i = 0; i < 6; ++i) all.scales.push_back(1 + static_cast<float>(i));
  Codebook book{.bits = 2, .levels = {}, .decoded = {}};
  for (int layer = 0; layer < 3; ++layer) {
    for (int i = 0; i < 4; ++i) {
      book.levels.push_back(static_cast<float>(layer * 10 + i));
      book.decoded.push_back(static_cast<float>(layer * 10 + i) + 0.5f);
    }
  }
  all.codebooks = {book};
  all.rope = {.interleaved = true, .frequencies = {1, 0.5}};
  auto artifact = Artifact::Create(all);
  ASSERT_TRUE(artifact.ok()) << artifact.status();
  auto one = ArtifactOfLayer(**artifact, 1);
  ASSERT_TRUE(one.ok()) << one.status();
  for (uint32_t head = 0; head < 2; ++head) {
    auto same = [](std::span<const float> a, std::span<const float> b) {
      return std::equal(a.begin(), a.end(), b.begin(), b.end());
    };
    EXPECT_TRUE(same((*one)->Mean(0, head), (*artifact)->Mean(1, head)));
    EXPECT_TRUE(same((*one)->Weight(0, head), (*artifact)->Weight(1, head)));
    EXPECT_TRUE(same((*one)->Centre(0, head), (*artifact)->Centre(1, head)));
    EXPECT_TRUE(same((*one)->Reach(0, head), (*artifact)->Reach(1, head)));
    EXPECT_EQ((*one)->Scale(0, head), (*artifact)->Scale(1, head));
  }
  EXPECT_EQ((*one)->FindCodebook(2)->decoded, (std::vector<float>{10.5, 11.5, 12.5, 13.5}));
  EXPECT_EQ((*one)->sections().rope, all.rope);
  EXPECT_EQ(ArtifactOfLayer(**artifact, 3).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace firn
