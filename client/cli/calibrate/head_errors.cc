#include "client/cli/calibrate/head_errors.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/status.h"

namespace firn::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "firn-errors";
constexpr int kVersion = 1;
constexpr const char* kPartNames[] = {"k", "v"};

absl::StatusOr<double> ErrorOf(const LayerErrors& layer, Part part, uint32_t head, size_t c, ErrorMeasure measure) {
  const HeadErrors& errors = layer.errors[static_cast<size_t>(part)][c * layer.heads + head];
  auto outputs = static_cast<double>(layer.outputs);
  switch (measure) {
    case ErrorMeasure::kOutput:
      return errors.output / outputs;
    case ErrorMeasure::kRelative:
      return layer.output_norm[head] > 0 ? errors.output / layer.output_norm[head] : 0.0;
    case ErrorMeasure::kAttention:
      return errors.attention / outputs;
    case ErrorMeasure::kGradient:
      if (layer.gradient_tokens == 0 || layer.gradient_tokens != layer.window_tokens) {
        return InvalidArgument("gradients of {} tokens of {} are captured; LAYER.k_grad and LAYER.v_grad of all needed",
                               layer.gradient_tokens, layer.window_tokens);
      }
      return errors.gradient / static_cast<double>(layer.gradient_tokens);
    case ErrorMeasure::kGiven:
      break;
  }
  return InvalidArgument("errors are given, not measured");
}

absl::StatusOr<double> NumberAt(const std::string& path, const Json& at, uint32_t layer, size_t head, const char* part,
                                std::string_view name) {
  auto of_part = at.find(part);
  if (of_part != at.end() && of_part->is_object()) {
    auto value = of_part->find(std::string(name));
    if (value != of_part->end() && value->is_number()) {
      auto error = value->get<double>();
      if (error >= 0 && std::isfinite(error)) return error;
      return InvalidArgument("{}: layer {}, head {}: {} at {} is {}; finite and at least 0 expected", path, layer, head,
                             part, name, error);
    }
  }
  return InvalidArgument("{}: layer {}, head {} has no number for {} at {}", path, layer, head, part, name);
}

// The heads of a layer in an errors file; null where it is not there.
const Json* FindLayer(const Json& layers, uint32_t number) {
  for (const Json& layer : layers) {
    if (!layer.is_object() || layer.value("layer", Json()) != Json(number)) continue;
    auto heads = layer.find("heads");
    if (heads != layer.end() && heads->is_array()) return &*heads;
  }
  return nullptr;
}

}  // namespace

std::string_view MeasureName(ErrorMeasure measure) {
  constexpr std::string_view kNames[] = {"output", "relative", "attention", "gradient", "given"};
  return kNames[static_cast<size_t>(measure)];
}

absl::StatusOr<HeadErrorTable> MeasuredErrors(const CalibrationResult& result, const CalibrationSettings& settings,
                                              ErrorMeasure measure) {
  HeadErrorTable table{.measure = measure,
                       .layers = result.layers,
                       .heads = result.results[0].errors.heads,
                       .classes = settings.classes,
                       .errors = {}};
  for (size_t i = 0; i < result.results.size(); ++i) {
    const LayerErrors& layer = result.results[i].errors;
    for (Part part : kParts) {
      for (uint32_t head = 0; head < layer.heads; ++head) {
        for (size_t c = 0; c < settings.classes.size(); ++c) {
          auto error = ErrorOf(layer, part, head, c, measure);
          if (!error.ok()) return InvalidArgument("layer {}: {}", result.layers[i], Message(error.status()));
          table.errors[static_cast<size_t>(part)].push_back(*error);
        }
      }
    }
  }
  return table;
}

std::string PrintErrors(const HeadErrorTable& table) {
  Json document = {{"format", kFormat}, {"version", kVersion}, {"measure", MeasureName(table.measure)}};
  Json& layers = document["layers"] = Json::array();
  for (size_t i = 0; i < table.layers.size(); ++i) {
    Json heads = Json::array();
    for (size_t head = 0; head < table.heads; ++head) {
      Json one = Json::object();
      for (Part part : kParts) {
        for (size_t c = 0; c < table.classes.size(); ++c) {
          one[kPartNames[static_cast<size_t>(part)]][std::string(PrecisionClassName(table.classes[c]))] =
              table.At(part, i, head, c);
        }
      }
      heads.push_back(std::move(one));
    }
    layers.push_back({{"layer", table.layers[i]}, {"heads", std::move(heads)}});
  }
  return document.dump(1) + "\n";
}

absl::StatusOr<HeadErrorTable> ParseErrors(const std::string& path, const std::string& json,
                                           const std::vector<uint32_t>& layers, uint32_t heads,
                                           const std::vector<PrecisionClass>& classes) {
  Json document = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object() || document.value("format", Json()) != Json(kFormat) ||
      document.value("version", Json()) != Json(kVersion) || !document.contains("layers") ||
      !document["layers"].is_array()) {
    return InvalidArgument("{} is not a file of errors: format \"{}\", version {} expected", path, kFormat, kVersion);
  }
  HeadErrorTable table{
      .measure = ErrorMeasure::kGiven, .layers = layers, .heads = heads, .classes = classes, .errors = {}};
  for (uint32_t layer : layers) {
    const Json* found = FindLayer(document["layers"], layer);
    if (found == nullptr || found->size() != heads) {
      return InvalidArgument("{} has {} heads of layer {}, {} expected", path, found == nullptr ? 0 : found->size(),
                             layer, heads);
    }
    for (Part part : kParts) {
      for (size_t head = 0; head < heads; ++head) {
        for (PrecisionClass c : classes) {
          FIRN_ASSIGN_OR_RETURN(double error, NumberAt(path, (*found)[head], layer, head,
                                                       kPartNames[static_cast<size_t>(part)], PrecisionClassName(c)));
          table.errors[static_cast<size_t>(part)].push_back(error);
        }
      }
    }
  }
  return table;
}

