// Calibrations of made-up captures: stopped and gone on with, on any number of threads, from either kind of file.

#include "client/cli/calibrate/calibration.h"

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include "codecs/calibrate.h"
#include "codecs/rope/rope_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace firn::cli {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kTokens = 96, kHeads = 2, kQueryHeads = 4, kWidth = 64;
constexpr uint32_t kLayers[] = {0, 2, 5};

// Tensors of one capture, and the bytes they view.
struct MadeCapture {
  std::vector<std::unique_ptr<std::vector<float>>> values;
  std::vector<Tensor> tensors;
  void Add(const std::string& name, std::vector<uint64_t> shape, std::vector<float> data) {
    values.push_back(std::make_unique<std::vector<float>>(std::move(data)));
    const auto& kept = *values.back();
    tensors.push_back({name,
                       ElementType::kF32,
                       std::move(shape),
                       {reinterpret_cast<const uint8_t*>(kept.data()), kept.size() * sizeof(float)}});
  }
};

Rope TestRope() {
  Rope rope;
  for (uint32_t i = 0; i < kWidth / 2; ++i) rope.frequencies.push_back(std::pow(10000.0, -2.0 * i / kWidth));
  return rope;
}

std::vector<float> Turned(std::vector<float> rows) {
  RopeTable table(TestRope(), 0, kTokens);
  float* row = rows.data();
  for (uint32_t t = 0; t < kTokens; ++t) {
    for (uint64_t h = 0; h < kHeads; ++h, row += kWidth) {
      for (uint32_t i = 0; i < kWidth / 2; ++i) {
        float a = row[i], b = row[i + kWidth / 2], c = table.Cosines(t)[i], s = table.Sines(t)[i];
        row[i] = a * c - b * s;
        row[i + kWidth / 2] = b * c + a * s;
      }
    }
  }
  return rows;
}

struct What {
  bool pre_rope = true, gradients = false, queries = true, o_proj = false;
};

MadeCapture Make(uint64_t seed, const What& what = {}) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  auto random = [&](uint64_t count) {
    std::vector<float> out(count);
    for (float& value : out) value = normal(rng);
    return out;
  };
  MadeCapture made;
  for (uint32_t layer : kLayers) {
    auto name = [&](const char* suffix) { return "model.layers." + std::to_string(layer) + "." + suffix; };
    std::vector<float> before = random(kTokens * kHeads * kWidth);
    for (size_t i = 0; i < before.size(); ++i) before[i] = before[i] * (i % kWidth == 3 ? 8.0f : 1.0f) + (i % 7);
    made.Add(name("k"), {kTokens, kHeads, kWidth}, Turned(before));
    if (what.pre_rope) made.Add(name("k_pre_rope"), {kTokens, kHeads, kWidth}, before);
    made.Add(name("v"), {kTokens, kHeads, kWidth}, random(kTokens * kHeads * kWidth));
    if (what.queries) made.Add(name("q"), {kTokens, kQueryHeads, kWidth}, random(kTokens * kQueryHeads * kWidth));
    if (what.gradients) {
      made.Add(name("k_grad"), {kTokens, kHeads, kWidth}, random(kTokens * kHeads * kWidth));
      made.Add(name("v_grad"), {kTokens, kHeads, kWidth}, random(kTokens * kHeads * kWidth));
    }
    if (what.o_proj) made.Add(name("o_proj"), {32, kQueryHeads * kWidth}, random(32 * kQueryHeads * kWidth));
  }
  return made;
}

class CalibrationTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/calibration.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::string File(const std::string& name, const MadeCapture& made) const {
    EXPECT_TRUE(WriteSafetensors(Path(name), made.tensors, {}).ok());
    return Path(name);
  }
  static std::vector<Capture> OpenAll(const std::vector<std::string>& paths) {
    std::vector<Capture> captures;
    for (const std::string& path : paths) {
      auto capture = Capture::Open(path);
      EXPECT_TRUE(capture.ok()) << capture.status();
      if (capture.ok()) captures.push_back(*std::move(capture));
    }
    return captures;
  }
  std::vector<Capture> TwoCaptures(const What& what = {}) const {
    return OpenAll({File("a.safetensors", Make(1, what)), File("b.safetensors", Make(2, what))});
  }
  static CalibrationSettings Settings() {
    CalibrationSettings settings;
    settings.keys = {.balance = true, .codebooks = true, .scales = true};
    settings.values = {.balance = false, .codebooks = true, .scales = true};
    settings.codebook_bits = {2, 3};
    settings.rope = TestRope();
    settings.survey = true;
    settings.window_tokens = 80, settings.queries = 8, settings.exact_recent = 8;
    return settings;
  }
  static std::string Bytes(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void ExpectSame(const CalibrationResult& a, const CalibrationResult& b) {
    EXPECT_EQ(a.layers, b.layers);
    EXPECT_TRUE(a.results == b.results);
    EXPECT_EQ((*a.Keys())->serialized(), (*b.Keys())->serialized());
    EXPECT_EQ((*a.Values())->serialized(), (*b.Values())->serialized());
  }

  std::string folder_;
};

