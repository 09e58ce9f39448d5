// From PlanFile to the plan of one namespace: numbers of layers and heads become the classes of rules.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/status.h"
#include "client/cpp/plan/plan_words.h"
#include "firnkv/plan_file.h"

namespace firnkv {
namespace {

const char* PartName(Part part) { return part == Part::kK ? "K" : "V"; }
std::optional<Precision> Of(const LayerClasses& entry, Part part) { return part == Part::kK ? entry.k : entry.v; }
Precision Of(const PrecisionPair& pair, Part part) { return part == Part::kK ? pair.k : pair.v; }

bool Among(const std::vector<NumberRange>& ranges, uint32_t number) {
  if (ranges.empty()) return true;
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const NumberRange& range) { return range.first <= number && number <= range.last; });
}

// One part of one namespace.
class PartCompiler {
 public:
  PartCompiler(const PlanFile& file, const NamespaceFacts& facts, std::span<const TierInfo> tiers, Part part)
      : file_(file), facts_(facts), tiers_(tiers), part_(part) {
    for (const LayerClasses& entry : file.layers) {
      if (Of(entry, part).has_value()) entries_.push_back(&entry);
    }
    boundary_ = file.boundary.has_value();
  }

  absl::Status Compile(std::vector<TierRule>* rules) const {
    if (entries_.empty() && !boundary_) return absl::OkStatus();
    FIRN_RETURN_IF_ERROR(AddRules(rules));
    for (TierRule& rule : *rules) {
      if (rule.part == part_) FIRN_RETURN_IF_ERROR(Overlay(&rule));
    }
    return absl::OkStatus();
  }

 private:
  size_t heads() const { return size_t{facts_.layers()} * facts_.kv_heads; }

  const TierRule* Find(const std::vector<TierRule>& rules, std::string_view tier) const {
    auto found = std::find_if(rules.begin(), rules.end(),
                              [&](const TierRule& rule) { return rule.part == part_ && rule.tier == tier; });
    return found == rules.end() ? nullptr : &*found;
  }

  bool Applies(const LayerClasses& entry, const std::string& tier) const {
    return entry.tier.empty() || entry.tier == tier;
  }

  // The precision that the ladder has in a tier before anything is overlaid.
  std::optional<Precision> TargetOf(const std::string& tier) const {
    auto asked = file_.plan.tier_target.find(tier);
    if (asked != file_.plan.tier_target.end()) return Of(asked->second, part_);
    for (const TierInfo& info : tiers_) {
      if (info.name == tier) return Of(info.precision, part_);
    }
    return std::nullopt;
  }

  // Whether entries alone say what every head gets in a tier.
  bool Covered(const std::string& tier) const {
    for (uint32_t layer = facts_.layer_first; layer < facts_.layer_last; ++layer) {
      for (uint32_t head = 0; head < facts_.kv_heads; ++head) {
        bool named = std::any_of(entries_.begin(), entries_.end(), [&](const LayerClasses* entry) {
          return Applies(*entry, tier) && Among(entry->layers, layer) && Among(entry->heads, head);
        });
        if (!named) return false;
      }
    }
    return true;
  }

