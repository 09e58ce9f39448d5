// Which options of two calibrations differ, in words that can be typed.
#include "client/cli/calibrate/settings_text.h"

#include <cmath>

#include "client/cli/calibrate/layer_calibration.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace firn::cli {
namespace {

using ::testing::HasSubstr;

CalibrationSettings Base() {
  CalibrationSettings settings;
  settings.keys = {.balance = true, .codebooks = true, .scales = true};
  settings.survey = true;
  for (int i = 0; i < 32; ++i) settings.rope.frequencies.push_back(std::pow(10000.0, -2.0 * i / 64));
  return settings;
}

std::string Difference(const CalibrationSettings& now) { return SettingsDifference(Base().Describe(), now.Describe()); }

TEST(SettingsText, EveryOptionIsNamedWithBothValues) {
  struct Case {
    void (*change)(CalibrationSettings&);
    const char* said;
  };
  for (const Case& c : {
           Case{[](auto& s) { s.keys.codebooks = false; },
                "--key-sections balance,codebooks,scales, now balance,scales"},
           {[](auto& s) { s.values.scales = true; }, "--value-sections (of --out-values, --register) none, now scales"},
           {[](auto& s) { s.outliers = 20; }, "--outliers 10, now 20"},
           {[](auto& s) { s.codebook_bits = {3}; }, "--codebook-bits 2,3,4, now 3"},
           {[](auto& s) { s.q_norm = true; }, "--q-norm off, now on"},
           {[](auto& s) { s.balancing = Balancing::kMaximum; }, "--balance attention, now mikv"},
           {[](auto& s) { s.tokens_max = 64; }, "--codebook-tokens 16384, now 64"},
           {[](auto& s) { s.fp8_max = 57344; }, "--fp8 e4m3, now e5m2"},
           {[](auto& s) { s.rope.interleaved = true; }, "--rope-interleaved off, now on"},
           {[](auto& s) { s.code = LadderOrIntegers::kIntegers; }, "--code trellis, now integers"},
           {[](auto& s) { s.key_method = KeyMethod::kRotated; }, "--key-method balanced, now rotated"},
           {[](auto& s) { s.classes.pop_back(); }, "--classes 8,4,2, now 8,4"},
           {[](auto& s) { s.block_tokens = 16; }, "--block-tokens 64, now 16"},
           {[](auto& s) { s.window_tokens = 1024; }, "--window 2048, now 1024"},
           {[](auto& s) { s.exact_first = 0; }, "--keep-first 4, now 0"},
           {[](auto& s) { s.exact_recent = 1; }, "--recent 128, now 1"},
           {[](auto& s) { s.queries = 9; }, "--queries 256, now 9"},
           {[](auto& s) { s.softmax_scale = 0.5; }, "--softmax-scale 1/sqrt(channels), now 0.5"},
       }) {
    CalibrationSettings now = Base();
    c.change(now);
    EXPECT_EQ(Difference(now), c.said);
  }
}

TEST(SettingsText, SeveralAreAllNamed) {
  CalibrationSettings now = Base();
  EXPECT_EQ(Difference(now), "");
  now.outliers = 0;
  now.window_tokens = 100;
  EXPECT_EQ(Difference(now), "--outliers 10, now 0; --window 2048, now 100");
  now = Base();
  now.rope.frequencies[1] = 0.5;
  EXPECT_THAT(Difference(now), HasSubstr("--rope-base, --rope-dim, --rope-factor, --rope-frequencies): pair 1 turns by "
                                         "0.7498942093324559 radians a position, now 0.5"));
  now.rope.frequencies.clear();
  EXPECT_THAT(Difference(now), HasSubstr("32 pairs of channels, now 0"));
  now = Base();
  now.survey = false;
  EXPECT_EQ(Difference(now), "errors of heads (--bits, --errors-out, --ranking-out) measured, now not measured");
  EXPECT_EQ(SettingsDifference("a=1 b=2", "a=1 c=3"), "\"a=1 b=2\", now \"a=1 c=3\"") << "of another build";
}

TEST(SettingsText, MoreThanIsAskedForCovers) {
  CalibrationSettings all = Base();
  all.values.scales = true;
  auto covers = [&](auto change) {
    CalibrationSettings now = all;
    change(now);
    return std::pair(SettingsCover(all.Describe(), now.Describe()), SettingsCover(now.Describe(), all.Describe()));
  };
  EXPECT_EQ(covers([](auto&) {}), std::pair(true, true));
  EXPECT_EQ(covers([](auto& s) { s.survey = false; }), std::pair(true, false));
  EXPECT_EQ(covers([](auto& s) { s.values = {}; }), std::pair(true, false));
  EXPECT_EQ(covers([](auto& s) { s.values = {}, s.survey = false; }), std::pair(true, false));
  EXPECT_EQ(covers([](auto& s) { s.survey = false, s.outliers = 20; }), std::pair(false, false));
  EXPECT_EQ(covers([](auto& s) { s.values.codebooks = true; }), std::pair(false, false));
  EXPECT_EQ(covers([](auto& s) { s.keys.scales = false; }), std::pair(false, false));
  EXPECT_EQ(covers([](auto& s) { s.queries = 9; }), std::pair(false, false));
  EXPECT_EQ(covers([](auto& s) { s.balancing = Balancing::kMaximum; }), std::pair(false, false));
}

}  // namespace
}  // namespace firn::cli
