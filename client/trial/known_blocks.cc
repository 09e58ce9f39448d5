#include "client/trial/known_blocks.h"

#include <cmath>
#include <cstring>

#include "codecs/numeric/float_formats.h"

namespace firn {
namespace {

template <typename Result>
Result Failed(absl::Status status) {
  Result result;
  result.status = std::move(status);
  return result;
}

}  // namespace

firnkv::NamespaceFacts KnownModel::Facts() const {
  firnkv::NamespaceFacts facts;
  facts.model_id = name;
  facts.layer_last = layers;
  facts.kv_heads = heads;
  facts.k_width = facts.v_width = width;
  facts.block_tokens = tokens;
  return facts;
}

KnownModel SmallModel() { return {.name = "small", .layers = 2, .heads = 2, .width = 64, .tokens = 16}; }
KnownModel LargeModel() { return {.name = "large", .layers = 8, .heads = 8, .width = 128, .tokens = 64}; }
const std::vector<KnownModel>& ChaosModels() {
  static const std::vector<KnownModel> models = {
      {.name = "chaos-small", .layers = 1, .heads = 2, .width = 32, .tokens = 16},
      {.name = "chaos-middle", .layers = 4, .heads = 2, .width = 64, .tokens = 64},
      {.name = "chaos-large", .layers = 8, .heads = 4, .width = 128, .tokens = 64}};
  return models;
}

firnkv::BlockKey KnownKey(uint64_t number) { return firnkv::BlockKey::Opaque("block " + std::to_string(number)); }

std::vector<uint16_t> KnownValues(const KnownModel& model, uint64_t number) {
  return KnownValues(2 * model.part_values(), number);
}

double KnownError(const KnownModel& model, uint64_t number, std::span<const uint16_t> values) {
  return RelativeError(KnownValues(model, number), values);
}

std::vector<uint16_t> KnownValues(size_t count, uint64_t number) {
  std::vector<uint16_t> out(count);
  uint64_t state = number * 0x9E3779B97F4A7C15ull + 0x1234567;
  float phase = static_cast<float>(state % 6283) * 0.001f;
  std::vector<float> smooth(1024);
  for (size_t i = 0; i < smooth.size(); ++i) smooth[i] = 0.3f * std::sin(static_cast<float>(i) * 0.02f + phase);
  for (size_t i = 0; i < out.size(); ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    float noise = static_cast<float>(static_cast<int32_t>(state >> 32)) / 2147483648.0f;
    out[i] = FloatToHalf(smooth[i % smooth.size()] + noise);
  }
  return out;
}

double RelativeError(std::span<const uint16_t> expected, std::span<const uint16_t> values) {
  if (values.size() != expected.size()) return INFINITY;
  double error = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    double x = HalfToFloat(expected[i]), y = HalfToFloat(values[i]);
    error += (x - y) * (x - y);
    norm += x * x;
  }
  return std::sqrt(error / norm);
}

double ErrorLimit(firnkv::Precision precision) {
  if (precision >= firnkv::Precision::kExact) return 0;
  if (precision >= firnkv::Precision::kInt8) return 0.02;
  if (precision >= firnkv::Precision::kInt3) return 0.2;
  return 0.6;
}

double LargestDifference(std::span<const uint16_t> expected, std::span<const uint16_t> values) {
  if (values.size() != expected.size()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (values[i] == expected[i]) continue;
    double difference = std::abs(double{HalfToFloat(expected[i])} - double{HalfToFloat(values[i])});
    if (!(difference <= largest)) largest = std::isnan(difference) ? INFINITY : difference;
  }
  return largest;
}

double DifferenceLimit(firnkv::Precision precision) {
  if (precision >= firnkv::Precision::kExact) return 0;
  if (precision >= firnkv::Precision::kInt8) return 0.05;
  if (precision >= firnkv::Precision::kInt3) return 0.8;
  return 2.5;
}

firnkv::PutResult PutKnown(firnkv::Client& client, const firnkv::Namespace& ns, const KnownModel& model,
                           uint64_t number, const firnkv::PutOptions& options) {
  std::vector<uint16_t> values = KnownValues(model, number);
  const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
  firnkv::PutItem item;
  item.key = KnownKey(number);
  item.tokens = model.tokens;
  item.parts.k = firnkv::SourcePieces(bytes, model.part_values() * 2);
  item.parts.v = firnkv::SourcePieces(bytes + model.part_values() * 2, model.part_values() * 2);
  auto results = client.Put(ns, std::span(&item, 1), options);
  if (!results.ok()) return Failed<firnkv::PutResult>(results.status());
  return std::move((*results)[0]);
}

firnkv::GetResult GetKnown(firnkv::Client& client, const firnkv::Namespace& ns, const KnownModel& model,
                           uint64_t number, double* error, const firnkv::GetOptions& options) {
  std::vector<uint16_t> values(2 * model.part_values());
  firnkv::GetResult result = GetKnownValues(client, ns, model, number, values, options);
  *error = result.status.ok() ? KnownError(model, number, values) : INFINITY;
  return result;
}

firnkv::GetResult GetKnownValues(firnkv::Client& client, const firnkv::Namespace& ns, const KnownModel& model,
                                 uint64_t number, std::span<uint16_t> values, const firnkv::GetOptions& options) {
  auto* bytes = reinterpret_cast<uint8_t*>(values.data());
  firnkv::GetItem item;
  item.key = KnownKey(number);
  item.parts.k = firnkv::TargetPieces(bytes, model.part_values() * 2);
  item.parts.v = firnkv::TargetPieces(bytes + model.part_values() * 2, model.part_values() * 2);
  firnkv::GetOptions get = options;
  get.representation = firnkv::Representation::kFp16;
  auto results = client.Get(ns, std::span(&item, 1), get);
  if (!results.ok()) return Failed<firnkv::GetResult>(results.status());
  return std::move((*results)[0]);
}

}  // namespace firn
