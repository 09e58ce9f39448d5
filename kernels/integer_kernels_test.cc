// The integer kernels against the scalar reference, byte for byte. Labelled gpu.
#include "codecs/block_test_util.h"
#include "kernels/coded_batch_test_util.h"
#include "kernels/integer.h"

namespace firn::kernels {
namespace {

ScaleAxis AxisOf(CodecId codec) {
  if (codec == CodecId::kIntToken) return ScaleAxis::kToken;
  return codec == CodecId::kIntChannel ? ScaleAxis::kChannel : ScaleAxis::kTensor;
}

void Check(const CodedCase& c, const std::vector<uint8_t>& source) {
  bool calibrated = (c.coding.flags & PartCoding::kCalibrated) != 0;
  std::vector<float> scales;
  for (uint32_t i = 0; i < c.size.layers * c.size.heads; ++i) scales.push_back(0.02f + static_cast<float>(i) * 0.003f);
  CodedModel model;
  model.model = [&](uint32_t layer, uint32_t head) {
    return ModelData{.scale = calibrated ? scales[layer * c.size.heads + head] : 0.0f};
  };
  CodedReference expected(c, source, model);
  DeviceMemory device_scales(scales);
  auto job = [&](const CodedMemory& memory) {
    return IntegerJob{.axis = AxisOf(c.coding.codec),
                      .bits = c.coding.bits,
                      .symmetric = (c.coding.flags & PartCoding::kSymmetric) != 0,
                      .blocks = c.size.blocks,
                      .layers = c.size.layers,
                      .heads = c.size.heads,
                      .width = c.size.width,
                      .tokens = c.size.tokens,
                      .values = c.values,
                      .meta = c.coding.meta_type,
                      .group = c.coding.group,
                      .scales = calibrated ? device_scales.as<float>() : nullptr,
                      .rows = memory.rows,
                      .meta_run = memory.meta,
                      .codes = memory.codes,
                      .survey = memory.survey};
  };
  CheckCoded(c, source, expected,
             {.encode = [&](const CodedMemory& memory) { return EncodeIntegers(job(memory), nullptr); },
              .decode = [&](const CodedMemory& memory) { return DecodeIntegers(job(memory), nullptr); }});
}

// Groups and metadata types in turn, so that every kernel sees all bits, with a minimum and without.
std::vector<PartCoding> CodingsFor(DType values, uint32_t width) {
  MetaType own = values == DType::kFp16 ? MetaType::kFp16 : MetaType::kBf16;
  std::vector<PartCoding> codings;
  for (CodecId codec : {CodecId::kIntToken, CodecId::kIntChannel, CodecId::kIntTensor}) {
    for (uint8_t bits : {8, 4, 3, 2}) {
      for (uint8_t flags : {uint8_t{0}, PartCoding::kSymmetric}) {
        auto add = [&](MetaType meta, uint32_t group) {
          PartCoding coding;
          coding.codec = codec, coding.bits = bits, coding.flags = flags, coding.meta_type = meta;
          coding.group = static_cast<uint16_t>(codec == CodecId::kIntTensor ? 0 : group);
          codings.push_back(coding);
        };
        add(MetaType::kFp32, 24);
        for (uint32_t group : {32u, width, 64u, 7u}) {
          add(own, group);
          if (codec == CodecId::kIntTensor) break;
        }
      }
    }
    if (codec == CodecId::kIntChannel) continue;
    PartCoding coding;
    coding.codec = codec, coding.bits = 8, coding.meta_type = own;
    coding.flags = PartCoding::kSymmetric | PartCoding::kCalibrated;
    coding.artifact.bytes[0] = 1;
    codings.push_back(coding);
  }
  return codings;
}

void CheckAll(CodedCase c) {
  std::vector<uint8_t> source = MakeValues(c.kind, c.values, c.size.values(), 5);
  for (const PartCoding& coding : CodingsFor(c.values, c.size.width)) {
    c.coding = coding;
    Check(c, source);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(IntegerKernels, EveryCodingOfEveryWidth) {
  FIRN_NEED_GPU();
  for (DType values : {DType::kFp16, DType::kBf16, DType::kFp32}) {
    for (uint32_t width : {1, 7, 32, 64, 72, 96, 128, 130, 256}) {
      CheckAll({.size = {2, 2, 3, 37, width}, .coding = {}, .values = values});
      if (HasFatalFailure()) return;
    }
  }
}

TEST(IntegerKernels, ValuesAtTheEdges) {
  FIRN_NEED_GPU();
  ForEveryKindOfValue({.size = {2, 1, 2, 20, 0}, .coding = {}}, {DType::kFp16, DType::kBf16, DType::kFp32}, {64, 96},
                      CheckAll);
}

TEST(IntegerKernels, EveryNumberOfTokens) {
  FIRN_NEED_GPU();
  for (uint32_t tokens : {1, 2, 3, 31, 32, 33, 64, 65, 129, 300}) {
    for (uint32_t width : {64, 128}) {
      CheckAll({.size = {3, 1, 2, tokens, width}, .coding = {}});
      if (HasFatalFailure()) return;
    }
  }
}

TEST(IntegerKernels, EveryArrangementOfRowsAndRuns) {
  FIRN_NEED_GPU();
  ForEveryArrangement({.size = {3, 2, 2, 40, 0}, .coding = {}, .values = DType::kBf16}, {128, 72}, CheckAll);
}

// Layers that one thread block does not hold in registers, groups as wide as a warp, rows as wide as there may be.
TEST(IntegerKernels, LargeLayersAndWideRows) {
  FIRN_NEED_GPU();
  CheckAll({.size = {1, 2, 8, 128, 64}, .coding = {}});
  for (uint32_t width : {2048, 5000, 24576}) {
    for (uint16_t group : {1, 256, 1024}) {
      CodedCase c{.size = {1, 1, 2, 3, width}, .coding = {}};
      c.coding.codec = CodecId::kIntToken, c.coding.bits = 3, c.coding.meta_type = MetaType::kFp16;
      c.coding.group = group;
      Check(c, MakeValues(c.kind, c.values, c.size.values(), 5));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(IntegerKernels, RealKeysAndValues) {
  FIRN_NEED_GPU();
  RealSample sample;
  if (!sample.present()) GTEST_SKIP() << "NOT RUN: no real data at " << sample.path();
  RawBlock block = sample.Block(0, 256);
  for (Part part : kParts) {
    for (const PartCoding& coding : CodingsFor(DType::kFp16, 128)) {
      Check({.size = {1, 4, 2, 256, 128}, .coding = coding}, block.part(part));
      if (HasFatalFailure()) return;
    }
  }
}

// One value that is not finite, or too wide, is told of for its block and no other.
TEST(IntegerKernels, WhatDoesNotFitIsToldBlockByBlock) {
  FIRN_NEED_GPU();
  for (DType values : {DType::kFp16, DType::kBf16, DType::kFp32}) {
    for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                      -std::numeric_limits<float>::infinity(), values == DType::kFp16 ? 65504.0f : 3.2e38f, 1e-7f}) {
      for (uint32_t width : {64, 96}) {
        CodedCase c{.size = {4, 1, 2, 33, width}, .coding = {}, .values = values};
        std::vector<uint8_t> source = MakeValues(ValueKind::kNormal, values, c.size.values(), 5);
        uint64_t at = c.size.values() / 2 + 13;  // In block 2.
        StoreFloats(&bad, 1, values, source.data() + at * DTypeBytes(values));
        for (const PartCoding& coding : CodingsFor(values, width)) {
          c.coding = coding;
          Check(c, source);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(IntegerKernels, RandomShapes) {
  FIRN_NEED_GPU();
  uint64_t seed = std::random_device{}();
  if (const char* given = std::getenv("FIRN_SEED")) seed = std::strtoull(given, nullptr, 10);
  SCOPED_TRACE(fmt::format("FIRN_SEED={}", seed));
  std::mt19937_64 rng(seed);
  auto below = [&](uint64_t n) { return static_cast<uint32_t>(rng() % n); };
  for (int round = 0; round < 300; ++round) {
    uint32_t width = below(2) == 0 ? 32u << below(4) : 1 + below(300);
    DType values = below(2) == 0 ? DType::kFp16 : DType::kBf16;
    auto codings = CodingsFor(values, width);
    CodedCase c{.size = {1 + below(4), 1 + below(3), 1 + below(4), 1 + below(150), width},
                .coding = codings[below(codings.size())],
                .values = values,
                .kind = kValueKinds[below(std::size(kValueKinds))],
                .arrangement = static_cast<Arrangement>(below(kArrangements)),
                .place = static_cast<RunPlace>(below(kRunPlaces))};
    Check(c, MakeValues(c.kind, values, c.size.values(), 5));
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace firn::kernels
