#include "client/cli/calibrate/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <thread>

#include "base/status.h"
#include "client/cli/support/numbers.h"

namespace firn::cli {
namespace {

constexpr uint32_t kThreadsMax = 256;

absl::StatusOr<SectionChoice> ParseSections(const char* option, const std::vector<std::string>& names, bool keys) {
  SectionChoice choice;
  for (const std::string& name : names) {
    if (name == "balance" && keys) {
      choice.balance = true;
    } else if (name == "codebooks") {
      choice.codebooks = true;
    } else if (name == "scales") {
      choice.scales = true;
    } else {
      return InvalidArgument("{} {}: {}codebooks or scales expected", option, name, keys ? "balance, " : "");
    }
  }
  return choice;
}

LadderOrIntegers CodeOf(const std::string& name) {
  if (name == "min-max") return LadderOrIntegers::kMinMax;
  if (name == "gain") return LadderOrIntegers::kGain;
  return name == "integers" ? LadderOrIntegers::kIntegers : LadderOrIntegers::kTrellis;
}

absl::StatusOr<std::vector<double>> ReadFrequencies(const std::string& path) {
  FIRN_ASSIGN_OR_RETURN(TensorFile file, TensorFile::Open(path));
  if (file.tensors().size() != 1 || file.tensors()[0].shape.size() != 1 ||
      (file.tensors()[0].type != ElementType::kF64 && file.tensors()[0].type != ElementType::kF32)) {
    return InvalidArgument("--rope-frequencies {}: one tensor of F64 or F32, a value a pair, expected", path);
  }
  const Tensor& tensor = file.tensors()[0];
  std::vector<double> out;
  for (uint64_t i = 0; i < tensor.values(); ++i) {
    out.push_back(tensor.type == ElementType::kF64 ? LoadLe<double>(tensor.bytes.data() + i * 8)
                                                   : double{LoadLe<float>(tensor.bytes.data() + i * 4)});
  }
  return out;
}

}  // namespace

void SettingsOptions::AddTo(CLI::App* app) {
  CalibrationSettings& s = settings_;
  auto* sections = app->add_option_group("Artifacts", "What is measured of keys and values");
  sections
      ->add_option("--key-sections", key_sections_,
                   "Of balance, codebooks (with ranges), scales (FP8); default: all that the captures give")
      ->delimiter(',');
  sections->add_option("--value-sections", value_sections_, "Of codebooks, scales; default: both")->delimiter(',');
  sections->add_option("--outliers", s.outliers, "Thousandths of values that codebook codes keep exactly")
      ->check(CLI::Range(0, int{PartCoding::kOutliersMax}));
  sections->add_option("--codebook-bits", s.codebook_bits, "Codebooks of so many bits: 2, 3, 4")->delimiter(',');
  sections->add_flag("--q-norm", s.q_norm, "Codebooks decode to the values' own mean and deviation");
  sections->add_option("--codebook-tokens", s.tokens_max, "Tokens that codebooks are fitted to, evenly spaced, even")
      ->check(WholeNumber<uint32_t>());
  sections->add_option("--fp8", fp8_, "e4m3 or e5m2: what scales are for")->check(CLI::IsMember({"e4m3", "e5m2"}));

  auto* rope = app->add_option_group("Rotary embedding", "To take it back, and for the artifact of keys");
  rope->add_option("--rope-base", rope_base_, "theta, 10000 for instance")->check(CLI::PositiveNumber);
  rope->add_option("--rope-dim", rope_dim_, "Rotated channels, even; default: all")->check(WholeNumber<uint32_t>());
  rope->add_flag("--rope-interleaved", rope_interleaved_, "Pairs are neighbours instead of halves");
  rope->add_option("--rope-factor", rope_factor_, "Positions are divided by this (linear scaling)")
      ->check(CLI::PositiveNumber);
  rope->add_option("--rope-frequencies", rope_frequencies_,
                   "FILE.npy: radians a position of each pair, for other scalings");

  auto* survey = app->add_option_group("Errors of precisions", "How heads are coded and measured");
  survey->add_option("--code", code_, "trellis, gain, min-max (the ladders) or integers (groups of 32, as KIVI's)")
      ->check(CLI::IsMember({"trellis", "gain", "min-max", "integers"}));
  survey->add_option("--key-method", key_method_, "balanced, rotated or per-channel")
      ->check(CLI::IsMember({"balanced", "rotated", "per-channel"}));
  survey->add_option("--classes", classes_, "Bits to choose from; default 8,4,2, integers 8,4,3,2")->delimiter(',');
  survey->add_option("--block-tokens", s.block_tokens, "Tokens of a block")->check(CLI::Range(1, 65536));
  survey->add_option("--window", s.window_tokens, "Leading tokens of each capture that are measured")
      ->check(CLI::Range(2, static_cast<int>(kWindowTokensMax)));
  survey->add_option("--queries", s.queries, "Queries of a window, evenly spaced in its second half")
      ->check(CLI::Range(1, static_cast<int>(kWindowTokensMax)));
  survey->add_option("--keep-first", s.exact_first, "Leading tokens kept exact")->check(WholeNumber<uint32_t>());
  survey->add_option("--recent", s.exact_recent, "Newest tokens that count as exact, at most a quarter of the window")
      ->check(WholeNumber<uint32_t>());
  survey->add_option("--softmax-scale", s.softmax_scale, "Of logits; default: 1 / sqrt(channels)")
      ->check(CLI::PositiveNumber);
  s.threads = std::clamp(std::thread::hardware_concurrency(), 1u, kThreadsMax);
  app->add_option("--threads", s.threads, "They change nothing in the result")
      ->check(CLI::Range(1, static_cast<int>(kThreadsMax)));
}

absl::StatusOr<Rope> SettingsOptions::RopeOf(uint64_t width) const {
  Rope rope;
  bool other = rope_dim_ != 0 || rope_interleaved_ || rope_factor_ != 1;
  if (rope_base_ == 0 && rope_frequencies_.empty()) {
    if (other) return InvalidArgument("facts of a rotary embedding without --rope-base or --rope-frequencies");
    return rope;
  }
  if (rope_base_ != 0 && !rope_frequencies_.empty()) {
    return InvalidArgument("--rope-base {} and --rope-frequencies {}: one of them", rope_base_, rope_frequencies_);
  }
  rope.interleaved = rope_interleaved_;
  if (!rope_frequencies_.empty()) {
    FIRN_ASSIGN_OR_RETURN(rope.frequencies, ReadFrequencies(rope_frequencies_));
  } else {
    uint64_t dim = rope_dim_ == 0 ? width : rope_dim_;
    if (dim % 2 != 0 || dim > width) return InvalidArgument("--rope-dim {}, an even number up to {}", dim, width);
    for (uint64_t i = 0; i < dim / 2; ++i) {
      double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(dim);
      rope.frequencies.push_back(std::pow(rope_base_, exponent) / rope_factor_);
    }
  }
  if (rope.frequencies.empty() || 2 * rope.frequencies.size() > width) {
    return InvalidArgument("{} rotary pairs for keys of {} channels", rope.frequencies.size(), width);
  }
  for (double frequency : rope.frequencies) {
    if (!(frequency >= 0 && frequency <= 16)) return InvalidArgument("rotary frequency {}, 0 to 16", frequency);
  }
  return rope;
}

absl::Status SettingsOptions::ChooseSections(const std::vector<Capture>& captures, bool values,
                                             CalibrationSettings* settings) const {
  bool before_rope = !settings->rope.frequencies.empty();
  if (!before_rope) {
    before_rope = true;
    for (const Capture& capture : captures) {
      for (const auto& [layer, tensors] : capture.layers()) {
        before_rope = before_rope && tensors.k_pre_rope != nullptr && tensors.k_grad == nullptr;
      }
    }
  }
  settings->keys = {.balance = true, .codebooks = before_rope, .scales = true};
  if (!key_sections_.empty()) {
    FIRN_ASSIGN_OR_RETURN(settings->keys, ParseSections("--key-sections", key_sections_, true));
  }
  if (!values) return absl::OkStatus();
  settings->values = {.balance = false, .codebooks = true, .scales = true};
  if (!value_sections_.empty()) {
    FIRN_ASSIGN_OR_RETURN(settings->values, ParseSections("--value-sections", value_sections_, false));
  }
  return absl::OkStatus();
}

absl::StatusOr<CalibrationSettings> SettingsOptions::Settings(const std::vector<Capture>& captures, bool values,
                                                              bool survey) const {
  CalibrationSettings out = settings_;
  FIRN_ASSIGN_OR_RETURN(out.rope, RopeOf(captures[0].shape().k_width));
  FIRN_RETURN_IF_ERROR(ChooseSections(captures, values, &out));
  out.fp8_max = fp8_ == "e4m3" ? 448 : 57344;
  out.survey = survey;
  out.code = CodeOf(code_);
  out.key_method = key_method_ == "balanced"  ? KeyMethod::kBalancedRotated
                   : key_method_ == "rotated" ? KeyMethod::kRotated
                                              : KeyMethod::kPerChannel;
  bool integers = out.code == LadderOrIntegers::kIntegers;
  std::vector<uint32_t> classes = classes_;
  if (classes.empty()) classes = integers ? std::vector<uint32_t>{8, 4, 3, 2} : std::vector<uint32_t>{8, 4, 2};
  std::sort(classes.rbegin(), classes.rend());
  out.classes.clear();
  for (uint32_t bits : classes) {
    bool known = bits == 8 || bits == 4 || bits == 2 || (bits == 3 && integers);
    if (!known) return InvalidArgument("--classes {}: 8, 4, {}2 of --code {}", bits, integers ? "3, " : "", code_);
    out.classes.push_back(static_cast<PrecisionClass>(bits));
  }
  if (std::adjacent_find(classes.begin(), classes.end()) != classes.end()) {
    return InvalidArgument("--classes has {} twice", *std::adjacent_find(classes.begin(), classes.end()));
  }
  return out;
}

}  // namespace firn::cli
