// The kernels' bytes a second (read and written) beside a device-to-device copy's, in one run: one line a figure,
// `ratio NAME OURS REFERENCE RATIO`, GB/s, medians.
//
//   kernel_bench [NAME PART]    only figures whose names contain PART
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "codecs/numeric/float_formats.h"
#include "kernels/bench_support.h"
#include "kernels/checksum.h"
#include "kernels/condition.h"
#include "kernels/device_memory.h"
#include "kernels/fp4.h"
#include "kernels/fp8.h"
#include "kernels/gather.h"
#include "kernels/integer.h"
#include "kernels/nested.h"
#include "kernels/nuq.h"

namespace firn::kernels {
namespace {

constexpr uint32_t kLayers = 32, kHeads = 8, kTokens = 64;
constexpr uint64_t kSourceBytes = uint64_t{1} << 30;  // Many times the L2 cache.

// Normal values: 32 MiB of them, over and over.
DeviceMemory NormalValues(bool bf16) {
  constexpr uint64_t kMade = uint64_t{16} << 20;
  std::mt19937_64 rng(1);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> values(kMade);
  for (uint64_t i = 0; i < kMade; ++i) {
    values[i] = bf16 ? FloatToBfloat(normal(rng)) : FloatToHalf(normal(rng));
  }
  DeviceMemory memory(kSourceBytes);
  for (uint64_t at = 0; at < kSourceBytes; at += kMade * 2) {
    CheckCuda(cudaMemcpy(memory.as<uint8_t>() + at, values.data(), kMade * 2, cudaMemcpyHostToDevice));
  }
  return memory;
}

class Bench {
 public:
  explicit Bench(std::string filter)
      : filter_(std::move(filter)), source_(NormalValues(false)), target_(kSourceBytes), runs_(kSourceBytes) {
    copy_ = 2.0 * kSourceBytes / MedianSeconds(nullptr, [&] {
              CheckCuda(cudaMemcpyAsync(target_.as<uint8_t>(), source_.as<uint8_t>(), kSourceBytes,
                                        cudaMemcpyDeviceToDevice));
            });
    std::printf("device-to-device copy of 1 GiB: %.0f GB/s read and written\n", copy_ / 1e9);
  }

  void Run() {
    for (uint32_t width : {64u, 128u, 256u}) {
      for (bool rotated : {false, true}) {
        for (bool balanced : {false, true}) {
          for (bool paged : {false, true}) {
            if (paged && (width != 128 || rotated != balanced)) continue;
            Nested({.width = width, .rotated = rotated, .balanced = balanced, .paged = paged});
          }
        }
      }
      Nested({.per_channel = true, .width = width});
      Fp8(width);
      for (bool paged : {false, true}) Gather(width, paged);
      for (uint32_t bits : {8u, 4u, 3u, 2u}) {
        for (uint32_t group : {32u, 128u}) Integers(ScaleAxis::kToken, bits, width, group, false);
        Integers(ScaleAxis::kChannel, bits, width, 64, false);
        Integers(ScaleAxis::kTensor, bits, width, 0, false);
      }
      Integers(ScaleAxis::kToken, 4, width, 64, true);
      for (uint32_t bits : {4u, 3u, 2u}) {
        for (bool per_channel : {true, false}) Nuq(per_channel, bits, width, false);
      }
      Nuq(true, 4, width, true);
      for (bool mx : {false, true}) Fp4(mx, width);
      for (bool turned : {false, true}) Condition(turned, width);
    }
    for (uint32_t width : {80u, 96u, 112u, 192u, 576u}) Nested({.width = width, .rotated = true});
    Nested({.per_channel = true, .width = 96});
    Checksums();
    std::printf("device-to-device copy after: %.0f GB/s\n",
                2e-9 * kSourceBytes / MedianSeconds(nullptr, [&] {
                  CheckCuda(cudaMemcpyAsync(target_.as<uint8_t>(), source_.as<uint8_t>(), kSourceBytes,
                                            cudaMemcpyDeviceToDevice));
                }));
  }

 private:
  struct Kind {
    bool per_channel = false;
    uint32_t width = 128;
    bool rotated = false, balanced = false, paged = false;
  };

  void Report(const std::string& name, uint64_t bytes, const std::function<void()>& round) {
    if (name.find(filter_) == std::string::npos) return;
    double rate = static_cast<double>(bytes) / MedianSeconds(nullptr, round);
    std::printf("ratio %-44s %6.0f %6.0f %.2f\n", name.c_str(), rate / 1e9, copy_ / 1e9, rate / copy_);
    std::fflush(stdout);
  }

