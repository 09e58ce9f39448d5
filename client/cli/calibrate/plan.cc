#include "client/cli/calibrate/plan.h"

#include <algorithm>

namespace firn::cli {
namespace {

firnkv::Ladder LadderOf(LadderOrIntegers code) {
  return code == LadderOrIntegers::kMinMax ? firnkv::Ladder::kMinMax
         : code == LadderOrIntegers::kGain ? firnkv::Ladder::kGain
                                           : firnkv::Ladder::kTrellis;
}

bool AllAtLeast8Bits(const std::vector<TierBits>& tiers) {
  for (const TierBits& tier : tiers) {
    for (const ClassMap& classes : tier.allocation.classes) {
      if (*std::min_element(classes.begin(), classes.end()) < PrecisionClass::k8Bit) return false;
    }
  }
  return true;
}

bool FitsAll(const std::vector<TierBits>& tiers, double bits) {
  return std::all_of(tiers.begin(), tiers.end(),
                     [&](const TierBits& tier) { return bits <= tier.allocation.budget + 1e-9; });
}

}  // namespace

std::optional<LadderAt8Bits> FinerLadder(const CalibrationSettings& settings, const std::vector<TierBits>& tiers,
                                         const std::vector<LadderAt8Bits>& ladders) {
  if (settings.code != LadderOrIntegers::kTrellis || !AllAtLeast8Bits(tiers)) return std::nullopt;
  for (const LadderAt8Bits& ladder : ladders) {
    if (FitsAll(tiers, ladder.bits)) return ladder;
  }
  return std::nullopt;
}

firnkv::PrecisionPlan PlanOf(const CalibrationSettings& settings, const std::vector<TierBits>& tiers,
                             const std::optional<firnkv::Digest>& keys, const std::optional<LadderAt8Bits>& ladder) {
  firnkv::PrecisionPlan plan;
  plan.keep_first_tokens = settings.exact_first;
  plan.recent_tokens = settings.exact_recent;
  bool integers = settings.code == LadderOrIntegers::kIntegers;
  if (!integers) {
    plan.ladder = LadderOf(ladder.has_value() ? ladder->code : settings.code);
    if (ladder.has_value()) plan.key_group = plan.value_group = ladder->group;
    plan.key_method = static_cast<firnkv::KeyMethod>(settings.key_method);
    if (settings.key_method == KeyMethod::kBalancedRotated) plan.balance_artifact = keys;
  }
  for (const TierBits& tier : tiers) {
    for (Part part : kParts) {
      firnkv::TierRule rule;
      rule.tier = tier.tier;
      rule.part = static_cast<firnkv::Part>(part);
      const ClassMap& classes = tier.allocation.classes[static_cast<size_t>(part)];
      for (PrecisionClass c : classes) rule.heads.push_back(static_cast<firnkv::Precision>(c));
      if (integers) {
        rule.coding.codec = part == Part::kK ? firnkv::Codec::kIntChannel : firnkv::Codec::kIntToken;
        rule.coding.bits = static_cast<uint32_t>(*std::min_element(classes.begin(), classes.end()));
        rule.coding.group = kIntegerGroup;
      }
      plan.rules.push_back(std::move(rule));
    }
  }
  return plan;
}

}  // namespace firn::cli