TEST_F(CalibrationTest, StoppedAnywhereItEndsTheSame) {
  std::vector<Capture> captures = TwoCaptures();
  auto whole = Calibrate(captures, {.settings = Settings(), .state_path = Path("whole.state")});
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->layers_resumed, 0u);
  for (size_t stop = 1; stop <= 3; ++stop) {
    SCOPED_TRACE(stop);
    std::string state = Path("stopped" + std::to_string(stop) + ".state");
    CalibrationRun run{.settings = Settings(), .state_path = state};
    run.progress = [&](size_t done, size_t all) {
      EXPECT_EQ(all, 3u);
      return done < stop;
    };
    EXPECT_EQ(Calibrate(captures, run).status().code(), absl::StatusCode::kCancelled);
    run.progress = {};
    auto resumed = Calibrate(captures, run);
    ASSERT_TRUE(resumed.ok()) << resumed.status();
    EXPECT_EQ(resumed->layers_resumed, stop);
    ExpectSame(*resumed, *whole);
    EXPECT_EQ(Bytes(state), Bytes(Path("whole.state")));
  }
}

TEST_F(CalibrationTest, ThreadsChangeNothing) {
  std::vector<Capture> captures = TwoCaptures({.pre_rope = true, .gradients = false, .queries = true, .o_proj = true});
  auto one = Calibrate(captures, {.settings = Settings(), .state_path = {}});
  ASSERT_TRUE(one.ok()) << one.status();
  CalibrationSettings settings = Settings();
  settings.threads = 5;
  auto many = Calibrate(captures, {.settings = settings, .state_path = {}});
  ASSERT_TRUE(many.ok());
  ExpectSame(*one, *many);
}

TEST_F(CalibrationTest, ADirectoryOfNpyFilesIsACaptureToo) {
  MadeCapture made = Make(1);
  auto from_file = Calibrate(OpenAll({File("a.safetensors", made)}), {.settings = Settings(), .state_path = {}});
  std::filesystem::create_directory(Path("npy"));
  for (const Tensor& tensor : made.tensors) ASSERT_TRUE(WriteNpy(Path("npy/" + tensor.name + ".npy"), tensor).ok());
  std::ofstream(Path("npy/notes.txt")) << "not a tensor";
  auto from_folder = Calibrate(OpenAll({Path("npy")}), {.settings = Settings(), .state_path = {}});
  ASSERT_TRUE(from_file.ok() && from_folder.ok()) << from_file.status() << from_folder.status();
  ExpectSame(*from_file, *from_folder);
}

