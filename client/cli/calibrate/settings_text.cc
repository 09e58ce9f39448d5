#include "client/cli/calibrate/settings_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "client/cli/calibrate/layer_calibration.h"

namespace firn::cli {
namespace {

std::vector<std::string_view> Split(std::string_view text, char between) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    size_t end = text.find(between);
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return parts;
}

using Words = std::vector<std::pair<std::string_view, std::string_view>>;  // By name, in the order of the text.

Words WordsOf(std::string_view text) {
  Words words;
  for (std::string_view part : Split(text, ' ')) {
    size_t equals = part.find('=');
    words.emplace_back(part.substr(0, equals), equals == std::string_view::npos ? "" : part.substr(equals + 1));
  }
  return words;
}

std::optional<std::string_view> Find(const Words& words, std::string_view name) {
  auto found = std::find_if(words.begin(), words.end(), [&](const auto& word) { return word.first == name; });
  return found == words.end() ? std::nullopt : std::optional(found->second);
}

// How a value is written on the command line.
std::string Same(std::string_view value) { return std::string(value); }
std::string OnOrOff(std::string_view value) { return value == "1" ? "on" : "off"; }
std::string BalancingName(std::string_view value) { return value == "1" ? "mikv" : "attention"; }
std::string Fp8Name(std::string_view value) { return value == "448" ? "e4m3" : "e5m2"; }
std::string ScaleText(std::string_view value) { return value == "0" ? "1/sqrt(channels)" : std::string(value); }

std::string SectionNames(std::string_view flags) {
  constexpr std::array<std::string_view, 3> kNames = {"balance", "codebooks", "scales"};
  std::vector<std::string_view> names;
  for (size_t i = 0; i < kNames.size() && i < flags.size(); ++i) {
    if (flags[i] == '1') names.push_back(kNames[i]);
  }
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ","));
}

std::string CodeName(std::string_view value) {
  constexpr std::array<std::string_view, 4> kNames = {"min-max", "gain", "trellis", "integers"};  // LadderOrIntegers.
  size_t index = value.size() == 1 ? static_cast<size_t>(value[0] - '0') : kNames.size();
  return std::string(index < kNames.size() ? kNames[index] : value);
}

std::string KeyMethodName(std::string_view value) {
  constexpr std::array<std::string_view, 3> kNames = {"per-channel", "balanced", "rotated"};  // KeyMethod.
  size_t index = value.size() == 1 ? static_cast<size_t>(value[0] - '0') : kNames.size();
  return std::string(index < kNames.size() ? kNames[index] : value);
}

struct OptionRow {
  std::string_view name, option;
  std::string (*text)(std::string_view);
};
constexpr std::string_view kBalance = "balance";
constexpr std::string_view kFrequencies = "rope-frequencies";
constexpr OptionRow kOptions[] = {
    {"key-sections", "--key-sections", SectionNames},
    {"value-sections", "--value-sections (of --out-values, --register)", SectionNames},
    {"outliers", "--outliers", Same},
    {"codebook-bits", "--codebook-bits", Same},
    {"q-norm", "--q-norm", OnOrOff},
    {"balance", "--balance", BalancingName},
    {"tokens-max", "--codebook-tokens", Same},
    {"fp8-max", "--fp8", Fp8Name},
    {"rope-interleaved", "--rope-interleaved", OnOrOff},
    {"code", "--code", CodeName},
    {"key-method", "--key-method", KeyMethodName},
    {"classes", "--classes", Same},
    {"block-tokens", "--block-tokens", Same},
    {"window", "--window", Same},
    {"keep-first", "--keep-first", Same},
    {"recent", "--recent", Same},
    {"queries", "--queries", Same},
    {"softmax-scale", "--softmax-scale", ScaleText},
};

// Several options make the frequencies; what they came to is what can be told.
std::string FrequenciesDifference(std::string_view before, std::string_view now) {
  constexpr std::string_view kRopeOptions =
      "the rotary embedding (--rope-base, --rope-dim, --rope-factor, --rope-frequencies)";
  std::vector<std::string_view> old_pairs = Split(before, ','), new_pairs = Split(now, ',');
  if (old_pairs.size() != new_pairs.size()) {
    return fmt::format("{}: {} pairs of channels, now {}", kRopeOptions, old_pairs.size(), new_pairs.size());
  }
  auto [old_one, new_one] = std::mismatch(old_pairs.begin(), old_pairs.end(), new_pairs.begin());
  return fmt::format("{}: pair {} turns by {} radians a position, now {}", kRopeOptions, old_one - old_pairs.begin(),
                     *old_one, *new_one);
}

}  // namespace

