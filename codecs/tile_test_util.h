// Test support: source values of many kinds, and tiles with memory of their own.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/status.h"
#include "codecs/codec_table.h"
#include "codecs/nested/nested_format.h"
#include "codecs/numeric/float_rows.h"
#include "codecs/numeric/inline_buffer.h"

namespace firn {

enum class ValueKind { kNormal, kOutliers, kConstant, kMinusZero, kMixedZeros, kSubnormal, kLargest, kSteps };
inline constexpr ValueKind kValueKinds[] = {ValueKind::kNormal,    ValueKind::kOutliers,   ValueKind::kConstant,
                                            ValueKind::kMinusZero, ValueKind::kMixedZeros, ValueKind::kSubnormal,
                                            ValueKind::kLargest,   ValueKind::kSteps};

inline float ValueOf(ValueKind kind, DType dtype, uint64_t index, std::mt19937_64& rng) {
  std::normal_distribution<float> normal;
  switch (kind) {
    case ValueKind::kNormal:
      return normal(rng);
    case ValueKind::kOutliers:
      return normal(rng) * (index % 37 == 5 ? 60.0f : 1.0f) + (index % 11 == 3 ? 9.0f : 0.0f);
    case ValueKind::kConstant:
      return 3.25f;
    case ValueKind::kMinusZero:
      return -0.0f;
    case ValueKind::kMixedZeros:
      return rng() % 2 == 0 ? 0.0f : -0.0f;
    case ValueKind::kSubnormal:
      return normal(rng) * (dtype == DType::kFp16 ? 3e-7f : 1e-39f);
    case ValueKind::kLargest:
      return (rng() % 2 == 0 ? 1.0f : -1.0f) * (dtype == DType::kFp16 ? 65504.0f : 1e35f);
    case ValueKind::kSteps:
      return static_cast<float>(static_cast<int>(index % 17) - 8) * 0.5f;
  }
  return 0;
}

// `count` values as bytes of `dtype` (FP16, BF16 or FP32).
inline std::vector<uint8_t> MakeValues(ValueKind kind, DType dtype, uint64_t count, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::vector<uint8_t> bytes(count * DTypeBytes(dtype));
  for (uint64_t i = 0; i < count; ++i) {
    float value = ValueOf(kind, dtype, i, rng);
    StoreFloats(&value, 1, dtype, bytes.data() + i * DTypeBytes(dtype));
  }
  return bytes;
}

// The memory of one encoded tile.
struct TileMemory {
  std::array<std::vector<uint8_t>, kRunKinds> runs;

  TileMemory() = default;
  TileMemory(const CodecRow& row, const PartCoding& coding, DType stored, uint32_t width, uint32_t tokens,
             uint32_t heads = 1) {
    for (uint32_t kind = 0; kind < kRunKinds; ++kind) {
      runs[kind].assign(row.run_bytes({coding, stored, width, tokens, heads}, static_cast<RunKind>(kind)), 0xEE);
    }
  }
  void Attach(EncodeTile* tile) {
    for (uint32_t kind = 0; kind < kRunKinds; ++kind)
      tile->runs[kind] = runs[kind].empty() ? nullptr : runs[kind].data();
  }
  void Attach(DecodeTile* tile) const {
    for (uint32_t kind = 0; kind < kRunKinds; ++kind)
      tile->runs[kind] = runs[kind].empty() ? nullptr : runs[kind].data();
  }
  bool operator==(const TileMemory&) const = default;
};

// Channel arrays of a made-up artifact, with the slack that vectors may read.
struct TestTransform {
  std::vector<float> mean, encode_scale, decode_scale;
  float uniform_scale;

