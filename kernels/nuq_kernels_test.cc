// The codebook kernels against the scalar reference, byte for byte. Labelled gpu.
#include "codecs/block_test_util.h"
#include "kernels/coded_batch_test_util.h"
#include "kernels/nuq.h"

namespace firn::kernels {
namespace {

// A made-up artifact whose layers and heads all differ.
struct Artifact {
  std::vector<float> levels, decoded, centre, reach, inverse;

  explicit Artifact(const CodedCase& c) {
    TestModel model(c.coding);
    for (uint32_t layer = 0; layer < c.size.layers; ++layer) {
      for (float level : model.levels) levels.push_back(level * (1 + 0.125f * static_cast<float>(layer)));
      for (float value : model.decoded) decoded.push_back(value * (1 + 0.125f * static_cast<float>(layer)));
    }
    for (uint32_t i = 0; i < c.size.layers * c.size.heads * c.size.width; ++i) {
      centre.push_back(static_cast<float>(i % 5) * 0.03125f - 0.0625f);
      reach.push_back(2.25f + static_cast<float>(i % 7) * 0.125f);
      inverse.push_back(1.0f / reach.back());
    }
  }
  CodedModel Model(const CodedCase& c) const {
    CodedModel model;
    if (c.coding.codec == CodecId::kNuqChannel) {
      model.transform = [this, &c](uint32_t layer, uint32_t head) {
        size_t at = (size_t{layer} * c.size.heads + head) * c.size.width;
        return ChannelTransform{&centre[at], &inverse[at], &reach[at], 1.0f};
      };
    }
    model.model = [this, &c](uint32_t layer, uint32_t) {
      return ModelData{.levels = &levels[layer << c.coding.bits], .decoded = &decoded[layer << c.coding.bits]};
    };
    return model;
  }
};

void Check(const CodedCase& c, const std::vector<uint8_t>& source) {
  Artifact artifact(c);
  CodedReference expected(c, source, artifact.Model(c));
  DeviceMemory levels(artifact.levels), decoded(artifact.decoded), centre(artifact.centre), reach(artifact.reach),
      inverse(artifact.inverse);
  bool per_channel = c.coding.codec == CodecId::kNuqChannel;
  auto job = [&](const CodedMemory& memory) {
    NuqJob made{.per_channel = per_channel,
                .bits = c.coding.bits,
                .outliers = c.coding.outliers,
                .group = std::max<uint32_t>(c.coding.group, 1),
                .blocks = c.size.blocks,
                .layers = c.size.layers,
                .heads = c.size.heads,
                .width = c.size.width,
                .tokens = c.size.tokens,
                .values = c.values,
                .meta = c.coding.meta_type,
                .levels = levels.as<float>(),
                .decoded = decoded.as<float>(),
                .ranges = {},
                .rows = memory.rows,
                .meta_run = memory.meta,
                .codes = memory.codes,
                .survey = memory.survey};
    if (per_channel) made.ranges = {centre.as<float>(), inverse.as<float>(), reach.as<float>(), 1.0f};
    return made;
  };
  CheckCoded(c, source, expected,
             {.encode = [&](const CodedMemory& memory) { return EncodeNuq(job(memory), nullptr); },
              .decode = [&](const CodedMemory& memory) { return DecodeNuq(job(memory), nullptr); }});
}

std::vector<PartCoding> CodingsFor(DType values) {
  std::vector<PartCoding> codings;
  for (CodecId codec : {CodecId::kNuqChannel, CodecId::kNuqToken}) {
    for (uint8_t bits : {4, 3, 2}) {
      for (uint8_t outliers : {0, 10, 50}) {
        PartCoding coding;
        coding.codec = codec, coding.bits = bits, coding.outliers = outliers;
        coding.meta_type = values == DType::kBf16 ? MetaType::kBf16 : MetaType::kFp16;
        codings.push_back(coding);
        // Tokens that share their outliers, and a head's last vector shorter than the others.
        for (uint16_t group : {5, 48}) {
          if (codec == CodecId::kNuqToken) break;
          coding.group = group;
          codings.push_back(coding);
        }
        coding.group = 0;
        coding.meta_type = MetaType::kFp32;
        if (outliers == 10) codings.push_back(coding);
      }
    }
  }
  return codings;
}

void CheckAll(CodedCase c) {
  std::vector<uint8_t> source = MakeValues(c.kind, c.values, c.size.values(), 5);
  for (const PartCoding& coding : CodingsFor(c.values)) {
    c.coding = coding;
    Check(c, source);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(NuqKernels, EveryCodingOfEveryWidth) {
  FIRN_NEED_GPU();
  for (DType values : {DType::kFp16, DType::kBf16, DType::kFp32}) {
    for (uint32_t width : {1, 7, 32, 64, 72, 128, 130, 256}) {
      CheckAll({.size = {2, 2, 3, 19, width}, .coding = {}, .values = values});
      if (HasFatalFailure()) return;
    }
  }
}

// Values that are all alike, or of few kinds, have ties for outliers.
TEST(NuqKernels, ValuesAtTheEdges) {
  FIRN_NEED_GPU();
  ForEveryKindOfValue({.size = {2, 1, 2, 11, 0}, .coding = {}}, {DType::kFp16, DType::kBf16, DType::kFp32}, {64, 96},
                      CheckAll);
}

TEST(NuqKernels, EveryNumberOfTokensAndHeads) {
  FIRN_NEED_GPU();
  for (uint32_t tokens : {1, 2, 7, 8, 9, 63, 64, 65, 130}) {
    for (uint32_t heads : {1, 5, 8}) {
      CheckAll({.size = {2, 1, heads, tokens, 64}, .coding = {}});
      if (HasFatalFailure()) return;
    }
  }
}

TEST(NuqKernels, EveryArrangementOfRowsAndRuns) {
  FIRN_NEED_GPU();
  ForEveryArrangement({.size = {3, 2, 2, 21, 0}, .coding = {}, .values = DType::kBf16}, {128, 72}, CheckAll);
}

// The most that a warp does, one more, and vectors whose indices take four bytes.
TEST(NuqKernels, WideVectors) {
  FIRN_NEED_GPU();
  for (auto [heads, width] : {std::pair{16u, 128u}, {17u, 128u}, {8u, 256u}, {1u, 2048u}, {3u, 24576u}}) {
    for (uint8_t outliers : {1, 10, 16}) {
      CodedCase c{.size = {1, 2, heads, 2, width}, .coding = {}};
      c.coding.codec = CodecId::kNuqToken, c.coding.bits = 4, c.coding.outliers = outliers;
      c.coding.meta_type = MetaType::kFp16;
      if (width > 2048) c.size.layers = 1, c.coding.outliers = 1;
      Check(c, MakeValues(c.kind, c.values, c.size.values(), 5));
      if (HasFatalFailure()) return;
    }
  }
}

// Keys as presets code them, and a vector whose indices take four bytes before one whose take two.
TEST(NuqKernels, TokensThatShareOutliers) {
  FIRN_NEED_GPU();
  struct Shape {
    uint32_t tokens, width;
    uint8_t outliers;
  };
  for (const Shape& shape : {Shape{64, 128, 15}, {63, 128, 15}, {200, 64, 15}, {65, 96, 50}, {70, 2048, 1}}) {
    for (DType values : {DType::kFp16, DType::kBf16, DType::kFp32}) {
      CodedCase c{.size = {2, 2, 2, shape.tokens, shape.width}, .coding = {}, .values = values};
      c.coding.codec = CodecId::kNuqChannel, c.coding.bits = 3, c.coding.outliers = shape.outliers;
      c.coding.meta_type = values == DType::kBf16 ? MetaType::kBf16 : MetaType::kFp16;
      c.coding.group = 64;
      Check(c, MakeValues(c.kind, c.values, c.size.values(), 5));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(NuqKernels, RealKeysAndValues) {
  FIRN_NEED_GPU();
  RealSample sample;
  if (!sample.present()) GTEST_SKIP() << "NOT RUN: no real data at " << sample.path();
  RawBlock block = sample.Block(0, 128);
  for (Part part : kParts) {
    for (const PartCoding& coding : CodingsFor(DType::kFp16)) {
      Check({.size = {1, 4, 2, 128, 128}, .coding = coding}, block.part(part));
      if (HasFatalFailure()) return;
    }
  }
}

// One value that is not finite, or too wide, is told of for its block and no other.
TEST(NuqKernels, WhatDoesNotFitIsToldBlockByBlock) {
  FIRN_NEED_GPU();
  for (DType values : {DType::kFp16, DType::kBf16, DType::kFp32}) {
    for (float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity(),
                      values == DType::kFp16 ? 65504.0f : 3.35e38f, values == DType::kFp16 ? 1e-7f : 1e5f}) {
      for (uint32_t width : {64, 96}) {
        CodedCase c{.size = {4, 1, 2, 13, width}, .coding = {}, .values = values};
        std::vector<uint8_t> source = MakeValues(ValueKind::kNormal, values, c.size.values(), 5);
        uint64_t at = c.size.values() / 2 + 13;  // In block 2.
        StoreFloats(&bad, 1, values, source.data() + at * DTypeBytes(values));
        for (const PartCoding& coding : CodingsFor(values)) {
          c.coding = coding;
          Check(c, source);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(NuqKernels, RandomShapes) {
  FIRN_NEED_GPU();
  uint64_t seed = std::random_device{}();
  if (const char* given = std::getenv("FIRN_SEED")) seed = std::strtoull(given, nullptr, 10);
  SCOPED_TRACE(fmt::format("FIRN_SEED={}", seed));
  std::mt19937_64 rng(seed);
  auto below = [&](uint64_t n) { return static_cast<uint32_t>(rng() % n); };
  for (int round = 0; round < 200; ++round) {
    uint32_t width = below(2) == 0 ? 32u << below(4) : 1 + below(200);
    DType values = below(2) == 0 ? DType::kFp16 : DType::kBf16;
    auto codings = CodingsFor(values);
    CodedCase c{.size = {1 + below(3), 1 + below(3), 1 + below(9), 1 + below(70), width},
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
