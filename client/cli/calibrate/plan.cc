#include "client/cli/calibrate/plan.h"

#include <algorithm>

namespace firn::cli {

firnkv::PrecisionPlan PlanOf(const CalibrationSettings& settings, const std::vector<TierBits>& tiers,
                             const std::optional<firnkv::Digest>& keys) {
  firnkv::PrecisionPlan plan;
  plan.keep_first_tokens = settings.exact_first;
  bool integers = settings.code == LadderOrIntegers::kIntegers;
  if (!integers) {
    plan.ladder = settings.code == LadderOrIntegers::kMinMax ? firnkv::Ladder::kMinMax
                  : settings.code == LadderOrIntegers::kGain ? firnkv::Ladder::kGain
                                                             : firnkv::Ladder::kTrellis;
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
