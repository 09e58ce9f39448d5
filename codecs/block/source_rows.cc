#include "codecs/block/source_rows.h"

namespace firn {

absl::StatusOr<SourceRows> SourceRows::Create(const EncodedBlock& source, Part part, const ArtifactSource& artifacts,
                                              uint32_t exact_tokens, bool as_stored) {
  auto decoder = HeadDecoder::Create(source, part, RunMask::All(), artifacts);
  if (!decoder.ok()) return decoder.status();
  const PartGeometry& geometry = decoder->geometry();
  FIRN_CHECK(exact_tokens >= geometry.exact_tokens());
  DType stored = geometry.stored();
  bool usable = as_stored || stored == DType::kFp16 || stored == DType::kBf16;
  DType type = geometry.is_source() && usable ? stored : DType::kFp32;
  return SourceRows(*std::move(decoder), type, exact_tokens);
}

void SourceRows::SelectHead(uint32_t layer, uint32_t head) {
  layer_ = layer, head_ = head;
  if (in_place()) return;
  const PartShape& shape = decoder_.geometry().shape();
  decoded_.resize(uint64_t{shape.tokens} * shape.width * sizeof(float));
  decoder_.DecodeHead(layer, head, DType::kFp32, decoded_.data());
}

const uint8_t* SourceRows::Rows(uint32_t token, uint32_t count) {
  const PartGeometry& geometry = decoder_.geometry();
  if (in_place()) {
    return decoder_.StoredRows(layer_, head_, exact_tokens_ - geometry.exact_tokens() + token, count);
  }
  return decoded_.data() + (uint64_t{exact_tokens_} + token) * geometry.shape().width * sizeof(float);
}

const uint8_t* SourceRows::ExactRows() {
  if (decoder_.geometry().exact_tokens() > 0) return decoder_.ExactRows(layer_, head_);
  return decoder_.StoredRows(layer_, head_, 0, exact_tokens_);
}

}  // namespace firn