std::array<std::vector<double>, 2> LayerImportance(const HeadErrorTable& table) {
  std::array<std::vector<double>, 2> importance;
  double all = 0;
  for (Part part : kParts) {
    for (size_t i = 0; i < table.layers.size(); ++i) {
      double sum = 0;
      for (size_t head = 0; head < table.heads; ++head) sum += table.At(part, i, head, table.classes.size() - 1);
      importance[static_cast<size_t>(part)].push_back(sum);
      all += sum;
    }
  }
  for (auto& part : importance) {
    for (double& value : part) value = all > 0 ? value / all : 0;
  }
  return importance;
}

std::string PrintRanking(const HeadErrorTable& table) {
  auto importance = LayerImportance(table);
  std::string csv = "layer,k_importance,v_importance\n";
  for (size_t i = 0; i < table.layers.size(); ++i) {
    csv += fmt::format("{},{},{}\n", table.layers[i], importance[0][i], importance[1][i]);
  }
  return csv;
}

namespace {

// As `settings` say, with groups of so many values.
absl::StatusOr<HeadCosts> CostsWith(const Capture& capture, const CalibrationSettings& settings, uint32_t group,
                                    const Artifact& keys) {
  const CaptureShape& s = capture.shape();
  if (s.v_width == 0) return InvalidArgument("{} has no values: a budget is for keys and values", capture.path());
  std::shared_ptr<const Artifact> layer;
  if (keys.has_balance()) {
    FIRN_ASSIGN_OR_RETURN(layer, ArtifactOfLayer(keys, 0));
  }
  BlockShape shape{.layers = 1,
                   .heads = static_cast<uint32_t>(s.kv_heads),
                   .k_width = static_cast<uint32_t>(s.k_width),
                   .v_width = static_cast<uint32_t>(s.v_width),
                   .tokens = settings.block_tokens};
  SurveyCode code = settings.Code(std::move(layer));
  code.spec.key_group = code.spec.value_group = static_cast<uint16_t>(group);
  HeadCosts costs;
  FIRN_ASSIGN_OR_RETURN(costs.bytes, HeadBytesOf(code, shape, DType::kFp16));
  costs.values = {s.k_width * settings.block_tokens, s.v_width * settings.block_tokens};
  return costs;
}

}  // namespace

absl::StatusOr<HeadCosts> CostsOf(const Capture& capture, const CalibrationSettings& settings, const Artifact& keys) {
  return CostsWith(capture, settings, 0, keys);
}

absl::StatusOr<std::vector<LadderAt8Bits>> LaddersAt8Bits(const Capture& capture, const CalibrationSettings& settings,
                                                          const Artifact& keys) {
  constexpr uint32_t kSmallGroup = 64;
  std::vector<LadderAt8Bits> ladders = {
      {LadderOrIntegers::kMinMax, kSmallGroup}, {LadderOrIntegers::kMinMax, 0}, {LadderOrIntegers::kGain, 0}};
  for (LadderAt8Bits& ladder : ladders) {
    CalibrationSettings with = settings;
    with.code = ladder.code;
    with.classes = {PrecisionClass::k8Bit};
    FIRN_ASSIGN_OR_RETURN(HeadCosts costs, CostsWith(capture, with, ladder.group, keys));
    ladder.bits = 8 * static_cast<double>(costs.bytes[0][0] + costs.bytes[1][0]) /
                  static_cast<double>(costs.values[0] + costs.values[1]);
  }
  return ladders;
}

absl::StatusOr<BitAllocation> SpendBits(const HeadErrorTable& table, const HeadCosts& costs, double bits) {
  std::vector<AllocationUnit> units;
  uint64_t values = 0, least = 0;
  for (Part part : kParts) {
    const std::vector<uint64_t>& bytes = costs.bytes[static_cast<size_t>(part)];
    for (size_t i = 0; i < table.layers.size() * table.heads; ++i) {
      AllocationUnit unit;
      for (size_t c = 0; c < table.classes.size(); ++c) {
        unit.rungs.push_back({bytes[c], table.At(part, i / table.heads, i % table.heads, c)});
      }
      units.push_back(std::move(unit));
      values += costs.values[static_cast<size_t>(part)];
      least += *std::min_element(bytes.begin(), bytes.end());
    }
  }
  auto bits_of = [&](uint64_t bytes) { return 8 * static_cast<double>(bytes) / static_cast<double>(values); };
  if (!(bits >= bits_of(least)) || bits > 64) {
    return InvalidArgument("{} bits a value; {} with the coarsest precision of everything, scales included, to 64",
                           bits, bits_of(least));
  }
  BitAllocation out;
  auto budget = static_cast<uint64_t>(bits * static_cast<double>(values) / 8 + 1e-6);
  FIRN_ASSIGN_OR_RETURN(Allocation chosen, Allocate(units, std::max(budget, least), &out.exact));
  out.budget = bits;
  out.bits = bits_of(chosen.bytes);
  out.error = chosen.error;
  for (size_t i = 0; i < units.size(); ++i) {
    out.classes[i / (units.size() / 2)].push_back(table.classes[chosen.rung[i]]);
  }
  return out;
}

}  // namespace firn::cli
