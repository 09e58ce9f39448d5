// E2M1 against its definition, and blocks of it at the ends of their scales.

#include <gtest/gtest.h>

#include "codecs/codec_table.h"
#include "codecs/fp4/fp4_codec.h"
#include "codecs/fp4/fp4_format.h"
#include "codecs/tile_test_util.h"

namespace firn {
namespace {

// Of two neighbouring codes the nearer, of equally near ones the even.
TEST(Fp4, RoundsToNearestEven) {
  for (uint8_t low = 0; low < 7; ++low) {
    float a = kE2m1Values[low], b = kE2m1Values[low + 1], middle = (a + b) / 2;
    uint8_t even = low % 2 == 0 ? low : low + 1;
    EXPECT_EQ(FloatToE2m1(a), low);
    EXPECT_EQ(FloatToE2m1(-a), low | 8);
    EXPECT_EQ(FloatToE2m1(middle), even) << middle;
    EXPECT_EQ(FloatToE2m1(-middle), even | 8);
    EXPECT_EQ(FloatToE2m1(std::nextafter(middle, 0.0f)), low);
    EXPECT_EQ(FloatToE2m1(std::nextafter(middle, 9.0f)), low + 1);
  }
  for (float large : {6.0f, 6.5f, 7.0f, 1e30f, INFINITY}) EXPECT_EQ(FloatToE2m1(large), 7);
  EXPECT_EQ(FloatToE2m1(-0.0f), 8);
}

struct Coded {
  std::vector<uint8_t> meta, codes;
  std::vector<float> values;
};
Coded Code(CodecId id, const std::vector<float>& x, uint32_t width, uint32_t tokens, uint32_t heads) {
  PartCoding coding;
  coding.codec = id;
  coding.meta_type = MetaType::kFp32;
  const CodecRow& row = *FindCodec(id);
  TileMemory memory(row, coding, DType::kFp16, width, tokens, heads);
  EncodeTile tile{.coding = &coding,
                  .width = width,
                  .tokens = tokens,
                  .heads = heads,
                  .in = DType::kFp32,
                  .source = reinterpret_cast<const uint8_t*>(x.data()),
                  .transform = {}};
  memory.Attach(&tile);
  row.encode(tile);
  Coded coded{memory.runs[0], memory.runs[5], std::vector<float>(x.size())};
  DecodeTile decode{.coding = &coding,
                    .width = width,
                    .tokens = tokens,
                    .heads = heads,
                    .out = DType::kFp32,
                    .target = reinterpret_cast<uint8_t*>(coded.values.data()),
                    .transform = {}};
  memory.Attach(&decode);
  row.decode(decode);
  return coded;
}

TEST(Fp4, NvBlocksOfOneLayer) {
  // 2688 = 6 * 448 makes the layer's scale 1. Blocks: one with the largest value, one of small ones, one of 4.
  std::vector<float> x(36, 0.0f);
  x[0] = 2688, x[1] = -448, x[16] = 3, x[17] = -0.2f, x[32] = 6, x[35] = -1.5f;
  Coded coded = Code(CodecId::kNvFp4, x, 36, 1, 1);
  ASSERT_EQ(coded.meta.size(), 4 + 3u);
  EXPECT_EQ(LoadLe<float>(coded.meta.data()), 1.0f);
  EXPECT_EQ(coded.meta[4], 0x7E);  // 448.
  EXPECT_EQ(coded.meta[5], 0x30);  // 3 / 6 = 0.5.
  EXPECT_EQ(coded.meta[6], 0x38);  // 1.
  EXPECT_EQ(coded.codes[0], 0xA7);
  EXPECT_EQ(coded.values[0], 2688);
  EXPECT_EQ(coded.values[1], -448);
  EXPECT_EQ(coded.values[16], 3);
  EXPECT_EQ(coded.values[17], -0.25f);
  EXPECT_EQ(coded.values[35], -1.5f);
}

// The worked bytes of the format's page.
TEST(Fp4, WorkedBytes) {
  Coded nv = Code(CodecId::kNvFp4, {2688, -448, 672, 0}, 4, 1, 1);
  EXPECT_EQ(nv.meta, (std::vector<uint8_t>{0, 0, 0x80, 0x3F, 0x7E}));
  EXPECT_EQ(nv.codes, (std::vector<uint8_t>{0xA7, 0x03}));
  EXPECT_EQ(nv.values, (std::vector<float>{2688, -448, 672, 0}));
  Coded mx = Code(CodecId::kMxFp4, {7, 0.75f, -5, 0}, 4, 1, 1);
  EXPECT_EQ(mx.meta, (std::vector<uint8_t>{0x7F}));
  EXPECT_EQ(mx.codes, (std::vector<uint8_t>{0x27, 0x0E}));
  EXPECT_EQ(mx.values, (std::vector<float>{6, 1, -4, 0}));
}

TEST(Fp4, NvScalesMayUnderflow) {
  // A block 2^-20 of the largest: its scale is 0, and so is all of it; signs of zeros stay.
  std::vector<float> x(32, 1e-3f);
  x[0] = 2688, x[31] = -1e-3f;
  Coded coded = Code(CodecId::kNvFp4, x, 32, 1, 1);
  EXPECT_EQ(coded.meta[5], 0);
  EXPECT_EQ(coded.values[20], 0.0f);
  EXPECT_TRUE(std::signbit(coded.values[31]));
  for (float size : {0.0f, 1e-44f, 1e-38f, 1e-30f, 3e38f}) {
    for (CodecId id : {CodecId::kNvFp4, CodecId::kMxFp4}) {
      Coded all = Code(id, std::vector<float>(70, size), 70, 1, 1);
      for (float value : all.values) {
        ASSERT_TRUE(std::isfinite(value));
        ASSERT_LE(value, 1.5f * size);
        ASSERT_TRUE(size < 1e-37f || value >= 0.7f * size) << size;
      }
    }
  }
}

TEST(Fp4, MxScalesArePowersOfTwo) {
  EXPECT_EQ(fp4::MxBlockScale(0.0f).stored, 0);
  EXPECT_EQ(fp4::MxBlockScale(4.0f).stored, 127);
  EXPECT_EQ(fp4::MxBlockScale(7.9f).stored, 127);
  EXPECT_EQ(fp4::MxBlockScale(8.0f).stored, 128);
  EXPECT_EQ(fp4::MxBlockScale(3.4e38f).stored, 252);
  EXPECT_EQ(fp4::MxScale(0), 0x1p-127f);
  EXPECT_EQ(fp4::MxScale(255), fp4::MxScale(254));
  std::vector<float> x(40, 0.75f);
  x[0] = 7, x[39] = 5;
  Coded coded = Code(CodecId::kMxFp4, x, 40, 1, 1);
  EXPECT_EQ(coded.meta, (std::vector<uint8_t>{127, 127}));
  EXPECT_EQ(coded.values[0], 6) << "saturated";
  EXPECT_EQ(coded.values[1], 1.0f) << "a tie, to even";
  EXPECT_EQ(coded.values[39], 4) << "a tie, to even";
}

}  // namespace
}  // namespace firn
