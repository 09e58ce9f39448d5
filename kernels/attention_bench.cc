// Decode attention on packed planes: one line a shape, `attention SEQUENCES TOKENS KV_HEADS GROUP K V MICROSECONDS
// GB/s`, the median time and the packed bytes a second. tests/bench/gpu/sdpa.py times the same shapes in PyTorch on
// FP16.
#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/bench_support.h"
#include "kernels/device_memory.h"

namespace firn::kernels {
namespace {

constexpr uint32_t kKvHeads = 8, kBlockTokens = 64, kWidth = 128;

// Random planes, and scales that are what normal values have.
struct Part {
  DeviceMemory meta, p2, p4;
  explicit Part(uint32_t blocks) {
    uint64_t rows = uint64_t{blocks} * kKvHeads * kBlockTokens;
    std::mt19937_64 rng(blocks);
    std::vector<uint64_t> bits((rows * kWidth / 4 + 7) / 8);
    for (uint64_t& word : bits) word = rng();
    p2 = DeviceMemory(bits), p4 = DeviceMemory(bits);
    // Minimum -2.5 and step 5/240 in FP16.
    meta = DeviceMemory(std::vector<uint32_t>(rows, 0xC100u | 0x2555u << 16));
  }
  RunView View(const DeviceMemory& memory, uint64_t row_bytes) const {
    RunView run;
    run.base = memory.as<uint8_t>();
    run.block_stride = kKvHeads * kBlockTokens * row_bytes;
    return run;
  }
};

void Run(uint32_t sequences, uint32_t tokens, uint32_t group, PrecisionClass k, PrecisionClass v) {
  uint32_t each = tokens / kBlockTokens;
  // More than the cache holds, over and over.
  uint64_t once = uint64_t{sequences} * tokens * kKvHeads * (kWidth / 4 * 2 + 4) * 2;
  uint32_t pools = static_cast<uint32_t>(std::max<uint64_t>((uint64_t{512} << 20) / once, 1));
  uint32_t blocks = each * sequences * pools;
  Part keys(blocks), values(blocks);
  std::vector<uint32_t> table(blocks);
  for (uint32_t i = 0; i < blocks; ++i) table[i] = i;
  std::mt19937_64 rng(1);
  std::shuffle(table.begin(), table.end(), rng);
  DeviceMemory device_table(table), lengths(std::vector<uint32_t>(sequences, tokens));
  uint32_t heads = kKvHeads * group;
  std::vector<uint16_t> ones(uint64_t{sequences} * heads * kWidth);
  for (uint16_t& value : ones) value = static_cast<uint16_t>(0x3000 + rng() % 0x800 + (rng() % 2) * 0x8000);
  DeviceMemory queries(ones), out(ones.size() * 2), lse(uint64_t{sequences} * heads * 4);
  std::vector<float> arrays(uint64_t{kKvHeads} * kWidth, 0.088f);
  DeviceMemory mean(arrays), scale(arrays);
  AttentionJob job;
  job.sequences = sequences, job.query_heads = heads, job.kv_heads = kKvHeads;
  job.blocks_per_sequence = each, job.block_tokens = kBlockTokens;
  job.lengths = lengths.as<uint32_t>(), job.length_max = tokens;
  job.layers = 1;
  job.k_precision = k, job.v_precision = v;
  job.k_meta = keys.View(keys.meta, 4), job.k_p2 = keys.View(keys.p2, 32), job.k_p4 = keys.View(keys.p4, 32);
  job.v_meta = values.View(values.meta, 4), job.v_p2 = values.View(values.p2, 32),
  job.v_p4 = values.View(values.p4, 32);
  job.k_transform = {mean.as<float>(), scale.as<float>(), scale.as<float>(), 1.0f};
  job.v_scale = 0.088f, job.softmax_scale = 0.088f;
  job.queries = queries.as<uint8_t>(), job.out = out.as<uint8_t>(), job.lse = lse.as<float>();
  int processors = 0;
  CheckCuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  job.splits = AttentionSplits(job, static_cast<uint32_t>(processors));
  DeviceMemory workspace(AttentionWorkspaceBytes(job));
  job.workspace = workspace.as<uint8_t>();
  // Each round is one captured graph of all pools, so that launches do not count.
  cudaStream_t stream;
  CheckCuda(cudaStreamCreate(&stream));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CheckCuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (uint32_t pool = 0; pool < pools; ++pool) {
    job.block_table = device_table.as<uint32_t>() + uint64_t{pool} * each * sequences;
    CheckOk(DecodeAttention(job, stream));
  }
  CheckCuda(cudaStreamEndCapture(stream, &graph));
  CheckCuda(cudaGraphInstantiate(&exec, graph, 0));
  double microseconds = MedianSeconds(stream, [&] { CheckCuda(cudaGraphLaunch(exec, stream)); }) * 1e6 / pools;
  uint64_t row_bytes = 8 + 32u * ((k == PrecisionClass::k4Bit ? 2 : 1) + (v == PrecisionClass::k4Bit ? 2 : 1));
  double bytes = static_cast<double>(sequences) * tokens * kKvHeads * static_cast<double>(row_bytes);
  std::printf("attention %3u %6u %u %u %s %s %9.1f %6.0f  splits %u\n", sequences, tokens, kKvHeads, group,
              std::string(PrecisionClassName(k)).c_str(), std::string(PrecisionClassName(v)).c_str(), microseconds,
              bytes / microseconds / 1e3, job.splits);
  std::fflush(stdout);
  CheckCuda(cudaGraphExecDestroy(exec));
  CheckCuda(cudaGraphDestroy(graph));
  CheckCuda(cudaStreamDestroy(stream));
}

}  // namespace
}  // namespace firn::kernels

int main() {
  using firn::PrecisionClass;
  constexpr auto k4 = PrecisionClass::k4Bit, k2 = PrecisionClass::k2Bit;
  for (uint32_t sequences : {1, 4, 16, 64}) {
    for (uint32_t tokens : {1024, 4096, 16384, 65536}) {
      if (sequences * tokens > 1u << 20) continue;
      firn::kernels::Run(sequences, tokens, 4, k4, k4);
    }
  }
  firn::kernels::Run(16, 16384, 1, k4, k4);
  firn::kernels::Run(16, 16384, 8, k4, k4);
  firn::kernels::Run(16, 16384, 4, k2, k2);
  firn::kernels::Run(16, 16384, 4, k4, k2);
  return 0;
}
