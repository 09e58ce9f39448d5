// Test support: a rule for each way that a row of the table can code a part, and artifacts that have all of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "codecs/block_test_util.h"

namespace firn {

// An artifact with every section: ranges and scales that suit the normal values of MakeBlock, and its wide channel.
inline std::shared_ptr<const Artifact> MakeModel(const PartShape& shape, bool wide_channel) {
  ArtifactSections s;
  s.layers = shape.layers, s.heads = shape.heads, s.width = shape.width;
  size_t heads = size_t{s.layers} * s.heads, channels = heads * s.width;
  for (size_t i = 0; i < channels; ++i) {
    bool wide = wide_channel && i % s.width == 2;
    s.mean.push_back(static_cast<float>(i % 5) * 0.01f);
    s.weight.push_back(wide ? 10.0f : 1.0f);
    s.centre.push_back(static_cast<float>(i % 7) * 0.02f);
    s.reach.push_back(wide ? 30.0f : 3.0f);
  }
  for (size_t i = 0; i < heads; ++i) s.scales.push_back((wide_channel ? 0.3f : 0.03125f) + 0.001f * i);
  for (uint32_t bits : {2u, 3u, 4u}) {
    Codebook book{.bits = bits, .levels = {}, .decoded = {}};
    uint32_t count = 1u << bits;
    for (uint32_t i = 0; i < s.layers * count; ++i) {
      float x = (2.0f * static_cast<float>(i % count) + 1) / static_cast<float>(count) - 1;
      book.levels.push_back(x * (0.55f + 0.45f * x * x));
      book.decoded.push_back(book.levels.back());
    }
    s.codebooks.push_back(std::move(book));
  }
  for (uint32_t i = 0; i < s.width / 2; ++i) {
    s.rope.frequencies.push_back(std::pow(10000.0, -2.0 * i / s.width));
  }
  return *Artifact::Create(std::move(s));
}

struct RuleCase {
  std::string name;
  PrecisionClass at;
  CodecId codec;
  uint8_t bits;
  uint16_t group;
  uint8_t flags;
  uint8_t outliers;
  MetaType meta_type = MetaType::kNone;
  bool uses_artifact = false;
};

inline const std::vector<RuleCase>& RuleCases() {
  constexpr auto k8 = PrecisionClass::k8Bit, k4 = PrecisionClass::k4Bit, k3 = PrecisionClass::k3Bit,
                 k2 = PrecisionClass::k2Bit;
  constexpr uint8_t kSymmetric = PartCoding::kSymmetric, kRotated = PartCoding::kRotated;
  constexpr uint8_t kCalibrated = PartCoding::kCalibrated;
  static const std::vector<RuleCase> kCases = {
      {"int8_token", k8, CodecId::kIntToken, 8, 64, 0, 0},
      {"int4_token", k4, CodecId::kIntToken, 4, 32, 0, 0},
      {"int3_token", k3, CodecId::kIntToken, 3, 32, 0, 0},
      {"int2_token", k2, CodecId::kIntToken, 2, 32, 0, 0},
      {"int4_token_symmetric", k4, CodecId::kIntToken, 4, 32, kSymmetric, 0},
      {"int4_token_rotated", k4, CodecId::kIntToken, 4, 64, kRotated, 0},
      {"int8_calibrated", k8, CodecId::kIntToken, 8, 0, kSymmetric | kCalibrated, 0, MetaType::kNone, true},
      {"int8_channel", k8, CodecId::kIntChannel, 8, 64, 0, 0},
      {"int4_channel", k4, CodecId::kIntChannel, 4, 32, 0, 0},
      {"int3_channel", k3, CodecId::kIntChannel, 3, 32, 0, 0},
      {"int2_channel", k2, CodecId::kIntChannel, 2, 32, 0, 0},
      {"int4_channel_pre_rope", k4, CodecId::kIntChannel, 4, 32, PartCoding::kPreRope, 0, MetaType::kNone, true},
      {"int8_tensor", k8, CodecId::kIntTensor, 8, 0, 0, 0},
      {"int8_tensor_symmetric", k8, CodecId::kIntTensor, 8, 0, kSymmetric, 0},
      {"fp8_block", k8, CodecId::kFp8E4m3, 0, 32, 0, 0, MetaType::kFp32},
      {"fp8_e5m2_block", k8, CodecId::kFp8E5m2, 0, 64, kRotated, 0, MetaType::kFp32},
      {"fp8_calibrated", k8, CodecId::kFp8E4m3, 0, 0, kCalibrated, 0, MetaType::kFp32, true},
      {"fp8_tensor", k8, CodecId::kFp8E4m3Tensor, 0, 0, 0, 0, MetaType::kFp32},
      {"fp8_e5m2_tensor", k8, CodecId::kFp8E5m2Tensor, 0, 0, 0, 0, MetaType::kFp32},
      {"nvfp4", k4, CodecId::kNvFp4, 0, 0, 0, 0, MetaType::kFp32},
      {"nvfp4_rotated", k4, CodecId::kNvFp4, 0, 0, kRotated, 0, MetaType::kFp32},
      {"mxfp4", k4, CodecId::kMxFp4, 0, 0, 0, 0, MetaType::kFp32},
      {"nuq4_channel", k4, CodecId::kNuqChannel, 4, 0, PartCoding::kPreRope, 10, MetaType::kNone, true},
      {"nuq3_channel", k3, CodecId::kNuqChannel, 3, 0, 0, 10, MetaType::kNone, true},
      {"nuq2_channel", k2, CodecId::kNuqChannel, 2, 0, 0, 50, MetaType::kNone, true},
      {"nuq3_channel_grouped", k3, CodecId::kNuqChannel, 3, 48, PartCoding::kPreRope, 15, MetaType::kNone, true},
      {"nuq4_token", k4, CodecId::kNuqToken, 4, 0, 0, 10, MetaType::kNone, true},
      {"nuq3_token", k3, CodecId::kNuqToken, 3, 0, 0, 10, MetaType::kNone, true},
      {"nuq2_token_no_outliers", k2, CodecId::kNuqToken, 2, 0, kRotated, 0, MetaType::kNone, true},
  };
  return kCases;
}

// A spec that codes both parts by a case's rule, whose artifacts `artifacts` gets to know.
inline EncodeSpec RuleSpec(const RuleCase& c, const BlockShape& shape, TestArtifacts* artifacts) {
  EncodeSpec spec = Spec(c.at, c.at);
  for (Part part : kParts) {
    if (shape.part(part).width == 0) continue;
    CodingRule rule{.at = c.at, .coding = {}, .artifact = nullptr};
    rule.coding.codec = c.codec;
    rule.coding.meta_type = c.meta_type;
    rule.coding.flags = c.flags;
    rule.coding.group = c.group;
    rule.coding.bits = c.bits;
    rule.coding.outliers = c.outliers;
    if (c.uses_artifact) {
      rule.artifact = artifacts->Add(MakeModel(shape.part(part), part == Part::kK));
      rule.coding.artifact = rule.artifact->digest();
    }
    spec.rules[static_cast<size_t>(part)] = {rule};
  }
  return spec;
}

}  // namespace firn
