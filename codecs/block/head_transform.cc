#include "codecs/block/head_transform.h"

#include "base/status.h"
#include "codecs/nested/nested_format.h"
#include "codecs/numeric/inline_buffer.h"

namespace firn {

absl::StatusOr<std::shared_ptr<const KeyBalance>> FindBalance(const PartCoding& coding,
                                                              const ArtifactSource& artifacts) {
  if (coding.artifact.IsZero()) return std::shared_ptr<const KeyBalance>();
  std::shared_ptr<const KeyBalance> balance = artifacts.Find(coding.artifact);
  if (balance == nullptr) return FailedPrecondition("the artifact {} is not known", coding.artifact.Hex());
  return balance;
}

absl::StatusOr<HeadTransform> HeadTransform::Create(const PartCoding& coding, const PartShape& shape,
                                                    std::shared_ptr<const KeyBalance> balance) {
  HeadTransform transform;
  transform.flags_ = coding.flags;
  bool rotated = (coding.flags & PartCoding::kRotated) != 0;
  transform.uniform_scale_ = nested::RotationScale(rotated ? nested::RotationSize(shape.width) : 1);
  if (coding.artifact.IsZero()) return transform;
  if (balance == nullptr) return FailedPrecondition("the artifact {} is not at hand", coding.artifact.Hex());
  if (balance->layers() != shape.layers || balance->heads() != shape.heads || balance->width() != shape.width) {
    return InvalidArgument("an artifact of {} layers, {} heads, width {} for a block of {} layers, {} heads, width {}",
                           balance->layers(), balance->heads(), balance->width(), shape.layers, shape.heads,
                           shape.width);
  }
  transform.balance_ = std::move(balance);
  size_t slack = kVectorAlignment / sizeof(float);  // Whole vectors are read.
  for (auto* array : {&transform.mean_, &transform.encode_scale_, &transform.decode_scale_}) {
    array->resize(shape.width + slack);
  }
  return transform;
}

ChannelTransform HeadTransform::For(uint32_t layer, uint32_t head) {
  if (balance_ == nullptr) return {.uniform_scale = uniform_scale_};
  std::span<const float> mean = balance_->Mean(layer, head), weight = balance_->Weight(layer, head);
  bool centred = (flags_ & PartCoding::kCentred) != 0, balanced = (flags_ & PartCoding::kBalanced) != 0;
  for (size_t c = 0; c < mean.size(); ++c) {
    float w = balanced ? weight[c] : 1.0f;
    mean_[c] = centred ? mean[c] : 0.0f;
    encode_scale_[c] = 1.0f / w * uniform_scale_;
    decode_scale_[c] = w * uniform_scale_;
  }
  return {mean_.data(), encode_scale_.data(), decode_scale_.data(), uniform_scale_};
}

}  // namespace firn
