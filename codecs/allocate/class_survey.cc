#include "codecs/allocate/class_survey.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "codecs/allocate/parallel.h"
#include "codecs/numeric/convert.h"

namespace firn {
namespace {

// Finds what a survey's spec brings.
class SurveyArtifacts : public ArtifactSource {
 public:
  explicit SurveyArtifacts(const SurveyCode& code) : known_{code.spec.balance, code.artifact[0], code.artifact[1]} {}
  std::shared_ptr<const Artifact> Find(const Digest& digest) const override {
    for (const auto& artifact : known_) {
      if (artifact != nullptr && artifact->digest() == digest) return artifact;
    }
    return nullptr;
  }

 private:
  std::array<std::shared_ptr<const Artifact>, 3> known_;
};

absl::Status CheckValues(const char* what, std::span<const float> values, uint64_t expected, bool optional) {
  if (values.empty() && optional) return absl::OkStatus();
  if (values.size() != expected) return InvalidArgument("{} values of {}, {} expected", values.size(), what, expected);
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) return InvalidArgument("value {} of the {} is {}", i, what, values[i]);
  }
  return absl::OkStatus();
}

absl::Status CheckWindow(const SurveyWindow& w, const SurveyOptions& options) {
  if (w.tokens < 2 || w.tokens > kWindowTokensMax) {
    return InvalidArgument("a window of {} tokens, 2 to {}", w.tokens, kWindowTokensMax);
  }
  if (w.kv_heads == 0 || w.query_heads == 0 || w.query_heads % w.kv_heads != 0) {
    return InvalidArgument("{} query heads do not divide among {} KV heads", w.query_heads, w.kv_heads);
  }
  if (w.k_width == 0 || w.v_width == 0) return InvalidArgument("widths of {} and {} channels", w.k_width, w.v_width);
  if (options.block_tokens == 0 || options.code.classes.empty() || options.attention.queries_max == 0) {
    return InvalidArgument("blocks of {} tokens, {} classes, {} queries", options.block_tokens,
                           options.code.classes.size(), options.attention.queries_max);
  }
  uint64_t rows = uint64_t{w.tokens} * w.kv_heads;
  FIRN_RETURN_IF_ERROR(
      CheckValues("queries", w.queries, uint64_t{w.tokens} * w.query_heads * w.k_width, /*optional=*/false));
  FIRN_RETURN_IF_ERROR(CheckValues("keys", w.keys, rows * w.k_width, false));
  FIRN_RETURN_IF_ERROR(CheckValues("values", w.values, rows * w.v_width, false));
  FIRN_RETURN_IF_ERROR(CheckValues("key gradients", w.key_gradients, rows * w.k_width, true));
  FIRN_RETURN_IF_ERROR(CheckValues("value gradients", w.value_gradients, rows * w.v_width, true));
  return CheckValues("output projection", w.output_gram, uint64_t{w.query_heads} * w.v_width * w.v_width, true);
}

EncodeSpec SpecAt(const SurveyCode& code, PrecisionClass c, uint32_t keep_first_tokens) {
  EncodeSpec spec = code.spec;
  spec.target = {c, c};
  spec.keep_first_tokens = keep_first_tokens;
  for (Part part : kParts) {
    PartCoding coding = code.coding[static_cast<size_t>(part)];
    if (coding.codec == CodecId::kNone) continue;
    coding.bits = static_cast<uint8_t>(c);
    spec.rules[static_cast<size_t>(part)] = {{c, coding, code.artifact[static_cast<size_t>(part)]}};
  }
  return spec;
}

// A window as blocks: encoded and decoded, [head][token][channel] of the whole window.
class CodedWindow {
 public:
  CodedWindow(const SurveyWindow& window, const SurveyOptions& options)
      : window_(window), options_(options), blocks_((window.tokens + options.block_tokens - 1) / options.block_tokens) {
    for (Part part : kParts) decoded_[static_cast<size_t>(part)].resize(ValuesOf(part).size());
  }

  absl::Status CodeAt(PrecisionClass c) {
    std::vector<absl::Status> done(blocks_);
    ForEachIndex(blocks_, options_.threads, [&](uint32_t block) { done[block] = CodeBlock(c, block); });
    for (const absl::Status& status : done) FIRN_RETURN_IF_ERROR(status);
    return absl::OkStatus();
  }

  // Rows of one head.
  TokenRows Decoded(Part part, uint32_t head) const {
    uint32_t width = WidthOf(part);
    return {decoded_[static_cast<size_t>(part)].data() + uint64_t{head} * window_.tokens * width, width};
  }

 private:
  uint32_t WidthOf(Part part) const { return part == Part::kK ? window_.k_width : window_.v_width; }
  std::span<const float> ValuesOf(Part part) const { return part == Part::kK ? window_.keys : window_.values; }

