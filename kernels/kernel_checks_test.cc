// What needs no GPU: what launchers refuse, before anything is enqueued, and the arithmetic that host and device share.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <random>

#include "base/checksum.h"
#include "kernels/attention.h"
#include "kernels/checksum.h"
#include "kernels/checksum/crc64.h"
#include "kernels/condition.h"
#include "kernels/fp4.h"
#include "kernels/fp8.h"
#include "kernels/gather.h"
#include "kernels/integer.h"
#include "kernels/integer/launch.h"
#include "kernels/nested.h"
#include "kernels/nuq.h"

namespace firn::kernels {
namespace {

using ::testing::HasSubstr;

// An address that nothing reads: every job here is refused.
uint8_t* Somewhere() { return reinterpret_cast<uint8_t*>(uintptr_t{4096}); }

RowsView Rows() {
  RowsView rows;
  rows.base = Somewhere();
  rows.page_tokens = 64;
  rows.token_stride = 128, rows.head_stride = 64 * 128, rows.layer_stride = 2 * 64 * 128,
  rows.page_stride = 4 * 64 * 128;
  return rows;
}
RunView SomeRun() {
  RunView run;
  run.base = Somewhere();
  run.block_stride = 4096;
  return run;
}

NestedJob Nested() {
  NestedJob job;
  job.blocks = 1, job.layers = 2, job.heads = 2, job.width = 128, job.tokens = 64, job.group = 128;
  job.rows = Rows();
  job.meta_run = job.p2 = job.p4 = job.p8 = SomeRun();
  return job;
}

template <typename Job>
struct Refusal {
  std::function<void(Job*)> change;
  const char* says;  // The value and the limit.
};

TEST(KernelChecks, NestedJobsThatMakeNoSenseAreRefused) {
  const std::vector<Refusal<NestedJob>> refusals = {
      {[](auto* j) { j->width = kRowWidthMax + 1; }, "24577 channels; a GPU codes up to 24576"},
      {[](auto* j) { j->layers = 1025; }, "1025 layers"},
      {[](auto* j) { j->tokens = 65537; }, "65537 tokens"},
      {[](auto* j) { j->blocks = 1u << 30; }, "more than 2147483647 rows"},
      {[](auto* j) { j->values = DType::kFp8E4m3; }, "FP16 and BF16"},
      {[](auto* j) { j->meta = MetaType::kBf16; }, "metadata of type 2"},
      {[](auto* j) { j->group = 0; }, "groups of 0"},
      {[](auto* j) { j->per_channel = j->rotated = true; }, "not rotated"},
      {[](auto* j) { j->transform.mean = reinterpret_cast<float*>(Somewhere()); }, "some of mean"},
      {[](auto* j) { j->rows.base = nullptr; }, "rows without an address"},
      {[](auto* j) { j->rows.page_tokens = 0; }, "pages of 0 tokens"},
      {[](auto* j) { j->rows.first_token = 1; }, "64 tokens from token 1 on, but 1 pages of 64"},
      {[](auto* j) { j->meta_run = {}; }, "no metadata run"},
      {[](auto* j) { j->p2 = {}; }, "no run p2"},
      {[](auto* j) { j->meta_run.base += 2; }, "not aligned to 4 bytes"},
      {[](auto* j) { j->p2.pages = reinterpret_cast<uint32_t*>(Somewhere()), j->p2.page_shift = 3; }, "pages of 2^3"},
      {[](auto* j) { j->width = kRowWidthMax, j->group = 1; }, "bytes of shared memory"},
      {[](auto* j) { j->layers = 1024, j->heads = 512; }, "a GPU codes blocks of fewer than 4294967296"},
  };
  for (const auto& refusal : refusals) {
    NestedJob job = Nested();
    refusal.change(&job);
    for (auto* code : {&EncodeNested, &DecodeNested}) {
      absl::Status status = (*code)(job, nullptr);
      EXPECT_FALSE(status.ok()) << refusal.says;
      EXPECT_THAT(std::string(status.message()), HasSubstr(refusal.says));
    }
  }
  NestedJob job = Nested();
  job.p8 = {};
  EXPECT_THAT(std::string(DecodeNested(job, nullptr).message()), HasSubstr("no run p8"));
  job.precision = PrecisionClass::k3Bit;
  EXPECT_THAT(std::string(DecodeNested(job, nullptr).message()), HasSubstr("int3"));
}

TEST(KernelChecks, NothingToDoIsDone) {
  for (auto member :
       {&NestedJob::blocks, &NestedJob::layers, &NestedJob::heads, &NestedJob::tokens, &NestedJob::width}) {
    NestedJob job = Nested();
    job.*member = 0;
    EXPECT_TRUE(EncodeNested(job, nullptr).ok());
    EXPECT_TRUE(DecodeNested(job, nullptr).ok());
  }
}

TEST(KernelChecks, Fp8AndChecksumJobsThatMakeNoSenseAreRefused) {
  Fp8Job fp8;
  fp8.blocks = 1, fp8.layers = 2, fp8.heads = 2, fp8.width = 128, fp8.tokens = 64;
  fp8.rows = Rows();
  EXPECT_THAT(std::string(EncodeFp8(fp8, nullptr).message()), HasSubstr("no run of codes"));
  fp8.codes = SomeRun();
  EXPECT_THAT(std::string(EncodeFp8(fp8, nullptr).message()), HasSubstr("neither scales nor a metadata run"));
  fp8.values = DType::kBytes;
  EXPECT_THAT(std::string(DecodeFp8(fp8, nullptr).message()), HasSubstr("FP16, BF16 and FP32"));
  fp8.values = DType::kFp16, fp8.per_layer = true, fp8.group = 32;
  EXPECT_THAT(std::string(EncodeFp8(fp8, nullptr).message()), HasSubstr("groups of 32"));
  fp8.group = 0, fp8.width = kRowWidthMax + 1;
  EXPECT_THAT(std::string(EncodeFp8(fp8, nullptr).message()), HasSubstr("a GPU codes up to 24576"));

  ChecksumJob sums;
  sums.blocks = 1, sums.run_bytes = (uint64_t{1} << 30) + 1;
  EXPECT_THAT(std::string(ChecksumRuns(sums, nullptr).message()), HasSubstr("the limit is 1073741824"));
  sums.run_bytes = 64;
  EXPECT_THAT(std::string(ChecksumRuns(sums, nullptr).message()), HasSubstr("checks of 0 bytes"));
  sums.check_bytes = 64;
  EXPECT_THAT(std::string(ChecksumRuns(sums, nullptr).message()), HasSubstr("no run"));
  sums.run = SomeRun();
  EXPECT_THAT(std::string(ChecksumRuns(sums, nullptr).message()), HasSubstr("no seeds"));
}

TEST(KernelChecks, CopiesThatMakeNoSenseAreRefused) {
  const std::vector<Refusal<GatherJob>> refusals = {
      {[](auto* j) { j->value_bytes = 4; }, "values of 4 bytes; 1 and 2"},
      {[](auto* j) { j->width = kWidthMax + 1; }, "1048577 channels; the limit is 1048576"},
      {[](auto* j) { j->tokens = 65; }, "65 tokens in blocks of 64"},
      {[](auto* j) { j->block_tokens = 65537; }, "65537 tokens"},
      {[](auto* j) { j->rows.base = nullptr; }, "rows without an address"},
      {[](auto* j) { j->rows.base = Somewhere() + 1; }, "rows are not aligned to 2 bytes"},
      {[](auto* j) { j->rows.first_token = 1; }, "64 tokens from token 1 on, but 1 pages of 64"},
      {[](auto* j) { j->run = {}; }, "no run"},
      {[](auto* j) { j->run.base += 1; }, "the run is not aligned to 2 bytes"},
      {[](auto* j) { j->layers = 1024, j->heads = 256; }, "runs of 4294967296 bytes; the limit is 4294967295"},
  };
  for (const auto& refusal : refusals) {
    GatherJob job;
    job.blocks = 1, job.layers = 2, job.heads = 2, job.width = 128, job.tokens = job.block_tokens = 64;
    job.rows = Rows();
    job.run = SomeRun();
    refusal.change(&job);
    for (auto* copy : {&GatherRows, &ScatterRows}) {
      absl::Status status = (*copy)(job, nullptr);
      EXPECT_FALSE(status.ok()) << refusal.says;
      EXPECT_THAT(std::string(status.message()), HasSubstr(refusal.says));
    }
  }
}

TEST(KernelChecks, IntegersThatMakeNoSenseAreRefused) {
  auto calibrate = [](auto* j) { j->scales = reinterpret_cast<float*>(Somewhere()), j->group = 0; };
  const std::vector<Refusal<IntegerJob>> refusals = {
      {[](auto* j) { j->width = kRowWidthMax + 1; }, "24577 channels; a GPU codes up to 24576"},
      {[](auto* j) { j->heads = 4097; }, "4097 heads"},
      {[](auto* j) { j->values = DType::kFp8E4m3; }, "FP16, BF16 and FP32"},
      {[](auto* j) { j->meta = MetaType::kBf16; }, "metadata of type 2"},
      {[](auto* j) { j->bits = 5; }, "integer codes of 5 bits, 8, 4, 3 or 2"},
      {[](auto* j) { j->group = 0; }, "groups of 0"},
      {[](auto* j) { j->axis = ScaleAxis::kTensor; }, "groups of 32"},
      {[&](auto* j) { calibrate(j); }, "calibrated scales for asymmetric integers of 8 bits"},
      {[&](auto* j) { calibrate(j), j->symmetric = true, j->bits = 4; }, "symmetric integers of 4 bits; for symmetric"},
      {[](auto* j) { j->rows.page_tokens = 0; }, "pages of 0 tokens"},
      {[](auto* j) { j->codes = {}; }, "no run of codes"},
      {[](auto* j) { j->meta_run = {}; }, "neither scales nor a metadata run"},
      {[](auto* j) { j->meta_run.base += 1; }, "not aligned to 2 bytes"},
      {[](auto* j) { j->layers = 1024, j->heads = 512; }, "a GPU codes blocks of fewer than 4294967296"},
  };
  for (const auto& refusal : refusals) {
    IntegerJob job;
    job.blocks = 1, job.layers = 2, job.heads = 2, job.width = 128, job.tokens = 64, job.group = 32;
    job.rows = Rows();
    job.meta_run = job.codes = SomeRun();
    refusal.change(&job);
    for (auto* code : {&EncodeIntegers, &DecodeIntegers}) {
      absl::Status status = (*code)(job, nullptr);
      EXPECT_FALSE(status.ok()) << refusal.says;
      EXPECT_THAT(std::string(status.message()), HasSubstr(refusal.says));
    }
  }
}

float* SomeFloats() { return reinterpret_cast<float*>(Somewhere()); }

TEST(KernelChecks, CodebookJobsThatMakeNoSenseAreRefused) {
  const std::vector<Refusal<NuqJob>> refusals = {
      {[](auto* j) { j->width = kRowWidthMax + 1; }, "24577 channels; a GPU codes up to 24576"},
      {[](auto* j) { j->tokens = 65537; }, "65537 tokens"},
      {[](auto* j) { j->values = DType::kBytes; }, "FP16, BF16 and FP32"},
      {[](auto* j) { j->meta = MetaType::kNone; }, "metadata of type 0"},
      {[](auto* j) { j->bits = 8; }, "codebook codes of 8 bits, 2 to 4"},
      {[](auto* j) { j->outliers = 51; }, "51 thousandths of outliers, at most 50"},
      {[](auto* j) { j->levels = j->decoded = nullptr; }, "no "},
      {[](auto* j) { j->per_channel = true; }, "without ranges of channels"},
      {[](auto* j) { j->group = 2; }, "vectors of 2 tokens"},
      {[](auto* j) { j->group = 0; }, "vectors of 0 tokens"},
      {[](auto* j) { j->ranges.mean = SomeFloats(); }, "which have their own"},
      {[](auto* j) { j->rows.base = nullptr; }, "rows without an address"},
      {[](auto* j) { j->codes = {}; }, "no run of codes"},
      {[](auto* j) { j->meta_run = {}; }, "no metadata run"},
      {[](auto* j) { j->meta_run.base += 1; }, "not aligned to 2 bytes"},
      {[](auto* j) { j->layers = 1024, j->heads = 512; }, "a GPU codes blocks of fewer than 4294967296"},
  };
  for (const auto& refusal : refusals) {
    NuqJob job;
    job.blocks = 1, job.layers = 2, job.heads = 2, job.width = 128, job.tokens = 64;
    job.levels = job.decoded = SomeFloats();
    job.rows = Rows();
    job.meta_run = job.codes = SomeRun();
    refusal.change(&job);
    for (auto* code : {&EncodeNuq, &DecodeNuq}) {
      absl::Status status = (*code)(job, nullptr);
      EXPECT_FALSE(status.ok()) << refusal.says;
      EXPECT_THAT(std::string(status.message()), HasSubstr(refusal.says));
    }
  }
}

TEST(KernelChecks, Fp4JobsThatMakeNoSenseAreRefused) {
  const std::vector<Refusal<Fp4Job>> refusals = {
      {[](auto* j) { j->width = kRowWidthMax + 1; }, "24577 channels; a GPU codes up to 24576"},
      {[](auto* j) { j->layers = 1025; }, "1025 layers"},
      {[](auto* j) { j->values = DType::kFp8E5m2; }, "FP16, BF16 and FP32"},
      {[](auto* j) { j->rows.first_token = 1; }, "64 tokens from token 1 on, but 1 pages of 64"},
      {[](auto* j) { j->codes = {}; }, "no run of codes"},
      {[](auto* j) { j->meta_run = {}; }, "no metadata run"},
      {[](auto* j) { j->layers = 1024, j->heads = 512; }, "blocks of 4294967296 values; the limit is 4294967295"},
  };
  for (const auto& refusal : refusals) {
    Fp4Job job;
    job.blocks = 1, job.layers = 2, job.heads = 2, job.width = 128, job.tokens = 64;
    job.rows = Rows();
    job.meta_run = job.codes = SomeRun();
    refusal.change(&job);
    for (auto* code : {&EncodeFp4, &DecodeFp4}) {
      absl::Status status = (*code)(job, nullptr);
      EXPECT_FALSE(status.ok()) << refusal.says;
      EXPECT_THAT(std::string(status.message()), HasSubstr(refusal.says));
    }
  }
}

TEST(KernelChecks, ConditioningThatMakesNoSenseIsRefused) {
  const std::vector<Refusal<ConditionJob>> refusals = {
      {[](auto* j) { j->width = kRowWidthMax + 1; }, "24577 channels; a GPU conditions up to 24576"},
      {[](auto* j) { j->values = DType::kFp8E4m3; }, "FP16, BF16 and FP32"},
      {[](auto* j) { j->conditioned = DType::kBf16; }, "FP32 or the same"},
      {[](auto* j) { j->rope.cosines = SomeFloats(); }, "one of cosines and sines is null"},
      {[](auto* j) {
         j->rope = {SomeFloats(), SomeFloats(), 65, false};
       },
       "65 pairs of 128 channels"},
      {[](auto* j) { j->transform.mean = SomeFloats(); }, "some of mean"},
      {[](auto* j) { j->rows.base = nullptr; }, "rows without an address"},
      {[](auto* j) { j->conditioned_rows.page_tokens = 0; }, "pages of 0 tokens"},
  };
  for (const auto& refusal : refusals) {
    ConditionJob job;
    job.blocks = 1, job.layers = 2, job.heads = 2, job.width = 128, job.tokens = 64;
    job.rows = job.conditioned_rows = Rows();
    refusal.change(&job);
    for (auto* condition : {&ConditionRows, &RestoreRows}) {
      absl::Status status = (*condition)(job, nullptr);
      EXPECT_FALSE(status.ok()) << refusal.says;
      EXPECT_THAT(std::string(status.message()), HasSubstr(refusal.says));
    }
  }
  RopeTableJob table;
  table.blocks = 1u << 31, table.tokens = 1, table.pairs = 64;
  EXPECT_THAT(std::string(TurnPositions(table, nullptr).message()), HasSubstr("more than 2147483647 positions"));
  table.blocks = 1, table.pairs = 12289;
  EXPECT_THAT(std::string(TurnPositions(table, nullptr).message()), HasSubstr("12289 pairs; the limit is 12288"));
  table.pairs = 64;
  EXPECT_THAT(std::string(TurnPositions(table, nullptr).message()), HasSubstr("no frequencies"));
}

AttentionJob Attention() {
  AttentionJob job;
  job.sequences = 3, job.query_heads = 8, job.kv_heads = 2;
  job.block_table = job.lengths = reinterpret_cast<uint32_t*>(Somewhere());
  job.blocks_per_sequence = 4, job.block_tokens = 64, job.length_max = 200, job.layers = 2, job.splits = 2;
  job.k_meta = job.k_p2 = job.k_p4 = job.v_meta = job.v_p2 = job.v_p4 = SomeRun();
  job.softmax_scale = 0.1f;
  job.queries = job.out = job.workspace = Somewhere();
  return job;
}

ExactTokens SomeExact() {
  ExactTokens exact;
  exact.keys = exact.values = Rows();
  exact.lengths = reinterpret_cast<uint32_t*>(Somewhere()), exact.length_max = 64;
  return exact;
}

void ExpectRefused(const std::vector<Refusal<AttentionJob>>& refusals, const AttentionJob& sound) {
  for (const auto& refusal : refusals) {
    AttentionJob job = sound;
    refusal.change(&job);
    absl::Status status = DecodeAttention(job, nullptr);
    EXPECT_FALSE(status.ok()) << refusal.says;
    EXPECT_THAT(std::string(status.message()), HasSubstr(refusal.says));
  }
}

TEST(KernelChecks, AttentionThatMakesNoSenseIsRefused) {
  ExpectRefused(
      {
          {[](auto* j) { j->width = 96; }, "width 96; 64 and 128 are there"},
          {[](auto* j) { j->query_heads = 7; }, "7 query heads for 2 KV heads"},
          {[](auto* j) { j->query_heads = 18; }, "9 query heads a KV head; up to 8"},
          {[](auto* j) { j->block_tokens = 40; }, "blocks of 40 tokens; a multiple of 16"},
          {[](auto* j) { j->length_max = 1000; }, "up to 1000 tokens in 4 blocks of 64"},
          {[](auto* j) { j->blocks_per_sequence = 1u << 30, j->length_max = 1u << 30; }, "the limit is 1073741823"},
          {[](auto* j) { j->layer = 2; }, "layer 2 of 2"},
          {[](auto* j) { j->splits = 0; }, "in 0 parts; 1 to 1024"},
          {[](auto* j) { j->k_precision = PrecisionClass::k3Bit; }, "int3 planes"},
          {[](auto* j) { j->k_precision = PrecisionClass::k8Bit; }, "no run the keys' p8"},
          {[](auto* j) { j->v_precision = PrecisionClass::kExact; }, "exact planes"},
          {[](auto* j) { j->v_p4 = {}; }, "no run the values' p4"},
          {[](auto* j) { j->k_p2.base += 8; }, "the keys' p2 is not aligned to 16 bytes"},
          {[](auto* j) { j->v_p2.pages = j->lengths; }, "the values' p2 in pages"},
          {[](auto* j) { j->meta = MetaType::kFp32; }, "metadata of type"},
          {[](auto* j) { j->k_transform.mean = reinterpret_cast<float*>(Somewhere()); }, "mean and decode_scale"},
          {[](auto* j) { j->softmax_scale = 0; }, "a softmax scale of 0"},
          {[](auto* j) { j->v_scale = std::numeric_limits<float>::infinity(); }, "a scale of values of inf"},
          {[](auto* j) { j->lengths = nullptr; }, "no lengths"},
          {[](auto* j) { j->out = nullptr; }, "queries and out are wanted"},
          {[](auto* j) { j->workspace = nullptr; }, "a workspace of"},
      },
      Attention());
}

TEST(KernelChecks, AttentionToFp8AndExactTokensThatMakesNoSenseIsRefused) {
  AttentionJob fp8 = Attention();
  fp8.fp8 = true;
  fp8.k_codes = fp8.v_codes = SomeRun();
  ExpectRefused(
      {
          {[](auto* j) { j->k_codes = {}; }, "no run of the keys' codes"},
          {[](auto* j) { j->v_codes.block_stride = 4104; }, "the values' codes is not aligned to 16 bytes"},
          {[](auto* j) { j->k_meta = {}; }, "no run of the keys' scales"},
          {[](auto* j) { j->v_meta.base += 2; }, "the values' scales is not aligned to 4 bytes"},
      },
      fp8);
  AttentionJob exact = Attention();
  exact.exact[0] = exact.exact[1] = SomeExact();
  ExpectRefused(
      {
          {[](auto* j) { j->exact[0].type = DType::kFp8E4m3; }, "exact tokens of type"},
          {[](auto* j) { j->exact[1].lengths = nullptr; }, "up to 64 exact tokens, but no lengths"},
          {[](auto* j) { j->exact[1].length_max = 65; }, "65 tokens from token 0 on, but 1 pages of 64"},
          {[](auto* j) { j->exact[0].values.base = nullptr; }, "rows without an address"},
          {[](auto* j) { j->exact[0].keys.channel_stride = 2; }, "not contiguous and aligned"},
          {[](auto* j) { j->exact[0].values.token_stride = 132; }, "not contiguous and aligned"},
      },
      exact);
}

TEST(KernelChecks, AttentionIsCutToFillAGpu) {
  AttentionJob job = Attention();
  for (uint32_t sequences : {1u, 3u, 64u, 1000u}) {
    for (uint32_t tokens : {0u, 1u, 127u, 1024u, 1u << 20}) {
      job.sequences = sequences, job.length_max = tokens;
      uint32_t splits = AttentionSplits(job, 132);
      EXPECT_GE(splits, 1u);
      EXPECT_LE(splits, std::max(1u, tokens / 128));
      // A gigantic cache fills it.
      EXPECT_TRUE(tokens < 1u << 20 || sequences * job.kv_heads * splits >= 250u) << splits;
      job.splits = splits;
      EXPECT_EQ(AttentionWorkspaceBytes(job) == 0, splits == 1);
    }
  }
}

TEST(KernelMath, DivisionWithoutDividing) {
  std::mt19937_64 rng(5);
  for (int i = 0; i < 200000; ++i) {
    auto divisor = static_cast<uint32_t>(1 + (rng() & 0x7FFFFFFF) % (uint64_t{1} << (1 + i % 31)));
    auto n = static_cast<uint32_t>(rng() & 0x7FFFFFFF);
    for (uint32_t number : {n, divisor, divisor - 1, 0u, 0x7FFFFFFFu}) {
      ASSERT_EQ(FastDivisor(divisor).Quotient(number), number / divisor) << number << " / " << divisor;
    }
  }
}

// Of every mantissa; an exponent more or less changes no rounding.
TEST(KernelMath, SpreadsOverStepsAreCorrectlyRounded) {
  for (float steps : {255.0f, 127.0f, 15.0f, 7.0f, 3.0f, 1.0f}) {
    for (uint32_t bits = 0x3F800000u; bits < 0x40000000u; ++bits) {
      float spread = std::bit_cast<float>(bits);
      ASSERT_EQ(SpreadOverSteps(spread, steps, 1 / steps), spread / steps) << spread << " / " << steps;
    }
  }
}

// The kernel's sum, one thread after another.
TEST(KernelMath, SumsOfWordsSideBySideAreTheCrc) {
  static constexpr CrcStepTables kTables = MakeCrcStepTables();
  static constexpr CrcEndPowers kEnd = MakeCrcEndPowers();
  std::mt19937_64 rng(6);
  for (uint32_t words : {1u, 2u, 255u, 256u, 257u, 1000u, 4096u}) {
    std::vector<uint64_t> values(words);
    for (uint64_t& value : values) value = rng();
    uint64_t seed = rng(), crc = 0;
    for (uint32_t thread = 0; thread < std::min(words, kCrcStride); ++thread) {
      uint64_t sum = 0;
      uint32_t last = thread;
      for (uint32_t at = thread; at < words; last = at, at += kCrcStride) {
        uint64_t moved = 0;
        for (int i = 0; i < 8; ++i) moved ^= kTables.of_byte[i][sum >> (8 * i) & 0xFF];
        sum = moved ^ values[at] ^ (at == 0 ? ~seed : 0);
      }
      crc ^= CrcTimes(sum, kEnd.powers[words - 1 - last]);
    }
    ASSERT_EQ(~crc, Crc64({reinterpret_cast<const uint8_t*>(values.data()), words * 8}, seed)) << words;
  }
}

}  // namespace
}  // namespace firn::kernels
