// Precision plans by name: the published methods of quantizing K and V, and FirnKV's own.
//
// A preset says how blocks are coded in every tier that does not keep them exactly; what it does not say is the plan's
// default, and may be set afterwards. Threads: pure functions.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "firnkv/types.h"

namespace firnkv {

// Calibrated data that presets use, by the names that PutArtifact gave.
struct PresetArtifacts {
  std::optional<Digest> keys = {};
  std::optional<Digest> values = {};
};

struct PresetInfo {
  std::string_view name;
  std::string_view summary;  // What it reproduces, in a line.
};
std::span<const PresetInfo> Presets();

// InvalidArgument for a name that is not among Presets(), or where an artifact is missing that the method cannot do
// without.
//   fp8         E4M3, a dynamic scale a head.
//   int8, int4  plain integers, a scale and a minimum for each 128 (int4: 64) channels of a token and head.
//   kivi-4, kivi-2          keys by channel, values by token, groups of 32, the last 128 tokens of a sequence that
//                           grows as they were put (arXiv 2402.02750).
//   kvquant-4, -3, -2       non-uniform codebooks, keys before their rotary embedding, outliers kept (1.5 % of keys,
//                           shared by 64 tokens, and 1 % of values), the first token exact (arXiv 2401.18079); needs
//                           both artifacts.
//   kvmix                   KIVI's quantizer and window; K at 3 and V at 4 bits in a fifth of the layers, at 2 bits in
//   the others
//                           (arXiv 2506.08018). Which ones a ranking says: PresetPlan (plan_file.h) takes it, Preset is
//                           always refused.
//   mikv                    the most important fifth of the tokens exact, the others INT3 by token, groups of 64;
//                           keys balanced where there is an artifact (arXiv 2402.18096). The engine gives importance.
//   firn, firn-fast         the nested ladder: each tier as fine as it is configured, demotion drops planes; keys
//   balanced
//                           where there is an artifact. firn is trellis-coded, firn-fast has a minimum and a step.
absl::StatusOr<PrecisionPlan> Preset(std::string_view name, const PresetArtifacts& artifacts);

}  // namespace firnkv