TEST_F(CalibrationTest, AStateOfSomethingElseIsRefused) {
  std::vector<Capture> captures = TwoCaptures();
  CalibrationRun run{.settings = Settings(), .state_path = Path("state")};
  ASSERT_TRUE(Calibrate(captures, run).ok());
  auto message = [&](const std::vector<Capture>& given, const CalibrationRun& with) {
    absl::Status status = Calibrate(given, with).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  CalibrationRun other = run;
  other.settings.outliers = 7;
  EXPECT_THAT(message(captures, other), HasSubstr("was made with other options: --outliers 10, now 7. Give the same"));
  other = run;
  other.settings.threads = 3;
  EXPECT_TRUE(Calibrate(captures, other).ok()) << "threads are no setting";
  EXPECT_THAT(message(OpenAll({Path("a.safetensors")}), run), HasSubstr("was made of 2 captures; 1 are given"));
  EXPECT_THAT(message(OpenAll({Path("a.safetensors"), File("c.safetensors", Make(3))}), run),
              HasSubstr("capture 2 is not the one it was made of"));

  std::string good = Bytes(Path("state"));
  std::mt19937_64 rng(9);
  for (int i = 0; i < 200; ++i) {
    std::string bad = good;
    bad[rng() % bad.size()] ^= static_cast<char>(1 + rng() % 255);
    if (i % 4 == 0) bad.resize(rng() % bad.size());
    std::ofstream(Path("state"), std::ios::binary) << bad;
    EXPECT_FALSE(ReadState(Path("state")).ok()) << "seed 9, damage " << i;
  }
}

TEST_F(CalibrationTest, SectionsAreWhatTheCalibratorsMeasure) {
  std::vector<Capture> captures = TwoCaptures();
  CalibrationSettings settings = Settings();
  auto result = Calibrate(captures, {.settings = settings, .state_path = {}});
  ASSERT_TRUE(result.ok()) << result.status();
  const ArtifactSections keys = (*result->Keys())->sections(), values = (*result->Values())->sections();
  KeyCalibrator all = *KeyCalibrator::Create(3, kHeads, kQueryHeads, kWidth);
  std::vector<float> most(3 * kHeads);
  for (const Capture& capture : captures) {
    uint32_t index = 0;
    for (const auto& [layer, tensors] : capture.layers()) {
      std::vector<float> k = *ToFloats(*tensors.k);
      ASSERT_TRUE(all.Add(index, kTokens, k, *ToFloats(*tensors.q)).ok());
      for (size_t i = 0; i < k.size(); ++i) {
        float& largest = most[index * kHeads + i / kWidth % kHeads];
        largest = std::max(largest, std::fabs(k[i]));
      }
      ++index;
    }
  }
  EXPECT_EQ(keys.mean, (*all.Finish())->sections().mean);
  EXPECT_EQ(keys.weight, (*all.Finish())->sections().weight);
  for (size_t i = 0; i < most.size(); ++i) EXPECT_EQ(keys.scales[i], most[i] / 448);
  EXPECT_EQ(keys.rope, TestRope());
  EXPECT_EQ(keys.centre.size(), 3 * kHeads * kWidth);
  ASSERT_EQ(keys.codebooks.size(), 2u);
  EXPECT_EQ(keys.codebooks[1].levels.size(), 3u * 8);
  EXPECT_TRUE(values.centre.empty() && values.mean.empty() && values.rope.frequencies.empty());
  EXPECT_EQ(values.codebooks.size(), 2u);
  EXPECT_EQ(values.scales.size(), 3 * kHeads);
  EXPECT_EQ(result->results[0].tokens, 2 * kTokens);
  for (const LayerResult& layer : result->results) {
    for (size_t p : {0, 1}) {
      EXPECT_GT(layer.errors.errors[p][2 * kHeads].output, layer.errors.errors[p][kHeads].output);
    }
  }
}

TEST_F(CalibrationTest, TheRotaryEmbeddingIsTakenBack) {
  CalibrationSettings settings = Settings();
  settings.survey = false;
  auto before = Calibrate(TwoCaptures(), {.settings = settings, .state_path = {}});
  auto after = Calibrate(TwoCaptures({.pre_rope = false, .gradients = false, .queries = true, .o_proj = false}),
                         {.settings = settings, .state_path = {}});
  ASSERT_TRUE(before.ok() && after.ok()) << before.status() << after.status();
  std::vector<float> expected = (*before->Keys())->sections().centre, got = (*after->Keys())->sections().centre;
  std::vector<float> expected_reach = (*before->Keys())->sections().reach, reach = (*after->Keys())->sections().reach;
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(got[i], expected[i], 1e-4);
    EXPECT_NEAR(reach[i], expected_reach[i], 1e-4);
  }
  settings.rope = {};
  auto unknown = Calibrate(TwoCaptures({.pre_rope = false, .gradients = false, .queries = true, .o_proj = false}),
                           {.settings = settings, .state_path = {}});
  EXPECT_THAT(std::string(unknown.status().message()), HasSubstr("layer 0 has no k_pre_rope"));
  EXPECT_THAT(std::string(unknown.status().message()), HasSubstr("--rope-base"));
}

TEST_F(CalibrationTest, GradientsWeighCodebooksAndErrors) {
  CalibrationSettings settings = Settings();
  auto plain = Calibrate(TwoCaptures(), {.settings = settings, .state_path = {}});
  auto weighted = Calibrate(TwoCaptures({.pre_rope = false, .gradients = true, .queries = true, .o_proj = false}),
                            {.settings = settings, .state_path = {}});
  ASSERT_TRUE(plain.ok() && weighted.ok()) << plain.status() << weighted.status();
  EXPECT_NE((*plain->Keys())->sections().codebooks, (*weighted->Keys())->sections().codebooks);
  EXPECT_NE((*plain->Values())->sections().codebooks, (*weighted->Values())->sections().codebooks);
  EXPECT_EQ(plain->results[0].errors.gradient_tokens, 0u);
  EXPECT_EQ(weighted->results[0].errors.gradient_tokens, 2u * 80);
  EXPECT_GT(weighted->results[0].errors.errors[0][0].gradient, 0);
}

