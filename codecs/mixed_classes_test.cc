// Blocks whose heads differ in precision: every head is what it would be in a block that has its class throughout.

#include <gtest/gtest.h>

#include <random>

#include "codecs/block_codec.h"
#include "codecs/block_test_util.h"
#include "codecs/rules_test_util.h"

namespace firn {
namespace {

constexpr PrecisionClass k8 = PrecisionClass::k8Bit, k4 = PrecisionClass::k4Bit, k2 = PrecisionClass::k2Bit;
constexpr BlockShape kShape{.layers = 3, .heads = 4, .k_width = 64, .v_width = 96, .tokens = 37};

std::shared_ptr<const ClassMap> RandomClasses(uint64_t seed, std::vector<PrecisionClass> of = {k8, k4, k2}) {
  std::mt19937_64 rng(seed);
  ClassMap classes;
  for (uint32_t i = 0; i < kShape.layers * kShape.heads; ++i) classes.push_back(of[rng() % of.size()]);
  classes[0] = of.front(), classes[1] = of.back();
  return std::make_shared<const ClassMap>(std::move(classes));
}

EncodeSpec MixedSpec(uint64_t seed, KeyMethod method, const std::shared_ptr<const Artifact>& balance) {
  EncodeSpec spec = Spec(k2, k2, method, balance);
  spec.classes = {RandomClasses(seed), RandomClasses(seed + 100)};
  spec.keep_first_tokens = 3;
  return spec;
}

// Values of one head, decoded.
std::vector<float> HeadOf(const DecodedBlock& block, Part part, uint32_t layer, uint32_t head) {
  PartShape shape = kShape.part(part);
  uint64_t count = uint64_t{shape.tokens} * shape.width, first = (uint64_t{layer} * shape.heads + head) * count;
  const std::vector<float>& values = block.part(part);
  return {values.begin() + static_cast<int64_t>(first), values.begin() + static_cast<int64_t>(first + count)};
}

class MixedClasses : public testing::TestWithParam<KeyMethod> {
 protected:
  TestArtifacts artifacts_;
  std::shared_ptr<const Artifact> balance_ =
      GetParam() == KeyMethod::kBalancedRotated ? artifacts_.Add(MakeBalance(kShape, 5)) : nullptr;
  RawBlock raw_ = MakeBlock(kShape, DType::kFp16, 11);
};

TEST_P(MixedClasses, EveryHeadIsWhatItIsInAUniformBlock) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    EncodeSpec spec = MixedSpec(seed, GetParam(), balance_);
    auto mixed = EncodeToHeap(raw_.Wrap(), spec, artifacts_);
    ASSERT_TRUE(mixed.ok()) << mixed.status();
    EXPECT_TRUE(mixed->header->Mixed(Part::kK) && mixed->header->Mixed(Part::kV));
    EXPECT_EQ(ClassOf(*mixed->header, mixed->present), (ClassPair{k2, k2}));
    EXPECT_EQ(FinestOf(*mixed->header, mixed->present), (ClassPair{k8, k8}));
    EXPECT_EQ(IntactRuns(*mixed), mixed->present);
    auto decoded = DecodeFloats(*mixed, artifacts_);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    uint64_t values = 0;
    for (PrecisionClass c : {k8, k4, k2}) {
      EncodeSpec uniform = Spec(c, c, GetParam(), balance_);
      uniform.keep_first_tokens = 3;
      auto expected = DecodeFloats(*EncodeToHeap(raw_.Wrap(), uniform, artifacts_), artifacts_);
      for (Part part : kParts) {
        const ClassMap& classes = *spec.classes[static_cast<size_t>(part)];
        for (uint32_t i = 0; i < classes.size(); ++i) {
          if (classes[i] != c) continue;
          EXPECT_EQ(HeadOf(*decoded, part, i / kShape.heads, i % kShape.heads),
                    HeadOf(*expected, part, i / kShape.heads, i % kShape.heads));
          values += static_cast<uint64_t>(c) * (kShape.tokens - 3) * kShape.part(part).width;
        }
      }
    }
    RunMask codes = RunMask::Both(RunKind::kP2) | RunMask::Both(RunKind::kP4) | RunMask::Both(RunKind::kP8);
    EXPECT_EQ(mixed->header->RunBytes(codes), values / 8) << "a head has the planes of its class and no others";
  }
}

