#include "codecs/block/source_rows.h"

#include <cstring>

namespace firn {

absl::StatusOr<SourceRows> SourceRows::Create(const EncodedBlock& source, const ArtifactSource& artifacts,
                                              const PartGeometry& target, bool as_stored) {
  auto decoder = HeadDecoder::Create(source, target.part(), RunMask::All(), artifacts);
  if (!decoder.ok()) return decoder.status();
  const PartGeometry& geometry = decoder->geometry();
  FIRN_CHECK(geometry.exact_tokens() == 0 || (geometry.exact_tokens() == target.exact_tokens() &&
                                              geometry.positions().exact == target.positions().exact));
  DType stored = geometry.stored();
  bool usable = as_stored || stored == DType::kFp16 || stored == DType::kBf16;
  DType type = geometry.is_source() && usable ? stored : DType::kFp32;
  return SourceRows(*std::move(decoder), type, target);
}

void SourceRows::SelectHead(uint32_t layer, uint32_t head) {
  layer_ = layer, head_ = head;
  if (in_place()) return;
  const PartShape& shape = decoder_.geometry().shape();
  uint64_t row_bytes = uint64_t{shape.width} * sizeof(float);
  decoded_.resize(shape.tokens * row_bytes);
  decoder_.DecodeHead(layer, head, DType::kFp32, decoded_.data());
  ForEachStretch(positions_.coded, [&](uint32_t index, uint32_t position, uint32_t count) {
    std::memmove(decoded_.data() + index * row_bytes, decoded_.data() + position * row_bytes, count * row_bytes);
  });
}

const uint8_t* SourceRows::Rows(uint32_t token, uint32_t count) {
  bool leading = positions_.exact.empty();
  if (!in_place()) {
    uint64_t before = leading ? exact_tokens_ : 0;
    return decoded_.data() + (before + token) * decoder_.geometry().shape().width * sizeof(float);
  }
  if (same_tokens()) return decoder_.StoredRows(layer_, head_, token, count);
  if (leading) return decoder_.StoredRows(layer_, head_, exact_tokens_ + token, count);
  return Gather(std::span(positions_.coded).subspan(token, count));
}

const uint8_t* SourceRows::ExactRows() {
  if (decoder_.geometry().exact_tokens() > 0) return decoder_.ExactRows(layer_, head_);
  if (positions_.exact.empty()) return decoder_.StoredRows(layer_, head_, 0, exact_tokens_);
  return Gather(positions_.exact);
}

const uint8_t* SourceRows::Gather(std::span<const uint32_t> positions) {
  const PartGeometry& geometry = decoder_.geometry();
  uint64_t row_bytes = uint64_t{geometry.shape().width} * DTypeBytes(geometry.stored());
  gathered_.resize(positions.size() * row_bytes);
  ForEachStretch(positions, [&](uint32_t index, uint32_t position, uint32_t count) {
    std::memcpy(gathered_.data() + index * row_bytes, decoder_.StoredRows(layer_, head_, position, count),
                count * row_bytes);
  });
  return gathered_.data();
}

}  // namespace firn
