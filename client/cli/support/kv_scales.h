// Calibrated KV-cache scales of a checkpoint, as engines' tools write them (docs/plan.md lists the forms): one factor
// for each layer, or for each of its KV heads, K and V apart or together.
//
// Sources: safetensors of compressed-tensors (LLM Compressor) and of TensorRT-LLM, whole or in shards with their
// index.json; JSON with the same names; vLLM's kv_cache_scales.json. Meaning: value = code * scale, as the codecs read
// it. Threads: any. Errors: InvalidArgument names file, layer, part, value and what is allowed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "firnkv/plan_file.h"

namespace firn::cli {

struct KvScales {
  uint32_t layers = 0, heads = 0;
  std::vector<float> k = {}, v = {};  // [layer][head], positive.
};

struct KvScalesOptions {
  uint32_t kv_heads = 0;                         // 0: as many as the factors of a layer.
  std::vector<firnkv::NumberRange> layers = {};  // Empty: from 0 to the last that is there, and of `model_layers`.
  uint32_t model_layers = 0;                     // As many as the model has; 0: not known.
  bool reciprocal = false;                       // The files hold what values are multiplied with to be coded.
};

// `paths` are files, or the folder of a checkpoint.
absl::StatusOr<KvScales> ReadKvScales(const std::vector<std::string>& paths, const KvScalesOptions& options);

// KV heads, head_dim and layers by a model's config.json, in Hugging Face's or TensorRT-LLM's names; 0 where it does
// not say.
struct ModelShape {
  uint32_t kv_heads = 0, head_dim = 0, layers = 0;
};
absl::StatusOr<ModelShape> ReadModelShape(const std::string& path);

}  // namespace firn::cli
