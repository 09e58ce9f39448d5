#include "client/cli/calibrate/layer_calibration.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/status.h"
#include "codecs/allocate/parallel.h"
#include "codecs/calibrate.h"
#include "codecs/nuq/nuq_calibrator.h"
#include "codecs/rope/rope_table.h"
#include "codecs/scale_calibrator.h"

namespace firn::cli {
namespace {

// Values of one layer of one capture; empty where the capture has none.
struct LayerValues {
  uint32_t tokens = 0;
  std::vector<float> k, k_pre_rope, v, q, k_grad, k_pre_rope_grad, v_grad;
};

absl::StatusOr<std::vector<float>> FloatsOf(const Tensor* tensor) {
  if (tensor == nullptr) return std::vector<float>();
  return ToFloats(*tensor);
}

// Takes the rotary embedding of rows [token][head][width] back.
void TurnBack(const Rope& rope, uint32_t tokens, uint64_t heads, uint64_t width, std::vector<float>* rows) {
  RopeTable table(rope, 0, tokens);
  float* row = rows->data();
  for (uint32_t t = 0; t < tokens; ++t) {
    for (uint64_t h = 0; h < heads; ++h, row += width) {
      for (uint32_t i = 0; i < table.pairs(); ++i) {
        uint32_t first = table.interleaved() ? 2 * i : i, second = table.interleaved() ? 2 * i + 1 : i + table.pairs();
        float a = row[first], b = row[second], c = table.Cosines(t)[i], s = table.Sines(t)[i];
        row[first] = a * c + b * s;
        row[second] = b * c - a * s;
      }
    }
  }
}

absl::StatusOr<LayerValues> ReadLayer(const Capture& capture, uint32_t layer, const CalibrationSettings& settings) {
  const LayerTensors& from = capture.layers().at(layer);
  const CaptureShape& shape = capture.shape();
  LayerValues values;
  values.tokens = static_cast<uint32_t>(from.k->shape[0]);
  FIRN_ASSIGN_OR_RETURN(values.k, FloatsOf(from.k));
  FIRN_ASSIGN_OR_RETURN(values.q, FloatsOf(from.q));
  if (settings.values.any() || settings.survey) {
    FIRN_ASSIGN_OR_RETURN(values.v, FloatsOf(from.v));
    FIRN_ASSIGN_OR_RETURN(values.v_grad, FloatsOf(from.v_grad));
  }
  if (settings.keys.codebooks || settings.survey) {
    FIRN_ASSIGN_OR_RETURN(values.k_grad, FloatsOf(from.k_grad));
  }
  if (!settings.keys.codebooks) return values;
  bool rope_known = !settings.rope.frequencies.empty();
  auto before = [&](std::vector<float> rows) {
    TurnBack(settings.rope, values.tokens, shape.kv_heads, shape.k_width, &rows);
    return rows;
  };
  if (from.k_pre_rope != nullptr) {
    FIRN_ASSIGN_OR_RETURN(values.k_pre_rope, ToFloats(*from.k_pre_rope));
  } else if (rope_known) {
    values.k_pre_rope = before(values.k);
  } else {
    return InvalidArgument(
        "{}: layer {} has no k_pre_rope, and without the rotary facts (--rope-base) it cannot be had", capture.path(),
        layer);
  }
  if (values.k_grad.empty()) return values;
  if (!rope_known) {
    return InvalidArgument("{}: layer {} has gradients by keys after RoPE; codebooks want them before it: --rope-base",
                           capture.path(), layer);
  }
  values.k_pre_rope_grad = before(values.k_grad);
  return values;
}

std::vector<float> Squares(std::vector<float> values) {
  for (float& value : values) value *= value;
  return values;
}

ArtifactSections Empty(uint64_t heads, uint64_t width) {
  ArtifactSections sections;
  sections.layers = 1, sections.heads = static_cast<uint32_t>(heads), sections.width = static_cast<uint32_t>(width);
  return sections;
}

// One part's calibrators, those that are wanted.
class PartCalibrators {
 public:
  static absl::StatusOr<PartCalibrators> Create(Part part, const CaptureShape& shape,
                                                const CalibrationSettings& settings) {
    PartCalibrators out(part, shape, settings);
    auto width = static_cast<uint32_t>(out.width_), heads = static_cast<uint32_t>(shape.kv_heads);
    if (out.balance_wanted()) {
      auto query_heads = static_cast<uint32_t>(shape.query_heads == 0 ? shape.kv_heads : shape.query_heads);
      FIRN_ASSIGN_OR_RETURN(out.balance_, KeyCalibrator::Create(1, heads, query_heads, width));
    }
    if (out.choice_.codebooks) {
      NuqOptions nuq;
      nuq.layers = 1, nuq.heads = heads, nuq.width = width, nuq.part = part;
      nuq.outliers = settings.outliers, nuq.bits = settings.codebook_bits, nuq.q_norm = settings.q_norm;
      nuq.tokens_max = settings.tokens_max;
      FIRN_ASSIGN_OR_RETURN(out.codebooks_, NuqCalibrator::Create(nuq));
    }
    if (out.choice_.scales) {
      FIRN_ASSIGN_OR_RETURN(out.scales_, ScaleCalibrator::Create(1, heads, width, settings.fp8_max));
    }
    return out;
  }

