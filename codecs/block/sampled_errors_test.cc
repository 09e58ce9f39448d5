#include "codecs/block/sampled_errors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "codecs/rules_test_util.h"

namespace firn {
namespace {

bool SameBits(const PartErrors& a, const PartErrors& b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

// Brings the rows that are asked for, as a device would, and compares.
void ExpectMeasuresAlike(const RawBlock& raw, const EncodeSpec& spec, const TestArtifacts& artifacts) {
  auto encoded = EncodeToHeap(raw.Wrap(), spec, artifacts);
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  for (Part part : kParts) {
    if (raw.shape.part(part).width == 0) continue;
    auto sampled = SampledErrors::Create(encoded->header, part);
    ASSERT_TRUE(sampled.ok()) << sampled.status();
    const PartGeometry& g = sampled->geometry();
    uint64_t row_bytes = uint64_t{g.shape().width} * 2;
    std::vector<uint8_t> rows;
    for (uint64_t i = 0; i < sampled->rows(); ++i) {
      uint64_t row = sampled->RowAt(i);
      uint64_t canonical = row / g.coded_tokens() * g.shape().tokens + g.exact_tokens() + row % g.coded_tokens();
      const auto& values = part == Part::kK ? raw.k : raw.v;
      rows.insert(rows.end(), values.begin() + static_cast<ptrdiff_t>(canonical * row_bytes),
                  values.begin() + static_cast<ptrdiff_t>((canonical + 1) * row_bytes));
    }
    auto errors = sampled->Measure(rows, *encoded, artifacts);
    ASSERT_TRUE(errors.ok()) << errors.status();
    EXPECT_TRUE(SameBits(*errors, encoded->header->errors[static_cast<size_t>(part)]));
    rows.pop_back();
    EXPECT_FALSE(sampled->Measure(rows, *encoded, artifacts).ok());
  }
}

TEST(SampledErrors, AreThoseOfEncoding) {
  TestArtifacts artifacts;
  for (BlockShape shape : {BlockShape{.layers = 3, .heads = 2, .k_width = 64, .v_width = 96, .tokens = 37},
                           BlockShape{.layers = 16, .heads = 4, .k_width = 128, .v_width = 128, .tokens = 130},
                           BlockShape{.layers = 1, .heads = 1, .k_width = 16, .v_width = 16, .tokens = 1}}) {
    auto balance = artifacts.Add(MakeBalance(shape, 5));
    for (DType dtype : {DType::kFp16, DType::kBf16}) {
      RawBlock raw = MakeBlock(shape, dtype, 3);
      for (PrecisionClass target : {PrecisionClass::k8Bit, PrecisionClass::k4Bit, PrecisionClass::k2Bit}) {
        for (KeyMethod method : {KeyMethod::kPerChannel, KeyMethod::kBalancedRotated, KeyMethod::kRotated}) {
          EncodeSpec spec = Spec(target, target, method, balance);
          ExpectMeasuresAlike(raw, spec, artifacts);
          spec.keep_first_tokens = shape.tokens > 4 ? 4 : 0;
          ExpectMeasuresAlike(raw, spec, artifacts);
        }
      }
      EncodeSpec fp8 = Spec(PrecisionClass::k8Bit, PrecisionClass::k8Bit);
      fp8.use_fp8 = true;
      ExpectMeasuresAlike(raw, fp8, artifacts);
    }
  }
}

// Codes of layers are compared by some of their layers, and vectors of several tokens have their outliers in one list.
TEST(SampledErrors, OfEveryCodingAreThoseOfEncoding) {
  TestArtifacts artifacts;
  for (BlockShape shape : {BlockShape{.layers = 3, .heads = 2, .k_width = 64, .v_width = 96, .tokens = 37},
                           BlockShape{.layers = 9, .heads = 4, .k_width = 64, .v_width = 32, .tokens = 130},
                           BlockShape{.layers = 17, .heads = 1, .k_width = 20, .v_width = 0, .tokens = 3}}) {
    for (DType dtype : {DType::kFp16, DType::kBf16}) {
      RawBlock raw = MakeBlock(shape, dtype, 3);
      raw.first_token = 130;
      for (const RuleCase& c : RuleCases()) {
        SCOPED_TRACE(c.name);
        EncodeSpec spec = RuleSpec(c, shape, &artifacts);
        ExpectMeasuresAlike(raw, spec, artifacts);
        spec.keep_first_tokens = raw.first_token + 2;
        ExpectMeasuresAlike(raw, spec, artifacts);
      }
    }
  }
}

TEST(SampledErrors, OfHeadsThatDifferAreRefused) {
  BlockShape shape{.layers = 2, .heads = 2, .k_width = 64, .v_width = 64, .tokens = 10};
  TestArtifacts artifacts;
  EncodeSpec spec = Spec(PrecisionClass::k2Bit, PrecisionClass::k2Bit);
  ClassMap classes(4, PrecisionClass::k2Bit);
  classes[1] = PrecisionClass::k8Bit;
  spec.classes[0] = std::make_shared<const ClassMap>(classes);
  auto encoded = EncodeToHeap(MakeBlock(shape, DType::kFp16, 3).Wrap(), spec, artifacts);
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  EXPECT_TRUE(absl::IsUnimplemented(SampledErrors::Create(encoded->header, Part::kK).status()));
  EXPECT_TRUE(SampledErrors::Create(encoded->header, Part::kV).ok());
}

}  // namespace
}  // namespace firn
