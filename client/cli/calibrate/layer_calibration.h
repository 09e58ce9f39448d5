// What is measured of one layer over all captures: artifact sections of its keys and values, and the errors of its
// heads at each precision.
//
// Every layer is done by itself, so that memory is bounded by one layer of one capture (as FP32, several times over)
// and the tokens that codebooks are fitted to (NuqCalibrator), and so that a long run may stop between layers. Threads:
// pure; `threads` work inside, without influence on the result.
#pragma once

#include <optional>
#include <vector>

#include "client/cli/calibrate/capture.h"
#include "codecs/allocate/class_survey.h"
#include "codecs/artifact.h"
#include "codecs/calibrate.h"

namespace firn::cli {

// Which sections an artifact is to have.
struct SectionChoice {
  bool balance = false;    // Keys alone.
  bool codebooks = false;  // With ranges of keys.
  bool scales = false;
  bool any() const { return balance || codebooks || scales; }
  bool operator==(const SectionChoice&) const = default;
};

enum class LadderOrIntegers : uint8_t { kMinMax, kGain, kTrellis, kIntegers };

struct CalibrationSettings {
  SectionChoice keys, values;
  uint32_t outliers = 10;
  std::vector<uint32_t> codebook_bits = {2, 3, 4};
  bool q_norm = false;
  Balancing balancing = Balancing::kSpread;
  uint32_t tokens_max = 16384;
  float fp8_max = 448;  // E4M3's largest number, or E5M2's.
  Rope rope;            // Without frequencies: not known.

  bool survey = false;
  LadderOrIntegers code = LadderOrIntegers::kTrellis;
  KeyMethod key_method = KeyMethod::kBalancedRotated;
  std::vector<PrecisionClass> classes = {PrecisionClass::k8Bit, PrecisionClass::k4Bit, PrecisionClass::k2Bit};
  uint32_t block_tokens = 64, window_tokens = 2048;
  uint32_t exact_first = 4, exact_recent = 128, queries = 256;
  double softmax_scale = 0;
  uint32_t threads = 1;

  // All that a result depends on, as text: equal texts, equal results.
  std::string Describe() const;
  // The code as a survey wants it; `balance` of as many layers as what is coded.
  SurveyCode Code(std::shared_ptr<const Artifact> balance) const;
};

inline constexpr uint32_t kIntegerGroup = 32;  // Of keys by channel and values by token.

struct LayerResult {
  uint64_t tokens = 0;
  uint32_t captures_without_queries = 0;
  ArtifactSections keys, values;  // Of one layer; no sections where none are wanted.
  LayerErrors errors;             // Where a survey is wanted.
  bool operator==(const LayerResult&) const = default;
};

absl::StatusOr<LayerResult> CalibrateLayer(const std::vector<Capture>& captures, uint32_t layer,
                                           const CalibrationSettings& settings);

// Appends the sections of one layer; the rotary facts are those of the first.
void AppendLayer(const ArtifactSections& layer, ArtifactSections* all);

}  // namespace firn::cli
