// The error that each precision class leaves in one layer's keys and values, head by head, on captured windows of text.
//
// A window is encoded in blocks by the codec itself and decoded at each class; what that does to the attention is
// measured (attention_error.h), and, where gradients of a loss are given, what it does to the loss to second order with
// a diagonal Fisher matrix: sum g^2 (x^ - x)^2. Sums of windows add up. The result depends on the input and the options
// alone, not on `threads`. Threads: functions are reentrant. Memory: a window several times over as FP32, and what
// AttentionMeasure needs for `threads` heads. Errors: InvalidArgument for sizes that do not go together, for values
// that are not finite, and for codes that the window's shape does not take; FailedPrecondition without an artifact that
// the code needs. Limits: those of blocks; a window of kWindowTokensMax tokens.
// Source of the Fisher measure: KVQuant, arXiv 2401.18079, section 3.2.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "codecs/allocate/attention_error.h"
#include "codecs/block_codec.h"

namespace firn {

inline constexpr uint32_t kWindowTokensMax = 16384;

// How a part is coded at each class. `spec` has the artifacts of the window's one layer; its targets are not read.
struct SurveyCode {
  EncodeSpec spec;
  // By Part, with `bits` set by class; codec kNone is the ladder.
  std::array<PartCoding, 2> coding;
  std::array<std::shared_ptr<const Artifact>, 2> artifact;
  std::vector<PrecisionClass> classes;  // Finest first.
};

struct SurveyOptions {
  SurveyCode code;
  uint32_t block_tokens = 64;
  AttentionMeasure::Options attention;  // exact_first is what the codec keeps exact.
  double scale = 0;                     // Of logits; 0: 1 / sqrt(k_width).
  uint32_t threads = 1;
};

// One layer of one window, [token][head][channel] each, keys after RoPE unless they are stored before it.
struct SurveyWindow {
  DType dtype = DType::kFp16;  // What K and V are stored as.
  uint32_t tokens = 0, kv_heads = 0, query_heads = 0, k_width = 0, v_width = 0;
  std::span<const float> queries, keys, values;
  std::span<const float> key_gradients, value_gradients;  // Of the same sizes, or empty.
  // [query head][v_width][v_width] (AttentionWindow::output_gram), or empty.
  std::span<const float> output_gram;
};

// Sums over windows.
struct HeadErrors {
  double output = 0, attention = 0, gradient = 0;
  void Add(const HeadErrors& other);
  bool operator==(const HeadErrors&) const = default;
};

struct LayerErrors {
  uint32_t heads = 0;
  uint64_t outputs = 0;  // Of each KV head: queries times query heads.
  uint64_t window_tokens = 0, gradient_tokens = 0;
  std::vector<double> output_norm;  // [head]
  // By Part: [class][head], as in SurveyCode::classes.
  std::array<std::vector<HeadErrors>, 2> errors;
  // HeadBytesOf blocks like these.
  std::array<std::vector<uint64_t>, 2> head_bytes;
  absl::Status Add(const LayerErrors& other);
  bool operator==(const LayerErrors&) const = default;
};

// By Part, by class: bytes of codes and metadata of one head in a full block away from the sequence's start.
absl::StatusOr<std::array<std::vector<uint64_t>, 2>> HeadBytesOf(const SurveyCode& code, const BlockShape& shape,
                                                                 DType dtype);

absl::StatusOr<LayerErrors> SurveyClasses(const SurveyWindow& window, const SurveyOptions& options);

// One layer of an artifact, as an artifact of its own; the layer exists.
absl::StatusOr<std::shared_ptr<const Artifact>> ArtifactOfLayer(const Artifact& artifact, uint32_t layer);

}  // namespace firn
