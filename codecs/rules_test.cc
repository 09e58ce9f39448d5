// Whole blocks by rules: every way that a row of the table codes a part, with the cases of the project's list that
// concern it.

#include <gtest/gtest.h>

#include "codecs/block_codec.h"
#include "codecs/codec_table.h"
#include "codecs/nuq/nuq_calibrator.h"
#include "codecs/rules_test_util.h"

namespace firn {
namespace {

constexpr uint64_t kSeed = 31;

constexpr BlockShape kShapes[] = {
    {1, 1, 1, 1, 1},       {1, 2, 3, 3, 5},     {2, 1, 64, 64, 16}, {3, 2, 80, 80, 65}, {2, 2, 112, 112, 7},
    {1, 2, 128, 128, 130}, {9, 1, 132, 576, 3}, {2, 1, 576, 0, 33}, {2, 2, 0, 128, 17}, {2, 3, 31, 130, 69},
};

class EveryRule : public testing::TestWithParam<RuleCase> {
 protected:
  const CodecRow& row() const { return *FindCodec(GetParam().codec); }
  bool per_head() const { return row().scope == TileScope::kHead; }
  EncodeSpec SpecFor(const BlockShape& shape) { return RuleSpec(GetParam(), shape, &artifacts_); }
  EncodedBlock Encoded(const RawBlock& raw) {
    auto encoded = EncodeToHeap(raw.Wrap(), SpecFor(raw.shape), artifacts_);
    EXPECT_TRUE(encoded.ok()) << encoded.status();
    return *std::move(encoded);
  }
  TestArtifacts artifacts_;
};

// Relative errors that no coding of a class passes for these values, keys with a wide channel among them.
double Bound(PrecisionClass c, Part part) {
  double bound = c == PrecisionClass::k8Bit ? 0.06 : c == PrecisionClass::k4Bit ? 0.25 : 0.6;
  return part == Part::kK ? 1.5 * bound : bound;
}

TEST_P(EveryRule, BlocksComeBack) {
  for (const BlockShape& shape : kShapes) {
    for (DType dtype : {DType::kFp16, DType::kBf16}) {
      SCOPED_TRACE(fmt::format("layers {} heads {} widths {} {} tokens {} {}", shape.layers, shape.heads, shape.k_width,
                               shape.v_width, shape.tokens, DTypeName(dtype)));
      if ((GetParam().flags & PartCoding::kPreRope) != 0 && std::max(shape.k_width, shape.v_width) < 2) continue;
      RawBlock raw = MakeBlock(shape, dtype, kSeed);
      DecodedBlock exact = *DecodeFloats(raw.Wrap(), artifacts_);
      EncodedBlock encoded = Encoded(raw);
      EXPECT_EQ(IntactRuns(encoded), encoded.present);
      EXPECT_EQ(encoded.header->flags, 0);
      auto decoded = DecodeFloats(encoded, artifacts_);
      ASSERT_TRUE(decoded.ok()) << decoded.status();
      for (Part part : kParts) {
        if (shape.part(part).width == 0) continue;
        EXPECT_EQ(encoded.header->CodingOf(part).codec, GetParam().codec);
        double error = RelativeError(exact.part(part), decoded->part(part));
        if (shape.part(part).width >= 16) {
          EXPECT_LT(error, Bound(GetParam().at, part)) << (part == Part::kK ? "K" : "V");
        }
        const PartErrors& errors = encoded.header->errors[static_cast<size_t>(part)];
        EXPECT_NEAR(errors.*PartErrors::SlotOf(GetParam().at), error, 0.35 * error + 1e-6);
      }
    }
  }
}

// Too many rows for all to be looked at: the stated errors are a sample's.
TEST_P(EveryRule, ErrorsOfLargePartsAreNearThoseOfAllRows) {
  RawBlock raw = MakeBlock(BlockShape{10, 4, 64, 64, 40}, DType::kFp16, kSeed + 3);
  EncodedBlock encoded = Encoded(raw);
  DecodedBlock exact = *DecodeFloats(raw.Wrap(), artifacts_), decoded = *DecodeFloats(encoded, artifacts_);
  for (Part part : kParts) {
    double error = RelativeError(exact.part(part), decoded.part(part));
    double stated = encoded.header->errors[static_cast<size_t>(part)].*PartErrors::SlotOf(GetParam().at);
    EXPECT_NEAR(stated, error, 0.35 * error);
    EXPECT_NE(stated, static_cast<float>(error)) << "of a sample";
  }
}

TEST_P(EveryRule, PiecesOfMemoryChangeNothing) {
  for (const BlockShape& shape : {BlockShape{2, 2, 112, 64, 35}, BlockShape{1, 3, 31, 130, 5}}) {
    RawBlock raw = MakeBlock(shape, DType::kFp16, kSeed + 1);
    EncodedBlock source = raw.Wrap();
    EncodeSpec spec = SpecFor(shape);
    spec.keep_first_tokens = 2;
    EncodedBlock whole = *EncodeToHeap(source, spec, artifacts_);
    for (uint64_t piece_bytes_max : {3, 1000}) {
      auto plan = PrepareEncode(source, spec, artifacts_);
      ASSERT_TRUE(plan.ok()) << plan.status();
      ScatteredMemory pieces(plan->layout, piece_bytes_max, kSeed + 2);
      auto header = Encode(source, spec, artifacts_, *plan, pieces.runs());
      ASSERT_TRUE(header.ok()) << header.status();
      EncodedBlock scattered = pieces.Block(*header);
      EXPECT_EQ(SerializeHeader(**header), SerializeHeader(*whole.header));
      EXPECT_EQ(BytesOf(scattered), BytesOf(whole));
      EXPECT_EQ(*DecodeAs(scattered, artifacts_, DType::kFp16), *DecodeAs(whole, artifacts_, DType::kFp16));
    }
  }
}

TEST_P(EveryRule, LayersDecodeAlone) {
  BlockShape shape{3, 2, 64, 48, 21};
  EncodedBlock encoded = Encoded(MakeBlock(shape, DType::kFp16, kSeed));
  auto whole = *DecodeAs(encoded, artifacts_, DType::kFp16);
  size_t k_layer = whole.first.size() / 3, v_layer = whole.second.size() / 3;
  for (uint32_t layer = 0; layer < 3; ++layer) {
    std::vector<uint8_t> k(k_layer), v(v_layer);
    ASSERT_TRUE(Decode(encoded, artifacts_, {.first_layer = layer, .layers = 1}, k, v).ok());
    EXPECT_TRUE(std::equal(k.begin(), k.end(), whole.first.begin() + static_cast<ptrdiff_t>(layer * k_layer)));
    EXPECT_TRUE(std::equal(v.begin(), v.end(), whole.second.begin() + static_cast<ptrdiff_t>(layer * v_layer)));
  }
}

// A head's bytes depend on that head alone, unless scales are a layer's.
TEST_P(EveryRule, C01_heads_do_not_touch_each_other) {
  if (!per_head()) GTEST_SKIP() << "heads share scales";
  for (uint32_t width : {64u, 80u, 96u, 132u}) {
    BlockShape shape{2, 3, width, width, 33};
    RawBlock raw = MakeBlock(shape, DType::kFp16, kSeed), other = raw;
    for (uint32_t layer = 0; layer < 2; ++layer) {
      for (uint64_t i = 0; i < uint64_t{33} * width; ++i) {
        for (Part part : kParts) other.Set(part, raw.Index(part, layer, 2, 0, 0) + i, 0.5f);
      }
    }
    DecodedBlock a = *DecodeFloats(Encoded(raw), artifacts_), b = *DecodeFloats(Encoded(other), artifacts_);
    for (Part part : kParts) {
      for (uint32_t layer = 0; layer < 2; ++layer) {
        auto at = static_cast<ptrdiff_t>(raw.Index(part, layer, 0, 0, 0));
        auto count = static_cast<ptrdiff_t>(2 * 33 * width);
        EXPECT_TRUE(
            std::equal(a.part(part).begin() + at, a.part(part).begin() + at + count, b.part(part).begin() + at));
      }
    }
  }
}

// Values far from zero: lanes that do not exist must not stretch the range down to it.
TEST_P(EveryRule, C02_padding_takes_no_part) {
  bool ranged = FamilyOf(GetParam().codec) == CodecFamily::kCodes &&
                (GetParam().codec == CodecId::kIntToken || GetParam().codec == CodecId::kIntChannel ||
                 GetParam().codec == CodecId::kIntTensor);
  if (!ranged || GetParam().flags != 0) GTEST_SKIP() << "no minimum, or values are moved before they are coded";
  for (uint32_t width : {96u, 80u, 31u}) {
    for (float sign : {1.0f, -1.0f}) {
      for (uint32_t tokens : {64u, 70u, 3u}) {
        BlockShape shape{1, 2, width, 0, tokens};
        RawBlock raw{.shape = shape};
        raw.k.resize(shape.values() * 2);
        std::mt19937_64 rng(kSeed);
        std::uniform_real_distribution<float> uniform(10, 11);
        for (uint64_t i = 0; i < shape.values(); ++i) raw.Set(Part::kK, i, sign * uniform(rng));
        DecodedBlock decoded = *DecodeFloats(Encoded(raw), artifacts_);
        float worst = 0;
        for (uint64_t i = 0; i < shape.values(); ++i) {
          worst = std::max(worst, std::fabs(decoded.k[i] - raw.Get(Part::kK, i)));
        }
        // Half a step of a range of 1.
        EXPECT_LT(worst, 0.51f / static_cast<float>((1 << GetParam().bits) - 1) + 0.001f);
      }
    }
  }
}

// NaN and Inf, at any place: the block stays at source precision, flagged; every other value is untouched.
TEST_P(EveryRule, C06_nan_and_inf) {
  BlockShape shape{4, 2, 64, 64, 16};
  EncodeSpec spec = SpecFor(shape);
  for (DType dtype : {DType::kFp16, DType::kBf16}) {
    for (float bad : {static_cast<float>(NAN), INFINITY, -INFINITY}) {
      for (Part part : kParts) {
        RawBlock raw = MakeBlock(shape, dtype, kSeed);
        raw.Set(part, raw.Index(part, 3, 1, 7, 40), bad);
        EncodedBlock source = raw.Wrap();
        auto kept = EncodeToHeap(source, spec, artifacts_);
        ASSERT_TRUE(kept.ok()) << kept.status();
        EXPECT_EQ(kept->header->flags, RecordHeader::kNonFinite);
        EXPECT_EQ(BytesOf(*kept), BytesOf(source));
        EXPECT_EQ(PrepareEncode(source, spec, artifacts_)->header.flags, RecordHeader::kNonFinite);
      }
    }
  }
}

TEST_P(EveryRule, C12_attention_sinks_stay_exact) {
  BlockShape shape{2, 2, 64, 64, 32};
  EncodeSpec spec = SpecFor(shape);
  spec.keep_first_tokens = 4;
  std::vector<DecodedBlock> decoded;
  for (float size : {10.0f, 1000.0f}) {
    RawBlock raw = MakeBlock(shape, DType::kFp16, kSeed);
    for (uint32_t c = 0; c < 64; ++c) {
      uint64_t at = raw.Index(Part::kK, 1, 1, 0, c);
      raw.Set(Part::kK, at, raw.Get(Part::kK, at) * size);
    }
    EncodedBlock encoded = *EncodeToHeap(raw.Wrap(), spec, artifacts_);
    EXPECT_EQ(encoded.header->exact_tokens, 4u);
    decoded.push_back(*DecodeFloats(encoded, artifacts_));
    for (Part part : kParts) {
      for (uint32_t i = 0; i < 4 * 64; ++i) {
        uint64_t at = raw.Index(part, 1, 1, 0, 0) + i;
        ASSERT_EQ(decoded.back().part(part)[at], raw.Get(part, at));
      }
    }
  }
  for (uint64_t at = (uint64_t{3} * 32 + 4) * 64; at < decoded[0].k.size(); ++at) {
    ASSERT_EQ(decoded[0].k[at], decoded[1].k[at]);
  }
}

// BF16 values beyond FP16 come back finite and near, with wider metadata where it takes it.
TEST_P(EveryRule, C14_bf16_range) {
  if ((GetParam().flags & PartCoding::kCalibrated) != 0) GTEST_SKIP() << "calibrated scales saturate";
  BlockShape shape{1, 2, 64, 64, 64};
  for (DType dtype : {DType::kBf16, DType::kFp16}) {
    RawBlock raw = MakeBlock(shape, dtype, kSeed);
    float large = dtype == DType::kBf16 ? 3e37f : 65504.0f;
    for (uint32_t t = 0; t < 64; ++t) {
      raw.Set(Part::kK, raw.Index(Part::kK, 0, 0, t, 3), large);
      raw.Set(Part::kV, raw.Index(Part::kV, 0, 1, t, 3), -large);
    }
    EncodedBlock encoded = Encoded(raw);
    EXPECT_EQ(encoded.header->flags, 0);
    for (DType out : {DType::kBf16, DType::kFp16}) {
      auto back = *DecodeAs(encoded, artifacts_, out);
      for (const std::vector<uint8_t>& bytes : {back.first, back.second}) {
        for (size_t i = 0; i < bytes.size() / 2; ++i) ASSERT_TRUE(std::isfinite(LoadFloat(bytes.data(), out, i)));
      }
    }
  }
}

ArtifactSections Sections(uint32_t layers, uint32_t heads, uint32_t width) {
  ArtifactSections sections;
  sections.layers = layers, sections.heads = heads, sections.width = width;
  return sections;
}

PartCoding CalibratedFp8() {
  PartCoding coding;
  coding.codec = CodecId::kFp8E4m3;
  coding.meta_type = MetaType::kFp32;
  coding.flags = PartCoding::kCalibrated;
  return coding;
}

// The list's values, at a calibrated scale of 1.
TEST(Rules, C07_fp8_saturation_by_calibrated_scale) {
  const float values[] = {0,   -0.0f, 0x1p-10f, 3 * 0x1p-10f, 240, 248,  256,   272,
                          300, 432,   448,      464,          465, 1000, -1000, 65504};
  const std::vector<uint8_t> codes = {0x00, 0x80, 0x00, 0x02, 0x77, 0x78, 0x78, 0x78,
                                      0x79, 0x7E, 0x7E, 0x7E, 0x7E, 0x7E, 0xFE, 0x7E};
  BlockShape shape{1, 1, 16, 0, 1};
  RawBlock raw{.shape = shape};
  raw.k.resize(32);
  for (uint64_t i = 0; i < 16; ++i) raw.Set(Part::kK, i, values[i]);
  TestArtifacts artifacts;
  ArtifactSections sections = Sections(1, 1, 16);
  sections.scales = {1.0f};
  CodingRule rule{.at = PrecisionClass::k8Bit, .coding = CalibratedFp8(), .artifact = nullptr};
  rule.artifact = artifacts.Add(*Artifact::Create(sections));
  rule.coding.artifact = rule.artifact->digest();
  EncodeSpec spec = Spec(PrecisionClass::k8Bit, PrecisionClass::k8Bit);
  spec.rules[0] = {rule};
  EncodedBlock encoded = *EncodeToHeap(raw.Wrap(), spec, artifacts);
  EXPECT_EQ(BytesOf(encoded), codes);
}

// Calibrated scales belong to their layer, head and part; one that is missing is an error, never 1.
TEST(Rules, C11_calibrated_scales) {
  BlockShape shape{3, 2, 32, 32, 8};
  RawBlock raw = MakeBlock(shape, DType::kFp16, kSeed);
  TestArtifacts artifacts;
  EncodeSpec spec = Spec(PrecisionClass::k8Bit, PrecisionClass::k8Bit);
  for (Part part : kParts) {
    ArtifactSections sections = Sections(3, 2, 32);
    for (int i = 0; i < 6; ++i) {
      sections.scales.push_back(part == Part::kK ? 0.125f * static_cast<float>(i + 1)
                                                 : 0.5f / static_cast<float>(i + 1));
    }
    CodingRule rule{.at = PrecisionClass::k8Bit, .coding = CalibratedFp8(), .artifact = nullptr};
    rule.artifact = *Artifact::Create(sections);
    rule.coding.artifact = rule.artifact->digest();
    spec.rules[static_cast<size_t>(part)] = {rule};
  }
  EncodedBlock encoded = *EncodeToHeap(raw.Wrap(), spec, artifacts);
  EXPECT_EQ(encoded.header->RunBytes(RunMask::Both(RunKind::kMeta)), 0u);
  EXPECT_EQ(DecodeFloats(encoded, artifacts).status().code(), absl::StatusCode::kFailedPrecondition);
  for (const auto& rules : spec.rules) artifacts.Add(rules[0].artifact);
  DecodedBlock exact = *DecodeFloats(raw.Wrap(), artifacts), decoded = *DecodeFloats(encoded, artifacts);
  EXPECT_LT(RelativeError(exact.k, decoded.k), 0.04);
  EXPECT_LT(RelativeError(exact.v, decoded.v), 0.04);
  auto swapped = std::make_shared<RecordHeader>(*encoded.header);
  std::swap(swapped->coding[0].artifact, swapped->coding[1].artifact);
  EncodedBlock wrong = encoded;
  wrong.header = swapped;
  EXPECT_GT(RelativeError(exact.k, DecodeFloats(wrong, artifacts)->k), 0.3);
  spec.rules[0][0].coding.artifact = {};
  EXPECT_FALSE(EncodeToHeap(raw.Wrap(), spec, artifacts).ok());
}

// Constants of groups with a minimum or a scale of their own come back, through whole blocks too.
TEST(Rules, C09_constant_groups_come_back_exactly) {
  BlockShape shape{1, 2, 40, 64, 37};
  for (const RuleCase& c : RuleCases()) {
    bool integer = c.codec == CodecId::kIntToken || c.codec == CodecId::kIntChannel || c.codec == CodecId::kIntTensor;
    if (!(integer || c.codec == CodecId::kNuqToken) || (c.flags & ~PartCoding::kSymmetric) != 0) continue;
    for (float constant : {0.0f, -0.0f, 3.25f, 6e-8f, 65504.0f, -65504.0f}) {
      RawBlock raw{.shape = shape};
      for (Part part : kParts) {
        raw.part(part).resize(shape.part(part).values() * 2);
        for (uint64_t i = 0; i < shape.part(part).values(); ++i) raw.Set(part, i, constant);
      }
      TestArtifacts artifacts;
      EncodedBlock encoded = *EncodeToHeap(raw.Wrap(), RuleSpec(c, shape, &artifacts), artifacts);
      EXPECT_EQ(encoded.header->flags, 0);
      auto decoded = *DecodeAs(encoded, artifacts, DType::kFp16);
      EXPECT_EQ(decoded.first, raw.k) << c.name << " " << constant;
      EXPECT_EQ(decoded.second, raw.v) << c.name << " " << constant;
    }
  }
}

// Codes of decoded values are the codes they came from, for 20 rounds, although the store never encodes those.
TEST(Rules, C15_drift) {
  BlockShape shape{1, 2, 128, 128, 64};
  for (const RuleCase& c : RuleCases()) {
    bool integer = c.codec == CodecId::kIntToken || c.codec == CodecId::kIntChannel || c.codec == CodecId::kIntTensor;
    if (!integer || (c.flags & ~PartCoding::kSymmetric) != 0) continue;
    TestArtifacts artifacts;
    RawBlock raw = MakeBlock(shape, DType::kFp16, kSeed);
    EncodeSpec spec = RuleSpec(c, shape, &artifacts);
    EncodedBlock first = *EncodeToHeap(raw.Wrap(), spec, artifacts), block = first;
    for (int i = 0; i < 20; ++i) {
      std::tie(raw.k, raw.v) = *DecodeAs(block, artifacts, DType::kFp16);
      block = *EncodeToHeap(raw.Wrap(), spec, artifacts);
    }
    for (Part part : kParts) {
      uint32_t run = RunIndex(RunKind::kWhole, part);
      EXPECT_EQ(BytesOf(block.runs[run]), BytesOf(first.runs[run])) << c.name;
    }
  }
}

// A real model's K and V: calibrated codebooks with 1 % of outliers beat plain integers of as many bits.
TEST(RealData, CodebooksBeatIntegers) {
  RealSample sample;
  if (!sample.present()) GTEST_SKIP() << "no sample of real K and V at " << sample.path();
  TestArtifacts artifacts;
  RawBlock training = sample.Block(0, 512), raw = sample.Block(576, 64);
  DecodedBlock values = *DecodeFloats(training.Wrap(), artifacts), exact = *DecodeFloats(raw.Wrap(), artifacts);
  std::array<std::shared_ptr<const Artifact>, 2> models;
  for (Part part : kParts) {
    auto calibrator = *NuqCalibrator::Create({.layers = 4, .heads = 2, .width = 128, .part = part});
    for (uint32_t layer = 0; layer < 4; ++layer) {
      std::vector<float> rows;
      for (uint32_t i = 0; i < 512 * 2; ++i) {  // [token][head]
        auto at = values.part(part).begin() + static_cast<ptrdiff_t>(training.Index(part, layer, i % 2, i / 2, 0));
        rows.insert(rows.end(), at, at + 128);
      }
      ASSERT_TRUE(calibrator.Add(layer, 512, rows, {}).ok());
    }
    models[static_cast<size_t>(part)] = artifacts.Add(*Artifact::Create(*calibrator.Finish()));
  }
  for (uint8_t bits : {4, 3, 2}) {
    auto at = static_cast<PrecisionClass>(bits);
    EncodeSpec books = Spec(at, at), integers = Spec(at, at);
    for (Part part : kParts) {
      auto p = static_cast<size_t>(part);
      CodingRule rule{.at = at, .coding = {}, .artifact = models[p]};
      rule.coding.codec = part == Part::kK ? CodecId::kNuqChannel : CodecId::kNuqToken;
      rule.coding.bits = bits;
      rule.coding.outliers = 10;
      rule.coding.artifact = models[p]->digest();
      books.rules[p] = {rule};
      CodingRule plain{.at = at, .coding = {}, .artifact = nullptr};
      plain.coding.codec = CodecId::kIntToken;
      plain.coding.bits = bits;
      plain.coding.group = 128;
      integers.rules[p] = {plain};
    }
    DecodedBlock by_books = *DecodeFloats(*EncodeToHeap(raw.Wrap(), books, artifacts), artifacts);
    DecodedBlock by_integers = *DecodeFloats(*EncodeToHeap(raw.Wrap(), integers, artifacts), artifacts);
    for (Part part : kParts) {
      double book = RelativeError(exact.part(part), by_books.part(part));
      double integer = RelativeError(exact.part(part), by_integers.part(part));
      EXPECT_LT(book, 0.9 * integer) << int{bits} << (part == Part::kK ? " K" : " V");
      EXPECT_LT(book, bits == 4 ? 0.12 : bits == 3 ? 0.22 : 0.45) << int{bits} << (part == Part::kK ? " K" : " V");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, EveryRule, testing::ValuesIn(RuleCases()),
                         [](const testing::TestParamInfo<RuleCase>& rule) { return rule.param.name; });

}  // namespace
}  // namespace firn
