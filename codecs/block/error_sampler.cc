#include "codecs/block/error_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "codecs/numeric/convert.h"

namespace firn {

ErrorSampler::ErrorSampler(const PartGeometry& geometry, PrecisionClass finest) : geometry_(geometry) {
  bool one = FamilyOf(geometry.coding().codec) == CodecFamily::kCodes;
  for (PrecisionClass c : geometry.row().classes) {
    // The one class of plain codes; of heads that differ, the one that the block ranks by.
    if (one ? c == finest : c <= finest) classes_.push_back(c);
  }
  sums_.resize(classes_.size());
  const PartShape& shape = geometry.shape();
  uint64_t rows = uint64_t{shape.layers} * shape.heads * geometry.coded_tokens();
  layer_step_ = geometry.layer_scope() ? (shape.layers + kLayersWanted - 1) / kLayersWanted : 1;
  // Odd, so that it walks through all tokens of the usual shapes.
  stride_ = std::clamp<uint64_t>(rows / layer_step_ / kRowsWanted, 1, kStrideMax) | 1;
  source_.resize(shape.width);
  decoded_.resize(shape.width);
}

void ErrorSampler::Observe(const EncodeTile& tile, uint64_t first_row, uint32_t first_token, const uint8_t* values,
                           DType type, const Conditioner& conditioner, const ChannelTransform& transform,
                           PrecisionClass ceiling) {
  if (classes_.empty()) return;
  const CodecRow& row = geometry_.row();
  uint32_t width = tile.width;
  for (; next_row_ < first_row + tile.tokens; next_row_ += stride_) {
    auto token = static_cast<uint32_t>(next_row_ - first_row);
    ConvertValues(values + uint64_t{token} * width * DTypeBytes(type), type, width, DType::kFp32,
                  reinterpret_cast<uint8_t*>(source_.data()));
    DecodeTile decode = DecodeOf(tile, 1);
    decode.first_token = token;
    decode.encoded_tokens = tile.tokens;
    decode.target = reinterpret_cast<uint8_t*>(decoded_.data());
    for (uint32_t k = 0; k < kRunKinds; ++k) {
      RunKind kind = static_cast<RunKind>(k);
      if (tile.runs[k] == nullptr) continue;
      uint64_t rows = row.run_bytes({*tile.coding, geometry_.stored(), width, token}, kind);
      decode.runs[k] = tile.runs[k] + (kind == RunKind::kMeta ? row.meta_offset(*tile.coding, width, token) : rows);
    }
    for (size_t i = 0; i < classes_.size(); ++i) {
      decode.precision = std::min(classes_[i], ceiling);
      row.decode(decode);
      conditioner.Backward(decoded_.data(), transform, first_token + token, 1);
      AddSquaredError(source_.data(), decoded_.data(), width, &sums_[i]);
    }
  }
}

void ErrorSampler::ObserveLayer(const EncodeTile& tile, uint32_t layer, const uint8_t* values, DType type,
                                const Conditioner& conditioner, HeadTransform* transform) {
  if (classes_.empty() || layer % layer_step_ != 0) return;
  const uint32_t width = tile.width;
  const uint64_t rows = uint64_t{tile.heads} * tile.tokens, first_row = next_row_;
  decoded_.resize(rows * width);
  DecodeTile decode = DecodeOf(tile, tile.tokens);
  decode.target = reinterpret_cast<uint8_t*>(decoded_.data());
  std::copy(tile.runs.begin(), tile.runs.end(), decode.runs.begin());
  for (size_t i = 0; i < classes_.size(); ++i) {
    decode.precision = classes_[i];
    geometry_.row().decode(decode);
    for (next_row_ = first_row; next_row_ < rows; next_row_ += stride_) {
      float* decoded = decoded_.data() + next_row_ * width;
      auto head = static_cast<uint32_t>(next_row_ / tile.tokens),
           token = static_cast<uint32_t>(next_row_ % tile.tokens);
      conditioner.Backward(decoded, transform->For(layer, head), token, 1);
      ConvertValues(values + next_row_ * width * DTypeBytes(type), type, width, DType::kFp32,
                    reinterpret_cast<uint8_t*>(source_.data()));
      AddSquaredError(source_.data(), decoded, width, &sums_[i]);
    }
  }
  next_row_ -= rows;  // Counted from the next layer's first.
}

DecodeTile ErrorSampler::DecodeOf(const EncodeTile& tile, uint32_t tokens) const {
  DecodeTile decode;
  decode.coding = tile.coding;
  decode.width = tile.width;
  decode.tokens = tokens;
  decode.heads = tile.heads;
  decode.stored = geometry_.stored();
  decode.out = DType::kFp32;
  decode.transform = tile.transform;
  decode.model = tile.model;
  return decode;
}

PartErrors ErrorSampler::Errors(float before) const {
  constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();
  auto error_of = [&](PrecisionClass c) {
    auto at = std::find(classes_.begin(), classes_.end(), c);
    if (at == classes_.end()) return kUnknown;
    float error = sums_[static_cast<size_t>(at - classes_.begin())].Relative();
    return before > 0 ? std::sqrt(error * error + before * before) : error;
  };
  PartErrors errors{kUnknown, kUnknown, kUnknown};
  for (PrecisionClass c : classes_) errors.*PartErrors::SlotOf(c) = error_of(c);
  return errors;
}

}  // namespace firn
