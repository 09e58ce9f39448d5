// The nested kernels against the scalar reference, byte for byte. Labelled gpu.
#include "codecs/block_test_util.h"
#include "kernels/batch_test_util.h"
#include "kernels/nested.h"
#include "kernels/scale_probe_test_util.h"

namespace firn::kernels {
namespace {

PartCoding Coding(CodecId codec, MetaType meta, uint16_t group, uint8_t flags) {
  PartCoding coding;
  coding.codec = codec;
  coding.meta_type = meta;
  coding.group = group;
  coding.flags = flags;
  if (flags & PartCoding::kCentred) coding.artifact.bytes[0] = 1;
  return coding;
}

constexpr RunKind kPlanes[] = {RunKind::kMeta, RunKind::kP2, RunKind::kP4, RunKind::kP8};

class Batch {
 public:
  explicit Batch(const CodedCase& c) : c_(c), row_(*FindCodec(c.coding.codec)), transform_(c.size, c.coding.flags) {
    source_ = MakeValues(c.kind, c.values, c.size.values(), 5);
  }
  explicit Batch(const CodedCase& c, std::vector<uint8_t> source) : Batch(c) { source_ = std::move(source); }

  // Encodes and decodes, at every precision, and compares all of it.
  void Check() {
    SCOPED_TRACE(c_.Name());
    ReferenceBatch expected = EncodeReferenceBatch(row_, c_.coding, c_.size, c_.values, source_, transform_);
    for (PrecisionClass precision : {PrecisionClass::k8Bit, PrecisionClass::k4Bit, PrecisionClass::k2Bit}) {
      CheckEncode(expected, precision);
      bool fits = std::all_of(expected.survey.begin(), expected.survey.end(), [](uint32_t s) { return s == 0; });
      if (fits) CheckDecode(expected, precision);
    }
  }

 private:
  NestedJob Job(const DeviceRows& rows, const std::array<DeviceRun, kRunKinds>& runs) const {
    NestedJob job;
    job.per_channel = c_.coding.codec == CodecId::kNestedChannel;
    job.blocks = c_.size.blocks, job.layers = c_.size.layers, job.heads = c_.size.heads;
    job.width = c_.size.width, job.tokens = c_.size.tokens;
    job.values = c_.values, job.meta = c_.coding.meta_type;
    job.group = c_.coding.group;
    job.rotated = (c_.coding.flags & PartCoding::kRotated) != 0;
    job.transform = transform_.view();
    job.rows = rows.view();
    auto run = [&](RunKind kind) { return runs[static_cast<size_t>(kind)].view(); };
    job.meta_run = run(RunKind::kMeta), job.p2 = run(RunKind::kP2), job.p4 = run(RunKind::kP4),
    job.p8 = run(RunKind::kP8);
    return job;
  }
  std::array<DeviceRun, kRunKinds> Runs(const ReferenceBatch& expected, PrecisionClass precision) const {
    std::array<DeviceRun, kRunKinds> runs;
    for (RunKind kind : kPlanes) {
      if (kind == RunKind::kP8 && precision < PrecisionClass::k8Bit) continue;
      if (kind == RunKind::kP4 && precision < PrecisionClass::k4Bit) continue;
      size_t k = static_cast<size_t>(kind);
      runs[k] = DeviceRun(c_.size.blocks, expected.runs[k].size() / c_.size.blocks, c_.place, 11 + k);
    }
    return runs;
  }

  void CheckEncode(const ReferenceBatch& expected, PrecisionClass precision) {
    DeviceRows rows(c_.size, c_.arrangement, 3);
    rows.Upload(source_);
    auto runs = Runs(expected, precision);
    NestedJob job = Job(rows, runs);
    DeviceMemory survey(std::vector<uint32_t>(c_.size.blocks, 0));
    job.survey = survey.as<uint32_t>();
    absl::Status status = EncodeNested(job, nullptr);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_NO_FATAL_FAILURE(Synchronize());
    std::vector<uint32_t> found = survey.Read<uint32_t>();
    for (uint32_t& f : found) f = SettledSurvey(f);
    ASSERT_EQ(found, expected.survey);
    for (RunKind kind : kPlanes) {
      size_t k = static_cast<size_t>(kind);
      if (!runs[k].view().present()) continue;
      std::vector<uint8_t> bytes = runs[k].Download();
      uint64_t run_bytes = bytes.size() / c_.size.blocks;
      for (uint32_t b = 0; b < c_.size.blocks; ++b) {
        if (found[b] != 0) continue;  // Codes of values that do not fit mean nothing.
        for (uint64_t i = b * run_bytes; i < (b + 1) * run_bytes; ++i) {
          ASSERT_EQ(int{bytes[i]}, int{expected.runs[k][i]})
              << "run kind " << k << " block " << b << " byte " << i - b * run_bytes;
        }
      }
    }
  }

