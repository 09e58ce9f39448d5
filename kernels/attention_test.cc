// Attention on a packed cache against attention in double precision on what the reference decodes, with queries rounded
// as the kernel rounds them. Labelled gpu.
#include "kernels/attention.h"

#include "kernels/attention_test_util.h"

namespace firn::kernels {
namespace {

constexpr auto k8 = PrecisionClass::k8Bit, k4 = PrecisionClass::k4Bit, k2 = PrecisionClass::k2Bit;

void CheckHead(const AttentionSetup& setup, uint32_t s, uint32_t h, const std::vector<uint8_t>& got, float got_lse) {
  std::vector<double> scores;
  std::vector<const float*> rows;
  setup.Score(s, h, &scores, &rows);
  uint64_t query = uint64_t{s} * setup.query_heads + h;
  uint32_t width = setup.c.width;
  if (scores.empty()) {
    for (uint32_t i = 0; i < width; ++i) ASSERT_EQ(LoadFloat(got.data(), DType::kFp16, query * width + i), 0.0f);
    ASSERT_EQ(got_lse, -std::numeric_limits<float>::infinity());
    return;
  }
  double highest = *std::ranges::max_element(scores), weight = 0;
  std::vector<double> wanted(width);
  for (size_t t = 0; t < scores.size(); ++t) {
    double p = std::exp(scores[t] - highest);
    weight += p;
    for (uint32_t i = 0; i < width; ++i) wanted[i] += p * rows[t][i];
  }
  double difference = 0, norm = 0;
  for (uint32_t i = 0; i < width; ++i) {
    double w = wanted[i] / weight, d = LoadFloat(got.data(), DType::kFp16, query * width + i) - w;
    difference += d * d, norm += w * w;
  }
  ASSERT_LE(std::sqrt(difference / norm), 4e-3) << "sequence " << s << " head " << h;
  ASSERT_NEAR(got_lse, highest + std::log(weight), 1e-2) << "sequence " << s << " head " << h;
}

void Check(const AttentionCase& c) {
  SCOPED_TRACE(c.Name());
  AttentionSetup setup(c);
  // Twice: arrivals are as they were.
  for (int round = 0; round < 2; ++round) {
    absl::Status status = DecodeAttention(setup.job, nullptr);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_NO_FATAL_FAILURE(Synchronize());
  }
  ASSERT_EQ(setup.arrivals.Read<uint32_t>(), std::vector<uint32_t>(setup.sequences * c.kv_heads, 0));
  std::vector<uint8_t> got = setup.out.Read();
  std::vector<float> got_lse = setup.lse.Read<float>();
  for (uint32_t s = 0; s < setup.sequences; ++s) {
    for (uint32_t h = 0; h < setup.query_heads; ++h) {
      CheckHead(setup, s, h, got, got_lse[s * setup.query_heads + h]);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(Attention, IsThatOfTheDecodedCache) {
  FIRN_NEED_GPU();
  for (PrecisionClass k : {k8, k4, k2}) {
    for (PrecisionClass v : {k8, k4, k2}) {
      for (DType values : {DType::kFp16, DType::kBf16}) {
        for (uint32_t width : {64, 128}) {
          Check({.group = values == DType::kFp16 ? 4u : 8u, .width = width, .k = k, .v = v, .values = values});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Attention, AnyNumberOfQueryHeads) {
  FIRN_NEED_GPU();
  for (uint32_t group = 1; group <= 8; ++group) {
    for (uint32_t splits : {1, 2}) Check({.group = group, .splits = splits, .arrivals = group % 2 == 0});
    if (HasFatalFailure()) return;
  }
}

TEST(Attention, Fp8) {
  FIRN_NEED_GPU();
  for (uint32_t width : {64, 128}) {
    for (bool calibrated : {false, true}) {
      for (DType values : {DType::kFp16, DType::kBf16}) {
        Check(
            {.width = width, .fp8 = true, .calibrated = calibrated, .values = values, .k_flags = 0, .rotated = false});
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Attention, EveryCutAndLength) {
  FIRN_NEED_GPU();
  for (uint32_t splits : {1, 2, 7, 64}) {
    for (uint32_t block_tokens : {16, 64, 48}) {
      Check({.block_tokens = block_tokens,
             .lengths = {1, 15, 16, 17, 0, 63, 64, 65, 1000},
             .splits = splits,
             .arrivals = splits != 2});
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Attention, WithoutRotationOrArraysAndAtOtherSizes) {
  FIRN_NEED_GPU();
  Check({.k_flags = 0, .rotated = false});
  Check({.k_flags = PartCoding::kRotated});
  Check({.k_flags = PartCoding::kCentred | PartCoding::kBalanced, .rotated = false});
  Check({.size = 0.01f});
  Check({.size = 4.0f});
  for (bool rotated : {false, true}) {
    Check({.lengths = {300, 777},
           .values = DType::kBf16,
           .k_flags = rotated ? PartCoding::kRotated : uint8_t{0},
           .rotated = rotated,
           .size = 0.05f,
           .uneven = true});
  }
}

TEST(Attention, ExactTokensBesideThem) {
  FIRN_NEED_GPU();
  for (DType type : {DType::kFp16, DType::kBf16}) {
    for (Arrangement arrangement : {Arrangement::kCanonical, Arrangement::kTokensFirst, Arrangement::kPaged}) {
      for (uint32_t width : {64, 128}) {
        AttentionCase c{.width = width, .lengths = {77, 0, 1, 300}, .arrivals = width == 64};
        c.exact = {.lengths = {{4, 4, 1, 0}, {70, 16, 0, 600}}, .type = type, .arrangement = arrangement};
        Check(c);
        if (HasFatalFailure()) return;
      }
    }
  }
  AttentionCase c{.fp8 = true, .k_flags = 0, .rotated = false, .splits = 1};
  c.exact.lengths[0] = {33, 1, 0, 256};
  Check(c);
}

// Values that FP16 barely holds, or not with full precision: whatever comes out is a number.
TEST(Attention, NoNumberIsLost) {
  FIRN_NEED_GPU();
  for (float size : {1e-6f, 1e-4f, 100.0f, 1000.0f}) {
    for (bool rotated : {false, true}) {
      AttentionCase c{.k_flags = rotated ? PartCoding::kRotated : uint8_t{0}, .rotated = rotated, .size = size};
      c.exact.lengths[0] = {3, 20, 0, 100};
      AttentionSetup setup(c);
      ASSERT_TRUE(DecodeAttention(setup.job, nullptr).ok());
      ASSERT_NO_FATAL_FAILURE(Synchronize());
      std::vector<uint8_t> got = setup.out.Read();
      for (uint64_t i = 0; i < got.size() / 2; ++i) {
        ASSERT_TRUE(std::isfinite(LoadFloat(got.data(), DType::kFp16, i))) << c.Name() << " value " << i;
      }
      for (float lse : setup.lse.Read<float>()) ASSERT_TRUE(std::isfinite(lse)) << c.Name();
    }
  }
}

}  // namespace
}  // namespace firn::kernels