  absl::Status Add(const LayerValues& values) {
    const std::vector<float>& own = part_ == Part::kK ? values.k : values.v;
    if (balance_.has_value()) FIRN_RETURN_IF_ERROR(balance_->Add(0, values.tokens, own, values.q));
    if (codebooks_.has_value()) {
      bool keys = part_ == Part::kK;
      FIRN_RETURN_IF_ERROR(codebooks_->Add(0, values.tokens, keys ? values.k_pre_rope : values.v,
                                           Squares(keys ? values.k_pre_rope_grad : values.v_grad)));
    }
    return scales_.has_value() ? scales_->Add(0, values.tokens, own) : absl::OkStatus();
  }

  // `balance` is set where it was measured, also where the sections are not to have it.
  absl::StatusOr<ArtifactSections> Finish(std::shared_ptr<const Artifact>* balance) const {
    ArtifactSections sections = Empty(heads_, width_);
    if (codebooks_.has_value()) {
      FIRN_ASSIGN_OR_RETURN(sections, codebooks_->Finish());
    }
    if (balance_.has_value()) {
      FIRN_ASSIGN_OR_RETURN(*balance, balance_->Finish(settings_->balancing));
      if (choice_.balance) sections.mean = (*balance)->sections().mean, sections.weight = (*balance)->sections().weight;
    }
    if (scales_.has_value()) {
      FIRN_ASSIGN_OR_RETURN(ArtifactSections measured, scales_->Finish());
      sections.scales = std::move(measured.scales);
    }
    if (part_ == Part::kK && choice_.any()) sections.rope = settings_->rope;
    return sections;
  }

 private:
  PartCalibrators(Part part, const CaptureShape& shape, const CalibrationSettings& settings)
      : part_(part),
        settings_(&settings),
        choice_(part == Part::kK ? settings.keys : settings.values),
        heads_(shape.kv_heads),
        width_(part == Part::kK ? shape.k_width : shape.v_width) {}
  bool balance_wanted() const {
    bool coded = settings_->survey && settings_->code != LadderOrIntegers::kIntegers &&
                 settings_->key_method == KeyMethod::kBalancedRotated;
    return part_ == Part::kK && (choice_.balance || coded);
  }