  // The values of a block as they are stored.
  std::vector<uint8_t> Stored(Part part, uint32_t first, uint32_t tokens) const {
    uint32_t width = WidthOf(part), heads = window_.kv_heads;
    std::vector<float> rows;
    rows.reserve(uint64_t{heads} * tokens * width);
    for (uint32_t head = 0; head < heads; ++head) {
      for (uint32_t t = 0; t < tokens; ++t) {
        const float* row = ValuesOf(part).data() + (uint64_t{first + t} * heads + head) * width;
        rows.insert(rows.end(), row, row + width);
      }
    }
    std::vector<uint8_t> bytes(rows.size() * DTypeBytes(window_.dtype));
    ConvertValues(reinterpret_cast<const uint8_t*>(rows.data()), DType::kFp32, rows.size(), window_.dtype,
                  bytes.data());
    return bytes;
  }

  absl::Status CodeBlock(PrecisionClass c, uint32_t block) {
    uint32_t first = block * options_.block_tokens, tokens = std::min(options_.block_tokens, window_.tokens - first);
    BlockShape shape{.layers = 1,
                     .heads = window_.kv_heads,
                     .k_width = window_.k_width,
                     .v_width = window_.v_width,
                     .tokens = tokens};
    FIRN_RETURN_IF_ERROR(CheckShape(shape, window_.dtype));
    std::vector<uint8_t> k = Stored(Part::kK, first, tokens), v = Stored(Part::kV, first, tokens);
    FIRN_ASSIGN_OR_RETURN(EncodedBlock source, WrapRaw(Identity{}, window_.dtype, shape, k, v, {}, {}));
    auto header = std::make_shared<RecordHeader>(*source.header);
    header->first_token = first;
    source.header = std::move(header);
    SurveyArtifacts artifacts(options_.code);
    EncodeSpec spec = SpecAt(options_.code, c, options_.attention.exact_first);
    FIRN_ASSIGN_OR_RETURN(EncodedBlock encoded, EncodeToHeap(source, spec, artifacts));
    std::vector<float> k_out(shape.part(Part::kK).values()), v_out(shape.part(Part::kV).values());
    DecodeRequest request{.out = DType::kFp32};
    FIRN_RETURN_IF_ERROR(Decode(encoded, artifacts, request,
                                {reinterpret_cast<uint8_t*>(k_out.data()), k_out.size() * sizeof(float)},
                                {reinterpret_cast<uint8_t*>(v_out.data()), v_out.size() * sizeof(float)}));
    Place(Part::kK, k_out, first, tokens);
    Place(Part::kV, v_out, first, tokens);
    return absl::OkStatus();
  }

  void Place(Part part, const std::vector<float>& rows, uint32_t first, uint32_t tokens) {
    uint64_t head_values = uint64_t{tokens} * WidthOf(part);
    for (uint32_t head = 0; head < window_.kv_heads; ++head) {
      uint64_t to = (uint64_t{head} * window_.tokens + first) * WidthOf(part);
      std::copy_n(rows.begin() + static_cast<ptrdiff_t>(head * head_values), head_values,
                  decoded_[static_cast<size_t>(part)].begin() + static_cast<ptrdiff_t>(to));
    }
  }

  const SurveyWindow& window_;
  const SurveyOptions& options_;
  const uint32_t blocks_;
  std::array<std::vector<float>, 2> decoded_;
};

double GradientError(const SurveyWindow& w, Part part, uint32_t head, TokenRows coded) {
  std::span<const float> gradients = part == Part::kK ? w.key_gradients : w.value_gradients;
  std::span<const float> exact = part == Part::kK ? w.keys : w.values;
  uint32_t width = part == Part::kK ? w.k_width : w.v_width;
  double error = 0;
  if (gradients.empty()) return error;
  for (uint32_t t = 0; t < w.tokens; ++t) {
    uint64_t at = (uint64_t{t} * w.kv_heads + head) * width;
    for (uint32_t c = 0; c < width; ++c) {
      double d = double{gradients[at + c]} * (double{coded[t][c]} - exact[at + c]);
      error += d * d;
    }
  }
  return error;
}

AttentionWindow WindowOfHead(const SurveyWindow& w, const SurveyOptions& options, uint32_t head) {
  uint32_t group = w.query_heads / w.kv_heads;
  return {.tokens = w.tokens,
          .group = group,
          .k_width = w.k_width,
          .v_width = w.v_width,
          .queries = {w.queries.data() + uint64_t{head} * group * w.k_width, size_t{w.query_heads} * w.k_width},
          .keys = {w.keys.data() + uint64_t{head} * w.k_width, size_t{w.kv_heads} * w.k_width},
          .values = {w.values.data() + uint64_t{head} * w.v_width, size_t{w.kv_heads} * w.v_width},
          .scale = options.scale > 0 ? options.scale : 1 / std::sqrt(static_cast<double>(w.k_width)),
          .output_gram =
              w.output_gram.empty() ? nullptr : w.output_gram.data() + uint64_t{head} * group * w.v_width * w.v_width};
}

}  // namespace

void HeadErrors::Add(const HeadErrors& other) {
  output += other.output;
  attention += other.attention;
  gradient += other.gradient;
}