TEST_F(CalibrationTest, WrongCapturesAreRefused) {
  auto message = [](const absl::Status& status) { return std::string(status.message()); };
  EXPECT_THAT(message(Capture::Open(Path("none")).status()), HasSubstr("none"));
  std::filesystem::create_directory(Path("empty"));
  EXPECT_THAT(message(Capture::Open(Path("empty")).status()), HasSubstr("has no tensors named LAYER.k"));
  MadeCapture flat;
  flat.Add("layer0.k", {8, 4}, std::vector<float>(32));
  EXPECT_THAT(message(Capture::Open(File("flat", flat)).status()),
              HasSubstr("'layer0.k' is F32 (8, 4); shape (tokens, heads, channels) expected"));
  MadeCapture uneven;
  uneven.Add("layer0.k", {8, 2, 4}, std::vector<float>(64));
  uneven.Add("layer0.v", {7, 2, 4}, std::vector<float>(56));
  EXPECT_THAT(message(Capture::Open(File("uneven", uneven)).status()),
              HasSubstr("layer0.k is F32 (8, 2, 4), layer0.v is F32 (7, 2, 4)"));
  MadeCapture less = Make(4);
  less.tensors.resize(4);
  std::vector<Capture> captures = OpenAll({File("a.safetensors", Make(1)), File("less", less)});
  EXPECT_THAT(message(Calibrate(captures, {.settings = Settings(), .state_path = {}}).status()),
              HasSubstr("has other layers, heads or channels than"));
  auto without = TwoCaptures({.pre_rope = true, .gradients = false, .queries = false, .o_proj = false});
  EXPECT_THAT(message(Calibrate(without, {.settings = Settings(), .state_path = {}}).status()),
              HasSubstr("layer 0 has no q, without which attention cannot be measured"));
  CalibrationSettings keys_alone = Settings();
  keys_alone.survey = false;
  auto done = Calibrate(without, {.settings = keys_alone, .state_path = {}});
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(done->results[0].captures_without_queries, 2u);
}

// Scales alone look at every value, too; and what is too short says so as the file's fault.
TEST_F(CalibrationTest, ValuesThatMeanNothingAreRefusedWhateverIsMeasured) {
  auto made = [](uint64_t tokens, float odd) {
    MadeCapture capture;
    std::vector<float> values(tokens * 2 * 4, 1.5f);
    if (tokens > 0) values.back() = odd;
    for (const char* name : {"layer3.k", "layer3.v"}) capture.Add(name, {tokens, 2, 4}, values);
    return capture;
  };
  auto calibrate = [&](const MadeCapture& capture, bool codebooks) {
    CalibrationSettings settings;
    settings.survey = false;
    settings.rope = {.frequencies = {1.0, 0.01}};
    settings.keys = settings.values = {.balance = false, .codebooks = codebooks, .scales = !codebooks};
    return Calibrate(OpenAll({File("capture", capture)}), {.settings = settings, .state_path = {}}).status();
  };
  for (float odd : {NAN, INFINITY, -INFINITY}) {
    absl::Status status = calibrate(made(5, odd), false);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("layer 3: calibration: value 39 is"));
    // Whose layer it is, is said once: the capture's number, not the calibrator's.
    status = calibrate(made(5, odd), true);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("capture: layer 3: a value of "));
  }
  EXPECT_TRUE(calibrate(made(1, 2.0f), false).ok());
  EXPECT_TRUE(calibrate(made(2, 2.0f), true).ok());
  absl::Status one = calibrate(made(1, 2.0f), true);
  EXPECT_TRUE(absl::IsInvalidArgument(one)) << one;
  EXPECT_THAT(std::string(one.message()), HasSubstr("layer 3 has 1 token, codebooks are fitted to at least 2"));
  EXPECT_THAT(std::string(Capture::Open(File("none", made(0, 0.0f))).status().message()),
              HasSubstr("'layer3.k' is F32 (0, 2, 4), without a value"));
}

}  // namespace
}  // namespace firn::cli