  Part part_;
  const CalibrationSettings* settings_;
  SectionChoice choice_;
  uint64_t heads_, width_;
  std::optional<KeyCalibrator> balance_;
  std::optional<NuqCalibrator> codebooks_;
  std::optional<ScaleCalibrator> scales_;
};

// Says whose fault it is. Calibrators here have one layer, which they call 0: where they name it, the capture's number
// takes its place.
absl::Status Annotated(const absl::Status& status, const Capture& capture, uint32_t layer) {
  if (status.ok()) return status;
  constexpr std::string_view kTheirs = "layer 0";
  std::string message = Message(status), number = fmt::format("layer {}", layer);
  size_t at = message.find(kTheirs);
  if (at == std::string::npos) {
    message = number + ": " + message;
  } else {
    message.replace(at, kTheirs.size(), number);
  }
  return absl::Status(status.code(), fmt::format("{}: {}", capture.path(), message));
}

// W^T W of each query head's columns of the output projection.
absl::StatusOr<std::vector<float>> OutputGram(const Tensor* o_proj, const CaptureShape& shape, uint32_t threads) {
  std::vector<float> gram;
  if (o_proj == nullptr) return gram;
  FIRN_ASSIGN_OR_RETURN(std::vector<float> weights, ToFloats(*o_proj));
  uint64_t width = shape.v_width, columns = shape.query_heads * width, hidden = o_proj->shape[0];
  gram.resize(columns * width);
  ForEachIndex(static_cast<uint32_t>(shape.query_heads), threads, [&](uint32_t head) {
    std::vector<double> sums(width * width);
    for (uint64_t o = 0; o < hidden; ++o) {
      const float* row = weights.data() + o * columns + head * width;
      for (uint64_t i = 0; i < width; ++i) {
        for (uint64_t j = 0; j < width; ++j) sums[i * width + j] += double{row[i]} * row[j];
      }
    }
    for (uint64_t i = 0; i < sums.size(); ++i) gram[head * width * width + i] = static_cast<float>(sums[i]);
  });
  return gram;
}

absl::StatusOr<LayerErrors> SurveyCapture(const Capture& capture, uint32_t layer, const CalibrationSettings& settings,
                                          const std::shared_ptr<const Artifact>& balance) {
  const LayerTensors& tensors = capture.layers().at(layer);
  const CaptureShape& shape = capture.shape();
  if (tensors.q == nullptr || tensors.v == nullptr) {
    return InvalidArgument("{}: layer {} has no {}, without which attention cannot be measured", capture.path(), layer,
                           tensors.q == nullptr ? "q" : "v");
  }
  CalibrationSettings read = settings;
  read.keys.codebooks = false;
  FIRN_ASSIGN_OR_RETURN(LayerValues values, ReadLayer(capture, layer, read));
  FIRN_ASSIGN_OR_RETURN(std::vector<float> gram, OutputGram(tensors.o_proj, shape, settings.threads));
  uint32_t tokens = std::min(values.tokens, settings.window_tokens);
  auto front = [&](const std::vector<float>& rows) {
    return std::span(rows).first(rows.size() / values.tokens * tokens);
  };
  SurveyWindow window;
  window.dtype = tensors.k->type == ElementType::kBf16 ? DType::kBf16 : DType::kFp16;
  window.tokens = tokens;
  window.kv_heads = static_cast<uint32_t>(shape.kv_heads),
  window.query_heads = static_cast<uint32_t>(shape.query_heads);
  window.k_width = static_cast<uint32_t>(shape.k_width), window.v_width = static_cast<uint32_t>(shape.v_width);
  window.queries = front(values.q), window.keys = front(values.k), window.values = front(values.v);
  window.key_gradients = front(values.k_grad), window.value_gradients = front(values.v_grad);
  window.output_gram = gram;
  SurveyOptions options;
  options.code = settings.Code(balance);
  options.block_tokens = settings.block_tokens;
  options.attention = {.exact_first = settings.exact_first,
                       .exact_recent = std::min(settings.exact_recent, tokens / 4),
                       .queries_max = settings.queries};
  options.scale = settings.softmax_scale;
  options.threads = settings.threads;
  auto errors = SurveyClasses(window, options);
  return errors.ok() ? errors : Annotated(errors.status(), capture, layer);
}

}  // namespace

SurveyCode CalibrationSettings::Code(std::shared_ptr<const Artifact> balance) const {
  SurveyCode out;
  out.classes = classes;
  if (code == LadderOrIntegers::kIntegers) {
    out.coding[0].codec = CodecId::kIntChannel, out.coding[0].group = kIntegerGroup;
    out.coding[1].codec = CodecId::kIntToken, out.coding[1].group = kIntegerGroup;
    return out;
  }
  out.spec.ladder = code == LadderOrIntegers::kMinMax ? Ladder::kMinMax
                    : code == LadderOrIntegers::kGain ? Ladder::kGain
                                                      : Ladder::kTrellis;
  out.spec.key_method = key_method;
  if (key_method == KeyMethod::kBalancedRotated) out.spec.balance = std::move(balance);
  return out;
}

absl::StatusOr<LayerResult> CalibrateLayer(const std::vector<Capture>& captures, uint32_t layer,
                                           const CalibrationSettings& settings) {
  LayerResult result;
  const CaptureShape& shape = captures[0].shape();
  FIRN_ASSIGN_OR_RETURN(PartCalibrators keys, PartCalibrators::Create(Part::kK, shape, settings));
  std::optional<PartCalibrators> values;
  if (settings.values.any()) {
    FIRN_ASSIGN_OR_RETURN(values, PartCalibrators::Create(Part::kV, shape, settings));
  }
  for (const Capture& capture : captures) {
    FIRN_ASSIGN_OR_RETURN(LayerValues read, ReadLayer(capture, layer, settings));
    if (values.has_value() && read.v.empty()) {
      return InvalidArgument("{}: layer {} has no v, and an artifact of values is wanted", capture.path(), layer);
    }
    FIRN_RETURN_IF_ERROR(Annotated(keys.Add(read), capture, layer));
    if (values.has_value()) FIRN_RETURN_IF_ERROR(Annotated(values->Add(read), capture, layer));
    result.tokens += read.tokens;
    result.captures_without_queries += read.q.empty();
  }
  if ((settings.keys.codebooks || settings.values.codebooks) && result.tokens < 2) {
    return InvalidArgument("{}: layer {} has {} token, codebooks are fitted to at least 2", captures[0].path(), layer,
                           result.tokens);
  }
  std::shared_ptr<const Artifact> balance;
  auto finished = [&](const PartCalibrators& part, ArtifactSections* sections) {
    auto done = part.Finish(&balance);
    if (!done.ok()) return Annotated(done.status(), captures[0], layer);
    *sections = *std::move(done);
    return absl::OkStatus();
  };
  FIRN_RETURN_IF_ERROR(finished(keys, &result.keys));
  if (values.has_value()) FIRN_RETURN_IF_ERROR(finished(*values, &result.values));
  if (!settings.survey) return result;
  for (const Capture& capture : captures) {
    FIRN_ASSIGN_OR_RETURN(LayerErrors errors, SurveyCapture(capture, layer, settings, balance));
    FIRN_RETURN_IF_ERROR(Annotated(result.errors.Add(errors), capture, layer));
  }
  return result;
}

void AppendLayer(const ArtifactSections& layer, ArtifactSections* all) {
  if (all->layers == 0) {
    *all = layer;
    return;
  }
  all->layers += layer.layers;
  auto append = [](const std::vector<float>& from, std::vector<float>* to) {
    to->insert(to->end(), from.begin(), from.end());
  };
  append(layer.mean, &all->mean), append(layer.weight, &all->weight);
  append(layer.centre, &all->centre), append(layer.reach, &all->reach);
  append(layer.scales, &all->scales);
  for (size_t i = 0; i < all->codebooks.size(); ++i) {
    append(layer.codebooks[i].levels, &all->codebooks[i].levels);
    append(layer.codebooks[i].decoded, &all->codebooks[i].decoded);
  }
}

}  // namespace firn::cli