  RowsView Rows(uint8_t* memory, uint32_t width, bool paged) const {
    RowsView rows;
    rows.base = memory;
    if (paged) {
      // As paged attention keeps them: pages of 16 tokens, heads within a token, one pool a layer.
      rows.page_tokens = 16, rows.pages_per_block = kTokens / 16;
      rows.head_stride = width, rows.token_stride = int64_t{kHeads} * width;
      rows.page_stride = rows.token_stride * 16;
      rows.layer_stride = rows.page_stride * rows.pages_per_block * Blocks(width);
      return rows;
    }
    rows.page_tokens = kTokens;
    rows.token_stride = width, rows.head_stride = int64_t{kTokens} * width;
    rows.layer_stride = rows.head_stride * kHeads, rows.page_stride = rows.layer_stride * kLayers;
    return rows;
  }
  static uint32_t Blocks(uint32_t width) {
    return static_cast<uint32_t>(kSourceBytes / (uint64_t{kLayers} * kHeads * kTokens * width * 2));
  }

  void Nested(const Kind& kind) {
    uint32_t blocks = Blocks(kind.width);
    NestedJob job;
    job.per_channel = kind.per_channel;
    job.blocks = blocks, job.layers = kLayers, job.heads = kHeads, job.tokens = kTokens, job.width = kind.width;
    job.group = static_cast<uint16_t>(kind.per_channel ? 64 : kind.width);
    job.rotated = kind.rotated;
    DeviceMemory mean, scale;
    if (kind.balanced) {
      std::vector<float> ones(uint64_t{kLayers} * kHeads * kind.width, 0.125f);
      mean = DeviceMemory(ones), scale = DeviceMemory(ones);
      job.transform = {mean.as<float>(), scale.as<float>(), scale.as<float>(), 1.0f};
    } else {
      job.transform.uniform_scale = kind.rotated ? 0.125f : 1.0f;
    }
    DeviceMemory survey(std::vector<uint32_t>(blocks, 0));
    job.survey = survey.as<uint32_t>();
    uint64_t rows = uint64_t{blocks} * kLayers * kHeads * kTokens;
    uint64_t block_rows = uint64_t{kLayers} * kHeads * kTokens;
    uint64_t pair_bytes = block_rows * ((kind.width + 3) / 4), nibble_bytes = block_rows * ((kind.width + 1) / 2);
    uint64_t meta_bytes = kind.per_channel ? uint64_t{kLayers} * kHeads * kind.width * 4 : block_rows * 4;
    uint8_t* at = runs_.as<uint8_t>();
    auto place = [&](uint64_t bytes) {
      RunView run;
      run.base = at, run.block_stride = bytes;
      at += bytes * blocks;
      return run;
    };
    job.meta_run = place(meta_bytes), job.p2 = place(pair_bytes), job.p4 = place(pair_bytes);
    job.p8 = place(nibble_bytes);
    std::string name = std::string(kind.per_channel ? "channel" : "token") + (kind.balanced ? "_balanced" : "") +
                       (kind.rotated ? "_rotated" : "") + (kind.paged ? "_paged" : "") + "_" +
                       std::to_string(kind.width);
    const RunView p4 = job.p4, p8 = job.p8;
    for (PrecisionClass precision : {PrecisionClass::k8Bit, PrecisionClass::k4Bit, PrecisionClass::k2Bit}) {
      uint64_t bytes = rows * kind.width * 2 + meta_bytes * blocks + pair_bytes * blocks;
      if (precision >= PrecisionClass::k4Bit) bytes += pair_bytes * blocks;
      if (precision >= PrecisionClass::k8Bit) bytes += nibble_bytes * blocks;
      job.precision = precision;
      job.p4 = precision >= PrecisionClass::k4Bit ? p4 : RunView{};
      job.p8 = precision >= PrecisionClass::k8Bit ? p8 : RunView{};
      std::string suffix = "_" + std::string(PrecisionClassName(precision));
      job.rows = Rows(source_.as<uint8_t>(), kind.width, kind.paged);
      Report("encode_" + name + suffix, bytes, [&] { CheckOk(EncodeNested(job, nullptr)); });
      job.rows = Rows(target_.as<uint8_t>(), kind.width, kind.paged);
      Report("decode_" + name + suffix, bytes, [&] { CheckOk(DecodeNested(job, nullptr)); });
    }
  }

