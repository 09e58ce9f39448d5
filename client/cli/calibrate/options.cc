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
                   "Of balance, codebooks (with ranges of channels), scales (FP8), with commas (default: all that the "
                   "captures give)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAMES");
  sections
      ->add_option("--value-sections", value_sections_, "Of codebooks, scales, with commas (default: codebooks,scales)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAMES");
  sections
      ->add_option("--outliers", s.outliers,
                   fmt::format("Values that codebook codes keep exactly, in thousandths, 0 to {} (default: {})",
                               PartCoding::kOutliersMax, s.outliers))
      ->check(WholeNumber<uint32_t>(0, PartCoding::kOutliersMax))
      ->type_name("THOUSANDTHS");
  sections->add_option("--codebook-bits", s.codebook_bits, "Codebooks of so many bits, with commas (default: 2,3,4)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("BITS");
  sections
      ->add_option("--balance", balance_,
                   "What the balance of keys is for: attention, by the spreads of keys and queries, for the ladder; "
                   "mikv, by their largest magnitudes, for preset mikv (default: " +
                       balance_ + ")")
      ->check(CLI::IsMember({"attention", "mikv"}))
      ->type_name("METHOD");
  sections->add_flag("--q-norm", s.q_norm, "Codebooks decode to the values' own mean and deviation");
  sections
      ->add_option(
          "--codebook-tokens", s.tokens_max,
          fmt::format("Tokens that codebooks are fitted to, evenly spaced, an even number (default: {})", s.tokens_max))
      ->check(WholeNumber<uint32_t>())
      ->type_name("TOKENS");
  sections->add_option("--fp8", fp8_, "The FP8 format that scales are for (default: " + fp8_ + ")")
      ->check(CLI::IsMember({"e4m3", "e5m2"}))
      ->type_name("FORMAT");

  auto* rope = app->add_option_group("Rotary embedding", "To take it back, and for the artifact of keys");
  rope->add_option("--rope-base", rope_base_, "theta of the model, 10000 for instance (default: not known)")
      ->check(CLI::PositiveNumber)
      ->type_name("THETA");
  rope->add_option("--rope-dim", rope_dim_, "Rotated channels of a head, an even number (default: all)")
      ->check(WholeNumber<uint32_t>())
      ->type_name("CHANNELS");
  rope->add_flag("--rope-interleaved", rope_interleaved_, "Pairs of channels are neighbours instead of halves");
  rope->add_option("--rope-factor", rope_factor_, "Positions are divided by this, linear scaling (default: 1)")
      ->check(CLI::PositiveNumber)
      ->type_name("FACTOR");
  rope->add_option(
          "--rope-frequencies", rope_frequencies_,
          "A .npy of each pair's radians a position, for other scalings, instead of --rope-base (default: none)")
      ->type_name("FILE");

  auto* survey = app->add_option_group("Errors of precisions", "How heads are coded and measured");
  survey->add_option("--code", code_, "A ladder, or integers in groups of 32, as KIVI's (default: " + code_ + ")")
      ->check(CLI::IsMember({"trellis", "gain", "min-max", "integers"}))
      ->type_name("CODE");
  survey->add_option("--key-method", key_method_, "How the ladder codes keys (default: " + key_method_ + ")")
      ->check(CLI::IsMember({"balanced", "rotated", "per-channel"}))
      ->type_name("METHOD");
  survey
      ->add_option("--classes", classes_,
                   "Bits to choose from, with commas (default: 8,4,2; with --code integers 8,4,3,2)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("BITS");
  auto whole = [&](const char* name, uint32_t* value, uint32_t least, uint32_t most, const char* help) {
    survey->add_option(name, *value, fmt::format("{} (default: {})", help, *value))
        ->check(WholeNumber<uint32_t>(least, most))
        ->type_name("TOKENS");
  };
  constexpr uint32_t kFirstMax = 65536, kRecentMax = uint32_t{1} << 20;  // A plan takes no more.
  static_assert(kWindowTokensMax == 16384, "it is in two texts below");
  whole("--block-tokens", &s.block_tokens, 1, 65536, "Tokens of a block, 1 to 65536");
  whole("--window", &s.window_tokens, 2, kWindowTokensMax,
        "Leading tokens of each capture that are measured, 2 to 16384");
  whole("--queries", &s.queries, 1, kWindowTokensMax,
        "Queries of a window, evenly spaced in its second half, 1 to 16384");
  whole("--keep-first", &s.exact_first, 0, kFirstMax,
        "Leading tokens that count as exact, and that plans keep so, 0 to 65536");
  whole(
      "--recent", &s.exact_recent, 0, kRecentMax,
      "Newest tokens that count as exact, at most a quarter of the window, and the recent window of plans, 0 (off) to "
      "1048576");
  survey
      ->add_option("--softmax-scale", s.softmax_scale, "What logits are multiplied with (default: 1 / sqrt(channels))")
      ->check(CLI::PositiveNumber)
      ->type_name("SCALE");
  s.threads = std::clamp(std::thread::hardware_concurrency(), 1u, kThreadsMax);
  app->add_option("--threads", s.threads,
                  fmt::format("Threads, 1 to {}; they change nothing in the result (default: one a core)", kThreadsMax))
      ->check(WholeNumber<uint32_t>(1, kThreadsMax))
      ->type_name("THREADS");
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
  // The option's own check lets NaN through, which would then count as not given.
  if (std::isnan(out.softmax_scale)) return InvalidArgument("--softmax-scale {}, a positive number", out.softmax_scale);
  FIRN_ASSIGN_OR_RETURN(out.rope, RopeOf(captures[0].shape().k_width));
  FIRN_RETURN_IF_ERROR(ChooseSections(captures, values, &out));
  out.balancing = balance_ == "mikv" ? Balancing::kMaximum : Balancing::kSpread;
  if (out.balancing != Balancing::kSpread && !out.keys.balance) {
    return InvalidArgument("--balance {}: these --key-sections have no balance", balance_);
  }
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
