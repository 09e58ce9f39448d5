#include "codecs/block/conditioner.h"

#include "codecs/nested/nested_format.h"
#include "codecs/numeric/convert.h"

namespace firn {

Conditioner::Conditioner(const PartGeometry& geometry, const HeadTransform& transform, uint32_t first_token)
    : width_(geometry.shape().width) {
  constexpr uint8_t kTransforms = PartCoding::kRotated | PartCoding::kCentred | PartCoding::kBalanced;
  uint8_t flags = geometry.coding().flags;
  if (transform.rope() != nullptr && geometry.leading()) {
    rope_.emplace(*transform.rope(), first_token + geometry.exact_tokens(), geometry.coded_tokens());
  } else if (transform.rope() != nullptr) {
    rope_.emplace(*transform.rope(), first_token, geometry.positions().coded);
  }
  applies_ = !geometry.row().applies_transform && (flags & kTransforms) != 0;
  if (applies_ && (flags & PartCoding::kRotated) != 0) rotation_ = nested::RotationSize(width_);
  active_ = applies_ || rope_.has_value();
}

Conditioning Conditioner::With(const ChannelTransform& transform) const {
  return {.rope = rope_.has_value() ? &*rope_ : nullptr,
          .transform = applies_ ? &transform : nullptr,
          .rotation = rotation_,
          .width = width_};
}

const float* Conditioner::Forward(const uint8_t* rows, DType in, const ChannelTransform& transform,
                                  uint32_t first_token, uint32_t tokens) {
  if (rows_.size() < uint64_t{tokens} * width_) rows_.resize(uint64_t{tokens} * width_);
  ForwardTo(rows, in, transform, first_token, tokens, rows_.data());
  return rows_.data();
}

void Conditioner::ForwardTo(const uint8_t* rows, DType in, const ChannelTransform& transform, uint32_t first_token,
                            uint32_t tokens, float* target) const {
  ConvertValues(rows, in, uint64_t{tokens} * width_, DType::kFp32, reinterpret_cast<uint8_t*>(target));
  if (active_) ConditionRows(With(transform), first_token, tokens, target);
}

bool Conditioner::CanComeBack(const float* rows, uint32_t tokens) const {
  return rotation_ == 1 || RowsWithin(rows, uint64_t{tokens} * width_, nested::RangeMaxOf(rotation_));
}

void Conditioner::Backward(float* rows, const ChannelTransform& transform, uint32_t first_token,
                           uint32_t tokens) const {
  if (active_) RestoreRows(With(transform), first_token, tokens, rows);
}

}  // namespace firn