  void Fp8(uint32_t width) {
    uint32_t blocks = Blocks(width);
    Fp8Job job;
    job.blocks = blocks, job.layers = kLayers, job.heads = kHeads, job.tokens = kTokens, job.width = width;
    uint64_t codes = uint64_t{kLayers} * kHeads * kTokens * width, scales = uint64_t{kLayers} * kHeads * 4;
    job.codes.base = runs_.as<uint8_t>(), job.codes.block_stride = codes;
    job.meta_run.base = runs_.as<uint8_t>() + codes * blocks, job.meta_run.block_stride = scales;
    uint64_t bytes = (codes * 3 + scales) * blocks;
    job.rows = Rows(source_.as<uint8_t>(), width, false);
    std::string suffix = "_" + std::to_string(width);
    Report("encode_fp8" + suffix, bytes, [&] { CheckOk(EncodeFp8(job, nullptr)); });
    job.rows = Rows(target_.as<uint8_t>(), width, false);
    Report("decode_fp8" + suffix, bytes, [&] { CheckOk(DecodeFp8(job, nullptr)); });
  }

  void Gather(uint32_t width, bool paged) {
    GatherJob job;
    job.blocks = Blocks(width), job.layers = kLayers, job.heads = kHeads, job.width = width;
    job.tokens = job.block_tokens = kTokens;
    job.run.base = runs_.as<uint8_t>(), job.run.block_stride = uint64_t{kLayers} * kHeads * kTokens * width * 2;
    std::string suffix = std::string(paged ? "_paged_" : "_") + std::to_string(width);
    job.rows = Rows(source_.as<uint8_t>(), width, paged);
    Report("gather" + suffix, 2 * kSourceBytes, [&] { CheckOk(GatherRows(job, nullptr)); });
    job.rows = Rows(target_.as<uint8_t>(), width, paged);
    Report("scatter" + suffix, 2 * kSourceBytes, [&] { CheckOk(ScatterRows(job, nullptr)); });
  }

  void Integers(ScaleAxis axis, uint32_t bits, uint32_t width, uint32_t group, bool paged) {
    if (axis == ScaleAxis::kToken && group > width) return;
    IntegerJob job;
    job.axis = axis, job.bits = bits, job.group = group;
    job.blocks = Blocks(width), job.layers = kLayers, job.heads = kHeads, job.tokens = kTokens, job.width = width;
    uint64_t rows = uint64_t{kLayers} * kHeads * kTokens, code_bytes = rows * width * bits / 8;
    uint64_t scales = axis == ScaleAxis::kTensor ? kLayers : rows * width / group;
    DeviceMemory survey(std::vector<uint32_t>(job.blocks, 0));
    job.survey = survey.as<uint32_t>();
    job.codes.base = runs_.as<uint8_t>(), job.codes.block_stride = code_bytes;
    job.meta_run.base = runs_.as<uint8_t>() + code_bytes * job.blocks, job.meta_run.block_stride = scales * 4;
    uint64_t bytes = (rows * width * 2 + code_bytes + scales * 4) * job.blocks;
    static constexpr const char* kAxes[] = {"token", "channel", "tensor"};
    std::string suffix = "_int" + std::to_string(bits) + "_" + kAxes[static_cast<int>(axis)] + std::to_string(group) +
                         (paged ? "_paged_" : "_") + std::to_string(width);
    job.rows = Rows(source_.as<uint8_t>(), width, paged);
    Report("encode" + suffix, bytes, [&] { CheckOk(EncodeIntegers(job, nullptr)); });
    job.rows = Rows(target_.as<uint8_t>(), width, paged);
    Report("decode" + suffix, bytes, [&] { CheckOk(DecodeIntegers(job, nullptr)); });
  }

  // 1 % of outliers.
  void Nuq(bool per_channel, uint32_t bits, uint32_t width, bool paged) {
    NuqJob job;
    job.per_channel = per_channel, job.bits = bits, job.outliers = 10;
    job.blocks = Blocks(width), job.layers = kLayers, job.heads = kHeads, job.tokens = kTokens, job.width = width;
    std::vector<float> levels(kLayers << bits);
    for (size_t i = 0; i < levels.size(); ++i) {
      levels[i] = static_cast<float>(i % (size_t{1} << bits)) / static_cast<float>(1u << (bits - 1)) - 1;
    }
    DeviceMemory codebook(levels), arrays(std::vector<float>(uint64_t{kLayers} * kHeads * width, 0.375f));
    job.levels = job.decoded = codebook.as<float>();
    if (per_channel) job.ranges = {arrays.as<float>(), arrays.as<float>(), arrays.as<float>(), 1.0f};
    uint64_t rows = uint64_t{kLayers} * kHeads * kTokens, code_bytes = rows * width * bits / 8;
    uint64_t vector = per_channel ? width : width * kHeads, outliers = (vector * job.outliers + 999) / 1000;
    uint64_t meta_bytes = rows * width / vector * (outliers * 4 + (per_channel ? 0 : 4));
    job.codes.base = runs_.as<uint8_t>(), job.codes.block_stride = code_bytes;
    job.meta_run.base = runs_.as<uint8_t>() + code_bytes * job.blocks, job.meta_run.block_stride = meta_bytes;
    uint64_t bytes = (rows * width * 2 + code_bytes + meta_bytes) * job.blocks;
    std::string suffix = "_nuq" + std::to_string(bits) + (per_channel ? "_channel" : "_token") +
                         (paged ? "_paged_" : "_") + std::to_string(width);
    job.rows = Rows(source_.as<uint8_t>(), width, paged);
    Report("encode" + suffix, bytes, [&] { CheckOk(EncodeNuq(job, nullptr)); });
    job.rows = Rows(target_.as<uint8_t>(), width, paged);
    Report("decode" + suffix, bytes, [&] { CheckOk(DecodeNuq(job, nullptr)); });
  }

