// The FP4 kernels against the scalar reference, byte for byte. Labelled gpu.
#include "codecs/block_test_util.h"
#include "kernels/coded_batch_test_util.h"
#include "kernels/fp4.h"

namespace firn::kernels {
namespace {

void Check(CodedCase c, const std::vector<uint8_t>& source) {
  for (CodecId codec : {CodecId::kNvFp4, CodecId::kMxFp4}) {
    c.coding.codec = codec, c.coding.meta_type = MetaType::kFp32;
    CodedReference expected(c, source);
    auto job = [&](const CodedMemory& memory) {
      return Fp4Job{.mx = codec == CodecId::kMxFp4,
                    .blocks = c.size.blocks,
                    .layers = c.size.layers,
                    .heads = c.size.heads,
                    .width = c.size.width,
                    .tokens = c.size.tokens,
                    .values = c.values,
                    .rows = memory.rows,
                    .meta_run = memory.meta,
                    .codes = memory.codes,
                    .survey = memory.survey};
    };
    CheckCoded(c, source, expected,
               {.encode = [&](const CodedMemory& memory) { return EncodeFp4(job(memory), nullptr); },
                .decode = [&](const CodedMemory& memory) { return DecodeFp4(job(memory), nullptr); }});
    if (::testing::Test::HasFatalFailure()) return;
  }
}
void CheckMade(const CodedCase& c) { Check(c, MakeValues(c.kind, c.values, c.size.values(), 5)); }

TEST(Fp4Kernels, EveryWidthAndNumberOfTokens) {
  FIRN_NEED_GPU();
  for (DType values : {DType::kFp16, DType::kBf16, DType::kFp32}) {
    for (uint32_t width : {1, 7, 16, 32, 48, 64, 72, 80, 96, 128, 130, 256, 576}) {
      for (uint32_t tokens : {1, 37, 64, 200}) {
        CheckMade({.size = {2, 2, 3, tokens, width}, .coding = {}, .values = values});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Fp4Kernels, ValuesAtTheEdges) {
  FIRN_NEED_GPU();
  ForEveryKindOfValue({.size = {2, 2, 2, 20, 0}, .coding = {}}, {DType::kFp16, DType::kBf16, DType::kFp32}, {64, 72},
                      CheckMade);
}

TEST(Fp4Kernels, EveryArrangementOfRowsAndRuns) {
  FIRN_NEED_GPU();
  ForEveryArrangement({.size = {3, 2, 2, 40, 0}, .coding = {}, .values = DType::kBf16}, {128, 72}, CheckMade);
}

// Every finite half, in blocks of every magnitude, so that every rounding is met; and every bfloat.
TEST(Fp4Kernels, EveryFiniteValue) {
  FIRN_NEED_GPU();
  for (DType values : {DType::kFp16, DType::kBf16}) {
    CodedCase c{.size = {1, 8, 1, 64, 128}, .coding = {}, .values = values};
    std::vector<uint8_t> source(c.size.values() * 2);
    for (uint32_t i = 0; i < 65536; ++i) {
      auto bits = static_cast<uint16_t>(i);
      float value = values == DType::kFp16 ? HalfToFloat(bits) : BfloatToFloat(bits);
      StoreLe<uint16_t>(&source[i * 2], std::isfinite(value) ? bits : uint16_t{0});
    }
    Check(c, source);
  }
}

TEST(Fp4Kernels, RealKeysAndValues) {
  FIRN_NEED_GPU();
  RealSample sample;
  if (!sample.present()) GTEST_SKIP() << "NOT RUN: no real data at " << sample.path();
  RawBlock block = sample.Block(0, 512);
  for (Part part : kParts) Check({.size = {1, 4, 2, 512, 128}, .coding = {}}, block.part(part));
}

TEST(Fp4Kernels, NanAndInfAreToldBlockByBlock) {
  FIRN_NEED_GPU();
  for (DType values : {DType::kFp16, DType::kBf16, DType::kFp32}) {
    for (float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      for (uint32_t width : {64, 72}) {
        CodedCase c{.size = {4, 1, 2, 33, width}, .coding = {}, .values = values};
        std::vector<uint8_t> source = MakeValues(c.kind, values, c.size.values(), 5);
        StoreFloats(&bad, 1, values, source.data() + (c.size.values() / 2 + 13) * DTypeBytes(values));
        Check(c, source);
        if (HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace firn::kernels
