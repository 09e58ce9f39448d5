#include "codecs/block/head_transform.h"

#include "base/status.h"
#include "codecs/nested/nested_format.h"
#include "codecs/numeric/inline_buffer.h"

namespace firn {
namespace {

bool Has(const PartCoding& coding, uint8_t flag) { return (coding.flags & flag) != 0; }
bool UsesCodebook(const PartCoding& coding) {
  return coding.codec == CodecId::kNuqChannel || coding.codec == CodecId::kNuqToken;
}

// Heads that differ in their bits may have any.
bool HasCodebooks(const PartCoding& coding, const Artifact& artifact) {
  if (coding.bits != 0) return artifact.FindCodebook(coding.bits) != nullptr;
  return artifact.FindCodebook(2) != nullptr && artifact.FindCodebook(3) != nullptr &&
         artifact.FindCodebook(4) != nullptr;
}

// FailedPrecondition, naming what is not there.
absl::Status CheckHas(const PartCoding& coding, const Artifact& artifact) {
  struct Need {
    bool needed, there;
    const char* what;
  };
  const Need needs[] = {
      {Has(coding, PartCoding::kCentred) || Has(coding, PartCoding::kBalanced), artifact.has_balance(),
       "means and weights"},
      {Has(coding, PartCoding::kPreRope), artifact.has_rope(), "rotary frequencies"},
      {Has(coding, PartCoding::kCalibrated), artifact.has_scales(), "scales"},
      {coding.codec == CodecId::kNuqChannel, artifact.has_ranges(), "ranges of channels"},
      {UsesCodebook(coding), HasCodebooks(coding, artifact), "a codebook of these bits"},
  };
  for (const Need& need : needs) {
    if (need.needed && !need.there) {
      return FailedPrecondition("the artifact {} has no {}", artifact.digest().Hex(), need.what);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Artifact>> FindArtifact(const PartCoding& coding,
                                                             const ArtifactSource& artifacts) {
  if (coding.artifact.IsZero()) return std::shared_ptr<const Artifact>();
  std::shared_ptr<const Artifact> artifact = artifacts.Find(coding.artifact);
  if (artifact == nullptr) return FailedPrecondition("the artifact {} is not known", coding.artifact.Hex());
  return artifact;
}

absl::StatusOr<HeadTransform> HeadTransform::Create(const PartCoding& coding, const PartShape& shape,
                                                    std::shared_ptr<const Artifact> artifact, uint32_t shard) {
  HeadTransform transform;
  transform.coding_ = coding;
  transform.uniform_scale_ =
      nested::RotationScale(Has(coding, PartCoding::kRotated) ? nested::RotationSize(shape.width) : 1);
  if (coding.artifact.IsZero()) return transform;
  if (artifact == nullptr) return FailedPrecondition("the artifact {} is not at hand", coding.artifact.Hex());
  uint64_t first_head = artifact->heads() == shape.heads ? 0 : uint64_t{shard} * shape.heads;
  if (artifact->layers() != shape.layers || artifact->heads() % shape.heads != 0 ||
      first_head + shape.heads > artifact->heads() || artifact->width() != shape.width) {
    return InvalidArgument("an artifact of {} layers, {} heads, width {} for a block of {} layers, {} heads, width {}",
                           artifact->layers(), artifact->heads(), artifact->width(), shape.layers, shape.heads,
                           shape.width);
  }
  FIRN_RETURN_IF_ERROR(CheckHas(coding, *artifact));
  transform.first_head_ = static_cast<uint32_t>(first_head);
  transform.artifact_ = std::move(artifact);
  if (Has(coding, PartCoding::kCentred | PartCoding::kBalanced) || coding.codec == CodecId::kNuqChannel) {
    size_t slack = kVectorAlignment / sizeof(float);  // Whole vectors are read.
    for (auto* array : {&transform.mean_, &transform.encode_scale_, &transform.decode_scale_}) {
      array->resize(shape.width + slack);
    }
  }
  return transform;
}

ChannelTransform HeadTransform::For(uint32_t layer, uint32_t head) {
  if (mean_.empty()) return {.uniform_scale = uniform_scale_};
  bool ranges = coding_.codec == CodecId::kNuqChannel;
  bool centred = ranges || Has(coding_, PartCoding::kCentred), balanced = ranges || Has(coding_, PartCoding::kBalanced);
  std::span<const float> mean =
      ranges ? artifact_->Centre(layer, first_head_ + head) : artifact_->Mean(layer, first_head_ + head);
  std::span<const float> weight =
      ranges ? artifact_->Reach(layer, first_head_ + head) : artifact_->Weight(layer, first_head_ + head);
  for (size_t c = 0; c < mean.size(); ++c) {
    float w = balanced ? weight[c] : 1.0f;
    mean_[c] = centred ? mean[c] : 0.0f;
    encode_scale_[c] = 1.0f / w * uniform_scale_;
    decode_scale_[c] = w * uniform_scale_;
  }
  return {mean_.data(), encode_scale_.data(), decode_scale_.data(), uniform_scale_};
}

ModelData HeadTransform::ModelOf(uint32_t layer, uint32_t head, uint32_t bits) const {
  ModelData model;
  if (UsesCodebook(coding_)) {
    const Codebook* codebook = artifact_->FindCodebook(bits);
    FIRN_CHECK(codebook != nullptr);
    model.levels = codebook->levels.data() + (size_t{layer} << bits);
    model.decoded = codebook->decoded.data() + (size_t{layer} << bits);
  }
  if (Has(coding_, PartCoding::kCalibrated)) model.scale = artifact_->Scale(layer, first_head_ + head);
  return model;
}

const Rope* HeadTransform::rope() const {
  return Has(coding_, PartCoding::kPreRope) ? &artifact_->sections().rope : nullptr;
}

}  // namespace firn
