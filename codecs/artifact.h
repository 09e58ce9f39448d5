// Artifacts: immutable model data that decoding needs, named by the SHA-256 of its serialized bytes.
//
// The one kind so far holds, for each (layer, KV head) of a model part, the mean m and the balance weight w of every
// key channel after RoPE (docs/formats/artifact.md). Threads: immutable. Values are FP32; w > 0 and finite.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/digest.h"

namespace firn {

// InvalidArgument beyond the limits of an artifact's shape: those of blocks, and 2^24 channels in all.
absl::Status CheckBalanceShape(uint32_t layers, uint32_t heads, uint32_t width);

class KeyBalance {
 public:
  // InvalidArgument for sizes that do not agree or values that are not finite (w also: not positive).
  static absl::StatusOr<std::shared_ptr<const KeyBalance>> Create(uint32_t layers, uint32_t heads, uint32_t width,
                                                                  std::vector<float> mean, std::vector<float> weight);
  static absl::StatusOr<std::shared_ptr<const KeyBalance>> Parse(ByteSpan serialized);

  uint32_t layers() const { return layers_; }
  uint32_t heads() const { return heads_; }
  uint32_t width() const { return width_; }
  std::span<const float> Mean(uint32_t layer, uint32_t head) const;
  std::span<const float> Weight(uint32_t layer, uint32_t head) const;
  const Digest& digest() const { return digest_; }
  const std::vector<uint8_t>& serialized() const { return serialized_; }

 private:
  KeyBalance() = default;
  uint32_t layers_ = 0, heads_ = 0, width_ = 0;
  std::vector<float> mean_, weight_;  // [layer][head][channel]
  std::vector<uint8_t> serialized_;
  Digest digest_;
};

// Finds artifacts by name. Thread-safe.
class ArtifactSource {
 public:
  virtual ~ArtifactSource() = default;
  // Null when unknown.
  virtual std::shared_ptr<const KeyBalance> Find(const Digest& digest) const = 0;
};

}  // namespace firn
