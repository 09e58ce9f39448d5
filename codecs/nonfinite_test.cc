// NaN and Inf are found wherever they are, in every type, however the run is cut into spans; nothing else is taken for
// one. And what was finite stays finite, however a row is coded.
#include <gtest/gtest.h>

#include "base/status.h"
#include "codecs/block_codec.h"
#include "codecs/rules_test_util.h"

namespace firn {
namespace {

struct TypeCase {
  DType dtype;
  size_t value_bytes;
  std::vector<uint16_t> special;
  std::vector<uint16_t> ordinary;
};

std::vector<TypeCase> Cases() {
  return {
      {DType::kFp16, 2, {0x7C00, 0xFC00, 0x7E01, 0x7C01}, {0x0000, 0x8000, 0x7BFF, 0xFBFF, 0x03FF, 0x0001}},
      {DType::kBf16, 2, {0x7F80, 0xFF80, 0x7FC0}, {0x0000, 0x7F7F, 0xFF7F, 0x007F, 0x0080}},
      {DType::kFp8E4m3, 1, {0x7F, 0xFF}, {0x00, 0x7E, 0xFE, 0x78, 0x80}},
      {DType::kFp8E5m2, 1, {0x7C, 0xFC, 0x7F}, {0x00, 0x7B, 0xFB, 0x03, 0x80}},
  };
}

constexpr uint32_t kTokens = 37;

bool NonFinite(DType dtype, const std::vector<uint8_t>& k, size_t cut) {
  std::vector<uint8_t> scales(4, 0);
  StoreLe<float>(scales.data(), 1.0f);
  bool scaled = dtype == DType::kFp8E4m3 || dtype == DType::kFp8E5m2;
  BlockShape shape{.layers = 1, .heads = 1, .k_width = 1, .v_width = 0, .tokens = kTokens};
  auto block = WrapRaw({}, dtype, shape, k, {}, scaled ? ByteSpan(scales) : ByteSpan(), {});
  EXPECT_TRUE(block.ok()) << Message(block.status());
  RunBytes pieces;
  pieces.Append(ByteSpan(k).first(cut));
  pieces.Append(ByteSpan(k).subspan(cut));
  block->runs[RunIndex(RunKind::kWhole, Part::kK)] = pieces;
  RecordHeader header = *block->header;
  SealSource(&header, block->runs);
  return (header.flags & RecordHeader::kNonFinite) != 0;
}

TEST(NonFinite, C06_found_at_every_place_and_never_elsewhere) {
  for (const TypeCase& type : Cases()) {
    std::vector<uint8_t> k(kTokens * type.value_bytes);
    auto set = [&](size_t at, uint16_t value) {
      std::memcpy(k.data() + at * type.value_bytes, &value, type.value_bytes);
    };
    for (size_t i = 0; i < kTokens; ++i) set(i, type.ordinary[i % type.ordinary.size()]);
    for (size_t cut = 0; cut <= k.size(); ++cut) {
      ASSERT_FALSE(NonFinite(type.dtype, k, cut)) << DTypeName(type.dtype) << " cut at " << cut;
      for (size_t at = 0; at < kTokens; ++at) {
        uint16_t was = 0;
        std::memcpy(&was, k.data() + at * type.value_bytes, type.value_bytes);
        set(at, type.special[(at + cut) % type.special.size()]);
        ASSERT_TRUE(NonFinite(type.dtype, k, cut)) << DTypeName(type.dtype) << " at " << at << " cut at " << cut;
        set(at, was);
      }
    }
  }
}

// Values near the end of BF16's range, alone and in rows full of them, which rotating back adds up.
TEST(NonFinite, WhatWasFiniteStaysFinite) {
  BlockShape shape{.layers = 1, .heads = 2, .k_width = 64, .v_width = 64, .tokens = 20};
  std::vector<std::pair<std::string, EncodeSpec>> specs;
  TestArtifacts artifacts;
  for (const RuleCase& c : RuleCases()) specs.emplace_back(c.name, RuleSpec(c, shape, &artifacts));
  auto balance = artifacts.Add(MakeBalance(shape, 3));
  for (PrecisionClass c : {PrecisionClass::k8Bit, PrecisionClass::k4Bit, PrecisionClass::k2Bit}) {
    for (Ladder ladder : {Ladder::kMinMax, Ladder::kGain, Ladder::kTrellis}) {
      for (KeyMethod method : {KeyMethod::kPerChannel, KeyMethod::kBalancedRotated, KeyMethod::kRotated}) {
        EncodeSpec spec = Spec(c, c, method, balance);
        spec.ladder = ladder;
        specs.emplace_back(fmt::format("ladder {} method {} at {}", static_cast<int>(ladder), static_cast<int>(method),
                                       PrecisionClassName(c)),
                           spec);
      }
    }
  }
  for (float large : {1e30f, 1e36f, 1.6e38f, 3.2e38f}) {
    for (auto [stride, signs] : {std::pair(1u, 0), {1u, 1}, {1u, 2}, {2u, 0}, {37u, 2}, {1000000u, 0}}) {
      RawBlock raw = MakeBlock(shape, DType::kBf16, 5);
      for (Part part : kParts) {
        // Of one sign, of both by turns, of both at random: sums overflow in different places.
        for (uint64_t i = 0; i < shape.part(part).values(); i += stride) {
          bool minus = signs == 1 ? i % 2 == 1 : signs == 2 && i % 3 == 1;
          raw.Set(part, i, minus ? -large : large);
        }
      }
      EncodedBlock source = raw.Wrap();
      for (const auto& [name, spec] : specs) {
        SCOPED_TRACE(fmt::format("{}, every {}th value {} signs {}", name, stride, large, signs));
        auto encoded = EncodeToHeap(source, spec, artifacts);
        ASSERT_TRUE(encoded.ok()) << encoded.status();
        auto decoded = DecodeFloats(*encoded, artifacts);
        ASSERT_TRUE(decoded.ok()) << decoded.status();
        for (Part part : kParts) {
          for (float value : decoded->part(part)) ASSERT_TRUE(std::isfinite(value));
          // Kept, or coded as well as the code can: never turned into nothing.
          std::vector<float> given(shape.part(part).values());
          for (uint64_t i = 0; i < given.size(); ++i) given[i] = raw.Get(part, i);
          if (stride == 1 && signs == 0 && name.starts_with("ladder") && name.ends_with("int8")) {
            EXPECT_LT(RelativeError(given, decoded->part(part)), 0.1);
          }
        }
      }
    }
  }
}

// Every way of coding, with rows balanced, centred or turned outside the codec: weights and angles meet values that
// coding has moved.
TEST(NonFinite, WhatWasFiniteStaysFiniteWhenWeightsAreUndone) {
  BlockShape shape{.layers = 1, .heads = 2, .k_width = 64, .v_width = 64, .tokens = 20};
  TestArtifacts artifacts;
  int coded = 0;
  for (const RuleCase& rule : RuleCases()) {
    for (uint8_t flags : {PartCoding::kBalanced, uint8_t{PartCoding::kCentred | PartCoding::kBalanced},
                          uint8_t{PartCoding::kRotated | PartCoding::kBalanced}, PartCoding::kPreRope}) {
      RuleCase c = rule;
      c.flags |= flags;
      c.uses_artifact = true;
      EncodeSpec spec = RuleSpec(c, shape, &artifacts);
      for (float large : {1e36f, 1e38f, 2.4e38f, 3.2e38f}) {
        for (uint32_t stride : {1u, 3u, 37u}) {
          SCOPED_TRACE(fmt::format("{} flags {:#x}, every {}th value {}", c.name, c.flags, stride, large));
          RawBlock raw = MakeBlock(shape, DType::kBf16, 5);
          for (Part part : kParts) {
            for (uint64_t i = 0; i < shape.part(part).values(); i += stride)
              raw.Set(part, i, i % 2 == 1 ? -large : large);
          }
          auto encoded = EncodeToHeap(raw.Wrap(), spec, artifacts);
          if (absl::IsInvalidArgument(encoded.status())) continue;  // No flag of this codec's.
          ASSERT_TRUE(encoded.ok()) << encoded.status();
          coded += (encoded->header->flags & RecordHeader::kNonFinite) == 0 ? 1 : 0;
          auto decoded = DecodeFloats(*encoded, artifacts);
          ASSERT_TRUE(decoded.ok()) << decoded.status();
          auto as_given = DecodeAs(*encoded, artifacts, DType::kBf16);
          ASSERT_TRUE(as_given.ok()) << as_given.status();
          for (Part part : kParts) {
            for (float value : decoded->part(part)) ASSERT_TRUE(std::isfinite(value));
            const auto& bytes = part == Part::kK ? as_given->first : as_given->second;
            for (size_t i = 0; i < bytes.size() / 2; ++i) {
              ASSERT_TRUE(std::isfinite(LoadFloat(bytes.data(), DType::kBf16, i)));
            }
            float error = encoded->header->errors[static_cast<size_t>(part)].*PartErrors::SlotOf(c.at);
            ASSERT_FALSE(std::isinf(error));
          }
        }
      }
    }
  }
  EXPECT_GT(coded, 100);
}

}  // namespace
}  // namespace firn