  // A rule for everything that is to be overlaid and has none yet.
  absl::Status AddRules(std::vector<TierRule>* rules) const {
    bool general = boundary_;
    for (const LayerClasses* entry : entries_) {
      general |= entry->tier.empty();
      if (entry->tier.empty() || Find(*rules, entry->tier) != nullptr) continue;
      const TierRule* every = Find(*rules, "");
      TierRule rule = every != nullptr ? *every : TierRule{.part = part_};
      rule.tier = entry->tier;
      rules->push_back(std::move(rule));
    }
    if (!general || Find(*rules, "") != nullptr) return absl::OkStatus();
    if (Covered("")) {
      rules->push_back({.part = part_});
      return absl::OkStatus();
    }
    if (tiers_.empty()) {
      return firn::FailedPrecondition(
          "the plan codes {} by the ladder, as finely as each tier says, and some heads finer: this needs the tiers of "
          "a daemon, or [[layers]] for all layers",
          PartName(part_));
    }
    for (const TierInfo& tier : tiers_) {
      if (Find(*rules, tier.name) != nullptr || *TargetOf(tier.name) == Precision::kExact) continue;
      rules->push_back({.tier = tier.name, .part = part_});
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Precision>> BaseOf(const TierRule& rule, const CodecWord& word) const {
    if (!rule.heads.empty()) return rule.heads;  // As many as there are: checked before.
    Precision base = word.bits_most == 0 ? word.own : static_cast<Precision>(rule.coding.bits);
    if (rule.coding.codec == Codec::kLadder) {
      auto target = TargetOf(rule.tier);
      if (!target.has_value() && !Covered(rule.tier)) {
        return firn::FailedPrecondition("tier \"{}\" has no target in the plan: this needs the tiers of a daemon",
                                        rule.tier);
      }
      base = target.value_or(Precision::kInt8);
      if (base == Precision::kInt3) base = Precision::kInt4;  // As the ladder does.
      if (base == Precision::kExact) base = Precision::kInt8;
    }
    return std::vector<Precision>(heads(), base);
  }

  absl::Status Overlay(TierRule* rule) const {
    const CodecWord* word = WordOf(rule->coding.codec);
    if (word == nullptr) return firn::InvalidArgument("codec {} is not known", static_cast<int>(rule->coding.codec));
    FIRN_ASSIGN_OR_RETURN(std::vector<Precision> classes, BaseOf(*rule, *word));
    const std::vector<Precision> base = classes;
    for (const LayerClasses* entry : entries_) {
      if (!Applies(*entry, rule->tier)) continue;
      ForEachHead([&](uint32_t layer, uint32_t head, size_t index) {
        if (Among(entry->layers, layer) && Among(entry->heads, head)) classes[index] = *Of(*entry, part_);
      });
    }
    if (boundary_) RaiseBoundaries(&classes);
    for (Precision precision : classes) {
      if (word->Has(precision)) continue;
      return firn::InvalidArgument("layers of {} get {}, which codec \"{}\" does not have; it has {}", PartName(part_),
                                   PrecisionName(precision), word->name, word->Precisions());
    }
    if (word->heads_alike && classes != base) {
      return firn::InvalidArgument("heads of {} differ from the rule's {}, and codec \"{}\" has one precision for all",
                                   PartName(part_), PrecisionName(base.front()), word->name);
    }
    bool as_before = classes == base && rule->coding.codec != Codec::kLadder;
    if (!as_before) rule->heads = std::move(classes);
    return absl::OkStatus();
  }

  template <typename Body>
  void ForEachHead(const Body& body) const {
    size_t index = 0;
    for (uint32_t layer = facts_.layer_first; layer < facts_.layer_last; ++layer) {
      for (uint32_t head = 0; head < facts_.kv_heads; ++head) body(layer, head, index++);
    }
  }

  void RaiseBoundaries(std::vector<Precision>* classes) const {
    const BoundaryLayers& boundary = *file_.boundary;
    ForEachHead([&](uint32_t layer, uint32_t, size_t index) {
      bool near = layer - facts_.layer_first < boundary.first || facts_.layer_last - 1 - layer < boundary.last;
      if (near) (*classes)[index] = std::max((*classes)[index], Of(boundary.at, part_));
    });
  }

  const PlanFile& file_;
  const NamespaceFacts& facts_;
  const std::span<const TierInfo> tiers_;
  const Part part_;
  std::vector<const LayerClasses*> entries_;
  bool boundary_ = false;
};

// "layers[1] (line 8): ", or nothing where the plan is not from a file.
std::string Before(const FilePlace& place) {
  if (place.entry.empty()) return "";
  return place.line == 0 ? place.entry + ": " : fmt::format("{} (line {}): ", place.entry, place.line);
}
FilePlace PlaceOfRule(const PlanFile& file, size_t index) {
  return index < file.places.rules.size() ? file.places.rules[index] : FilePlace{};
}

absl::Status CheckNumbers(const LayerClasses& entry, const NamespaceFacts& facts) {
  for (const NumberRange& range : entry.layers) {
    if (range.first >= facts.layer_first && range.last < facts.layer_last) continue;
    return firn::InvalidArgument("{}layers = \"{}\": the namespace has layers {} to {}", Before(entry.place),
                                 RangesText(entry.layers), facts.layer_first, facts.layer_last - 1);
  }
  for (const NumberRange& range : entry.heads) {
    if (range.last < facts.kv_heads) continue;
    return firn::InvalidArgument("{}heads = \"{}\": the namespace has KV heads 0 to {}", Before(entry.place),
                                 RangesText(entry.heads), facts.kv_heads - 1);
  }
  return absl::OkStatus();
}

// What a ranking does not rank would get the fewest bits, as if it mattered least.
absl::Status CheckRanked(const std::vector<NumberRange>& ranked, const NamespaceFacts& facts) {
  if (ranked.empty()) return absl::OkStatus();
  std::vector<NumberRange> missing;
  for (uint32_t layer = facts.layer_first; layer < facts.layer_last; ++layer) {
    if (!Among(ranked, layer)) AddNumber(&missing, layer);
  }
  if (missing.empty()) return absl::OkStatus();
  return firn::InvalidArgument(
      "the ranking of layers lacks {}: the namespace has layers {} to {}; allowed: all of them", RangesText(missing),
      facts.layer_first, facts.layer_last - 1);
}

absl::Status CheckRuleHeads(const PlanFile& file, const NamespaceFacts& facts) {
  size_t heads = size_t{facts.layers()} * facts.kv_heads;
  for (size_t i = 0; i < file.plan.rules.size(); ++i) {
    const TierRule& rule = file.plan.rules[i];
    if (rule.heads.empty() || rule.heads.size() == heads) continue;
    return firn::InvalidArgument("{}a rule for {} has {} heads; {} layers of {} KV heads have {}",
                                 Before(PlaceOfRule(file, i)), PartName(rule.part), rule.heads.size(), facts.layers(),
                                 facts.kv_heads, heads);
  }
  return absl::OkStatus();
}

absl::Status CheckTier(const FilePlace& place, std::string_view key, const std::string& tier,
                       std::span<const TierInfo> tiers) {
  std::vector<std::string> names;
  for (const TierInfo& info : tiers) names.push_back(info.name);
  if (tier.empty() || std::find(names.begin(), names.end(), tier) != names.end()) return absl::OkStatus();
  return firn::InvalidArgument("{}{} \"{}\": the daemon has no such tier; allowed: {}", Before(place), key, tier,
                               fmt::join(names, ", "));
}

}  // namespace

absl::StatusOr<PrecisionPlan> PlanFor(const PlanFile& file, const NamespaceFacts& facts,
                                      std::span<const TierInfo> tiers) {
  if (facts.layer_last <= facts.layer_first || facts.kv_heads == 0) {
    return firn::InvalidArgument("a namespace of layers from {} up to, not with, {} and {} KV heads has none",
                                 facts.layer_first, facts.layer_last, facts.kv_heads);
  }
  for (const LayerClasses& entry : file.layers) FIRN_RETURN_IF_ERROR(CheckNumbers(entry, facts));
  FIRN_RETURN_IF_ERROR(CheckRanked(file.ranked, facts));
  FIRN_RETURN_IF_ERROR(CheckRuleHeads(file, facts));
  PrecisionPlan plan = file.plan;
  for (Part part : {Part::kK, Part::kV}) {
    if ((part == Part::kK ? facts.k_width : facts.v_width) == 0) continue;
    FIRN_RETURN_IF_ERROR(PartCompiler(file, facts, tiers, part).Compile(&plan.rules));
  }
  if (plan.rules.size() > kPlanRulesMax) {
    return firn::InvalidArgument("the plan comes to {} rules; allowed: at most {}", plan.rules.size(), kPlanRulesMax);
  }
  return plan;
}

absl::Status CheckPlanTiers(const PlanFile& file, std::span<const TierInfo> tiers) {
  for (const auto& [tier, target] : file.plan.tier_target) {
    auto place = file.places.targets.find(tier);
    FIRN_RETURN_IF_ERROR(
        CheckTier(place == file.places.targets.end() ? FilePlace{} : place->second, "a target for tier", tier, tiers));
  }
  for (size_t i = 0; i < file.plan.rules.size(); ++i) {
    FIRN_RETURN_IF_ERROR(CheckTier(PlaceOfRule(file, i), "a rule for tier", file.plan.rules[i].tier, tiers));
  }
  for (const LayerClasses& entry : file.layers) {
    FIRN_RETURN_IF_ERROR(CheckTier(entry.place, "layers of tier", entry.tier, tiers));
  }
  return absl::OkStatus();
}

}  // namespace firnkv
