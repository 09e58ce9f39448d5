// Captured K, V, Q and gradients of a model that read one text, layer by layer, without a copy.
//
// A capture is one safetensors file, or one directory of .npy files, which are named as the tensors are: `layer3.k` is
// the file layer3.k.npy. Tensors of a layer, (tokens, heads, channels) each, but for the last: `k` or `key` after RoPE,
// `k_pre_rope` before it, `v` or `value`, `q` or `query` after RoPE, `k_grad` and `v_grad`, the gradients of a loss by
// k and v, and `o_proj`, the output projection's weight (hidden, query heads * channels). The text starts at position
// 0. Other tensors are let be. Threads: immutable. Errors: InvalidArgument names file, tensor and shape. Limits:
// kCaptureFilesMax .npy files a directory.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/digest.h"
#include "client/cpp/tensor/tensor_file.h"

namespace firn::cli {

inline constexpr size_t kCaptureFilesMax = 16384;

struct LayerTensors {
  const Tensor* k = nullptr;
  const Tensor* k_pre_rope = nullptr;
  const Tensor* v = nullptr;
  const Tensor* q = nullptr;
  const Tensor* k_grad = nullptr;
  const Tensor* v_grad = nullptr;
  const Tensor* o_proj = nullptr;
};

// The same in every layer that has them; 0 where none does.
struct CaptureShape {
  uint64_t kv_heads = 0, query_heads = 0, k_width = 0, v_width = 0;
  bool operator==(const CaptureShape&) const = default;
};

class Capture {
 public:
  static absl::StatusOr<Capture> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::map<uint32_t, LayerTensors>& layers() const { return layers_; }
  const CaptureShape& shape() const { return shape_; }
  // SHA-256 of names, types, shapes and values of the tensors above. Reads all of them.
  Digest ContentDigest() const;

 private:
  absl::Status ReadDirectory();
  absl::Status FindLayers();
  absl::Status CheckRanks(const LayerTensors& tensors) const;
  absl::Status CheckLayer(uint32_t layer, const LayerTensors& tensors) const;

  std::string path_;
  std::vector<TensorFile> files_;
  std::vector<std::unique_ptr<Tensor>> named_;  // Those of .npy files, with names.
  std::map<uint32_t, LayerTensors> layers_;
  CaptureShape shape_;
};

}  // namespace firn::cli
