// Faults that users of other stores and codecs met, each as an input and its right outcome; numbered as in the
// project's list.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codecs/block_codec.h"
#include "codecs/block_test_util.h"
#include "codecs/calibrate.h"
#include "codecs/codec_table.h"
#include "codecs/numeric/convert.h"
#include "codecs/numeric/float_formats.h"

namespace firn {
namespace {

constexpr uint64_t kSeed = 99;
constexpr PrecisionClass k8 = PrecisionClass::k8Bit, k4 = PrecisionClass::k4Bit, k2 = PrecisionClass::k2Bit;

std::vector<uint8_t> HeadBytes(const EncodedBlock& block, RunKind kind, Part part, uint32_t head) {
  const BlockShape& shape = block.header->shape;
  std::vector<uint8_t> run = BytesOf(block.runs[RunIndex(kind, part)]);
  size_t head_bytes = run.size() / (size_t{shape.layers} * shape.heads);
  std::vector<uint8_t> out;
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    auto at = run.begin() + static_cast<ptrdiff_t>((size_t{layer} * shape.heads + head) * head_bytes);
    out.insert(out.end(), at, at + static_cast<ptrdiff_t>(head_bytes));
  }
  return out;
}

// Head sizes that groups do not divide work, and a head's bytes depend on that head alone.
TEST(Cases, C01_head_dim_not_a_multiple_of_group) {
  TestArtifacts artifacts;
  for (uint32_t width : {64u, 80u, 96u, 112u, 128u, 132u, 160u, 192u, 256u, 576u}) {
    BlockShape shape{2, 3, width, width, 33};
    auto balance = artifacts.Add(MakeBalance(shape, kSeed));
    for (uint16_t group : {32, 64, 128}) {
      for (KeyMethod method : {KeyMethod::kPerChannel, KeyMethod::kBalancedRotated, KeyMethod::kRotated}) {
        SCOPED_TRACE(fmt::format("width {} group {} method {}", width, group, static_cast<int>(method)));
        RawBlock raw = MakeBlock(shape, DType::kFp16, kSeed);
        EncodeSpec spec = Spec(k8, k8, method, balance);
        spec.key_group = spec.value_group = group;
        auto encoded = EncodeToHeap(raw.Wrap(), spec, artifacts);
        ASSERT_TRUE(encoded.ok()) << encoded.status();
        DecodedBlock exact = *DecodeFloats(raw.Wrap(), artifacts), decoded = *DecodeFloats(*encoded, artifacts);
        EXPECT_LT(RelativeError(exact.v, decoded.v), 0.012);
        EXPECT_LT(RelativeError(exact.k, decoded.k), 0.03);
        RawBlock other = raw;
        for (uint32_t layer = 0; layer < 2; ++layer) {
          for (uint64_t i = 0; i < uint64_t{33} * width; ++i) {
            for (Part part : kParts) other.Set(part, raw.Index(part, layer, 2, 0, 0) + i, 0.5f);
          }
        }
        EncodedBlock changed = *EncodeToHeap(other.Wrap(), spec, artifacts);
        for (RunKind kind : {RunKind::kMeta, RunKind::kP2, RunKind::kP4, RunKind::kP8}) {
          for (Part part : kParts) {
            EXPECT_EQ(HeadBytes(*encoded, kind, part, 0), HeadBytes(changed, kind, part, 0));
            EXPECT_EQ(HeadBytes(*encoded, kind, part, 1), HeadBytes(changed, kind, part, 1));
            EXPECT_NE(HeadBytes(*encoded, kind, part, 2), HeadBytes(changed, kind, part, 2));
          }
        }
      }
    }
  }
}

// Values far from zero: lanes that do not exist must not stretch the range down to it.
TEST(Cases, C02_padding_lanes_in_minmax) {
  TestArtifacts artifacts;
  for (uint32_t width : {96u, 80u, 31u}) {
    for (float sign : {1.0f, -1.0f}) {
      for (uint32_t tokens : {64u, 70u, 3u}) {
        BlockShape shape{1, 2, width, 0, tokens};
        RawBlock raw{.shape = shape};
        raw.k.resize(shape.values() * 2);
        std::mt19937_64 rng(kSeed);
        std::uniform_real_distribution<float> uniform(10, 11);
        for (uint64_t i = 0; i < shape.values(); ++i) raw.Set(Part::kK, i, sign * uniform(rng));
        EncodedBlock four = *EncodeToHeap(raw.Wrap(), Spec(k4, k4), artifacts);
        DecodedBlock decoded = *DecodeFloats(four, artifacts);
        float worst = 0;
        for (uint64_t i = 0; i < shape.values(); ++i) {
          worst = std::max(worst, std::fabs(decoded.k[i] - raw.Get(Part::kK, i)));
        }
        // Half a 4-bit step of a range of 1, and half an 8-bit one.
        EXPECT_LT(worst, 0.0375) << "width " << width << " tokens " << tokens;
      }
    }
  }
}

TEST(Cases, C04_k_and_v_of_different_width) {
  TestArtifacts artifacts;
  for (BlockShape shape : {BlockShape{61, 1, 132, 576, 256}, BlockShape{61, 1, 576, 0, 64}}) {
    RawBlock raw = MakeBlock(shape, DType::kBf16, kSeed);
    EncodeSpec spec = Spec(k4, k4);
    spec.value_group = 128;
    auto encoded = EncodeToHeap(raw.Wrap(), spec, artifacts);
    ASSERT_TRUE(encoded.ok()) << encoded.status();
    uint64_t rows = uint64_t{61} * shape.tokens;
    auto bytes = [&](RunKind kind, Part part) { return encoded->header->runs[RunIndex(kind, part)].bytes; };
    EXPECT_EQ(bytes(RunKind::kP2, Part::kK), rows * shape.k_width / 4);
    EXPECT_EQ(bytes(RunKind::kP4, Part::kV), rows * shape.v_width / 4);
    EXPECT_EQ(bytes(RunKind::kMeta, Part::kV),
              shape.v_width == 0 ? 0 : rows * 5 * 4);  // 4 groups of 128 and one of 64.
    EXPECT_EQ(encoded->header->RunBytes(encoded->present), BytesOf(*encoded).size());
    auto decoded = DecodeAs(*encoded, artifacts, DType::kBf16);
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(decoded->first.size(), rows * shape.k_width * 2);
    EXPECT_EQ(decoded->second.size(), rows * shape.v_width * 2);
  }
}

// A tail block holds its valid tokens and nothing else, so nothing behind them can matter: the same five tokens give
// the same bytes, and groups along tokens end with them.
TEST(Cases, C05_tail_block) {
  TestArtifacts artifacts;
  BlockShape full{2, 2, 64, 64, 16}, tail = full;
  tail.tokens = 5;
  RawBlock whole = MakeBlock(full, DType::kFp16, kSeed), cut{.shape = tail};
  for (Part part : kParts) {
    cut.part(part).resize(tail.part(part).values() * 2);
    for (uint32_t layer = 0; layer < 2; ++layer) {
      for (uint32_t head = 0; head < 2; ++head) {
        for (uint64_t i = 0; i < 5 * 64; ++i) {
          cut.Set(part, cut.Index(part, layer, head, 0, 0) + i,
                  whole.Get(part, whole.Index(part, layer, head, 0, 0) + i));
        }
      }
    }
  }
  EncodedBlock encoded = *EncodeToHeap(cut.Wrap(), Spec(k4, k4), artifacts);
  DecodedBlock decoded = *DecodeFloats(encoded, artifacts);
  EXPECT_EQ(decoded.k.size(), 2 * 2 * 5 * 64u);
  DecodedBlock exact = *DecodeFloats(cut.Wrap(), artifacts);
  EXPECT_LT(RelativeError(exact.k, decoded.k), 0.1);
  // Values are coded token by token: the whole block's first tokens have the very same codes.
  EncodedBlock of_whole = *EncodeToHeap(whole.Wrap(), Spec(k4, k4), artifacts);
  std::vector<uint8_t> short_run = HeadBytes(encoded, RunKind::kP2, Part::kV, 0);
  std::vector<uint8_t> long_run = HeadBytes(of_whole, RunKind::kP2, Part::kV, 0);
  EXPECT_TRUE(std::equal(short_run.begin(), short_run.begin() + 5 * 16, long_run.begin()));
}

// NaN and Inf: the block stays at source precision, flagged; every other value is untouched.
TEST(Cases, C06_nan_and_inf) {
  TestArtifacts artifacts;
  BlockShape shape{4, 2, 64, 64, 16};
  auto balance = artifacts.Add(MakeBalance(shape, kSeed));
  for (DType dtype : {DType::kFp16, DType::kBf16}) {
    for (float bad : {static_cast<float>(NAN), INFINITY, -INFINITY}) {
      for (Part part : kParts) {
        for (KeyMethod method : {KeyMethod::kPerChannel, KeyMethod::kBalancedRotated}) {
          for (bool fp8 : {false, true}) {
            RawBlock raw = MakeBlock(shape, dtype, kSeed);
            raw.Set(part, raw.Index(part, 3, 1, 7, 40), bad);
            EncodedBlock source = raw.Wrap();
            EncodeSpec spec = Spec(k8, k8, method, balance);
            spec.use_fp8 = fp8;
            auto kept = EncodeToHeap(source, spec, artifacts);
            ASSERT_TRUE(kept.ok()) << kept.status();
            EXPECT_EQ(kept->header->flags, RecordHeader::kNonFinite);
            EXPECT_EQ(BytesOf(*kept), BytesOf(source));
            EXPECT_EQ(ClassOf(*kept->header, kept->present).Min(), PrecisionClass::kExact);
            // Demoting again changes nothing.
            EXPECT_EQ(BytesOf(*EncodeToHeap(*kept, Spec(k2, k2), artifacts)), BytesOf(source));
            EXPECT_EQ(PrepareEncode(source, spec, artifacts)->header.flags, RecordHeader::kNonFinite);
          }
        }
      }
    }
  }
}

TEST(Cases, C07_fp8_saturation) {
  struct Row {
    float value;
    uint8_t code;
  };
  for (Row row : {Row{0, 0x00},
                  {-0.0f, 0x80},
                  {0x1p-10f, 0x00},
                  {3 * 0x1p-10f, 0x02},
                  {240, 0x77},
                  {248, 0x78},
                  {256, 0x78},
                  {272, 0x78},
                  {300, 0x79},
                  {432, 0x7E},
                  {448, 0x7E},
                  {464, 0x7E},
                  {465, 0x7E},
                  {1000, 0x7E},
                  {-1000, 0xFE},
                  {NAN, 0x7F},
                  {INFINITY, 0x7E},
                  {-INFINITY, 0xFE}}) {
    EXPECT_EQ(FloatToE4m3(row.value), row.code) << row.value;
  }
  EXPECT_EQ(FloatToE5m2(INFINITY), 0x7B);
  EXPECT_EQ(FloatToE5m2(-INFINITY), 0xFB);
  EXPECT_EQ(FloatToE5m2(1e9f), 0x7B);
  EXPECT_EQ(FloatToE5m2(0x1p-16f), 0x01);
  EXPECT_EQ(FloatToE5m2(0x1p-17f), 0x00);
  EXPECT_TRUE(std::isnan(E5m2ToFloat(FloatToE5m2(NAN))));
  for (int code = 0; code < 256; ++code) {
    float e4m3 = E4m3ToFloat(static_cast<uint8_t>(code)), e5m2 = E5m2ToFloat(static_cast<uint8_t>(code));
    EXPECT_TRUE(std::isnan(e4m3) || FloatToE4m3(e4m3) == code) << code;
    EXPECT_TRUE(!std::isfinite(e5m2) || FloatToE5m2(e5m2) == code) << code;
  }
  EXPECT_EQ(E4m3ToFloat(0x08), 0x1p-6f);
  EXPECT_EQ(E4m3ToFloat(0x01), 0x1p-9f);
  EXPECT_EQ(E5m2ToFloat(0x04), 0x1p-14f);
}

// Nearest even against the definition: of the two neighbouring codes the nearer, of equally near ones the even.
TEST(Cases, C07_fp8_rounds_to_nearest_even) {
  for (int low = 0; low < 0x7E; ++low) {
    float a = E4m3ToFloat(static_cast<uint8_t>(low)), b = E4m3ToFloat(static_cast<uint8_t>(low + 1));
    float middle = (a + b) / 2;
    EXPECT_EQ(FloatToE4m3(middle), low % 2 == 0 ? low : low + 1);
    EXPECT_EQ(FloatToE4m3(std::nextafter(middle, 0.0f)), low);
    EXPECT_EQ(FloatToE4m3(std::nextafter(middle, 1e9f)), low + 1);
    EXPECT_EQ(FloatToE4m3(-middle), (low % 2 == 0 ? low : low + 1) | 0x80);
  }
}

TEST(Cases, C09_constant_groups_come_back_exactly) {
  TestArtifacts artifacts;
  BlockShape shape{1, 1, 64, 64, 64};
  for (DType dtype : {DType::kFp16, DType::kBf16}) {
    for (float constant : {0.0f, -0.0f, 3.25f, -7.5f, 6e-8f, 65504.0f, -65504.0f}) {
      RawBlock raw{.dtype = dtype, .shape = shape};
      for (Part part : kParts) {
        raw.part(part).resize(shape.part(part).values() * 2);
        for (uint64_t i = 0; i < shape.part(part).values(); ++i) raw.Set(part, i, constant);
      }
      for (PrecisionClass c : {k8, k4, k2}) {
        auto encoded = EncodeToHeap(raw.Wrap(), Spec(c, c), artifacts);
        ASSERT_TRUE(encoded.ok()) << encoded.status();
        EXPECT_EQ(encoded->header->flags, 0);
        auto decoded = DecodeAs(*encoded, artifacts, dtype);
        EXPECT_EQ(decoded->first, raw.k) << constant << " " << PrecisionClassName(c);
        // Rotation turns a constant row into one large value and zeros: each comes back within half a step of that
        // range, and so does the row's root mean square.
        DecodedBlock floats = *DecodeFloats(*encoded, artifacts);
        float stored = raw.Get(Part::kV, 0), range = 8 * std::fabs(stored);
        float half_step = range * (c == k8 ? 1.0f / 480 : c == k4 ? 1.0f / 30 : 2.0f / 15);
        for (uint32_t t = 0; t < 64; ++t) {
          double squares = 0;
          for (uint32_t channel = 0; channel < 64; ++channel)
            squares += std::pow(floats.v[t * 64 + channel] - stored, 2);
          ASSERT_LE(std::sqrt(squares / 64), half_step + 1e-7f) << constant << " " << PrecisionClassName(c);
        }
      }
    }
  }
}

TEST(Cases, C09_nearly_constant_and_mixed_zero_groups) {
  TestArtifacts artifacts;
  BlockShape shape{1, 1, 32, 0, 32};
  RawBlock raw{.shape = shape};
  raw.k.resize(shape.values() * 2);
  for (uint64_t i = 0; i < shape.values(); ++i) raw.Set(Part::kK, i, i % 32 == 31 ? 0.0f : 1.0f);
  // Channel 0: equal but for one value one unit in the last place larger. Channel 1: zeros of both signs.
  for (uint32_t t = 0; t < 32; ++t) {
    StoreLe<uint16_t>(raw.k.data() + raw.Index(Part::kK, 0, 0, t, 0) * 2, t == 9 ? 0x3C01 : 0x3C00);
    raw.Set(Part::kK, raw.Index(Part::kK, 0, 0, t, 1), t % 2 == 0 ? -0.0f : 0.0f);
  }
  EncodedBlock encoded = *EncodeToHeap(raw.Wrap(), Spec(k8, k8), artifacts);
  auto decoded = DecodeAs(encoded, artifacts, DType::kFp16);
  for (uint32_t t = 0; t < 32; ++t) {
    uint64_t at = raw.Index(Part::kK, 0, 0, t, 0);
    EXPECT_EQ(LoadLe<uint16_t>(decoded->first.data() + at * 2), t == 9 ? 0x3C01 : 0x3C00) << t;
    EXPECT_EQ(LoadFloat(decoded->first.data(), DType::kFp16, at + 1), 0.0f);
  }
}

// Scales that are missing, merged or swapped do not pass.
TEST(Cases, C11_fp8_scales) {
  TestArtifacts artifacts;
  BlockShape shape{3, 2, 32, 32, 8};
  RawBlock raw = MakeBlock(shape, DType::kFp8E4m3, kSeed);
  auto put = [&](ByteSpan k_scales, ByteSpan v_scales) {
    return WrapRaw({}, raw.dtype, shape, raw.k, raw.v, k_scales, v_scales).status().code();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(put(raw.k_scales, raw.v_scales), absl::StatusCode::kOk);
  EXPECT_EQ(put({}, {}), kInvalid) << "never 1.0 by default";
  EXPECT_EQ(put(raw.k_scales, {}), kInvalid);
  EXPECT_EQ(put(ByteSpan(raw.k_scales).first(4), raw.v_scales), kInvalid);
  for (float bad : {0.0f, -1.0f, static_cast<float>(NAN), INFINITY}) {
    std::vector<uint8_t> scales = raw.k_scales;
    StoreLe<float>(scales.data() + 4, bad);
    EXPECT_EQ(put(scales, raw.v_scales), kInvalid) << bad;
  }
  // Scales that differ by layer, head and part survive demotion: a swap would be far off.
  for (size_t i = 0; i < 6; ++i) {
    StoreLe<float>(raw.k_scales.data() + 4 * i, 0.5f * static_cast<float>(i + 1));
    StoreLe<float>(raw.v_scales.data() + 4 * i, 2.0f / static_cast<float>(i + 1));
  }
  for (uint8_t& code : raw.v) code |= 0x80;  // Negative V only.
  DecodedBlock exact = *DecodeFloats(raw.Wrap(), artifacts);
  for (PrecisionClass c : {k8, k4}) {
    EncodedBlock encoded = *EncodeToHeap(raw.Wrap(), Spec(c, c), artifacts);
    DecodedBlock decoded = *DecodeFloats(encoded, artifacts);
    EXPECT_LT(RelativeError(exact.k, decoded.k), c == k8 ? 1e-9 : 0.12);
    EXPECT_LT(RelativeError(exact.v, decoded.v), c == k8 ? 1e-9 : 0.12);
  }
  std::swap(raw.k_scales, raw.v_scales);
  EXPECT_GT(RelativeError(exact.k, DecodeFloats(raw.Wrap(), artifacts)->k), 0.3);
}

TEST(Cases, C12_attention_sinks_stay_exact) {
  TestArtifacts artifacts;
  BlockShape shape{2, 2, 64, 64, 32};
  auto balance = artifacts.Add(MakeBalance(shape, kSeed));
  for (KeyMethod method : {KeyMethod::kPerChannel, KeyMethod::kBalancedRotated}) {
    EncodeSpec spec = Spec(k2, k2, method, balance);
    spec.keep_first_tokens = 4;
    std::vector<DecodedBlock> decoded;
    for (float size : {10.0f, 1000.0f}) {
      RawBlock raw = MakeBlock(shape, DType::kFp16, kSeed);
      for (uint32_t layer = 0; layer < 2; ++layer) {
        for (uint32_t head = 0; head < 2; ++head) {
          for (uint32_t c = 0; c < 64; ++c) {
            uint64_t at = raw.Index(Part::kK, layer, head, 0, c);
            raw.Set(Part::kK, at, raw.Get(Part::kK, at) * size);
          }
        }
      }
      EncodedBlock encoded = *EncodeToHeap(raw.Wrap(), spec, artifacts);
      EXPECT_EQ(encoded.header->exact_tokens, 4u);
      EXPECT_EQ(encoded.header->RunBytes(RunMask::Both(RunKind::kExact)), uint64_t{2} * 2 * 2 * 4 * 64 * 2);
      decoded.push_back(*DecodeFloats(encoded, artifacts));
      for (Part part : kParts) {
        for (uint32_t t = 0; t < 4; ++t) {
          for (uint32_t c = 0; c < 64; ++c) {
            uint64_t at = raw.Index(part, 1, 1, t, c);
            ASSERT_EQ(decoded.back().part(part)[at], raw.Get(part, at));
          }
        }
      }
    }
    for (uint32_t t = 4; t < 32; ++t) {
      for (uint32_t c = 0; c < 64; ++c) {
        uint64_t at = ((1 * 2 + 1) * 32 + t) * 64 + c;
        ASSERT_EQ(decoded[0].k[at], decoded[1].k[at]);
      }
    }
  }
  // Sinks belong to the sequence, not to every block.
  EncodeSpec spec = Spec(k2, k2);
  spec.keep_first_tokens = 4;
  RawBlock later = MakeBlock(shape, DType::kFp16, kSeed);
  later.first_token = 2;
  EXPECT_EQ(EncodeToHeap(later.Wrap(), spec, artifacts)->header->exact_tokens, 2u);
  later.first_token = 32;
  EXPECT_EQ(EncodeToHeap(later.Wrap(), spec, artifacts)->header->exact_tokens, 0u);
  later.first_token = 0;
  spec.keep_first_tokens = 100;
  EncodedBlock all = *EncodeToHeap(later.Wrap(), spec, artifacts);
  EXPECT_EQ(ClassOf(*all.header, all.present).Min(), PrecisionClass::kExact);
}

// One lane of K at 274: the measured error tells, and the default per channel is not hurt.
TEST(Cases, C13_outlier_lane_shows_in_the_error) {
  TestArtifacts artifacts;
  BlockShape shape{1, 2, 128, 0, 64};
  RawBlock raw{.shape = shape};
  raw.k.resize(shape.values() * 2);
  std::mt19937_64 rng(kSeed);
  std::normal_distribution<float> normal;
  for (uint64_t i = 0; i < shape.values(); ++i) raw.Set(Part::kK, i, i % 128 == 17 ? 274.0f : normal(rng));
  auto rest_error = [&](KeyMethod method) {
    EncodedBlock encoded = *EncodeToHeap(raw.Wrap(), Spec(k4, k4, method), artifacts);
    DecodedBlock decoded = *DecodeFloats(encoded, artifacts);
    double sum = 0;
    for (uint64_t i = 0; i < shape.values(); ++i) {
      if (i % 128 != 17) sum += std::pow(decoded.k[i] - raw.Get(Part::kK, i), 2);
    }
    return std::pair(std::sqrt(sum / (shape.values() * 127.0 / 128)), encoded.header->errors[0].int4);
  };
  auto [per_channel, channel_stated] = rest_error(KeyMethod::kPerChannel);
  auto [rotated, rotated_stated] = rest_error(KeyMethod::kRotated);
  EXPECT_LT(per_channel, 0.12);
  EXPECT_GT(rotated, 0.5);
  EXPECT_GT(rotated_stated, 5 * channel_stated) << "what an error gate sees";
}

TEST(Cases, C14_bf16_stays_bf16) {
  TestArtifacts artifacts;
  BlockShape shape{1, 1, 4, 4, 1};
  RawBlock raw{.dtype = DType::kBf16, .shape = shape};
  const float values[] = {1.0078125f, 1e6f, 3e38f, 1e-30f};
  for (Part part : kParts) {
    raw.part(part).resize(8);
    for (uint32_t i = 0; i < 4; ++i) raw.Set(part, i, values[i]);
  }
  auto same = DecodeAs(raw.Wrap(), artifacts, DType::kBf16);
  EXPECT_EQ(same->first, raw.k);
  // An explicit conversion saturates: never Inf.
  auto halves = DecodeAs(raw.Wrap(), artifacts, DType::kFp16);
  EXPECT_EQ(LoadFloat(halves->first.data(), DType::kFp16, 2), 65504.0f);
  EXPECT_EQ(LoadFloat(halves->first.data(), DType::kFp16, 0), 1.0078125f);

  BlockShape larger{1, 2, 64, 64, 64};
  RawBlock wide = MakeBlock(larger, DType::kBf16, kSeed);
  for (uint32_t t = 0; t < 64; ++t) {
    wide.Set(Part::kK, wide.Index(Part::kK, 0, 0, t, 3), 1e6f * static_cast<float>(t % 5));
    wide.Set(Part::kV, wide.Index(Part::kV, 0, 1, t, 3), 1e6f);
  }
  EncodedBlock eight = *EncodeToHeap(wide.Wrap(), Spec(k8, k8), artifacts);
  EXPECT_EQ(eight.header->flags, 0);
  DecodedBlock exact = *DecodeFloats(wide.Wrap(), artifacts), decoded = *DecodeFloats(eight, artifacts);
  EXPECT_LT(RelativeError(exact.k, decoded.k), 0.01);
  EXPECT_LT(RelativeError(exact.v, decoded.v), 0.01);

  // Half of FP16's ends: a range of 131,008 that no FP16 arithmetic holds; decoding never passes 65504.
  RawBlock ends = MakeBlock(larger, DType::kFp16, kSeed);
  for (uint32_t t = 0; t < 64; ++t)
    ends.Set(Part::kK, ends.Index(Part::kK, 0, 0, t, 5), t % 2 == 0 ? 65504.0f : -65504.0f);
  for (PrecisionClass c : {k8, k4, k2}) {
    auto back = DecodeAs(*EncodeToHeap(ends.Wrap(), Spec(c, c), artifacts), artifacts, DType::kFp16);
    for (uint32_t t = 0; t < 64; ++t) {
      float value = LoadFloat(back->first.data(), DType::kFp16, ends.Index(Part::kK, 0, 0, t, 5));
      ASSERT_TRUE(std::isfinite(value));
      ASSERT_NEAR(value, t % 2 == 0 ? 65504.0f : -65504.0f, c == k2 ? 13200 : 64);
    }
  }
}

TEST(Cases, C15_drift) {
  TestArtifacts artifacts;
  BlockShape shape{2, 2, 128, 128, 64};
  auto balance = artifacts.Add(MakeBalance(shape, kSeed));
  RawBlock raw = MakeBlock(shape, DType::kFp16, kSeed);
  // (a) Source precision through any number of stores is the same bytes.
  EncodedBlock exact = raw.Wrap();
  for (int i = 0; i < 100; ++i) {
    exact = *EncodeToHeap(exact, Spec(PrecisionClass::kExact, PrecisionClass::kExact), artifacts);
  }
  EXPECT_EQ(BytesOf(exact), BytesOf(raw.Wrap()));
  // (b) Codes of decoded values are the codes they came from, for 20 rounds, although the store never encodes those.
  for (KeyMethod method : {KeyMethod::kPerChannel, KeyMethod::kBalancedRotated}) {
    for (PrecisionClass c : {k8, k4, k2}) {
      EncodedBlock block = *EncodeToHeap(raw.Wrap(), Spec(c, c, method, balance), artifacts);
      EncodedBlock first = block;
      RawBlock again = raw;
      for (int i = 0; i < 20; ++i) {
        std::tie(again.k, again.v) = *DecodeAs(block, artifacts, DType::kFp16);
        block = *EncodeToHeap(again.Wrap(), Spec(c, c, method, balance), artifacts);
      }
      for (RunKind kind : {RunKind::kP2, RunKind::kP4}) {
        for (Part part : kParts) {
          uint32_t run = RunIndex(kind, part);
          EXPECT_EQ(BytesOf(block.runs[run]), BytesOf(first.runs[run]))
              << PrecisionClassName(c) << " method " << static_cast<int>(method) << " run " << run;
        }
      }
    }
  }
  // (c) Step by step is direct.
  EncodedBlock step = *EncodeToHeap(raw.Wrap(), Spec(k8, k8), artifacts);
  step = *EncodeToHeap(*EncodeToHeap(step, Spec(k4, k4), artifacts), Spec(k2, k2), artifacts);
  EXPECT_EQ(BytesOf(step), BytesOf(*EncodeToHeap(raw.Wrap(), Spec(k2, k2), artifacts)));
  // (d) Information that was dropped does not come back by asking for more.
  EncodedBlock asked = *EncodeToHeap(step, Spec(k8, PrecisionClass::kExact), artifacts);
  EXPECT_EQ(ClassOf(*asked.header, asked.present), (ClassPair{k2, k2}));
}

// Means and weights from plain formulas, in one call or forty; no queries is documented to mean rms 1.
TEST(Calibration, StreamsAndNormalises) {
  std::mt19937_64 rng(kSeed);
  std::normal_distribution<float> normal;
  constexpr uint32_t kTokens = 400, kWidth = 8;
  std::vector<float> keys(kTokens * 2 * kWidth), queries(kTokens * 4 * kWidth);
  for (size_t i = 0; i < keys.size(); ++i)
    keys[i] = normal(rng) * (i % kWidth == 3 ? 16.0f : 1.0f) + static_cast<float>(i % 2);
  for (size_t i = 0; i < queries.size(); ++i) queries[i] = normal(rng) * (i % kWidth == 5 ? 4.0f : 1.0f);
  auto whole = *KeyCalibrator::Create(1, 2, 4, kWidth), pieces = whole, keys_only = whole;
  ASSERT_TRUE(whole.Add(0, kTokens, keys, queries).ok());
  ASSERT_TRUE(keys_only.Add(0, kTokens, keys, {}).ok());
  for (uint32_t t = 0; t < kTokens; t += 10) {
    auto part = [&](const std::vector<float>& all, size_t row) { return std::span(all).subspan(t * row, 10 * row); };
    ASSERT_TRUE(pieces.Add(0, 10, part(keys, 2 * kWidth), part(queries, 4 * kWidth)).ok());
  }
  auto a = *whole.Finish(), b = *pieces.Finish(), c = *keys_only.Finish();
  EXPECT_EQ(a->digest(), b->digest());
  for (uint32_t head = 0; head < 2; ++head) {
    double log_sum = 0;
    for (float w : a->Weight(0, head)) log_sum += std::log(w);
    EXPECT_NEAR(log_sum, 0, 1e-5);
    EXPECT_NEAR(a->Weight(0, head)[3] / a->Weight(0, head)[0], 4, 0.5);    // sqrt(16)
    EXPECT_NEAR(a->Weight(0, head)[5] / a->Weight(0, head)[0], 0.5, 0.1);  // sqrt(1 / 4)
    EXPECT_NEAR(c->Weight(0, head)[5] / c->Weight(0, head)[0], 1, 0.15);
    EXPECT_NEAR(a->Mean(0, head)[1], 1, 0.2);
    EXPECT_NEAR(a->Mean(0, head)[0], 0, 0.2);
  }
  EXPECT_EQ(KeyCalibrator::Create(1, 2, 3, 8).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(KeyCalibrator::Create(1, 2, 4, 8)->Finish().status().code(), absl::StatusCode::kFailedPrecondition);
  keys[7] = NAN;
  EXPECT_EQ(whole.Add(0, kTokens, keys, {}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(whole.Add(1, kTokens, keys, {}).code(), absl::StatusCode::kInvalidArgument);
}

// MiKV's balancer: keys times sqrt(max |q| / max |k|), up to a factor a head.
TEST(Calibration, MaximaBalanceAsMiKvDoes) {
  std::mt19937_64 rng(kSeed + 9);
  std::normal_distribution<float> normal;
  constexpr uint32_t kTokens = 50, kWidth = 8, kGroup = 2;
  std::vector<float> keys(kTokens * 2 * kWidth), queries(kTokens * 2 * kGroup * kWidth);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = normal(rng) * (i % kWidth == 3 ? 16.0f : 1.0f) - 2;
  for (float& q : queries) q = normal(rng);
  auto calibrator = *KeyCalibrator::Create(1, 2, 2 * kGroup, kWidth);
  ASSERT_TRUE(calibrator.Add(0, kTokens, keys, queries).ok());
  auto artifact = *calibrator.Finish(Balancing::kMaximum);
  for (uint32_t head = 0; head < 2; ++head) {
    std::vector<double> most_k(kWidth), most_q(kWidth), b(kWidth);
    for (uint32_t t = 0; t < kTokens; ++t) {
      for (uint32_t c = 0; c < kWidth; ++c) {
        most_k[c] = std::max<double>(most_k[c], std::abs(keys[(t * 2 + head) * kWidth + c]));
        for (uint32_t g = 0; g < kGroup; ++g) {
          float q = queries[((t * 2 + head) * kGroup + g) * kWidth + c];
          most_q[c] = std::max<double>(most_q[c], std::abs(q));
        }
      }
    }
    double log_sum = 0;
    for (uint32_t c = 0; c < kWidth; ++c) {
      b[c] = std::sqrt(most_q[c] / most_k[c]);
      log_sum += std::log(b[c]);
    }
    for (uint32_t c = 0; c < kWidth; ++c) {
      EXPECT_NEAR(artifact->Weight(0, head)[c] * b[c] / std::exp(log_sum / kWidth), 1, 1e-5);
      EXPECT_EQ(artifact->Mean(0, head)[c], 0);
    }
  }
  // A channel that never has a key, or queries that nobody gave, do no harm.
  for (size_t i = 1; i < keys.size(); i += kWidth) keys[i] = 0;
  auto keys_only = *KeyCalibrator::Create(1, 2, 2 * kGroup, kWidth);
  ASSERT_TRUE(keys_only.Add(0, kTokens, keys, {}).ok());
  auto plain = *keys_only.Finish(Balancing::kMaximum);
  EXPECT_EQ(plain->Weight(0, 0)[1], 1);
  EXPECT_GT(plain->Weight(0, 0)[3], 1.5f * plain->Weight(0, 0)[2]);
}

// A real model's K and V: each class within the error that its code has on them.
TEST(RealData, ClassesKeepTheirErrors) {
  RealSample sample;
  if (!sample.present()) GTEST_SKIP() << "no sample of real K and V at " << sample.path();
  TestArtifacts artifacts;
  auto calibrator = *KeyCalibrator::Create(4, 2, 2, 128);
  RawBlock training = sample.Block(0, 512);
  DecodedBlock values = *DecodeFloats(training.Wrap(), artifacts);
  for (uint32_t layer = 0; layer < 4; ++layer) {
    // The calibrator wants [token][head][channel].
    std::vector<float> keys(512 * 256);
    for (uint32_t t = 0; t < 512; ++t) {
      for (uint32_t head = 0; head < 2; ++head) {
        const float* from = values.k.data() + training.Index(Part::kK, layer, head, t, 0);
        std::copy_n(from, 128, keys.data() + (t * 2 + head) * 128);
      }
    }
    ASSERT_TRUE(calibrator.Add(layer, 512, keys, {}).ok());
  }
  auto balance = artifacts.Add(*calibrator.Finish());
  RawBlock raw = sample.Block(576, 64);
  DecodedBlock exact = *DecodeFloats(raw.Wrap(), artifacts);
  struct Row {
    PrecisionClass c;
    double channel_k, balanced_k, v;
  };
  for (Row row : {Row{k8, 0.006, 0.012, 0.01}, {k4, 0.09, 0.15, 0.12}, {k2, 0.4, 0.6, 0.5}}) {
    DecodedBlock channel = *DecodeFloats(*EncodeToHeap(raw.Wrap(), Spec(row.c, row.c), artifacts), artifacts);
    EncodedBlock encoded =
        *EncodeToHeap(raw.Wrap(), Spec(row.c, row.c, KeyMethod::kBalancedRotated, balance), artifacts);
    DecodedBlock balanced = *DecodeFloats(encoded, artifacts);
    EXPECT_LT(RelativeError(exact.k, channel.k), row.channel_k) << PrecisionClassName(row.c);
    EXPECT_LT(RelativeError(exact.k, balanced.k), row.balanced_k) << PrecisionClassName(row.c);
    EXPECT_LT(RelativeError(exact.v, balanced.v), row.v) << PrecisionClassName(row.c);
    EXPECT_GT(RelativeError(exact.v, balanced.v), row.v / 10) << PrecisionClassName(row.c);
    // 4.25 bits at INT4 and so on: codes, scales and minima per value.
    double bits =
        8.0 * static_cast<double>(encoded.header->RunBytes(encoded.present)) / static_cast<double>(raw.shape.values());
    EXPECT_DOUBLE_EQ(bits, static_cast<double>(row.c) + 0.25);
  }
}

}  // namespace
}  // namespace firn
