// Every row of the codec table against its scalar reference, on every SIMD target that this machine runs.

// Some rows are generated for this target too.
#define HWY_WANT_AVX3_DL

#include "codecs/codec_table.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "codecs/ladder/ladder_codec.h"
#include "codecs/nested/nested_codec.h"
#include "codecs/tile_test_util.h"
#include "hwy/highway.h"
#include "hwy/targets.h"

namespace firn {
namespace {

constexpr uint64_t kSeed = 20240607;
constexpr uint32_t kWidths[] = {1, 3, 16, 31, 64, 80, 96, 112, 128, 132, 160, 192, 256, 576};

// Runs `body` once for each target, best first, with dispatch held to it.
template <typename Body>
void ForEachTarget(const Body& body) {
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    body();
    hwy::SetSupportedTargetsForTest(0);
  }
}

// The classes that a coding can be decoded at.
std::vector<PrecisionClass> ClassesOf(const CodecRow& row, const PartCoding& coding) {
  if (row.classes.empty()) return {PrecisionClass::kExact};
  if (FamilyOf(row.id) == CodecFamily::kCodes) return {ClassOfCodes(coding)};
  return {row.classes.begin(), row.classes.end()};
}

float ToleranceOf(const CodecRow& row, PrecisionClass c) {
  for (size_t i = 0; i < row.classes.size(); ++i) {
    if (row.classes[i] == c) return row.tolerance[i];
  }
  return 0;
}

// Whether the row takes such values at all.
bool Takes(const CodecRow& row, const PartCoding& coding, uint32_t width) {
  return row.validate(coding, DType::kFp16, width).ok();
}

// Heads that one tile of the row has in tests.
uint32_t HeadsOf(const CodecRow& row) { return row.scope == TileScope::kLayer ? 3 : 1; }

// Encodes and decodes one tile by the reference and by the target in force, and compares every byte.
void CompareTile(const CodecRow& row, const PartCoding& coding, DType in, uint32_t width, uint32_t tokens,
                 const std::vector<uint8_t>& values) {
  SCOPED_TRACE(Describe(coding, width, tokens));
  TestTransform transform(row, coding, width);
  TestModel model(coding);
  const uint32_t heads = HeadsOf(row);
  const DType stored = in == DType::kFp32 ? DType::kFp16 : in;
  EncodeTile tile{.coding = &coding,
                  .width = width,
                  .tokens = tokens,
                  .heads = heads,
                  .in = in,
                  .source = values.data(),
                  .stored = stored,
                  .part = tokens % 2 == 0 ? Part::kK : Part::kV,
                  .transform = transform.view(),
                  .model = model.view()};
  TileMemory expected(row, coding, in, width, tokens, heads), actual = expected;
  expected.Attach(&tile);
  row.encode_reference(tile);
  actual.Attach(&tile);
  row.encode(tile);
  ASSERT_EQ(expected.runs, actual.runs);
  for (PrecisionClass precision : ClassesOf(row, coding)) {
    for (DType out : {DType::kFp16, DType::kBf16, DType::kFp32}) {
      DecodeTile decode{.coding = &coding,
                        .width = width,
                        .tokens = tokens,
                        .heads = heads,
                        .stored = row.classes.empty() ? in : stored,
                        .out = out,
                        .precision = precision,
                        .source_scale = 0.37f,
                        .transform = transform.view(),
                        .model = model.view()};
      expected.Attach(&decode);
      std::vector<uint8_t> by_reference(uint64_t{heads} * tokens * width * DTypeBytes(out), 0xEE);
      std::vector<uint8_t> by_target = by_reference;
      decode.target = by_reference.data();
      row.decode_reference(decode);
      decode.target = by_target.data();
      row.decode(decode);
      ASSERT_EQ(by_reference, by_target) << PrecisionClassName(precision) << " as " << DTypeName(out);
    }
  }
}

class EveryRow : public testing::TestWithParam<CodecId> {
 protected:
  const CodecRow& row() const { return *FindCodec(GetParam()); }
};

TEST_P(EveryRow, TargetsGiveTheBytesOfTheReference) {
  uint64_t seed = kSeed;
  ForEachTarget([&] {
    for (const PartCoding& coding : TestCodings(row())) {
      for (uint32_t width : kWidths) {
        if (!Takes(row(), coding, width)) continue;
        uint32_t tokens = 1 + static_cast<uint32_t>(++seed * 7 % 37);
        ValueKind kind = kValueKinds[seed % std::size(kValueKinds)];
        for (DType in : {DType::kFp16, DType::kBf16, DType::kFp32}) {
          if (in == DType::kFp32 && row().classes.empty()) continue;
          // Ranges that the metadata type cannot hold are never planned.
          bool fits = coding.meta_type != MetaType::kFp16 || (in == DType::kFp16 && coding.flags == 0);
          if (kind == ValueKind::kLargest && !fits) kind = ValueKind::kNormal;
          SCOPED_TRACE(static_cast<int>(kind));
          CompareTile(row(), coding, in, width, tokens,
                      MakeValues(kind, in, uint64_t{HeadsOf(row())} * tokens * width, seed));
          if (HasFatalFailure()) return;
        }
      }
    }
  });
}

TEST_P(EveryRow, SurveysAgreeWithTheReference) {
  if (FamilyOf(GetParam()) != CodecFamily::kNested) GTEST_SKIP() << "only nested rows look at ranges";
  const std::map<CodecId, Survey (*)(const EncodeTile&)> references = {
      {CodecId::kNestedChannel, nested::SurveyChannelReference},
      {CodecId::kNestedToken, nested::SurveyTokenReference},
      {CodecId::kNestedGain, ladder::SurveyGainReference},
      {CodecId::kNestedTrellis, ladder::SurveyTrellisReference}};
  auto reference = references.at(GetParam());
  uint64_t seed = kSeed;
  int wide = 0, out_of_range = 0, non_finite = 0;
  ForEachTarget([&] {
    for (const PartCoding& coding : TestCodings(row())) {
      for (ValueKind kind : kValueKinds) {
        for (DType in : {DType::kFp16, DType::kBf16, DType::kFp32}) {
          uint32_t width = kWidths[++seed % std::size(kWidths)], tokens = 1 + seed % 13;
          if (!Takes(row(), coding, width)) width = 64u << seed % 3;
          std::vector<uint8_t> values = MakeValues(kind, in, uint64_t{tokens} * width, seed);
          if (seed % 9 == 0) {
            float bad = seed % 2 == 0 ? NAN : -INFINITY;
            StoreFloats(&bad, 1, in, values.data() + seed % values.size() / DTypeBytes(in) * DTypeBytes(in));
          }
          if (seed % 7 == 1 && in != DType::kFp16) {
            float large = 3.35e38f;
            StoreFloats(&large, 1, in, values.data());
          }
          TestTransform transform(width, coding.flags, seed);
          EncodeTile tile{.coding = &coding,
                          .width = width,
                          .tokens = tokens,
                          .in = in,
                          .source = values.data(),
                          .transform = transform.view()};
          Survey expected = reference(tile), actual = row().survey(tile);
          SCOPED_TRACE(Describe(coding, width, tokens) +
                       fmt::format(" kind {} in {}", static_cast<int>(kind), DTypeName(in)));
          ASSERT_EQ(expected.non_finite, actual.non_finite);
          ASSERT_EQ(expected.out_of_range, actual.out_of_range);
          ASSERT_TRUE(expected.out_of_range || expected.needs_float == actual.needs_float);
          wide += actual.needs_float, out_of_range += actual.out_of_range, non_finite += actual.non_finite;
        }
      }
    }
  });
  EXPECT_GT(wide, 0);
  EXPECT_GT(out_of_range, 0);
  EXPECT_GT(non_finite, 0);
}

TEST_P(EveryRow, NormalValuesComeBackWithinTheTolerance) {
  if (row().classes.empty()) GTEST_SKIP() << "identity is exact";
  for (const PartCoding& coding : TestCodings(row())) {
    if (coding.group > 128) continue;
    for (uint32_t width : {64u, 96u, 128u, 256u}) {
      if (!Takes(row(), coding, width)) continue;
      const uint32_t tokens = 64, heads = HeadsOf(row());
      const uint64_t count = uint64_t{heads} * tokens * width;
      std::vector<uint8_t> values = MakeValues(ValueKind::kNormal, DType::kFp32, count, kSeed);
      TestTransform transform =
          GetParam() == CodecId::kNuqChannel
              ? TestTransform(row(), coding, width)
              : TestTransform(width, row().applies_transform ? coding.flags & PartCoding::kRotated : 0, kSeed);
      TestModel model(coding);
      EncodeTile tile{.coding = &coding,
                      .width = width,
                      .tokens = tokens,
                      .heads = heads,
                      .in = DType::kFp32,
                      .source = values.data(),
                      .transform = transform.view(),
                      .model = model.view()};
      TileMemory memory(row(), coding, DType::kFp16, width, tokens, heads);
      memory.Attach(&tile);
      row().encode(tile);
      for (PrecisionClass precision : ClassesOf(row(), coding)) {
        std::vector<float> decoded(count);
        DecodeTile decode{.coding = &coding,
                          .width = width,
                          .tokens = tokens,
                          .heads = heads,
                          .out = DType::kFp32,
                          .target = reinterpret_cast<uint8_t*>(decoded.data()),
                          .precision = precision,
                          .transform = transform.view(),
                          .model = model.view()};
        memory.Attach(&decode);
        row().decode(decode);
        double difference = 0, norm = 0;
        for (uint64_t j = 0; j < decoded.size(); ++j) {
          double x = LoadFloat(values.data(), DType::kFp32, j);
          difference += (x - decoded[j]) * (x - decoded[j]), norm += x * x;
        }
        double error = std::sqrt(difference / norm);
        float tolerance = ToleranceOf(row(), precision);
        EXPECT_LT(error, tolerance) << Describe(coding, width, tokens);
        EXPECT_GT(error, tolerance / 8) << "a tolerance that says nothing; " << Describe(coding, width, tokens);
      }
    }
  }
}

// A change of head h + 1 leaves the bytes of head h alone, since a tile is all that a codec sees of a block; and a run
// is the sum of its tiles.
TEST_P(EveryRow, TilesAddUpToTheHead) {
  if (row().scope == TileScope::kLayer) GTEST_SKIP() << "a layer is one tile";
  for (const PartCoding& coding : TestCodings(row())) {
    for (uint32_t width : kWidths) {
      if (!Takes(row(), coding, width)) continue;
      for (uint32_t tokens : {1u, 63u, 64u, 65u, 300u}) {
        uint32_t step = row().tile_tokens(coding, width, tokens);
        ASSERT_GT(step, 0u);
        for (uint32_t kind = 0; kind < kRunKinds; ++kind) {
          RunKind run = static_cast<RunKind>(kind);
          uint64_t sum = 0;
          for (uint32_t t = 0; t < tokens; t += step) {
            ASSERT_TRUE(run != RunKind::kMeta || row().meta_offset(coding, width, t) == sum);
            sum += row().run_bytes({coding, DType::kFp16, width, std::min(step, tokens - t)}, run);
          }
          ASSERT_EQ(sum, row().run_bytes({coding, DType::kFp16, width, tokens}, run))
              << Describe(coding, width, tokens);
        }
      }
    }
  }
}

// Encoding tells what a look at the values tells, on every target: what does not fit is found either way.
TEST_P(EveryRow, EncodingSurveysAsTheReferenceDoes) {
  if (row().classes.empty() || FamilyOf(GetParam()) == CodecFamily::kNested) GTEST_SKIP() << "tested above";
  uint64_t seed = kSeed;
  int non_finite = 0;
  ForEachTarget([&] {
    for (const PartCoding& coding : TestCodings(row())) {
      for (ValueKind kind : {ValueKind::kNormal, ValueKind::kSubnormal, ValueKind::kLargest}) {
        const uint32_t width = kWidths[++seed % std::size(kWidths)], tokens = 1 + seed % 5, heads = HeadsOf(row());
        const DType in = seed % 2 == 0 ? DType::kFp32 : DType::kFp16;
        std::vector<uint8_t> values = MakeValues(kind, in, uint64_t{heads} * tokens * width, seed);
        if (seed % 5 == 0) {
          float bad = seed % 2 == 0 ? NAN : -INFINITY;
          StoreFloats(&bad, 1, in, values.data() + seed % (values.size() / DTypeBytes(in)) * DTypeBytes(in));
        }
        TestTransform transform(row(), coding, width);
        TestModel model(coding);
        Survey by_reference, by_target;
        EncodeTile tile{.coding = &coding,
                        .width = width,
                        .tokens = tokens,
                        .heads = heads,
                        .in = in,
                        .source = values.data(),
                        .transform = transform.view(),
                        .model = model.view(),
                        .survey = &by_reference};
        TileMemory memory(row(), coding, in, width, tokens, heads);
        memory.Attach(&tile);
        row().encode_reference(tile);
        tile.survey = &by_target;
        row().encode(tile);
        Survey looked = row().survey(tile);
        SCOPED_TRACE(Describe(coding, width, tokens) + fmt::format(" kind {}", static_cast<int>(kind)));
        for (const Survey& other : {by_target, looked}) {
          ASSERT_EQ(by_reference.non_finite, other.non_finite);
          ASSERT_TRUE(by_reference.non_finite || by_reference.out_of_range == other.out_of_range);
          ASSERT_TRUE(by_reference.non_finite || by_reference.out_of_range ||
                      by_reference.needs_float == other.needs_float);
        }
        non_finite += looked.non_finite;
      }
    }
  });
  EXPECT_GT(non_finite, 0);
}

// Damage that no checksum caught: any bytes decode without a read or a write outside, whatever they say.
TEST_P(EveryRow, AnyBytesDecodeWithinTheirRow) {
  std::mt19937_64 rng(kSeed);
  for (const PartCoding& coding : TestCodings(row())) {
    for (uint32_t width : {1u, 31u, 128u, 132u}) {
      if (!row().validate(coding, DType::kFp16, width).ok()) continue;
      const uint32_t tokens = 5, heads = HeadsOf(row());
      // Each run ends where its memory ends, so that a sanitizer sees any access beyond; so does the target, between
      // guards.
      TileMemory memory(row(), coding, DType::kFp16, width, tokens, heads);
      for (std::vector<uint8_t>& run : memory.runs) {
        for (uint8_t& byte : run) byte = static_cast<uint8_t>(rng());
      }
      TestTransform transform(row(), coding, width);
      TestModel model(coding);
      for (PrecisionClass precision : ClassesOf(row(), coding)) {
        const DType out = DType::kFp16;
        const size_t bytes = size_t{heads} * tokens * width * DTypeBytes(out), guard = 256;
        std::vector<uint8_t> target(bytes + 2 * guard, 0xA5);
        DecodeTile decode{.coding = &coding,
                          .width = width,
                          .tokens = tokens,
                          .heads = heads,
                          .out = out,
                          .target = target.data() + guard,
                          .precision = precision,
                          .transform = transform.view(),
                          .model = model.view()};
        memory.Attach(&decode);
        for (auto* function : {row().decode, row().decode_reference}) {
          function(decode);
          for (size_t i = 0; i < guard; ++i) {
            ASSERT_EQ(target[i], 0xA5) << Describe(coding, width, tokens);
            ASSERT_EQ(target[guard + bytes + i], 0xA5) << Describe(coding, width, tokens);
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, EveryRow,
                         testing::Values(CodecId::kIdentity, CodecId::kFp8E4m3, CodecId::kFp8E5m2,
                                         CodecId::kNestedChannel, CodecId::kNestedToken, CodecId::kIntToken,
                                         CodecId::kIntChannel, CodecId::kIntTensor, CodecId::kNuqChannel,
                                         CodecId::kNuqToken, CodecId::kNvFp4, CodecId::kMxFp4, CodecId::kFp8E4m3Tensor,
                                         CodecId::kFp8E5m2Tensor, CodecId::kNestedGain, CodecId::kNestedTrellis),
                         [](const testing::TestParamInfo<CodecId>& id) {
                           return std::string(FindCodec(id.param)->name);
                         });

TEST(CodecTable, NamesAndIdsAreUnique) {
  std::set<std::string_view> names;
  std::set<CodecId> ids;
  for (const CodecRow& row : AllCodecs()) {
    EXPECT_TRUE(names.insert(row.name).second);
    EXPECT_TRUE(ids.insert(row.id).second);
    EXPECT_EQ(row.classes.size(), row.tolerance.size());
  }
  EXPECT_EQ(AllCodecs().size(), 16u) << "add the new row to the test suite above";
  EXPECT_EQ(FindCodec(CodecId::kNone), nullptr);
}

}  // namespace
}  // namespace firn
