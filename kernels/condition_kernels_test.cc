// Conditioning against the scalar reference, byte for byte. Labelled gpu.
#include "codecs/block/conditioner.h"
#include "codecs/block_test_util.h"
#include "codecs/numeric/convert.h"
#include "kernels/batch_test_util.h"
#include "kernels/condition.h"

namespace firn::kernels {
namespace {

struct Case {
  BatchSize size;
  DType values = DType::kFp16, conditioned = DType::kFp32;
  uint8_t flags = 0;   // kRotated; kCentred and kBalanced mean channel arrays.
  uint32_t pairs = 0;  // 0: no rotary embedding.
  bool interleaved = false;
  ValueKind kind = ValueKind::kNormal;
  Arrangement arrangement = Arrangement::kCanonical;

  std::string Name() const {
    return fmt::format(
        "width {} tokens {} values {} conditioned {} flags {} pairs {} interleaved {} kind {} arranged {}", size.width,
        size.tokens, DTypeName(values), DTypeName(conditioned), flags, pairs, interleaved, static_cast<int>(kind),
        static_cast<int>(arrangement));
  }
};

std::vector<uint8_t> Converted(const std::vector<uint8_t>& from, DType in, DType out) {
  uint64_t count = from.size() / DTypeBytes(in);
  std::vector<uint8_t> to(count * DTypeBytes(out));
  ConvertValuesReference(from.data(), in, count, out, to.data());
  return to;
}

// Positions of blocks that lie far apart.
uint32_t FirstPosition(uint32_t block) { return 5 + block * 1000003; }

class Batch {
 public:
  explicit Batch(const Case& c) : c_(c), transform_(c.size, c.flags) {
    rope_.interleaved = c.interleaved;
    for (uint32_t i = 0; i < c.pairs; ++i)
      rope_.frequencies.push_back(std::pow(10000.0, -static_cast<double>(i) / c.pairs));
    std::vector<uint32_t> positions;
    for (uint32_t b = 0; b < c.size.blocks; ++b) {
      for (uint32_t t = 0; t < c.size.tokens; ++t) positions.push_back(FirstPosition(b) + t);
    }
    if (c.pairs == 0) return;
    uint64_t turns = positions.size() * c.pairs;
    frequencies_ = DeviceMemory(rope_.frequencies), positions_ = DeviceMemory(positions);
    cosines_ = DeviceMemory(turns * 4), sines_ = DeviceMemory(turns * 4);
  }

  void Check(const std::vector<uint8_t>& source) {
    SCOPED_TRACE(c_.Name());
    ASSERT_NO_FATAL_FAILURE(MakeTurns());
    std::vector<uint8_t> wanted = Expected(Converted(source, c_.values, DType::kFp32), /*forward=*/true);
    wanted = Converted(wanted, DType::kFp32, c_.conditioned);
    DeviceRows rows(c_.size, c_.arrangement, 3, DTypeBytes(c_.values));
    DeviceRows conditioned(c_.size, Arrangement::kCanonical, 4, DTypeBytes(c_.conditioned));
    rows.Upload(source);
    conditioned.Send();
    Compare(ConditionRows(Job(rows, conditioned), nullptr), conditioned, wanted);
    if (::testing::Test::HasFatalFailure()) return;
    DeviceRows target(c_.size, c_.arrangement, 3, DTypeBytes(c_.values));
    target.Send();
    std::vector<uint8_t> restored = Expected(Converted(wanted, c_.conditioned, DType::kFp32), /*forward=*/false);
    Compare(RestoreRows(Job(target, conditioned), nullptr), target, Converted(restored, DType::kFp32, c_.values));
    if (::testing::Test::HasFatalFailure() || c_.values != c_.conditioned) return;
    // In place.
    Compare(ConditionRows(Job(rows, rows), nullptr), rows, wanted);
  }

  // The way back alone, from FP32 rows.
  void CheckBack(const std::vector<uint8_t>& made) {
    SCOPED_TRACE(c_.Name());
    ASSERT_NO_FATAL_FAILURE(MakeTurns());
    DeviceRows conditioned(c_.size, Arrangement::kCanonical, 4, sizeof(float));
    conditioned.Upload(made);
    DeviceRows target(c_.size, c_.arrangement, 3, DTypeBytes(c_.values));
    target.Send();
    std::vector<uint8_t> restored = Expected(made, /*forward=*/false);
    Compare(RestoreRows(Job(target, conditioned), nullptr), target, Converted(restored, DType::kFp32, c_.values));
  }

