#include "codecs/block/error_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "codecs/numeric/convert.h"

namespace firn {

ErrorSampler::ErrorSampler(const PartGeometry& geometry, PrecisionClass finest) : geometry_(geometry) {
  for (PrecisionClass c : geometry.row().classes) {
    if (c <= finest) classes_.push_back(c);
  }
  sums_.resize(classes_.size());
  const PartShape& shape = geometry.shape();
  uint64_t rows = uint64_t{shape.layers} * shape.heads * geometry.coded_tokens();
  // Odd, so that it walks through all tokens of the usual shapes.
  stride_ = std::clamp<uint64_t>(rows / kRowsWanted, 1, kStrideMax) | 1;
  source_.resize(shape.width);
  decoded_.resize(shape.width);
}

void ErrorSampler::Observe(const EncodeTile& tile, uint64_t first_row) {
  if (classes_.empty()) return;
  for (; next_row_ < first_row + tile.tokens; next_row_ += stride_) {
    ObserveRow(tile, static_cast<uint32_t>(next_row_ - first_row));
  }
}

void ErrorSampler::ObserveRow(const EncodeTile& tile, uint32_t token) {
  const CodecRow& row = geometry_.row();
  uint32_t width = tile.width;
  ConvertValues(tile.source + uint64_t{token} * width * DTypeBytes(tile.in), tile.in, width, DType::kFp32,
                reinterpret_cast<uint8_t*>(source_.data()));
  DecodeTile decode;
  decode.coding = tile.coding;
  decode.width = width;
  decode.tokens = 1;
  decode.stored = geometry_.stored();
  decode.out = DType::kFp32;
  decode.target = reinterpret_cast<uint8_t*>(decoded_.data());
  decode.transform = tile.transform;
  for (uint32_t k = 0; k < kRunKinds; ++k) {
    RunKind kind = static_cast<RunKind>(k);
    if (tile.runs[k] == nullptr) continue;
    decode.runs[k] = tile.runs[k] + (kind == RunKind::kMeta ? row.meta_offset(*tile.coding, width, token)
                                                            : geometry_.TileBytes(kind, token));
  }
  for (size_t i = 0; i < classes_.size(); ++i) {
    decode.precision = classes_[i];
    row.decode(decode);
    AddSquaredError(source_.data(), decoded_.data(), width, &sums_[i]);
  }
}

PartErrors ErrorSampler::Errors(float before) const {
  constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();
  auto error_of = [&](PrecisionClass c) {
    auto at = std::find(classes_.begin(), classes_.end(), c);
    if (at == classes_.end()) return kUnknown;
    float error = sums_[static_cast<size_t>(at - classes_.begin())].Relative();
    return before > 0 ? std::sqrt(error * error + before * before) : error;
  };
  return {error_of(PrecisionClass::k8Bit), error_of(PrecisionClass::k4Bit), error_of(PrecisionClass::k2Bit)};
}

}  // namespace firn