TEST_P(MixedClasses, SlicingAFinerBlockGivesTheSameBytes) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    EncodeSpec spec = MixedSpec(seed, GetParam(), balance_);
    EncodeSpec whole = Spec(k8, k8, GetParam(), balance_);
    whole.keep_first_tokens = 3;
    EncodedBlock fine = *EncodeToHeap(raw_.Wrap(), whole, artifacts_);
    auto direct = EncodeToHeap(raw_.Wrap(), spec, artifacts_), sliced = EncodeToHeap(fine, spec, artifacts_);
    ASSERT_TRUE(direct.ok() && sliced.ok()) << direct.status() << sliced.status();
    EXPECT_EQ(BytesOf(*direct), BytesOf(*sliced));
    EXPECT_EQ(sliced->header->ceilings, direct->header->ceilings);
    EXPECT_EQ(IntactRuns(*sliced), sliced->present);
    // And once more, to classes that are coarser for some.
    EncodeSpec coarser = spec;
    coarser.classes = {RandomClasses(seed + 7, {k4, k2}), RandomClasses(seed + 8, {k4, k2})};
    auto stepwise = EncodeToHeap(*sliced, coarser, artifacts_);
    ASSERT_TRUE(stepwise.ok()) << stepwise.status();
    EXPECT_EQ(IntactRuns(*stepwise), stepwise->present);
    EncodeSpec least = coarser;
    for (size_t part = 0; part < 2; ++part) {
      ClassMap both;
      for (size_t i = 0; i < coarser.classes[part]->size(); ++i) {
        both.push_back(std::min((*spec.classes[part])[i], (*coarser.classes[part])[i]));
      }
      least.classes[part] = std::make_shared<const ClassMap>(std::move(both));
    }
    EXPECT_EQ(BytesOf(*EncodeToHeap(raw_.Wrap(), least, artifacts_)), BytesOf(*stepwise));
  }
}

TEST_P(MixedClasses, PlanesDropFromMixedBlocksAsFromOthers) {
  EncodeSpec spec = MixedSpec(3, GetParam(), balance_);
  EncodedBlock mixed = *EncodeToHeap(raw_.Wrap(), spec, artifacts_);
  EncodedBlock narrow = mixed.Narrowed(RunsFor(*mixed.header, {k2, k2}));
  EXPECT_EQ(FinestOf(*mixed.header, narrow.present), (ClassPair{k2, k2}));
  EncodeSpec uniform = Spec(k2, k2, GetParam(), balance_);
  uniform.keep_first_tokens = 3;
  auto expected = DecodeFloats(*EncodeToHeap(raw_.Wrap(), uniform, artifacts_), artifacts_);
  auto decoded = DecodeFloats(narrow, artifacts_);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->k, expected->k);
  EXPECT_EQ(decoded->v, expected->v);
  EXPECT_TRUE(CanNarrow(mixed, {k2, k2}));
}

TEST_P(MixedClasses, TheHeaderSaysWhatEachHeadHas) {
  EncodedBlock mixed = *EncodeToHeap(raw_.Wrap(), MixedSpec(4, GetParam(), balance_), artifacts_);
  std::vector<uint8_t> bytes = SerializeHeader(*mixed.header);
  EXPECT_EQ(bytes.size(), HeaderBytesBound(LayoutOf(*mixed.header)));
  uint64_t used = 0;
  auto parsed = ParseHeader(bytes, &used);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(used, bytes.size());
  EXPECT_EQ(parsed->ceilings, mixed.header->ceilings);
  EXPECT_EQ(SerializeHeader(*parsed), bytes);
  RecordHeader wrong = *mixed.header;
  wrong.ceilings[0].pop_back();
  EXPECT_FALSE(CheckHeader(wrong).ok());
  wrong = *mixed.header;
  wrong.ceilings[1].assign(wrong.ceilings[1].size(), k4);
  EXPECT_FALSE(CheckHeader(wrong).ok()) << "one class for all is said without a map";
  wrong = *mixed.header;
  std::swap(*std::find(wrong.ceilings[0].begin(), wrong.ceilings[0].end(), k2),
            *std::find(wrong.ceilings[0].begin(), wrong.ceilings[0].end(), k8));
  EXPECT_TRUE(CheckHeader(wrong).ok()) << "and a map that lies is caught by the checksum of the header";
}

