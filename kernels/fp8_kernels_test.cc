// The FP8 and checksum kernels against the scalar reference, byte for byte. Labelled gpu.
#include "base/checksum.h"
#include "kernels/checksum.h"
#include "kernels/coded_batch_test_util.h"
#include "kernels/fp8.h"

namespace firn::kernels {
namespace {

struct Case {
  BatchSize size;
  bool e5m2 = false, calibrated = false;
  DType values = DType::kFp16;
  ValueKind kind = ValueKind::kNormal;
  Arrangement arrangement = Arrangement::kCanonical;
  RunPlace place = RunPlace::kContiguous;
};

void Check(const Case& c, std::vector<uint8_t> source) {
  SCOPED_TRACE(fmt::format("width {} tokens {} e5m2 {} calibrated {} values {} kind {} arrangement {} place {}",
                           c.size.width, c.size.tokens, c.e5m2, c.calibrated, DTypeName(c.values),
                           static_cast<int>(c.kind), static_cast<int>(c.arrangement), static_cast<int>(c.place)));
  PartCoding coding;
  coding.codec = c.e5m2 ? CodecId::kFp8E5m2 : CodecId::kFp8E4m3;
  coding.meta_type = MetaType::kFp32;
  if (c.calibrated) coding.flags = PartCoding::kCalibrated, coding.artifact.bytes[0] = 1;
  const CodecRow& row = *FindCodec(coding.codec);
  ModelData model{.scale = c.calibrated ? 0.03125f : 0.0f};
  BatchTransform transform(c.size, 0);
  ReferenceBatch expected = EncodeReferenceBatch(row, coding, c.size, c.values, source, transform, model);
  constexpr size_t kWhole = static_cast<size_t>(RunKind::kWhole), kMeta = static_cast<size_t>(RunKind::kMeta);

  DeviceRows rows(c.size, c.arrangement, 3), target(c.size, c.arrangement, 3);
  rows.Upload(source);
  target.Send();
  DeviceRun codes(c.size.blocks, expected.runs[kWhole].size() / c.size.blocks, c.place, 4);
  DeviceRun meta;
  if (!c.calibrated) meta = DeviceRun(c.size.blocks, expected.runs[kMeta].size() / c.size.blocks, c.place, 5);
  DeviceMemory scales(std::vector<float>(c.size.layers * c.size.heads, 0.03125f));
  DeviceMemory survey(std::vector<uint32_t>(c.size.blocks, 0));
  Fp8Job job{.e5m2 = c.e5m2,
             .blocks = c.size.blocks,
             .layers = c.size.layers,
             .heads = c.size.heads,
             .width = c.size.width,
             .tokens = c.size.tokens,
             .values = c.values,
             .scales = c.calibrated ? scales.as<float>() : nullptr,
             .rows = rows.view(),
             .meta_run = meta.view(),
             .codes = codes.view(),
             .survey = survey.as<uint32_t>()};
  absl::Status status = EncodeFp8(job, nullptr);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_NO_FATAL_FAILURE(Synchronize());
  ASSERT_EQ(survey.Read<uint32_t>(), expected.survey);
  if (expected.survey != std::vector<uint32_t>(c.size.blocks, 0)) return;
  ASSERT_EQ(codes.Download(), expected.runs[kWhole]);
  if (!c.calibrated) {
    ASSERT_EQ(meta.Download(), expected.runs[kMeta]);
  }
  job.rows = target.view();
  status = DecodeFp8(job, nullptr);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_NO_FATAL_FAILURE(Synchronize());
  ASSERT_EQ(target.Download(),
            DecodeReferenceBatch(row, coding, c.size, c.values, expected, PrecisionClass::k8Bit, transform, model));
}

TEST(Fp8Kernels, GiveTheReferencesBytes) {
  FIRN_NEED_GPU();
  for (DType values : {DType::kFp16, DType::kBf16}) {
    for (bool e5m2 : {false, true}) {
      for (bool calibrated : {false, true}) {
        for (ValueKind kind : kValueKinds) {
          for (uint32_t width : {8, 13, 128}) {
            for (uint32_t tokens : {1, 37, 200}) {
              Case c{.size = {2, 2, 3, tokens, width},
                     .e5m2 = e5m2,
                     .calibrated = calibrated,
                     .values = values,
                     .kind = kind};
              Check(c, MakeValues(kind, values, c.size.values(), 9));
              if (::testing::Test::HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

TEST(Fp8Kernels, EveryArrangement) {
  FIRN_NEED_GPU();
  for (int arrangement = 0; arrangement < kArrangements; ++arrangement) {
    for (int place = 0; place < kRunPlaces; ++place) {
      Case c{.size = {3, 2, 2, 40, 64},
             .arrangement = static_cast<Arrangement>(arrangement),
             .place = static_cast<RunPlace>(place)};
      Check(c, MakeValues(c.kind, c.values, c.size.values(), 9));
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(Fp8Kernels, NanAndInfAreTold) {
  FIRN_NEED_GPU();
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Case c{.size = {3, 1, 2, 200, 128}};
    std::vector<uint8_t> source = MakeValues(c.kind, c.values, c.size.values(), 9);
    StoreFloats(&bad, 1, c.values, source.data() + (c.size.values() / 2 + 100) * 2);
    Check(c, std::move(source));
  }
}

// All 65,536 values, so that every rounding and every saturation is met.
TEST(Fp8Kernels, EveryFiniteHalf) {
  FIRN_NEED_GPU();
  for (bool e5m2 : {false, true}) {
    for (bool calibrated : {false, true}) {
      Case c{.size = {1, 1, 1, 512, 128}, .e5m2 = e5m2, .calibrated = calibrated};
      std::vector<uint8_t> source(c.size.values() * 2);
      for (uint32_t i = 0; i < 65536; ++i) {
        uint16_t bits = static_cast<uint16_t>(i);
        StoreLe<uint16_t>(&source[i * 2], std::isfinite(HalfToFloat(bits)) ? bits : uint16_t{0});
      }
      Check(c, std::move(source));
    }
  }
}

void CheckShared(const CodedCase& c, const std::vector<uint8_t>& source) {
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
    return Fp8Job{.e5m2 = c.coding.codec == CodecId::kFp8E5m2 || c.coding.codec == CodecId::kFp8E5m2Tensor,
                  .blocks = c.size.blocks,
                  .layers = c.size.layers,
                  .heads = c.size.heads,
                  .width = c.size.width,
                  .tokens = c.size.tokens,
                  .values = c.values,
                  .per_layer = FindCodec(c.coding.codec)->scope == TileScope::kLayer,
                  .group = c.coding.group,
                  .scales = calibrated ? device_scales.as<float>() : nullptr,
                  .rows = memory.rows,
                  .meta_run = memory.meta,
                  .codes = memory.codes,
                  .survey = memory.survey};
  };
  CheckCoded(c, source, expected,
             {.encode = [&](const CodedMemory& memory) { return EncodeFp8(job(memory), nullptr); },
              .decode = [&](const CodedMemory& memory) { return DecodeFp8(job(memory), nullptr); }});
}

// Scales of layers and of groups of channels, and rows that have been conditioned.
void CheckEveryScale(CodedCase c) {
  std::vector<uint8_t> source = MakeValues(c.kind, c.values, c.size.values(), 9);
  auto check = [&](CodecId codec, uint16_t group, uint8_t flags) {
    c.coding = {};
    c.coding.codec = codec, c.coding.group = group, c.coding.flags = flags, c.coding.meta_type = MetaType::kFp32;
    if (flags != 0) c.coding.artifact.bytes[0] = 1;
    CheckShared(c, source);
  };
  for (CodecId codec : {CodecId::kFp8E4m3, CodecId::kFp8E5m2}) {
    check(codec, 0, PartCoding::kCalibrated);
    for (uint16_t group : {0, 1, 7, 32, 300}) check(codec, group, 0);
  }
  check(CodecId::kFp8E4m3Tensor, 0, 0);
  check(CodecId::kFp8E5m2Tensor, 0, 0);
}

TEST(Fp8Kernels, EveryScaleOfEveryWidth) {
  FIRN_NEED_GPU();
  for (DType values : {DType::kFp16, DType::kBf16, DType::kFp32}) {
    for (uint32_t width : {1, 7, 64, 72, 128, 130}) {
      CheckEveryScale({.size = {2, 2, 3, 19, width}, .coding = {}, .values = values});
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Fp8Kernels, EveryScaleOfValuesAtTheEdges) {
  FIRN_NEED_GPU();
  ForEveryKindOfValue({.size = {2, 1, 2, 11, 0}, .coding = {}}, {DType::kFp16, DType::kBf16, DType::kFp32}, {64, 96},
                      CheckEveryScale);
}

TEST(Fp8Kernels, EveryScaleOfEveryArrangement) {
  FIRN_NEED_GPU();
  ForEveryArrangement({.size = {3, 2, 2, 21, 0}, .coding = {}, .values = DType::kBf16}, {128, 72}, CheckEveryScale);
}

TEST(ChecksumKernels, AreTheHostsCrc) {
  FIRN_NEED_GPU();
  std::mt19937_64 rng(7);
  for (uint64_t run_bytes : {1, 7, 8, 64, 2048, 4096, 4104, 16384, 65536, 1048576, 99999}) {
    for (uint64_t check_bytes : {uint64_t{8}, uint64_t{100}, uint64_t{4096}, run_bytes, run_bytes + 1}) {
      if (run_bytes / check_bytes > 5000) continue;
      for (RunPlace place :
           {RunPlace::kContiguous, RunPlace::kOwnAddress, RunPlace::kArenaPages, RunPlace::kSmallPages}) {
        SCOPED_TRACE(fmt::format("{} bytes, {} a check, place {}", run_bytes, check_bytes, static_cast<int>(place)));
        constexpr uint32_t kBlocks = 3;
        std::vector<uint8_t> bytes(run_bytes * kBlocks);
        for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng());
        DeviceRun run(kBlocks, run_bytes, place, 8);
        run.Upload(bytes);
        ChecksumJob job{.blocks = kBlocks, .run_bytes = run_bytes, .check_bytes = check_bytes, .run = run.view()};
        std::vector<uint64_t> seeds(job.checks_per_block() * kBlocks), expected;
        for (uint64_t& s : seeds) s = rng();
        for (uint32_t b = 0; b < kBlocks; ++b) {
          for (uint64_t first = 0; first < run_bytes; first += check_bytes) {
            expected.push_back(Crc64({bytes.data() + b * run_bytes + first, std::min(check_bytes, run_bytes - first)},
                                     seeds[expected.size()]));
          }
        }
        DeviceMemory device_seeds(seeds), checks(seeds.size() * 8);
        checks.Fill(0xEE);
        job.seeds = device_seeds.as<uint64_t>(), job.checks = checks.as<uint64_t>();
        absl::Status status = ChecksumRuns(job, nullptr);
        ASSERT_TRUE(status.ok()) << status;
        ASSERT_NO_FATAL_FAILURE(Synchronize());
        ASSERT_EQ(checks.Read<uint64_t>(), expected);
      }
    }
  }
}

}  // namespace
}  // namespace firn::kernels