absl::Status LayerErrors::Add(const LayerErrors& other) {
  if (heads == 0) {
    *this = other;
    return absl::OkStatus();
  }
  if (heads != other.heads || head_bytes != other.head_bytes || errors[0].size() != other.errors[0].size()) {
    return InvalidArgument("windows whose heads are coded differently: {} and {} heads", heads, other.heads);
  }
  outputs += other.outputs;
  window_tokens += other.window_tokens;
  gradient_tokens += other.gradient_tokens;
  for (size_t i = 0; i < output_norm.size(); ++i) output_norm[i] += other.output_norm[i];
  for (size_t p = 0; p < errors.size(); ++p) {
    for (size_t i = 0; i < errors[p].size(); ++i) errors[p][i].Add(other.errors[p][i]);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::array<std::vector<uint64_t>, 2>> HeadBytesOf(const SurveyCode& code, const BlockShape& shape,
                                                                 DType dtype) {
  FIRN_RETURN_IF_ERROR(CheckShape(shape, dtype));
  std::vector<uint8_t> k(shape.part(Part::kK).values() * DTypeBytes(dtype));
  std::vector<uint8_t> v(shape.part(Part::kV).values() * DTypeBytes(dtype));
  FIRN_ASSIGN_OR_RETURN(EncodedBlock source, WrapRaw(Identity{}, dtype, shape, k, v, {}, {}));
  std::array<std::vector<uint64_t>, 2> bytes;
  for (PrecisionClass c : code.classes) {
    FIRN_ASSIGN_OR_RETURN(EncodePlan plan, PlanEncode(source, SpecAt(code, c, 0)));
    for (Part part : kParts) {
      uint64_t total = 0;
      for (uint32_t i = 0; i < kRunIds; ++i) {
        if (RunPartOf(i) == part) total += plan.layout.run_bytes[i];
      }
      bytes[static_cast<size_t>(part)].push_back(total / shape.heads);
    }
  }
  return bytes;
}

absl::StatusOr<LayerErrors> SurveyClasses(const SurveyWindow& window, const SurveyOptions& options) {
  FIRN_RETURN_IF_ERROR(CheckWindow(window, options));
  const std::vector<PrecisionClass>& classes = options.code.classes;
  std::vector<CodedWindow> coded;
  LayerErrors out;
  out.heads = window.kv_heads;
  out.output_norm.resize(window.kv_heads);
  for (PrecisionClass c : classes) {
    coded.emplace_back(window, options);
    FIRN_RETURN_IF_ERROR(coded.back().CodeAt(c));
  }
  BlockShape block{.layers = 1,
                   .heads = window.kv_heads,
                   .k_width = window.k_width,
                   .v_width = window.v_width,
                   .tokens = options.block_tokens};
  FIRN_ASSIGN_OR_RETURN(out.head_bytes, HeadBytesOf(options.code, block, window.dtype));
  for (auto& errors : out.errors) errors.resize(classes.size() * window.kv_heads);
  std::vector<uint64_t> outputs(window.kv_heads);
  ForEachIndex(window.kv_heads, options.threads, [&](uint32_t head) {
    AttentionMeasure measure(WindowOfHead(window, options, head), options.attention);
    out.output_norm[head] = measure.output_norm();
    outputs[head] = measure.outputs();
    for (size_t c = 0; c < classes.size(); ++c) {
      for (Part part : kParts) {
        TokenRows rows = coded[c].Decoded(part, head);
        AttentionErrors errors = part == Part::kK ? measure.OfKeys(rows) : measure.OfValues(rows);
        out.errors[static_cast<size_t>(part)][c * window.kv_heads + head] = {errors.output, errors.attention,
                                                                             GradientError(window, part, head, rows)};
      }
    }
  });
  out.outputs = outputs[0];
  out.window_tokens = window.tokens;
  if (!window.key_gradients.empty() && !window.value_gradients.empty()) out.gradient_tokens = window.tokens;
  return out;
}

absl::StatusOr<std::shared_ptr<const Artifact>> ArtifactOfLayer(const Artifact& artifact, uint32_t layer) {
  const ArtifactSections& all = artifact.sections();
  if (layer >= all.layers) return InvalidArgument("layer {} of an artifact of {}", layer, all.layers);
  auto slice = [&](const std::vector<float>& values) {
    size_t count = values.size() / all.layers;
    auto first = values.begin() + static_cast<ptrdiff_t>(layer * count);
    return std::vector<float>(first, first + static_cast<ptrdiff_t>(count));
  };
  ArtifactSections one;
  one.layers = 1, one.heads = all.heads, one.width = all.width;
  one.mean = slice(all.mean), one.weight = slice(all.weight);
  one.centre = slice(all.centre), one.reach = slice(all.reach);
  one.scales = slice(all.scales);
  for (const Codebook& book : all.codebooks) {
    one.codebooks.push_back({.bits = book.bits, .levels = slice(book.levels), .decoded = slice(book.decoded)});
  }
  one.rope = all.rope;
  return Artifact::Create(std::move(one));
}

}  // namespace firn