  // What is told of each block.
  std::vector<uint32_t> Survey(const std::vector<uint8_t>& source) {
    DeviceRows rows(c_.size, c_.arrangement, 3, DTypeBytes(c_.values));
    DeviceRows conditioned(c_.size, Arrangement::kCanonical, 4, DTypeBytes(c_.conditioned));
    rows.Upload(source);
    conditioned.Send();
    DeviceMemory survey(std::vector<uint32_t>(c_.size.blocks, 0));
    ConditionJob job = Job(rows, conditioned);
    job.survey = survey.as<uint32_t>();
    absl::Status status = ConditionRows(job, nullptr);
    EXPECT_TRUE(status.ok()) << status;
    Synchronize();
    return survey.Read<uint32_t>();
  }

 private:
  ConditionJob Job(const DeviceRows& rows, const DeviceRows& conditioned) const {
    return {.blocks = c_.size.blocks,
            .layers = c_.size.layers,
            .heads = c_.size.heads,
            .width = c_.size.width,
            .tokens = c_.size.tokens,
            .values = c_.values,
            .conditioned = c_.conditioned,
            .rotated = (c_.flags & PartCoding::kRotated) != 0,
            .rope = {cosines_.as<float>(), sines_.as<float>(), c_.pairs, c_.interleaved},
            .transform = transform_.view(),
            .rows = rows.view(),
            .conditioned_rows = conditioned.view()};
  }
  void MakeTurns() {
    if (c_.pairs == 0) return;
    RopeTableJob job{.blocks = c_.size.blocks,
                     .tokens = c_.size.tokens,
                     .pairs = c_.pairs,
                     .frequencies = frequencies_.as<double>(),
                     .positions = positions_.as<uint32_t>(),
                     .cosines = cosines_.as<float>(),
                     .sines = sines_.as<float>()};
    absl::Status status = TurnPositions(job, nullptr);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_NO_FATAL_FAILURE(Synchronize());
    std::vector<float> cosines = cosines_.Read<float>(), sines = sines_.Read<float>();
    for (uint32_t b = 0; b < c_.size.blocks; ++b) {
      RopeTable table(rope_, FirstPosition(b), c_.size.tokens);
      for (uint32_t i = 0; i < c_.size.tokens * c_.pairs; ++i) {
        uint64_t at = uint64_t{b} * c_.size.tokens * c_.pairs + i;
        ASSERT_EQ(FloatBits(cosines[at]), FloatBits(table.Cosines(0)[i]));
        ASSERT_EQ(FloatBits(sines[at]), FloatBits(table.Sines(0)[i]));
      }
    }
  }
  // FP32 rows in canonical order.
  std::vector<uint8_t> Expected(std::vector<uint8_t> rows, bool forward) const {
    for (uint32_t h = 0; h < c_.size.heads_in_all(); ++h) {
      RopeTable table(rope_, FirstPosition(h / (c_.size.layers * c_.size.heads)), c_.size.tokens);
      ChannelTransform transform = transform_.heads[h % (c_.size.layers * c_.size.heads)].view();
      bool rotated = (c_.flags & PartCoding::kRotated) != 0;
      Conditioning conditioning{.rope = c_.pairs > 0 ? &table : nullptr,
                                .transform = &transform,
                                .rotation = rotated ? nested::RotationSize(c_.size.width) : 1,
                                .width = c_.size.width};
      auto* head = reinterpret_cast<float*>(rows.data()) + uint64_t{h} * c_.size.tokens * c_.size.width;
      (forward ? ConditionRowsReference : RestoreRowsReference)(conditioning, 0, c_.size.tokens, head);
    }
    return rows;
  }
  static void Compare(const absl::Status& status, const DeviceRows& rows, const std::vector<uint8_t>& wanted) {
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_NO_FATAL_FAILURE(Synchronize());
    std::vector<uint8_t> made = rows.Download();
    ASSERT_EQ(made.size(), wanted.size());
    for (uint64_t i = 0; i < made.size(); ++i) ASSERT_EQ(int{made[i]}, int{wanted[i]}) << "byte " << i;
  }

