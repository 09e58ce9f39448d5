// The rows that encoding starts from: a source block's values where they lie, or decoded head by head.
//
// Not thread-safe; the source block must outlive it. Tokens are counted among those that the target codes.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "codecs/block/head_decoder.h"

namespace firn {

class SourceRows {
 public:
  // The exact tokens of `target` are the source's, where that has any. `as_stored`: rows are only copied.
  static absl::StatusOr<SourceRows> Create(const EncodedBlock& source, const ArtifactSource& artifacts,
                                           const PartGeometry& target, bool as_stored);

  DType type() const { return type_; }
  void SelectHead(uint32_t layer, uint32_t head);
  // Valid until the next call.
  const uint8_t* Rows(uint32_t token, uint32_t count);
  // A layer's rows of all heads, [head][coded token][channel], where they need no bringing together; null otherwise.
  // Valid until the next call.
  const uint8_t* LayerInPlace(uint32_t layer) {
    return in_place() && same_tokens() ? decoder_.StoredLayer(layer) : nullptr;
  }
  // The target's exact tokens as stored.
  const uint8_t* ExactRows();
  HeadDecoder& decoder() { return decoder_; }

 private:
  SourceRows(HeadDecoder decoder, DType type, const PartGeometry& target)
      : decoder_(std::move(decoder)),
        type_(type),
        exact_tokens_(target.exact_tokens()),
        positions_(target.positions()) {}
  bool in_place() const { return type_ == decoder_.geometry().stored() && decoder_.geometry().is_source(); }
  // The source keeps the same tokens apart, so that its coded ones are the target's.
  bool same_tokens() const { return decoder_.geometry().exact_tokens() > 0 || exact_tokens_ == 0; }
  const uint8_t* Gather(std::span<const uint32_t> positions);

  HeadDecoder decoder_;
  DType type_;
  uint32_t exact_tokens_;
  TokenPositions positions_;  // The target's; empty where its exact tokens are the leading ones.
  uint32_t layer_ = 0, head_ = 0;
  std::vector<uint8_t> decoded_;   // One head, FP32: all tokens, or where there are positions the coded ones.
  std::vector<uint8_t> gathered_;  // Rows of the source that do not lie together.
};

}  // namespace firn