  TestTransform(uint32_t width, uint8_t flags, uint64_t seed) {
    uint32_t rotation = (flags & PartCoding::kRotated) != 0 ? nested::RotationSize(width) : 1;
    uniform_scale = nested::RotationScale(rotation);
    if ((flags & (PartCoding::kCentred | PartCoding::kBalanced)) == 0) return;
    std::mt19937_64 rng(seed);
    std::normal_distribution<float> normal;
    Resize(width);
    for (uint32_t c = 0; c < width; ++c) {
      float weight = std::exp(normal(rng));
      mean[c] = normal(rng);
      encode_scale[c] = 1.0f / weight * uniform_scale;
      decode_scale[c] = weight * uniform_scale;
    }
  }
  // What the artifact of a row says that applies it: fixed numbers, ranges of normal values for a codebook.
  TestTransform(const CodecRow& row, const PartCoding& coding, uint32_t width)
      : TestTransform(width, row.applies_transform ? coding.flags : uint8_t{0}, width) {
    if (coding.codec != CodecId::kNuqChannel) return;
    Resize(width);
    for (uint32_t c = 0; c < width; ++c) {
      mean[c] = static_cast<float>(c % 5) * 0.03125f - 0.0625f;
      decode_scale[c] = 2.25f + static_cast<float>(c % 7) * 0.125f;
      encode_scale[c] = 1.0f / decode_scale[c];
    }
  }
  void Resize(uint32_t width) {
    for (auto* values : {&mean, &encode_scale, &decode_scale}) {
      values->resize(width + kVectorAlignment / sizeof(float));
    }
  }
  ChannelTransform view() const {
    if (mean.empty()) return {.uniform_scale = uniform_scale};
    return {mean.data(), encode_scale.data(), decode_scale.data(), uniform_scale};
  }
};

// The codings of a row that tests try, for values of a width: every combination of parameters that the row accepts.
inline std::vector<PartCoding> TestCodings(const CodecRow& row, uint32_t width = 128) {
  std::vector<PartCoding> codings;
  auto add = [&](const PartCoding& coding) {
    if (!row.validate(coding, DType::kFp16, width).ok()) return;
    if (FamilyOf(row.id) == CodecFamily::kCodes && ClassOfCodes(coding) == PrecisionClass::kNone) return;
    // Source bytes take no notice of parameters: one coding will do.
    if (FamilyOf(row.id) == CodecFamily::kSource && !codings.empty()) return;
    codings.push_back(coding);
  };
  constexpr uint8_t kAll = PartCoding::kRotated | PartCoding::kCentred | PartCoding::kBalanced;
  const std::vector<uint8_t> own_flags = row.applies_transform
                                             ? std::vector<uint8_t>{0, PartCoding::kRotated, kAll}
                                             : std::vector<uint8_t>{0, PartCoding::kSymmetric, PartCoding::kCalibrated,
                                                                    PartCoding::kSymmetric | PartCoding::kCalibrated};
  for (MetaType type : {MetaType::kNone, MetaType::kFp16, MetaType::kBf16, MetaType::kFp32}) {
    for (uint16_t group : {0, 32, 64, 128, 24, 4096}) {
      for (uint8_t flags : own_flags) {
        for (uint8_t bits : {0, 2, 3, 4, 8}) {
          for (uint8_t outliers : {0, 10, 50}) {
            PartCoding coding;
            coding.codec = row.id;
            coding.meta_type = type;
            coding.flags = flags;
            coding.group = group;
            coding.bits = bits;
            coding.outliers = outliers;
            if ((flags & (PartCoding::kCentred | PartCoding::kCalibrated)) != 0) coding.artifact.bytes[0] = 1;
            add(coding);
          }
        }
      }
    }
  }
  return codings;
}

// Codebooks and a scale of a made-up artifact, for a coding that asks for them.
struct TestModel {
  std::vector<float> levels, decoded;
  float scale = 0;

  explicit TestModel(const PartCoding& coding) {
    if (coding.bits > 0 && coding.bits <= 4) {
      int count = 1 << coding.bits;
      for (int i = 0; i < count; ++i) {
        float x = (2.0f * static_cast<float>(i) + 1.0f) / static_cast<float>(count) - 1.0f;
        levels.push_back(x * (0.4f + 0.6f * x * x));  // Denser in the middle.
        decoded.push_back(levels.back() * 1.0625f + 0.015625f);
      }
    }
    if ((coding.flags & PartCoding::kCalibrated) != 0) scale = 0.03125f;
  }
  ModelData view() const {
    return {.levels = levels.empty() ? nullptr : levels.data(),
            .decoded = decoded.empty() ? nullptr : decoded.data(),
            .scale = scale};
  }
};

inline std::string Describe(const PartCoding& coding, uint32_t width, uint32_t tokens) {
  return fmt::format("codec {} meta {} group {} flags {} bits {} outliers {} width {} tokens {}",
                     static_cast<int>(coding.codec), static_cast<int>(coding.meta_type), coding.group, coding.flags,
                     coding.bits, coding.outliers, width, tokens);
}

}  // namespace firn