  Case c_;
  BatchTransform transform_;
  Rope rope_;
  DeviceMemory frequencies_, positions_, cosines_, sines_;
};

constexpr uint8_t kBalanced = PartCoding::kCentred | PartCoding::kBalanced;

void CheckAll(Case c) {
  std::vector<uint8_t> source = MakeValues(c.kind, c.values, c.size.values(), 5);
  for (uint8_t flags : {uint8_t{0}, PartCoding::kRotated, kBalanced, uint8_t{PartCoding::kRotated | kBalanced}}) {
    for (uint32_t pairs : {0u, c.size.width / 2, c.size.width / 4}) {
      for (bool interleaved : {false, true}) {
        if (pairs == 0 && interleaved) continue;
        c.flags = flags, c.pairs = pairs, c.interleaved = interleaved;
        Batch(c).Check(source);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(ConditionKernels, EveryWidthAndType) {
  FIRN_NEED_GPU();
  for (DType values : {DType::kFp16, DType::kBf16, DType::kFp32}) {
    for (DType conditioned : {DType::kFp32, values}) {
      for (uint32_t width : {1, 7, 20, 64, 72, 80, 96, 128, 256, 576}) {
        CheckAll({.size = {2, 2, 3, 19, width}, .values = values, .conditioned = conditioned});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(ConditionKernels, ValuesAtTheEdges) {
  FIRN_NEED_GPU();
  for (DType values : {DType::kFp16, DType::kBf16}) {
    for (ValueKind kind : kValueKinds) {
      for (uint32_t width : {64, 96}) {
        CheckAll({.size = {2, 1, 2, 11, width}, .values = values, .kind = kind});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Weights and angles take values that coding has moved beyond what FP32 holds: they saturate.
TEST(ConditionKernels, TheWayBackSaturates) {
  FIRN_NEED_GPU();
  const float given[] = {3e38f, -3e38f, 1.0f, INFINITY, 3.4e38f, -INFINITY, 0.0f};
  for (DType values : {DType::kFp16, DType::kBf16, DType::kFp32}) {
    for (uint32_t width : {64, 96}) {
      for (bool interleaved : {false, true}) {
        for (uint32_t pairs : {0u, width / 2}) {
          Case c{.size = {2, 1, 2, 11, width}, .values = values, .flags = kBalanced, .pairs = pairs};
          c.interleaved = interleaved;
          std::vector<uint8_t> made(c.size.values() * sizeof(float));
          for (uint64_t i = 0; i < c.size.values(); ++i)
            StoreLe<float>(made.data() + 4 * i, given[i % std::size(given)]);
          Batch(c).CheckBack(made);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(ConditionKernels, EveryArrangementAndNumberOfTokens) {
  FIRN_NEED_GPU();
  for (int arrangement = 0; arrangement < kArrangements; ++arrangement) {
    for (uint32_t width : {128, 72}) {
      for (uint32_t tokens : {1, 31, 64, 65}) {
        CheckAll({.size = {2, 2, 2, tokens, width},
                  .values = DType::kBf16,
                  .conditioned = DType::kBf16,
                  .arrangement = static_cast<Arrangement>(arrangement)});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(ConditionKernels, RotatedRowsThatCannotComeBackAreTold) {
  FIRN_NEED_GPU();
  for (DType values : {DType::kBf16, DType::kFp32}) {
    for (uint32_t width : {64, 96}) {
      for (float large : {1e35f, 3e38f}) {
        for (uint8_t flags : {uint8_t{0}, PartCoding::kRotated}) {
          Case c{.size = {3, 2, 2, 37, width}, .values = values, .flags = flags};
          SCOPED_TRACE(c.Name());
          std::vector<uint8_t> source = MakeValues(c.kind, c.values, c.size.values(), 5);
          // In the last row of block 1, which slots that have no token look at too.
          StoreFloats(&large, 1, values, source.data() + (c.size.values() / 3 * 2 - 1) * DTypeBytes(values));
          uint32_t told = flags != 0 && large > 1e38f ? kSurveyUnfit : 0;
          EXPECT_EQ(Batch(c).Survey(source), (std::vector<uint32_t>{0, told, 0}));
        }
      }
    }
  }
}

TEST(ConditionKernels, WideRows) {
  FIRN_NEED_GPU();
  for (uint32_t width : {2048, 16384, 24576}) {
    Case c{.size = {1, 1, 2, 3, width}, .flags = PartCoding::kRotated, .pairs = width / 2};
    Batch(c).Check(MakeValues(c.kind, c.values, c.size.values(), 5));
  }
}

TEST(ConditionKernels, RealKeys) {
  FIRN_NEED_GPU();
  RealSample sample;
  if (!sample.present()) GTEST_SKIP() << "NOT RUN: no real data at " << sample.path();
  RawBlock block = sample.Block(0, 128);
  for (uint8_t flags : {uint8_t{0}, uint8_t{PartCoding::kRotated | kBalanced}}) {
    Batch({.size = {1, 4, 2, 128, 128}, .flags = flags, .pairs = 64}).Check(block.part(Part::kK));
  }
}

}  // namespace
}  // namespace firn::kernels
