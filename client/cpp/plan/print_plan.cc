// From PlanFile to TOML. What holds anyway is left out, but for what a reader wants to know at once.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>

#include "base/toml/toml_section.h"
#include "client/cpp/plan/plan_words.h"
#include "firnkv/plan_file.h"

namespace firnkv {
namespace {

using firn::TomlQuoted;

std::string PairToml(PrecisionPair pair) {
  if (pair.k == pair.v) return fmt::format("\"{}\"", PrecisionName(pair.k));
  return fmt::format("{{ k = \"{}\", v = \"{}\" }}", PrecisionName(pair.k), PrecisionName(pair.v));
}

// The shortest decimal that reads back as the same float, through a double.
std::string FloatToml(float value) {
  std::string text = fmt::format("{}", value);
  return static_cast<float>(std::strtod(text.c_str(), nullptr)) == value
             ? text
             : fmt::format("{}", static_cast<double>(value));
}

void PrintCoding(const Coding& coding, std::string* out) {
  if (coding.bits != 0) *out += fmt::format("bits = {}\n", coding.bits);
  if (coding.group != 0) *out += fmt::format("group = {}\n", coding.group);
  if (coding.outliers_per_mille != 0) *out += fmt::format("outliers_per_mille = {}\n", coding.outliers_per_mille);
  for (const FlagWord& flag : FlagWords()) {
    if (coding.*flag.field) *out += fmt::format("{} = true\n", flag.key);
  }
  if (coding.artifact.has_value()) *out += fmt::format("artifact = \"{}\"\n", coding.artifact->Hex());
}

void PrintRule(const TierRule& rule, std::string* out) {
  *out += "\n[[rules]]\n";
  if (!rule.tier.empty()) *out += fmt::format("tier = {}\n", TomlQuoted(rule.tier));
  *out += fmt::format("part = \"{}\"\n", rule.part == Part::kK ? "k" : "v");
  const CodecWord* word = WordOf(rule.coding.codec);
  std::string codec =
      word != nullptr ? std::string(word->name) : fmt::format("codec {}", static_cast<int>(rule.coding.codec));
  *out += fmt::format("codec = \"{}\"\n", codec);
  PrintCoding(rule.coding, out);
  if (!rule.heads.empty()) *out += fmt::format("heads = [\"{}\"]\n", fmt::join(ClassRuns(rule.heads), "\", \""));
}

void PrintLayers(const LayerClasses& entry, std::string* out) {
  *out += "\n[[layers]]\n";
  if (!entry.tier.empty()) *out += fmt::format("tier = {}\n", TomlQuoted(entry.tier));
  *out += fmt::format("layers = \"{}\"\n", RangesText(entry.layers));
  if (!entry.heads.empty()) *out += fmt::format("heads = \"{}\"\n", RangesText(entry.heads));
  if (entry.k.has_value()) *out += fmt::format("k = \"{}\"\n", PrecisionName(*entry.k));
  if (entry.v.has_value()) *out += fmt::format("v = \"{}\"\n", PrecisionName(*entry.v));
}

}  // namespace

std::string PrintPlanFile(const PlanFile& file) {
  const PrecisionPlan& plan = file.plan;
  std::string out = fmt::format("key_method = \"{}\"\n", KeyMethodName(plan.key_method));
  if (plan.balance_artifact.has_value())
    out += fmt::format("balance_artifact = \"{}\"\n", plan.balance_artifact->Hex());
  out += fmt::format("ladder = \"{}\"\n", LadderName(plan.ladder));
  if (plan.key_group != 0) out += fmt::format("key_group = {}\n", plan.key_group);
  if (plan.value_group != 0) out += fmt::format("value_group = {}\n", plan.value_group);
  out += fmt::format("keep_first_tokens = {}\n", plan.keep_first_tokens);
  if (plan.important_fraction != 0) out += fmt::format("important_fraction = {}\n", FloatToml(plan.important_fraction));
  if (plan.recent_tokens != 0) out += fmt::format("recent_tokens = {}\n", plan.recent_tokens);
  if (plan.floor != PrecisionPair{}) out += fmt::format("floor = {}\n", PairToml(plan.floor));
  if (plan.max_relative_error != 0) out += fmt::format("max_error = {}\n", FloatToml(plan.max_relative_error));
  if (file.boundary.has_value()) {
    out += fmt::format("boundary_layers = {{ first = {}, last = {}, at = {} }}\n", file.boundary->first,
                       file.boundary->last, PairToml(file.boundary->at));
  }
  if (!plan.tier_target.empty()) out += "\n[targets]\n";
  for (const auto& [tier, target] : plan.tier_target)
    out += fmt::format("{} = {}\n", TomlQuoted(tier), PairToml(target));
  for (const TierRule& rule : plan.rules) PrintRule(rule, &out);
  for (const LayerClasses& entry : file.layers) PrintLayers(entry, &out);
  return out;
}

std::string PrintPlan(const PrecisionPlan& plan) { return PrintPlanFile({.plan = plan}); }

}  // namespace firnkv
