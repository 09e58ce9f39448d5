// The codes "gain" and "trellis": vectors made with an independent implementation, and what must hold for any values.

#include "codecs/ladder/ladder_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codecs/ladder/row_format.h"
#include "codecs/nested/planes_reference.h"
#include "codecs/tile_test_util.h"

namespace firn {
namespace {

constexpr CodecId kCodes[] = {CodecId::kNestedGain, CodecId::kNestedTrellis};
constexpr PrecisionClass kClasses[] = {PrecisionClass::k8Bit, PrecisionClass::k4Bit, PrecisionClass::k2Bit};

PartCoding CodingOf(CodecId id, MetaType type = MetaType::kFp16) {
  return {.codec = id, .meta_type = type, .flags = PartCoding::kRotated};
}

// Rows of FP32 through a code and back. The transform's factor is 1 unless said otherwise.
struct RoundTrip {
  PartCoding coding;
  uint32_t width = 64, tokens = 1;
  Part part = Part::kV;
  float factor = 1;
  TileMemory memory{};

  const CodecRow& row() const { return *FindCodec(coding.codec); }
  Survey Encode(const std::vector<float>& values) {
    memory = TileMemory(row(), coding, DType::kFp16, width, tokens);
    Survey survey;
    EncodeTile tile{.coding = &coding,
                    .width = width,
                    .tokens = tokens,
                    .in = DType::kFp32,
                    .source = reinterpret_cast<const uint8_t*>(values.data()),
                    .part = part,
                    .transform = {.uniform_scale = factor}};
    tile.survey = &survey;
    memory.Attach(&tile);
    row().encode(tile);
    return survey;
  }
  std::vector<float> Decode(PrecisionClass precision) const {
    std::vector<float> values(size_t{tokens} * width);
    DecodeTile tile{.coding = &coding,
                    .width = width,
                    .tokens = tokens,
                    .out = DType::kFp32,
                    .target = reinterpret_cast<uint8_t*>(values.data()),
                    .precision = precision,
                    .transform = {.uniform_scale = factor}};
    memory.Attach(&tile);
    row().decode(tile);
    return values;
  }
  std::vector<uint8_t> Codes(uint32_t token) const {
    std::vector<uint8_t> codes(width);
    auto plane = [&](RunKind kind, uint64_t bytes) {
      return memory.runs[static_cast<size_t>(kind)].data() + token * bytes;
    };
    nested::UnpackCodesReference(plane(RunKind::kP2, width / 4), plane(RunKind::kP4, width / 4),
                                 plane(RunKind::kP8, width / 2), width, PrecisionClass::k8Bit, codes.data());
    return codes;
  }
};

double RelativeErrorOf(const std::vector<float>& expected, const std::vector<float>& actual) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += (double{expected[i]} - actual[i]) * (double{expected[i]} - actual[i]);
    norm += double{expected[i]} * expected[i];
  }
  return std::sqrt(difference / norm);
}