TEST_P(MixedClasses, MapsThatDoNotFitAreRefused) {
  EncodeSpec spec = MixedSpec(5, GetParam(), balance_);
  spec.classes[1] = std::make_shared<const ClassMap>(ClassMap(5, k4));
  EXPECT_EQ(EncodeToHeap(raw_.Wrap(), spec, artifacts_).status().code(), absl::StatusCode::kInvalidArgument);
  // A map that gives all heads the same is no map.
  spec.classes = {std::make_shared<const ClassMap>(ClassMap(12, k4)), nullptr};
  auto uniform = EncodeToHeap(raw_.Wrap(), spec, artifacts_);
  ASSERT_TRUE(uniform.ok()) << uniform.status();
  EXPECT_FALSE(uniform->header->Mixed(Part::kK));
  EXPECT_EQ(ClassOf(*uniform->header, uniform->present), (ClassPair{k4, k2}));
}

// KVQuant's keys by head, each by the codebook of its bits. Its values share ranges and outliers over heads.
TEST(MixedCodebooks, KeysByHeadAndValuesAlike) {
  constexpr PrecisionClass k3 = PrecisionClass::k3Bit;
  TestArtifacts artifacts;
  RawBlock raw = MakeBlock(kShape, DType::kFp16, 13);
  EncodeSpec spec = Spec(k2, k2);
  for (Part part : kParts) {
    CodingRule rule{.at = k2, .coding = {}, .artifact = artifacts.Add(MakeModel(kShape.part(part), false))};
    rule.coding.codec = part == Part::kK ? CodecId::kNuqChannel : CodecId::kNuqToken;
    rule.coding.bits = 2;
    rule.coding.outliers = 15;
    rule.coding.group = part == Part::kK ? 16 : 0;
    rule.coding.artifact = rule.artifact->digest();
    spec.rules[static_cast<size_t>(part)] = {rule};
  }
  auto classes = RandomClasses(3, {k4, k3, k2});
  EncodeSpec mixed_spec = spec;
  mixed_spec.classes = {classes, nullptr};
  auto mixed = EncodeToHeap(raw.Wrap(), mixed_spec, artifacts);
  ASSERT_TRUE(mixed.ok()) << mixed.status();
  EXPECT_TRUE(mixed->header->Mixed(Part::kK));
  DecodedBlock decoded = *DecodeFloats(*mixed, artifacts);
  for (PrecisionClass c : {k4, k3, k2}) {
    EncodeSpec uniform = spec;
    uniform.rules[0][0].at = c;
    uniform.rules[0][0].coding.bits = static_cast<uint8_t>(c);
    uniform.target = {c, k2};
    DecodedBlock expected = *DecodeFloats(*EncodeToHeap(raw.Wrap(), uniform, artifacts), artifacts);
    for (uint32_t i = 0; i < classes->size(); ++i) {
      if ((*classes)[i] != c) continue;
      EXPECT_EQ(HeadOf(decoded, Part::kK, i / kShape.heads, i % kShape.heads),
                HeadOf(expected, Part::kK, i / kShape.heads, i % kShape.heads));
    }
  }
  mixed_spec.classes = {nullptr, classes};
  EXPECT_EQ(EncodeToHeap(raw.Wrap(), mixed_spec, artifacts).status().code(), absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Methods, MixedClasses, testing::Values(KeyMethod::kPerChannel, KeyMethod::kBalancedRotated),
                         [](const auto& method) {
                           return method.param == KeyMethod::kPerChannel ? "PerChannel" : "Balanced";
                         });

}  // namespace
}  // namespace firn
