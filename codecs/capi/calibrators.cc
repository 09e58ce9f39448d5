#include <span>

#include "base/status.h"
#include "codecs/calibrate.h"
#include "codecs/capi/handles.h"
#include "codecs/nuq/nuq_calibrator.h"
#include "codecs/scale_calibrator.h"

struct firn_calibrator {
  firn::KeyCalibrator calibrator;
};
struct firn_nuq_calibrator {
  firn::NuqCalibrator calibrator;
  size_t row;  // Values of one token.
};
struct firn_scale_calibrator {
  firn::ScaleCalibrator calibrator;
  size_t row;
};

namespace capi = firn::capi;

firn_calibrator* firn_calibrator_create(uint32_t layers, uint32_t kv_heads, uint32_t query_heads, uint32_t width) {
  return capi::NewHandle<firn_calibrator>(firn::KeyCalibrator::Create(layers, kv_heads, query_heads, width));
}

void firn_calibrator_free(firn_calibrator* calibrator) { delete calibrator; }

int firn_calibrator_add(firn_calibrator* calibrator, uint32_t layer, uint32_t tokens, const float* keys,
                        const float* queries) {
  return capi::Result(calibrator->calibrator.AddArrays(layer, tokens, keys, queries));
}

firn_artifact* firn_calibrator_finish(const firn_calibrator* calibrator, uint32_t balancing) {
  if (balancing > FIRN_BALANCE_MAXIMUM) {
    capi::Failed(firn::InvalidArgument("balancing {}, 0 or 1", balancing));
    return nullptr;
  }
  return capi::NewHandle<firn_artifact>(calibrator->calibrator.Finish(static_cast<firn::Balancing>(balancing)));
}

firn_nuq_calibrator* firn_nuq_calibrator_create(const firn_nuq_options* options) {
  firn::NuqOptions o{.layers = options->layers, .heads = options->heads, .width = options->width};
  o.part = options->values != 0 ? firn::Part::kV : firn::Part::kK;
  o.outliers = options->outliers;
  o.q_norm = options->q_norm != 0;
  if (options->tokens_max > 0) o.tokens_max = options->tokens_max;
  auto calibrator = firn::NuqCalibrator::Create(o);
  if (calibrator.ok()) return new firn_nuq_calibrator{*std::move(calibrator), size_t{o.heads} * o.width};
  capi::Failed(calibrator.status());
  return nullptr;
}

void firn_nuq_calibrator_free(firn_nuq_calibrator* calibrator) { delete calibrator; }

int firn_nuq_calibrator_add(firn_nuq_calibrator* calibrator, uint32_t layer, uint32_t tokens, const float* values,
                            const float* weights) {
  size_t count = tokens * calibrator->row;
  std::span<const float> weighed = weights == nullptr ? std::span<const float>() : std::span(weights, count);
  return capi::Result(calibrator->calibrator.Add(layer, tokens, {values, count}, weighed));
}

firn_artifact* firn_nuq_calibrator_finish(const firn_nuq_calibrator* calibrator) {
  return capi::ArtifactOf(calibrator->calibrator.Finish());
}

firn_scale_calibrator* firn_scale_calibrator_create(uint32_t layers, uint32_t heads, uint32_t width,
                                                    float largest_code) {
  auto calibrator = firn::ScaleCalibrator::Create(layers, heads, width, largest_code);
  if (calibrator.ok()) return new firn_scale_calibrator{*std::move(calibrator), size_t{heads} * width};
  capi::Failed(calibrator.status());
  return nullptr;
}

void firn_scale_calibrator_free(firn_scale_calibrator* calibrator) { delete calibrator; }

int firn_scale_calibrator_add(firn_scale_calibrator* calibrator, uint32_t layer, uint32_t tokens, const float* values) {
  return capi::Result(calibrator->calibrator.Add(layer, tokens, {values, tokens * calibrator->row}));
}

firn_artifact* firn_scale_calibrator_finish(const firn_scale_calibrator* calibrator) {
  return capi::ArtifactOf(calibrator->calibrator.Finish());
}