std::vector<float> NormalRows(uint32_t tokens, uint32_t width, uint64_t seed) {
  std::vector<uint8_t> bytes = MakeValues(ValueKind::kNormal, DType::kFp32, uint64_t{tokens} * width, seed);
  std::vector<float> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Two rows of small integers: rotating them is exact, so that only the code's own arithmetic is tested.
std::vector<float> VectorRows() {
  std::vector<float> x(128);
  for (int i = 0; i < 64; ++i) {
    x[static_cast<size_t>(i)] = static_cast<float>((7 * i * i + 3 * i) % 61 - 28);
    x[static_cast<size_t>(64 + i)] = static_cast<float>((i * i * i + 5 * i) % 23 - 11 + (i == 9 ? 300 : 0));
  }
  return x;
}

struct Vectors {
  CodecId codec;
  std::vector<uint8_t> meta;
  std::vector<uint8_t> codes[2];
  float decoded[2][3][4];  // By row and class, the first values.
};

const Vectors kVectors[] = {
    {CodecId::kNestedGain,
     {178, 64, 138, 186, 104, 130},
     {{0x16, 0x0C, 0x9C, 0x1C, 0x66, 0x1C, 0x4A, 0x24, 0x52, 0x9A, 0x05, 0x45, 0x2B, 0x92, 0x0F, 0x35,
       0xBB, 0xC1, 0x50, 0xAC, 0x4A, 0xEF, 0x29, 0x3C, 0x88, 0x4A, 0x14, 0xAA, 0x8E, 0x51, 0x96, 0x29,
       0xBE, 0x11, 0xAA, 0x9B, 0xB4, 0x42, 0x0B, 0x21, 0x28, 0x9F, 0x1A, 0xEA, 0x22, 0x5C, 0xCC, 0x67,
       0x1F, 0xC4, 0x23, 0xB5, 0x05, 0xD1, 0x0F, 0x40, 0x08, 0x8B, 0x53, 0x41, 0x47, 0x96, 0xA4, 0xCA},
      {0x3F, 0xB7, 0x45, 0xB0, 0x41, 0xB6, 0x3E, 0xC0, 0xBC, 0x3D, 0xAC, 0x39, 0xBF, 0x31, 0xB9, 0x34,
       0x38, 0xC6, 0x3C, 0xAC, 0x32, 0xBC, 0x46, 0xBD, 0xBD, 0x40, 0xB0, 0x29, 0xC0, 0x43, 0xB7, 0x3C,
       0x3C, 0x9D, 0x36, 0xB8, 0x35, 0xC6, 0x41, 0xAB, 0xBC, 0x38, 0xBE, 0x33, 0xBC, 0x34, 0xB8, 0x40,
       0x4E, 0xBE, 0x43, 0xB6, 0x37, 0xB0, 0x47, 0xBB, 0xC0, 0x3D, 0xBA, 0x3C, 0xB0, 0x3D, 0xB7, 0x38}},
     {{{-0x1.c075p+10f, -0x1.203ep+10f, 0x1.7d04p+8f, -0x1.1094p+10f},
       {-0x1.f33e0ap+10f, -0x1.152222p+10f, 0x1.caf856p+8f, -0x1.2daaep+10f},
       {-0x1.3a0c66p+11f, -0x1.749e66p+10f, 0x1.d49p+8f, -0x1.268664p+10f}},
      {{-0x1.5aep+9f, -0x1.509p+8f, 0x1.b12p+8f, 0x1.0518p+9f},
       {-0x1.a2c8fcp+9f, -0x1.4461dp+8f, 0x1.f278cp+8f, 0x1.4bbd8cp+9f},
       {-0x1.093502p+11f, -0x1.0935p+11f, 0x1.093502p+11f, 0x1.093502p+11f}}}},
    {CodecId::kNestedTrellis,
     {178, 73, 112, 186, 78, 141},
     {{0x8E, 0xE1, 0x4F, 0xD3, 0xA2, 0xF0, 0xC7, 0xDB, 0x8C, 0x2F, 0x99, 0xE5, 0xA2, 0xC9, 0x8B, 0x92,
       0x4E, 0x1F, 0xB2, 0x5B, 0xBA, 0x53, 0xA1, 0x9A, 0x8E, 0xEB, 0x8E, 0x1D, 0x8B, 0xF2, 0x54, 0xE0,
       0x63, 0x35, 0x1D, 0x6E, 0x2E, 0xA1, 0x9F, 0xC8, 0x9F, 0x2A, 0xAF, 0x19, 0xC8, 0xD4, 0x51, 0xA2,
       0xF1, 0x1C, 0xF3, 0x2D, 0xD9, 0x0D, 0xE3, 0xB4, 0xDC, 0x60, 0x8C, 0x9F, 0xE7, 0x54, 0x76, 0x54},
      {0x9D, 0x50, 0xB7, 0x18, 0xDF, 0x2C, 0x9C, 0x4B, 0x25, 0x9A, 0x5C, 0xB0, 0x0C, 0xCF, 0x28, 0x92,
       0xD5, 0x18, 0x99, 0x5C, 0xAA, 0x0D, 0xE6, 0x24, 0x0C, 0xDE, 0x31, 0xF6, 0x21, 0xA2, 0x50, 0xB2,
       0x99, 0x6C, 0xAE, 0x0F, 0xD2, 0x1A, 0x9F, 0x5C, 0x25, 0x95, 0x4C, 0xAC, 0x0D, 0xD2, 0x2A, 0x9E,
       0xF0, 0x23, 0xA2, 0x50, 0xAF, 0x17, 0xE7, 0x27, 0x0B, 0xDB, 0x28, 0x9A, 0x58, 0xB3, 0x10, 0xD6}},
     {{{-0x1.c282p+10f, -0x1.22fap+10f, 0x1.77ap+8f, -0x1.117p+10f},
       {-0x1.c068e4p+10f, -0x1.00feb4p+10f, 0x1.6e9a5p+8f, -0x1.f811b8p+9f},
       {-0x1.1e3332p+11f, -0x1.631998p+10f, 0x1.fccccep+8f, -0x1.2e199cp+10f}},
      {{-0x1.667ap+9f, -0x1.2da4p+8f, 0x1.be7cp+8f, 0x1.05aep+9f},
       {-0x1.2b3844p+9f, -0x1.2b0fdp+8f, 0x1.a11a98p+8f, 0x1.f914f6p+8f},
       {-0x1.543332p+10f, -0x1.2e666p+7f, -0x1.c59998p+8f, 0x1.2e6658p+7f}}}},
};

TEST(LadderVectors, CodesAndValuesAreTheDefinitions) {
  for (const Vectors& vectors : kVectors) {
    RoundTrip trip{.coding = CodingOf(vectors.codec), .tokens = 2, .part = Part::kK};
    Survey survey = trip.Encode(VectorRows());
    EXPECT_FALSE(survey.non_finite || survey.out_of_range || survey.needs_float);
    EXPECT_EQ(trip.memory.runs[static_cast<size_t>(RunKind::kMeta)], vectors.meta);
    for (uint32_t row = 0; row < 2; ++row) {
      EXPECT_EQ(trip.Codes(row), vectors.codes[row]);
      for (size_t c = 0; c < 3; ++c) {
        std::vector<float> decoded = trip.Decode(kClasses[c]);
        for (size_t i = 0; i < 4; ++i) EXPECT_EQ(decoded[row * 64 + i], vectors.decoded[row][c][i]);
      }
    }
  }
}

TEST(Ladder, FinerClassesAreNearer) {
  for (CodecId id : kCodes) {
    for (uint32_t width : {64u, 128u, 192u, 320u, 448u, 576u, 1024u}) {
      RoundTrip trip{.coding = CodingOf(id), .width = width, .tokens = 33};
      trip.factor = nested::RotationScale(nested::RotationSize(width));
      std::vector<float> values = NormalRows(33, width, width);
      trip.Encode(values);
      double before = 0;
      for (PrecisionClass c : kClasses) {
        double error = RelativeErrorOf(values, trip.Decode(c));
        EXPECT_GT(error, 3 * before) << width << " " << PrecisionClassName(c);
        before = error;
      }
      EXPECT_LT(before, 0.45) << width;
    }
  }
}

TEST(Ladder, DamageInFinerPlanesStaysThere) {
  for (CodecId id : kCodes) {
    RoundTrip trip{.coding = CodingOf(id), .width = 128, .tokens = 20};
    trip.Encode(NormalRows(20, 128, 5));
    std::vector<float> two = trip.Decode(PrecisionClass::k2Bit), four = trip.Decode(PrecisionClass::k4Bit);
    for (uint8_t& byte : trip.memory.runs[static_cast<size_t>(RunKind::kP8)]) byte ^= 0x5A;
    EXPECT_EQ(trip.Decode(PrecisionClass::k4Bit), four);
    for (uint8_t& byte : trip.memory.runs[static_cast<size_t>(RunKind::kP4)]) byte ^= 0xA5;
    EXPECT_EQ(trip.Decode(PrecisionClass::k2Bit), two);
    EXPECT_NE(trip.Decode(PrecisionClass::k4Bit), four);
  }
}

TEST(Ladder, ARowAloneGivesTheBytesItHasAmongOthers) {
  for (CodecId id : kCodes) {
    for (uint32_t width : {64u, 128u, 576u}) {
      const uint32_t tokens = 131;
      std::vector<float> values = NormalRows(tokens, width, 9);
      RoundTrip all{.coding = CodingOf(id), .width = width, .tokens = tokens};
      all.Encode(values);
      for (uint32_t token : {0u, 1u, 15u, 16u, 63u, 64u, 100u, 130u}) {
        RoundTrip one{.coding = CodingOf(id), .width = width};
        one.Encode({values.begin() + token * width, values.begin() + (token + 1) * width});
        for (size_t run = 0; run < kRunKinds; ++run) {
          const auto& alone = one.memory.runs[run];
          auto among = all.memory.runs[run].begin() + static_cast<ptrdiff_t>(token * alone.size());
          EXPECT_TRUE(std::equal(alone.begin(), alone.end(), among)) << width << " token " << token << " run " << run;
        }
      }
    }
  }
}

TEST(Ladder, RowsOfZerosComeBackAsZeros) {
  for (CodecId id : kCodes) {
    for (MetaType type : {MetaType::kFp16, MetaType::kFp32}) {
      RoundTrip trip{.coding = CodingOf(id, type), .width = 128, .tokens = 3};
      std::vector<float> values = NormalRows(3, 128, 2);
      for (size_t i = 128; i < 256; ++i) values[i] = i % 3 == 0 ? -0.0f : 0.0f;
      Survey survey = trip.Encode(values);
      EXPECT_FALSE(survey.needs_float);
      for (PrecisionClass c : kClasses) {
        std::vector<float> decoded = trip.Decode(c);
        EXPECT_THAT(std::vector<float>(decoded.begin() + 128, decoded.begin() + 256), testing::Each(0.0f));
      }
    }
  }
}

// FP32 scales hold what bytes do not, at the same errors.
TEST(Ladder, SizesBeyondAByteNeedFloats) {
  for (CodecId id : kCodes) {
    for (float size : {1e-30f, 1e-9f, 1e-6f, 1.0f, 1e6f, 1e25f, 1e31f}) {
      RoundTrip trip{.coding = CodingOf(id), .width = 128, .tokens = 8, .factor = nested::RotationScale(128)};
      std::vector<float> values = NormalRows(8, 128, 3);
      for (float& value : values) value *= size;
      EXPECT_EQ(trip.Encode(values).needs_float, size != 1.0f) << size;
      trip.coding.meta_type = MetaType::kFp32;
      Survey survey = trip.Encode(values);
      EXPECT_FALSE(survey.needs_float || survey.out_of_range) << size;
      EXPECT_LT(RelativeErrorOf(values, trip.Decode(PrecisionClass::k8Bit)), 0.02) << size;
      EXPECT_LT(RelativeErrorOf(values, trip.Decode(PrecisionClass::k2Bit)), 0.4) << size;
    }
    RoundTrip beyond{.coding = CodingOf(id, MetaType::kFp32), .width = 128};
    EXPECT_TRUE(beyond.Encode(std::vector<float>(128, 1e34f)).out_of_range);
  }
}

// Values that the rotation heaps up in one place: the scale follows the largest, so none is cut off.
TEST(Ladder, RowsOfOnePeakKeepIt) {
  for (CodecId id : kCodes) {
    RoundTrip trip{.coding = CodingOf(id), .width = 128};
    std::vector<float> values(128);
    for (uint32_t c = 0; c < 128; ++c) values[c] = ladder::IsNegated(c) ? -4.0f : 4.0f;
    trip.factor = nested::RotationScale(128);
    trip.Encode(values);
    EXPECT_LT(RelativeErrorOf(values, trip.Decode(PrecisionClass::k8Bit)), 0.06);
    EXPECT_LT(RelativeErrorOf(values, trip.Decode(PrecisionClass::k4Bit)), 0.9);
  }
}

TEST(Ladder, WideRowsMatchTheReference) {
  for (CodecId id : kCodes) {
    const CodecRow& row = *FindCodec(id);
    for (uint32_t width : {1024u, 4096u, 32768u}) {
      const uint32_t tokens = width > 10000 ? 2 : 19;
      RoundTrip trip{.coding = CodingOf(id), .width = width, .tokens = tokens};
      // The largest steps everywhere: sums of products at their greatest.
      std::vector<float> values = NormalRows(tokens, width, width);
      for (uint32_t c = 0; c < width; ++c) values[c] = c == 77 ? 1000.0f : 0.0f;
      trip.factor = nested::RotationScale(width);
      trip.Encode(values);
      TileMemory expected(row, trip.coding, DType::kFp16, width, tokens);
      EncodeTile tile{.coding = &trip.coding,
                      .width = width,
                      .tokens = tokens,
                      .in = DType::kFp32,
                      .source = reinterpret_cast<const uint8_t*>(values.data()),
                      .transform = {.uniform_scale = trip.factor}};
      expected.Attach(&tile);
      row.encode_reference(tile);
      EXPECT_EQ(expected.runs, trip.memory.runs) << width;
      EXPECT_LT(RelativeErrorOf(values, trip.Decode(PrecisionClass::k4Bit)), 0.3) << width;
    }
  }
}

TEST(Ladder, CodingsAreChecked) {
  for (CodecId id : kCodes) {
    const CodecRow& row = *FindCodec(id);
    auto code = [&](const PartCoding& coding, uint32_t width) {
      return row.validate(coding, DType::kFp16, width).code();
    };
    constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
    PartCoding good = CodingOf(id), bad = good;
    for (uint32_t width : {64u, 128u, 192u, 576u, 32768u}) EXPECT_EQ(code(good, width), absl::StatusCode::kOk) << width;
    for (uint32_t width : {1u, 32u, 80u, 96u, 132u, 32768u + 64, 65536u})
      EXPECT_EQ(code(good, width), kInvalid) << width;
    EXPECT_THAT(row.validate(good, DType::kFp16, 96).message(), testing::HasSubstr("width 96"));
    bad.flags = 0;
    EXPECT_EQ(code(bad, 128), kInvalid);
    bad = good, bad.group = 128;
    EXPECT_EQ(code(bad, 128), kInvalid);
    bad = good, bad.bits = 2;
    EXPECT_EQ(code(bad, 128), kInvalid);
    bad = good, bad.meta_type = MetaType::kNone;
    EXPECT_EQ(code(bad, 128), kInvalid);
    EXPECT_EQ(row.run_bytes({good, DType::kFp16, 128, 10}, RunKind::kMeta), 30u);
    good.meta_type = MetaType::kFp32;
    EXPECT_EQ(row.run_bytes({good, DType::kFp16, 128, 10}, RunKind::kMeta), 60u);
  }
}

}  // namespace
}  // namespace firn
