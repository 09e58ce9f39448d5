// Published vectors of integer codes, and the cases that break them: constants, ties, ends of the types.

#include <gtest/gtest.h>

#include "codecs/codec_table.h"
#include "codecs/integer/integer_codec.h"
#include "codecs/numeric/bit_stream.h"
#include "codecs/tile_test_util.h"

namespace firn {
namespace {

PartCoding Coding(CodecId codec, uint8_t bits, uint16_t group, uint8_t flags = 0, MetaType type = MetaType::kFp16) {
  PartCoding coding;
  coding.codec = codec;
  coding.meta_type = type;
  coding.flags = flags;
  coding.group = group;
  coding.bits = bits;
  return coding;
}

std::vector<uint8_t> Halves(const std::vector<float>& values) {
  std::vector<uint8_t> bytes(2 * values.size());
  StoreFloats(values.data(), values.size(), DType::kFp16, bytes.data());
  return bytes;
}

struct Coded {
  std::vector<uint8_t> meta, codes;
  std::vector<float> values;
  Survey survey;
};

// FP16 or FP32 source bytes through a row and back to FP32.
Coded Code(const PartCoding& coding, const std::vector<uint8_t>& source, DType in, uint32_t width, uint32_t tokens,
           float scale = 0) {
  const CodecRow& row = *FindCodec(coding.codec);
  Coded coded;
  TileMemory memory(row, coding, in, width, tokens);
  EncodeTile tile{
      .coding = &coding, .width = width, .tokens = tokens, .in = in, .source = source.data(), .transform = {}};
  tile.model.scale = scale;
  tile.survey = &coded.survey;
  memory.Attach(&tile);
  row.encode(tile);
  coded.values.resize(uint64_t{width} * tokens);
  DecodeTile decode{.coding = &coding, .width = width, .tokens = tokens, .out = DType::kFp32, .transform = {}};
  decode.target = reinterpret_cast<uint8_t*>(coded.values.data());
  decode.model.scale = scale;
  memory.Attach(&decode);
  row.decode(decode);
  coded.meta = memory.runs[static_cast<size_t>(RunKind::kMeta)];
  coded.codes = memory.runs[static_cast<size_t>(RunKind::kWhole)];
  return coded;
}

std::vector<uint32_t> Words(const std::vector<uint8_t>& bytes) {
  std::vector<uint32_t> words;
  for (size_t i = 0; i + 4 <= bytes.size(); i += 4) words.push_back(LoadLe<uint32_t>(bytes.data() + i));
  return words;
}

float WorstError(const Coded& coded, const std::vector<float>& x) {
  float worst = 0;
  for (size_t i = 0; i < x.size(); ++i) worst = std::max(worst, std::fabs(coded.values[i] - x[i]));
  return worst;
}

TEST(Kivi, GroupVectorsAreReproduced) {
  std::vector<float> x(32);
  for (int i = 0; i < 32; ++i) {
    x[static_cast<size_t>(i)] = static_cast<float>((7 * i * i + 3 * i) % 61) / 16 - 1.75f;
  }
  struct Row {
    uint8_t bits;
    uint16_t minimum, step;
    std::vector<uint32_t> words;
    float error;
  };
  for (const Row& row : {Row{2, 0xBF00, 0x3D00, {0x907AD060, 0xADFDEB40}, 0.625f},
                         Row{4, 0xBF00, 0x3400, {0xF6203820, 0x83026FBB, 0xDAAE6102, 0xCCE5FDE4}, 0.125f}}) {
    // The same group along a row, and along tokens: there each code has a row of its own.
    Coded coded = Code(Coding(CodecId::kIntToken, row.bits, 32), Halves(x), DType::kFp16, 32, 1);
    EXPECT_EQ(LoadLe<uint16_t>(coded.meta.data()), row.minimum);
    EXPECT_EQ(LoadLe<uint16_t>(coded.meta.data() + 2), row.step);
    EXPECT_EQ(Words(coded.codes), row.words);
    EXPECT_EQ(WorstError(coded, x), row.error);
    Coded along = Code(Coding(CodecId::kIntChannel, row.bits, 32), Halves(x), DType::kFp16, 1, 32);
    EXPECT_EQ(along.meta, coded.meta);
    EXPECT_EQ(along.values, coded.values);
    std::vector<uint8_t> codes(32);
    UnpackCodesReference(coded.codes.data(), 32, row.bits, codes.data());
    EXPECT_EQ(along.codes, codes);
  }
}

TEST(Kivi, TiesGoToEvenCodes) {
  std::vector<float> x;
  for (int i = 0; i < 4; ++i) x.insert(x.end(), {0, 0.5f, 1.5f, 2.5f, 3, 1, 2, 3});
  Coded coded = Code(Coding(CodecId::kIntToken, 2, 32), Halves(x), DType::kFp16, 32, 1);
  EXPECT_EQ(Words(coded.codes), (std::vector<uint32_t>{0xE7A0E7A0, 0xE7A0E7A0}));
}

TEST(BitStream, ThreeBitsFillThreeWords) {
  std::vector<uint8_t> codes(32), bytes(12), back(32);
  for (size_t i = 0; i < 32; ++i) codes[i] = i % 8;
  PackCodesReference(codes.data(), 32, 3, bytes.data());
  EXPECT_EQ(Words(bytes), (std::vector<uint32_t>{0x88FAC688, 0xC688FAC6, 0xFAC688FA}));
  UnpackCodesReference(bytes.data(), 32, 3, back.data());
  EXPECT_EQ(back, codes);
  // And by a row of the table: minimum 0, step 1.
  std::vector<float> x(codes.begin(), codes.end());
  EXPECT_EQ(Code(Coding(CodecId::kIntToken, 3, 32), Halves(x), DType::kFp16, 32, 1).codes, bytes);
}

TEST(Integers, ConstantGroupsComeBackExactly) {
  for (float constant : {0.0f, -0.0f, 3.25f, -7.5f, 6e-8f, 65504.0f, -65504.0f}) {
    for (uint8_t bits : {8, 4, 3, 2}) {
      for (uint8_t flags : {uint8_t{0}, PartCoding::kSymmetric}) {
        for (CodecId codec : {CodecId::kIntToken, CodecId::kIntChannel, CodecId::kIntTensor}) {
          PartCoding coding = Coding(codec, bits, codec == CodecId::kIntTensor ? 0 : 24, flags);
          std::vector<uint8_t> source = Halves(std::vector<float>(40 * 30, constant));
          float stored = LoadFloat(source.data(), DType::kFp16, 0);
          Coded coded = Code(coding, source, DType::kFp16, 40, 30);
          for (float value : coded.values) ASSERT_EQ(FloatBits(value), FloatBits(stored)) << Describe(coding, 40, 30);
          EXPECT_FALSE(coded.survey.needs_float || coded.survey.out_of_range || coded.survey.non_finite);
        }
      }
    }
  }
}

TEST(Integers, ErrorsStayWithinHalfAStep) {
  std::mt19937_64 rng(5);
  std::normal_distribution<float> normal;
  std::vector<float> x(96 * 40);
  for (float& value : x) value = HalfToFloat(FloatToHalf(normal(rng) * 3 + 1));
  for (uint8_t bits : {8, 4, 3, 2}) {
    for (uint8_t flags : {uint8_t{0}, PartCoding::kSymmetric}) {
      for (CodecId codec : {CodecId::kIntToken, CodecId::kIntChannel, CodecId::kIntTensor}) {
        // FP32 scales: rounding of the step plays no part.
        PartCoding coding = Coding(codec, bits, codec == CodecId::kIntTensor ? 0 : 64, flags, MetaType::kFp32);
        Coded coded = Code(coding, Halves(x), DType::kFp16, 96, 40);
        auto [low, high] = std::minmax_element(x.begin(), x.end());
        float step = flags == 0 ? (*high - *low) / static_cast<float>((1 << bits) - 1)
                                : std::max(-*low, *high) / static_cast<float>((1 << (bits - 1)) - 1);
        EXPECT_LE(WorstError(coded, x), step * 0.5001f + 1e-5f) << Describe(coding, 96, 40);
      }
    }
  }
}

// Worked bytes of the formats' pages: a symmetric group, and FP8 by groups, which codes rows in the same way.
TEST(Integers, WorkedBytes) {
  Coded coded =
      Code(Coding(CodecId::kIntToken, 4, 4, PartCoding::kSymmetric), Halves({1, -3.5f, 0.25f, 2}), DType::kFp16, 4, 1);
  EXPECT_EQ(coded.meta, (std::vector<uint8_t>{0x00, 0x38}));
  EXPECT_EQ(coded.codes, (std::vector<uint8_t>{0x1A, 0xC8}));
  EXPECT_EQ(coded.values, (std::vector<float>{1, -3.5f, 0, 2}));
  Coded fp8 = Code(Coding(CodecId::kFp8E4m3, 0, 2, 0, MetaType::kFp32), Halves({224, -0.5f, 1, 2}), DType::kFp16, 4, 1);
  EXPECT_EQ(fp8.meta, (std::vector<uint8_t>{0, 0, 0, 0x3F, 0x25, 0x49, 0x92, 0x3B}));
  EXPECT_EQ(fp8.codes, (std::vector<uint8_t>{0x7E, 0xB8, 0x76, 0x7E}));
}

TEST(Integers, CalibratedScalesSaturateAndAreNotStored) {
  PartCoding coding = Coding(CodecId::kIntToken, 8, 0, PartCoding::kSymmetric | PartCoding::kCalibrated);
  std::vector<float> x = {0, 0.25f, -0.25f, 1, 31.75f, 40, -31.75f, -1000};
  Coded coded = Code(coding, Halves(x), DType::kFp16, 8, 1, 0.25f);
  EXPECT_TRUE(coded.meta.empty());
  EXPECT_EQ(coded.codes, (std::vector<uint8_t>{128, 129, 127, 132, 255, 255, 1, 1}));
  EXPECT_EQ(coded.values, (std::vector<float>{0, 0.25f, -0.25f, 1, 31.75f, 31.75f, -31.75f, -31.75f}));
}

TEST(Integers, MetadataThatDoesNotFitIsAskedForWider) {
  auto survey = [](std::vector<float> x, DType in, MetaType type, uint8_t flags) {
    std::vector<uint8_t> source(x.size() * DTypeBytes(in));
    StoreFloats(x.data(), x.size(), in, source.data());
    auto width = static_cast<uint32_t>(x.size());
    Survey first;
    for (CodecId codec : {CodecId::kIntToken, CodecId::kIntChannel, CodecId::kIntTensor}) {
      PartCoding coding = Coding(codec, 4, codec == CodecId::kIntTensor ? 0 : 64, flags, type);
      // A column of `width` tokens is the group that a row of one token is.
      bool column = codec == CodecId::kIntChannel;
      Survey found = Code(coding, source, in, column ? 1 : width, column ? width : 1).survey;
      EncodeTile tile{.coding = &coding,
                      .width = column ? 1 : width,
                      .tokens = column ? width : 1,
                      .in = in,
                      .source = source.data(),
                      .transform = {}};
      Survey looked = FindCodec(codec)->survey(tile);
      EXPECT_EQ(found.non_finite, looked.non_finite);
      EXPECT_EQ(found.out_of_range, looked.out_of_range);
      EXPECT_EQ(found.needs_float, looked.needs_float);
      if (codec == CodecId::kIntToken) first = found;
    }
    return first;
  };
  for (uint8_t flags : {uint8_t{0}, PartCoding::kSymmetric}) {
    EXPECT_FALSE(survey({1, 2, -3}, DType::kFp16, MetaType::kFp16, flags).needs_float);
    EXPECT_TRUE(survey({1e-6f, 2e-6f}, DType::kFp16, MetaType::kFp16, flags).needs_float);
    EXPECT_TRUE(survey({1e6f, 2}, DType::kFp32, MetaType::kFp16, flags).needs_float);
    EXPECT_FALSE(survey({1e6f, 2}, DType::kBf16, MetaType::kBf16, flags).needs_float);
    EXPECT_FALSE(survey({65504, -65504}, DType::kFp16, MetaType::kFp16, flags).needs_float);
    EXPECT_TRUE(survey({3.35e38f, 1}, DType::kFp32, MetaType::kFp32, flags).out_of_range);
    EXPECT_TRUE(survey({2e38f, -2e38f}, DType::kFp32, MetaType::kFp32, flags).out_of_range);
    EXPECT_TRUE(survey({NAN, 1}, DType::kFp16, MetaType::kFp16, flags).non_finite);
    EXPECT_TRUE(survey({1, -INFINITY}, DType::kBf16, MetaType::kBf16, flags).non_finite);
  }
}

// FP16's ends: a range of 131,008, and decoding never passes the type.
TEST(Integers, EndsOfHalvesStayFinite) {
  std::vector<float> x(64);
  for (size_t i = 0; i < x.size(); ++i) x[i] = i % 2 == 0 ? 65504.0f : -65504.0f;
  for (uint8_t bits : {8, 4, 3, 2}) {
    for (uint8_t flags : {uint8_t{0}, PartCoding::kSymmetric}) {
      PartCoding coding = Coding(CodecId::kIntToken, bits, 64, flags);
      const CodecRow& row = *FindCodec(coding.codec);
      std::vector<uint8_t> source = Halves(x);
      TileMemory memory(row, coding, DType::kFp16, 64, 1);
      EncodeTile tile{.coding = &coding, .width = 64, .tokens = 1, .source = source.data(), .transform = {}};
      memory.Attach(&tile);
      row.encode(tile);
      std::vector<uint8_t> halves(128);
      DecodeTile decode{.coding = &coding, .width = 64, .tokens = 1, .target = halves.data(), .transform = {}};
      memory.Attach(&decode);
      row.decode(decode);
      for (size_t i = 0; i < 64; ++i) {
        EXPECT_NEAR(LoadFloat(halves.data(), DType::kFp16, i), x[i], bits == 8 ? 80 : 40) << int{bits};
      }
    }
  }
}

}  // namespace
}  // namespace firn