  void CheckDecode(const ReferenceBatch& expected, PrecisionClass precision) {
    DeviceRows rows(c_.size, c_.arrangement, 3);
    rows.Send();
    auto runs = Runs(expected, precision);
    for (RunKind kind : kPlanes) {
      size_t k = static_cast<size_t>(kind);
      if (runs[k].view().present()) runs[k].Upload(expected.runs[k]);
    }
    NestedJob job = Job(rows, runs);
    job.precision = precision;
    absl::Status status = DecodeNested(job, nullptr);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_NO_FATAL_FAILURE(Synchronize());
    std::vector<uint8_t> decoded = rows.Download();
    std::vector<uint8_t> wanted =
        DecodeReferenceBatch(row_, c_.coding, c_.size, c_.values, expected, precision, transform_);
    for (uint64_t i = 0; i < c_.size.values(); ++i) {
      ASSERT_EQ(LoadLe<uint16_t>(&decoded[i * 2]), LoadLe<uint16_t>(&wanted[i * 2]))
          << "value " << i << " at " << PrecisionClassName(precision);
    }
  }

  CodedCase c_;
  const CodecRow& row_;
  BatchTransform transform_;
  std::vector<uint8_t> source_;
};

constexpr uint8_t kBalanced = PartCoding::kRotated | PartCoding::kCentred | PartCoding::kBalanced;

std::vector<PartCoding> CodingsFor(DType values, uint32_t width) {
  MetaType own = values == DType::kFp16 ? MetaType::kFp16 : MetaType::kBf16;
  std::vector<PartCoding> codings;
  for (MetaType meta : {own, MetaType::kFp32}) {
    for (uint32_t group : {width, width / 2, width / 4, 24u}) {
      if (group == 0 || group > 32768) continue;
      for (uint8_t flags : {uint8_t{0}, PartCoding::kRotated, kBalanced}) {
        codings.push_back(Coding(CodecId::kNestedToken, meta, static_cast<uint16_t>(group), flags));
      }
    }
    for (uint16_t group : {64, 32, 16, 7, 100}) codings.push_back(Coding(CodecId::kNestedChannel, meta, group, 0));
  }
  return codings;
}

void CheckAll(CodedCase c) {
  for (const PartCoding& coding : CodingsFor(c.values, c.size.width)) {
    c.coding = coding;
    Batch(c).Check();
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(NestedKernels, EveryCodingOfEveryWidthGivesTheReferencesBytes) {
  FIRN_NEED_GPU();
  for (DType values : {DType::kFp16, DType::kBf16}) {
    for (uint32_t width : {1, 7, 32, 64, 80, 96, 112, 128, 130, 192, 256, 512, 576}) {
      CheckAll({.size = {2, 2, 3, 37, width}, .coding = {}, .values = values});
      if (HasFatalFailure()) return;
    }
  }
}

TEST(NestedKernels, ValuesAtTheEdges) {
  FIRN_NEED_GPU();
  ForEveryKindOfValue({.size = {2, 1, 2, 20, 0}, .coding = {}}, {DType::kFp16, DType::kBf16}, {64, 96, 128}, CheckAll);
}

TEST(NestedKernels, EveryNumberOfTokens) {
  FIRN_NEED_GPU();
  for (uint32_t tokens : {1, 2, 15, 16, 17, 63, 64, 65, 129, 300}) {
    for (uint32_t width : {64, 128, 48}) {
      CheckAll({.size = {3, 1, 2, tokens, width}, .coding = {}});
      if (HasFatalFailure()) return;
    }
  }
}

TEST(NestedKernels, EveryArrangementOfRowsAndRuns) {
  FIRN_NEED_GPU();
  ForEveryArrangement({.size = {3, 2, 2, 40, 0}, .coding = {}, .values = DType::kBf16}, {128, 72}, CheckAll);
}

TEST(NestedKernels, WideRowsAndManyGroups) {
  FIRN_NEED_GPU();
  for (uint32_t width : {2048, 4096, 5000, 16384, 20000}) {
    for (uint16_t group : {4, 8, 32, 1024, 32768}) {
      for (uint8_t flags : {uint8_t{0}, PartCoding::kRotated, kBalanced}) {
        if (width + 2 * ((width + group - 1) / group) > 227 * 256) continue;  // More than a GPU codes.
        Batch({.size = {1, 1, 2, 3, width}, .coding = Coding(CodecId::kNestedToken, MetaType::kFp16, group, flags)})
            .Check();
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(NestedKernels, RealKeysAndValues) {
  FIRN_NEED_GPU();
  RealSample sample;
  if (!sample.present()) GTEST_SKIP() << "NOT RUN: no real data at " << sample.path();
  RawBlock block = sample.Block(0, 1024);
  for (Part part : kParts) {
    for (const PartCoding& coding : CodingsFor(DType::kFp16, 128)) {
      Batch(CodedCase{.size = {1, 4, 2, 1024, 128}, .coding = coding}, block.part(part)).Check();
      if (HasFatalFailure()) return;
    }
  }
}

// One value that is not finite, or too wide, is told of for its block and no other.
TEST(NestedKernels, WhatDoesNotFitIsToldBlockByBlock) {
  FIRN_NEED_GPU();
  for (DType values : {DType::kFp16, DType::kBf16}) {
    bool fp16 = values == DType::kFp16;
    for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                      -std::numeric_limits<float>::infinity(), fp16 ? 65504.0f : 3.2e38f, 1e-7f}) {
      for (uint32_t width : {64, 128, 96}) {
        for (const PartCoding& coding : CodingsFor(values, width)) {
          CodedCase c{.size = {4, 1, 2, 33, width}, .coding = coding, .values = values};
          std::vector<uint8_t> source = MakeValues(ValueKind::kNormal, values, c.size.values(), 5);
          uint64_t at = c.size.values() / 2 + 13;  // In block 2.
          StoreFloats(&bad, 1, values, source.data() + at * 2);
          Batch(c, std::move(source)).Check();
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Every step that FP16 or BF16 can hold, and quotients by 240 of every mantissa at both ends of the exponents.
TEST(NestedKernels, InverseAndQuotientAreCorrectlyRounded) {
  FIRN_NEED_GPU();
  std::vector<float> steps, expected;
  for (uint32_t i = 0; i < 65536; ++i) {
    for (float step : {HalfToFloat(static_cast<uint16_t>(i)), BfloatToFloat(static_cast<uint16_t>(i))}) {
      if (!(step >= kFloatMinNormal && step <= 0x1p125f)) continue;
      steps.push_back(step);
      expected.push_back(1.0f / step);
    }
  }
  std::vector<float> inverses = ProbeInverses(steps);
  for (size_t i = 0; i < steps.size(); ++i) ASSERT_EQ(FloatBits(inverses[i]), FloatBits(expected[i])) << steps[i];
  for (int exponent : {-118, -14, 0, 126}) {
    std::vector<float> values;
    for (uint32_t mantissa = 0; mantissa < 1u << 23; ++mantissa) {
      values.push_back(BitsFloat(static_cast<uint32_t>(exponent + 127) << 23 | mantissa));
    }
    std::vector<float> quotients = ProbeQuotients(values);
    for (size_t i = 0; i < values.size(); ++i) {
      float wanted = values[i] / 240.0f;
      if (wanted < kFloatMinNormal) continue;
      ASSERT_EQ(FloatBits(quotients[i]), FloatBits(wanted)) << values[i];
    }
  }
}

TEST(NestedKernels, RandomShapes) {
  FIRN_NEED_GPU();
  uint64_t seed = std::random_device{}();
  if (const char* given = std::getenv("FIRN_SEED")) seed = std::strtoull(given, nullptr, 10);
  SCOPED_TRACE(fmt::format("FIRN_SEED={}", seed));
  std::mt19937_64 rng(seed);
  for (int round = 0; round < 300; ++round) {
    uint32_t width = 1 + static_cast<uint32_t>(rng() % 300);
    if (rng() % 2 == 0) width = 32u << rng() % 4;
    DType values = rng() % 2 == 0 ? DType::kFp16 : DType::kBf16;
    auto codings = CodingsFor(values, width);
    CodedCase c{.size = {1 + static_cast<uint32_t>(rng() % 4), 1 + static_cast<uint32_t>(rng() % 3),
                         1 + static_cast<uint32_t>(rng() % 4), 1 + static_cast<uint32_t>(rng() % 150), width},
                .coding = codings[rng() % codings.size()],
                .values = values,
                .kind = kValueKinds[rng() % std::size(kValueKinds)],
                .arrangement = static_cast<Arrangement>(rng() % kArrangements),
                .place = static_cast<RunPlace>(rng() % kRunPlaces)};
    Batch(c).Check();
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace firn::kernels
