#include "firnkv/presets.h"

#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "base/status.h"

namespace firnkv {
namespace {

constexpr PresetInfo kPresets[] = {
    {"fp8", "FP8 E4M3, a scale a head"},
    {"int8", "plain 8-bit integers by token, groups of 128"},
    {"int4", "plain 4-bit integers by token, groups of 64"},
    {"kivi-4", "KIVI at 4 bits, groups of 32, a window of 128 tokens"},
    {"kivi-2", "KIVI at 2 bits, groups of 32, a window of 128 tokens"},
    {"kvquant-4", "KVQuant at 4 bits, 1.5 % outliers of keys, 1 % of values; needs artifacts of both"},
    {"kvquant-3", "KVQuant at 3 bits, 1.5 % outliers of keys, 1 % of values; needs artifacts of both"},
    {"kvquant-2", "KVQuant at 2 bits, 1.5 % outliers of keys, 1 % of values; needs artifacts of both"},
    {"kvmix", "KVmix: 3-bit keys and 4-bit values in the layers that matter most, 2 bits in others; needs a ranking"},
    {"mikv",
     "MiKV: a fifth of the tokens exact by importance, the rest at 3 bits; keys balanced with an artifact of `firn "
     "calibrate --balance "
     "mikv`"},
    {"firn",
     "the nested ladder, trellis-coded: the most precise from 2.2 bits on; with a floor of int8 of minimum and step; "
     "without "
     "an artifact of keys these are coded by channel, of minimum and step"},
    {"firn-fast", "the nested ladder of minimum and step: encodes more than twice as fast; keys likewise"},
};

// The same for K and V, in every tier that codes.
PrecisionPlan Everywhere(const Coding& keys, const Coding& values) {
  PrecisionPlan plan;
  plan.rules = {{.tier = {}, .part = Part::kK, .coding = keys}, {.tier = {}, .part = Part::kV, .coding = values}};
  return plan;
}

PrecisionPlan Plain(uint32_t bits, uint32_t group) {
  Coding coding{.codec = Codec::kIntToken, .bits = bits, .group = group};
  return Everywhere(coding, coding);
}

PrecisionPlan Kivi(uint32_t bits) {
  constexpr uint32_t kGroup = 32, kResidualTokens = 128;
  PrecisionPlan plan = Everywhere({.codec = Codec::kIntChannel, .bits = bits, .group = kGroup},
                                  {.codec = Codec::kIntToken, .bits = bits, .group = kGroup});
  plan.recent_tokens = kResidualTokens;
  return plan;
}

absl::StatusOr<PrecisionPlan> KvQuant(uint32_t bits, const PresetArtifacts& artifacts) {
  if (!artifacts.keys.has_value() || !artifacts.values.has_value()) {
    return firn::InvalidArgument("preset kvquant-{} needs an artifact of keys and one of values", bits);
  }
  // Values beyond the calibrated ranges of 1 % come in heaps: 64 tokens share room for half as many again.
  constexpr uint32_t kOutliersPerMille = 10, kKeyOutliersPerMille = 15, kKeyGroup = 64;
  PrecisionPlan plan = Everywhere(
      {.codec = Codec::kNuqChannel,
       .bits = bits,
       .group = kKeyGroup,
       .outliers_per_mille = kKeyOutliersPerMille,
       .pre_rope = true,
       .artifact = artifacts.keys},
      {.codec = Codec::kNuqToken, .bits = bits, .outliers_per_mille = kOutliersPerMille, .artifact = artifacts.values});
  plan.keep_first_tokens = 1;
  return plan;
}

PrecisionPlan MiKv(const PresetArtifacts& artifacts) {
  constexpr uint32_t kBits = 3, kGroup = 64;
  Coding values{.codec = Codec::kIntToken, .bits = kBits, .group = kGroup};
  Coding keys = values;
  keys.balanced = artifacts.keys.has_value();
  keys.artifact = artifacts.keys;
  PrecisionPlan plan = Everywhere(keys, values);
  plan.important_fraction = 0.2f;
  return plan;
}

PrecisionPlan Firn(Ladder ladder, const PresetArtifacts& artifacts) {
  PrecisionPlan plan;
  plan.ladder = ladder;
  if (artifacts.keys.has_value()) {
    plan.key_method = KeyMethod::kBalancedRotated;
    plan.balance_artifact = artifacts.keys;
  }
  return plan;
}

}  // namespace

std::span<const PresetInfo> Presets() { return kPresets; }

absl::StatusOr<PrecisionPlan> Preset(std::string_view name, const PresetArtifacts& artifacts) {
  if (name == "fp8") return Everywhere({.codec = Codec::kFp8E4m3}, {.codec = Codec::kFp8E4m3});
  if (name == "int8") return Plain(8, 128);
  if (name == "int4") return Plain(4, 64);
  if (name == "kivi-4") return Kivi(4);
  if (name == "kivi-2") return Kivi(2);
  if (name == "kvquant-4") return KvQuant(4, artifacts);
  if (name == "kvquant-3") return KvQuant(3, artifacts);
  if (name == "kvquant-2") return KvQuant(2, artifacts);
  if (name == "kvmix") return firn::InvalidArgument("preset kvmix needs a ranking of layers");
  if (name == "mikv") return MiKv(artifacts);
  if (name == "firn") return Firn(Ladder::kTrellis, artifacts);
  if (name == "firn-fast") return Firn(Ladder::kMinMax, artifacts);
  std::vector<std::string_view> names;
  for (const PresetInfo& preset : kPresets) names.push_back(preset.name);
  return firn::InvalidArgument("preset '{}' is not known; there are {}", name, fmt::join(names, ", "));
}

}  // namespace firnkv