  void Fp4(bool mx, uint32_t width) {
    Fp4Job job;
    job.mx = mx;
    job.blocks = Blocks(width), job.layers = kLayers, job.heads = kHeads, job.tokens = kTokens, job.width = width;
    uint64_t values = uint64_t{kLayers} * kHeads * kTokens * width;
    uint64_t meta_bytes = mx ? values / 32 : values / 16 + uint64_t{kLayers} * 4;
    job.codes.base = runs_.as<uint8_t>(), job.codes.block_stride = values / 2;
    job.meta_run.base = runs_.as<uint8_t>() + values / 2 * job.blocks, job.meta_run.block_stride = meta_bytes;
    uint64_t bytes = (values * 2 + values / 2 + meta_bytes) * job.blocks;
    std::string suffix = std::string(mx ? "_mxfp4_" : "_nvfp4_") + std::to_string(width);
    job.rows = Rows(source_.as<uint8_t>(), width, false);
    Report("encode" + suffix, bytes, [&] { CheckOk(EncodeFp4(job, nullptr)); });
    job.rows = Rows(target_.as<uint8_t>(), width, false);
    Report("decode" + suffix, bytes, [&] { CheckOk(DecodeFp4(job, nullptr)); });
  }

  // FP16 to FP16: the Hadamard transform alone, or the rotary embedding alone.
  void Condition(bool turned, uint32_t width) {
    ConditionJob job;
    job.blocks = Blocks(width), job.layers = kLayers, job.heads = kHeads, job.tokens = kTokens, job.width = width;
    job.conditioned = DType::kFp16, job.rotated = !turned;
    job.transform.uniform_scale = turned ? 1.0f : 0.125f;
    DeviceMemory turns(std::vector<float>(uint64_t{job.blocks} * kTokens * width / 2, 0.6f));
    if (turned) job.rope = {turns.as<float>(), turns.as<float>(), width / 2, false};
    std::string suffix = std::string(turned ? "_rope_" : "_hadamard_") + std::to_string(width);
    job.rows = Rows(source_.as<uint8_t>(), width, false);
    job.conditioned_rows = Rows(target_.as<uint8_t>(), width, false);
    Report("condition" + suffix, 2 * kSourceBytes, [&] { CheckOk(ConditionRows(job, nullptr)); });
    job.rows = job.conditioned_rows;
    job.conditioned_rows = Rows(source_.as<uint8_t>(), width, false);
    Report("restore" + suffix, 2 * kSourceBytes, [&] { CheckOk(RestoreRows(job, nullptr)); });
  }

  // A copy's reference counts each byte twice; a check reads it once.
  void Checksums() {
    for (uint64_t check_bytes : {16384u, 32768u, 65536u, 524288u}) {
      ChecksumJob job;
      job.run_bytes = 524288, job.check_bytes = check_bytes;
      job.blocks = static_cast<uint32_t>(kSourceBytes / job.run_bytes);
      job.run.base = source_.as<uint8_t>(), job.run.block_stride = job.run_bytes;
      uint64_t checks = job.checks_per_block() * job.blocks;
      DeviceMemory seeds(std::vector<uint64_t>(checks, 12345)), out(checks * 8);
      job.seeds = seeds.as<uint64_t>(), job.checks = out.as<uint64_t>();
      Report("checksum_of_" + std::to_string(check_bytes), kSourceBytes, [&] { CheckOk(ChecksumRuns(job, nullptr)); });
    }
  }

  const std::string filter_;
  DeviceMemory source_, target_, runs_;
  double copy_ = 0;
};

}  // namespace
}  // namespace firn::kernels

int main(int argc, char** argv) {
  firn::kernels::Bench(argc > 1 ? argv[1] : "").Run();
  return 0;
}