std::string SettingsDifference(std::string_view before, std::string_view now) {
  Words old_words = WordsOf(before), new_words = WordsOf(now);
  // Not written where it is the default, so that states from before there was a choice stay what they are.
  for (Words* words : {&old_words, &new_words}) {
    if (!Find(*words, kBalance).has_value()) words->emplace_back(kBalance, "0");
  }
  std::vector<std::string> differences;
  for (const auto& [name, old_value] : old_words) {
    auto new_value = Find(new_words, name);
    if (!new_value.has_value() || *new_value == old_value) continue;
    if (name == kFrequencies) {
      differences.push_back(FrequenciesDifference(old_value, *new_value));
      continue;
    }
    auto row = std::find_if(std::begin(kOptions), std::end(kOptions), [&](const auto& r) { return r.name == name; });
    if (row == std::end(kOptions)) {
      differences.push_back(fmt::format("{} {}, now {}", name, old_value, *new_value));
    } else {
      differences.push_back(fmt::format("{} {}, now {}", row->option, row->text(old_value), row->text(*new_value)));
    }
  }
  bool had_errors = Find(old_words, "code").has_value(), has_errors = Find(new_words, "code").has_value();
  if (had_errors != has_errors) {
    differences.push_back(fmt::format("errors of heads (--bits, --errors-out, --ranking-out) {}, now {}",
                                      had_errors ? "measured" : "not measured",
                                      has_errors ? "measured" : "not measured"));
  }
  // Texts of another build may have other words.
  if (differences.empty() && before != now) return fmt::format("\"{}\", now \"{}\"", before, now);
  return fmt::format("{}", fmt::join(differences, "; "));
}

bool SettingsCover(std::string_view before, std::string_view now) {
  constexpr std::string_view kValues = "value-sections", kNone = "000", kFirstOfErrors = "code";
  Words old_words = WordsOf(before), new_words = WordsOf(now);
  for (const auto& [name, value] : new_words) {
    auto had = Find(old_words, name);
    bool not_wanted = name == kValues && value == kNone;
    if (!had.has_value() || (*had != value && !not_wanted)) return false;
  }
  // The words of errors are the last ones, all or none.
  auto errors =
      std::find_if(old_words.begin(), old_words.end(), [&](const auto& w) { return w.first == kFirstOfErrors; });
  return std::all_of(old_words.begin(), errors, [&](const auto& w) { return Find(new_words, w.first).has_value(); }) &&
         (errors == old_words.end() || Find(new_words, kFirstOfErrors).has_value() ||
          new_words.size() == static_cast<size_t>(errors - old_words.begin()));
}

std::string CalibrationSettings::Describe() const {
  auto section_text = [](const SectionChoice& s) {
    return fmt::format("{:d}{:d}{:d}", s.balance, s.codebooks, s.scales);
  };
  std::string text = fmt::format(
      "key-sections={} value-sections={} outliers={} codebook-bits={} q-norm={:d} tokens-max={} fp8-max={} "
      "rope-interleaved={:d} rope-frequencies={}",
      section_text(keys), section_text(values), outliers, fmt::join(codebook_bits, ","), q_norm, tokens_max, fp8_max,
      rope.interleaved, fmt::join(rope.frequencies, ","));
  if (balancing != Balancing::kSpread) text += fmt::format(" {}={:d}", kBalance, static_cast<int>(balancing));
  if (!survey) return text;
  std::vector<int> bits;
  for (PrecisionClass c : classes) bits.push_back(static_cast<int>(c));
  return text + fmt::format(
                    " code={} key-method={} classes={} block-tokens={} window={} keep-first={} recent={} queries={} "
                    "softmax-scale={}",
                    static_cast<int>(code), static_cast<int>(key_method), fmt::join(bits, ","), block_tokens,
                    window_tokens, exact_first, exact_recent, queries, softmax_scale);
}

}  // namespace firn::cli
