// Blocks of K and V in a tensor file, as what a put sends and a get is compared with, without a copy.
//
// safetensors: one pair of tensors a layer, shape (tokens, heads, channels), named `...<layer>.k` and `...<layer>.v`
// ("layer0.k", "model.layers.3.key"); FP8 values come with `...<layer>.k_scale` and `v_scale`, F32, one value or one a
// head. Token ids, where the file has them, are a tensor `tokens` or `input_ids`. .npy: (2, layers, heads, tokens,
// channels), K first, or (layers, heads, tokens, channels) for K alone; token ids come apart. Threads: immutable.
// Errors: InvalidArgument names file, tensor and shape.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/tensor/tensor_file.h"
#include "firnkv/blocks.h"
#include "firnkv/types.h"

namespace firn::cli {

// "model.layers.12.k" -> 12 and "k"; false for other names.
bool SplitLayerName(const std::string& name, uint32_t* layer, std::string* suffix);

class KvFile {
 public:
  struct Options {
    std::string tokens_path;     // A .npy of token ids; empty: those in the file, if any.
    std::string k_suffix = "k";  // "k_pre_rope" takes the keys before the rotary embedding.
  };
  static absl::StatusOr<std::shared_ptr<const KvFile>> Open(const std::string& path, const Options& options);

  // What a namespace needs to know; the caller sets model_id and block_tokens. A gap in the layers shows in the
  // revision.
  const firnkv::NamespaceFacts& facts() const { return facts_; }
  uint32_t tokens() const { return tokens_; }
  const std::vector<uint32_t>& token_ids() const { return token_ids_; }  // Empty, or one a token.

  // The pieces of tokens [first, first + count), and how they lie: no layout where they are canonical.
  firnkv::SourceParts Parts(uint32_t first, uint32_t count) const;
  std::optional<firnkv::Layout> LayoutOf(uint32_t count) const;
  // SHA-256 of a block's bytes: an opaque key where there are no token ids.
  std::string ContentKey(uint32_t first, uint32_t count) const;
  // The block's values as floats, canonical, K then V. Not for FP8.
  absl::StatusOr<std::vector<float>> Values(uint32_t first, uint32_t count) const;

 private:
  struct LayerPart {
    const Tensor* tensor = nullptr;
    std::vector<float> scales;  // One a head, for FP8.
  };
  absl::Status ReadSafetensors(const std::string& k_suffix);
  absl::Status ReadLayers(const std::map<uint32_t, std::array<LayerPart, 2>>& layers);
  absl::Status ReadScales();
  absl::Status ReadNpy();
  absl::Status ReadTokens(const std::string& path);
  uint32_t Width(int part) const { return part == 0 ? facts_.k_width : facts_.v_width; }
  std::span<const uint8_t> Piece(int part, uint32_t layer, uint32_t head, uint32_t first, uint32_t count) const;

  TensorFile file_;
  firnkv::NamespaceFacts facts_;
  uint32_t tokens_ = 0;
  uint32_t value_bytes_ = 0;
  bool token_major_ = false;  // (tokens, heads, channels) rather than (heads, tokens, channels).
  std::array<std::vector<const uint8_t*>, 2> layers_;  // Of K and V: each layer's bytes.
  std::array<std::vector<float>, 2> scales_;           // FP8: [layer][head].
  std::vector<uint32_t> token_ids_;
};

}  // namespace firn::cli
