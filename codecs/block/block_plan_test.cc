// What a plan is made for is what encoding finds, also where a codec sees all heads of a layer at once.

#include <gtest/gtest.h>

#include "codecs/codec_table.h"
#include "codecs/rules_test_util.h"

namespace firn {
namespace {

constexpr BlockShape kShape{.layers = 2, .heads = 3, .k_width = 64, .v_width = 64, .tokens = 21};

// Each head a constant of its own, tiny: no head has a range, the layer has one that FP16 is too small for.
RawBlock ConstantHeads(DType dtype) {
  RawBlock raw{.dtype = dtype, .shape = kShape};
  for (Part part : kParts) {
    PartShape shape = kShape.part(part);
    raw.part(part).resize(shape.values() * DTypeBytes(dtype));
    for (uint64_t i = 0; i < shape.values(); ++i) {
      uint64_t head = i / (uint64_t{shape.tokens} * shape.width) % shape.heads;
      raw.Set(part, i, 0x1p-21f * static_cast<float>(head + 1));
    }
  }
  return raw;
}

bool OfLayers(const RuleCase& c) { return FindCodec(c.codec)->scope == TileScope::kLayer; }

TEST(BlockPlan, LayersOfConstantHeadsGetTheMetadataThatTheyNeed) {
  int seen = 0;
  for (const RuleCase& c : RuleCases()) {
    bool ranged = c.codec == CodecId::kIntTensor || c.codec == CodecId::kNuqToken;
    if (!OfLayers(c) || !ranged) continue;
    for (uint32_t exact : {0u, 4u}) {
      SCOPED_TRACE(fmt::format("{}, {} tokens exact", c.name, exact));
      TestArtifacts artifacts;
      RawBlock raw = ConstantHeads(DType::kFp16);
      EncodeSpec spec = RuleSpec(c, kShape, &artifacts);
      spec.keep_first_tokens = exact;
      auto encoded = EncodeToHeap(raw.Wrap(), spec, artifacts);
      ASSERT_TRUE(encoded.ok()) << encoded.status();
      DecodedBlock given = *DecodeFloats(raw.Wrap(), artifacts), decoded = *DecodeFloats(*encoded, artifacts);
      // A rotated constant is one value among zeros, and two bits have no level for those.
      bool rotated = (c.flags & PartCoding::kRotated) != 0;
      double bound = c.at == PrecisionClass::k8Bit ? 0.01 : rotated ? 3 : 0.3;
      for (Part part : kParts) {
        EXPECT_EQ(encoded->header->CodingOf(part).meta_type, MetaType::kFp32);
        EXPECT_LT(RelativeError(given.part(part), decoded.part(part)), bound);
      }
      ++seen;
    }
  }
  EXPECT_GE(seen, 2 * 5);
}

// Values that one layer, one head or one token makes special.
std::vector<RawBlock> OddBlocks() {
  std::vector<RawBlock> blocks;
  for (DType dtype : {DType::kFp16, DType::kBf16}) {
    blocks.push_back(ConstantHeads(dtype));
    blocks.push_back(MakeBlock(kShape, dtype, 4, 1e-7f));
    for (float value : {65504.0f, 3e38f, 0x1p-24f, INFINITY}) {
      RawBlock raw = MakeBlock(kShape, dtype, 5);
      for (Part part : kParts) raw.Set(part, raw.Index(part, 1, 2, 20, 7), value);
      blocks.push_back(std::move(raw));
      raw = ConstantHeads(dtype);
      for (Part part : kParts) raw.Set(part, raw.Index(part, 1, 1, 9, 7), value);
      blocks.push_back(std::move(raw));
    }
  }
  blocks.push_back(MakeBlock(kShape, DType::kFp8E4m3, 6));
  return blocks;
}

TEST(BlockPlan, PreparingFindsWhatEncodingFinds) {
  const std::vector<RawBlock> blocks = OddBlocks();
  for (const RuleCase& c : RuleCases()) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      SCOPED_TRACE(fmt::format("{}, block {}", c.name, i));
      TestArtifacts artifacts;
      EncodeSpec spec = RuleSpec(c, kShape, &artifacts);
      EncodedBlock source = blocks[i].Wrap();
      auto prepared = PrepareEncode(source, spec, artifacts);
      ASSERT_TRUE(prepared.ok()) << prepared.status();
      auto first = PlanEncode(source, spec);
      ASSERT_TRUE(first.ok()) << first.status();
      // Where the first plan is not aborted, it is the one that preparing makes.
      ScatteredMemory memory(first->layout, 1 << 20, 1);
      bool fits = Encode(source, spec, artifacts, *first, memory.runs()).ok();
      bool same = prepared->header.coding == first->header.coding && prepared->header.flags == first->header.flags;
      EXPECT_EQ(fits, same);
    }
  }
}

}  // namespace
}  // namespace firn
