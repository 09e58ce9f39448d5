// The rows that encoding starts from: a source block's values where they lie, or decoded head by head.
//
// Not thread-safe; the source block must outlive it. Tokens are counted from the first that the target codes.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "codecs/block/head_decoder.h"

namespace firn {

class SourceRows {
 public:
  // `exact_tokens` are the target's, not fewer than the source's. `as_stored`: rows are only copied.
  static absl::StatusOr<SourceRows> Create(const EncodedBlock& source, Part part, const ArtifactSource& artifacts,
                                           uint32_t exact_tokens, bool as_stored);

  DType type() const { return type_; }
  uint32_t tokens() const { return decoder_.geometry().shape().tokens - exact_tokens_; }
  void SelectHead(uint32_t layer, uint32_t head);
  // Valid until the next call.
  const uint8_t* Rows(uint32_t token, uint32_t count);
  // The target's exact tokens as stored.
  const uint8_t* ExactRows();
  HeadDecoder& decoder() { return decoder_; }

 private:
  SourceRows(HeadDecoder decoder, DType type, uint32_t exact_tokens)
      : decoder_(std::move(decoder)), type_(type), exact_tokens_(exact_tokens) {}
  bool in_place() const { return type_ == decoder_.geometry().stored() && decoder_.geometry().is_source(); }

  HeadDecoder decoder_;
  DType type_;
  uint32_t exact_tokens_;
  uint32_t layer_ = 0, head_ = 0;
  std::vector<uint8_t> decoded_;  // One head, all tokens, FP32.
};

}  // namespace firn
