// Decode attention on a packed cache: one line a shape, `attention SEQUENCES TOKENS KV_HEADS GROUP WIDTH K V EXACT
// MICROSECONDS GB/s`, the median time and the packed bytes a second; EXACT tokens a sequence are FP16 rows.
// `decode SEQUENCES TOKENS KV_HEADS WIDTH K V MICROSECONDS` is what it takes to decode the same cache to FP16 first:
// together with tests/bench/gpu/sdpa.py, which times the same shapes in PyTorch on FP16, that is the other way.
#include "kernels/attention.h"

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "kernels/bench_support.h"
#include "kernels/device_memory.h"
#include "kernels/nested.h"

namespace firn::kernels {
namespace {

constexpr uint32_t kKvHeads = 8, kBlockTokens = 64;
constexpr auto k8 = PrecisionClass::k8Bit, k4 = PrecisionClass::k4Bit, k2 = PrecisionClass::k2Bit;

struct Shape {
  uint32_t sequences = 16, tokens = 16384, group = 4;
  PrecisionClass k = k4, v = k4;
  uint32_t width = 128;
  bool fp8 = false;
  uint32_t exact = 0, splits = 0;  // 0: as AttentionSplits says.

  std::string Codes(PrecisionClass c) const { return fp8 ? "e4m3" : std::string(PrecisionClassName(c)); }
  uint32_t RowBytes(PrecisionClass c) const { return fp8 ? width : width * static_cast<uint32_t>(c) / 8 + 4; }
};

// Random codes, and scales that are what normal values have.
struct Part {
  DeviceMemory meta, scales, p2, p4, p8;
  uint32_t width;

  Part(const Shape& shape, PrecisionClass precision, uint32_t blocks) : width(shape.width) {
    uint64_t rows = uint64_t{blocks} * kKvHeads * kBlockTokens;
    std::mt19937_64 rng(blocks);
    auto bits = [&](uint64_t row_bytes) {
      std::vector<uint64_t> words(rows * row_bytes / 8);
      for (uint64_t& word : words) word = rng();
      return DeviceMemory(words);
    };
    if (shape.fp8) {
      p8 = bits(width);
      meta = DeviceMemory(std::vector<float>(uint64_t{blocks} * kKvHeads, 0.01f));
      return;
    }
    p2 = bits(width / 4);
    if (precision != k2) p4 = bits(width / 4);
    if (precision == k8) p8 = bits(width / 2);
    // Minimum -2.5 and step 5/240 in FP16.
    meta = DeviceMemory(std::vector<uint32_t>(rows, 0xC100u | 0x2555u << 16));
  }
  RunView View(const DeviceMemory& memory, uint64_t row_bytes) const {
    RunView run;
    run.base = memory.as<uint8_t>();
    run.block_stride = kKvHeads * kBlockTokens * row_bytes;
    return run;
  }
  RunView Meta(bool fp8) const {
    RunView run = View(meta, 4);
    if (fp8) run.block_stride = kKvHeads * 4;
    return run;
  }
};

// Calls of one round, captured, so that launches do not count: the median time of one call.
double Microseconds(uint32_t calls, const std::function<void(uint32_t, cudaStream_t)>& call) {
  cudaStream_t stream;
  CheckCuda(cudaStreamCreate(&stream));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CheckCuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (uint32_t i = 0; i < calls; ++i) call(i, stream);
  CheckCuda(cudaStreamEndCapture(stream, &graph));
  CheckCuda(cudaGraphInstantiate(&exec, graph, 0));
  double seconds = MedianSeconds(stream, [&] { CheckCuda(cudaGraphLaunch(exec, stream)); });
  CheckCuda(cudaGraphExecDestroy(exec));
  CheckCuda(cudaGraphDestroy(graph));
  CheckCuda(cudaStreamDestroy(stream));
  return seconds * 1e6 / calls;
}

// Several caches in turn, together more than the GPU's cache holds.
struct Pools {
  uint32_t blocks_each, count;
  std::vector<uint32_t> table;

  explicit Pools(const Shape& s) {
    uint64_t once = uint64_t{s.sequences} * s.tokens * kKvHeads * (s.RowBytes(s.k) + s.RowBytes(s.v));
    count = static_cast<uint32_t>(std::max<uint64_t>((uint64_t{512} << 20) / once, 1));
    blocks_each = s.tokens / kBlockTokens * s.sequences;
    for (uint32_t i = 0; i < blocks_each * count; ++i) table.push_back(i);
    std::mt19937_64 rng(1);
    std::shuffle(table.begin(), table.end(), rng);
  }
};

DeviceMemory RandomHalves(uint64_t count) {
  std::mt19937_64 rng(count);
  std::vector<uint16_t> values(count);
  for (uint16_t& value : values) value = static_cast<uint16_t>(0x3000 + rng() % 0x800 + (rng() % 2) * 0x8000);
  return DeviceMemory(values);
}

AttentionJob Job(const Shape& s, const Part& keys, const Part& values) {
  AttentionJob job;
  job.sequences = s.sequences, job.query_heads = kKvHeads * s.group, job.kv_heads = kKvHeads, job.width = s.width;
  job.blocks_per_sequence = s.tokens / kBlockTokens, job.block_tokens = kBlockTokens, job.length_max = s.tokens;
  job.layers = 1;
  job.k_precision = s.k, job.v_precision = s.v, job.fp8 = s.fp8;
  job.k_meta = keys.Meta(s.fp8), job.v_meta = values.Meta(s.fp8);
  job.k_p2 = keys.View(keys.p2, s.width / 4), job.k_p4 = keys.View(keys.p4, s.width / 4);
  job.v_p2 = values.View(values.p2, s.width / 4), job.v_p4 = values.View(values.p4, s.width / 4);
  job.k_p8 = keys.View(keys.p8, s.width / 2), job.v_p8 = values.View(values.p8, s.width / 2);
  job.k_codes = keys.View(keys.p8, s.width), job.v_codes = values.View(values.p8, s.width);
  job.rotated = !s.fp8;
  job.v_scale = job.softmax_scale = 0.088f;
  return job;
}

void Run(const Shape& s) {
  Pools pools(s);
  uint32_t blocks = pools.blocks_each * pools.count;
  Part keys(s, s.k, blocks), values(s, s.v, blocks);
  AttentionJob job = Job(s, keys, values);
  uint64_t heads = uint64_t{s.sequences} * job.query_heads;
  DeviceMemory table(pools.table), lengths(std::vector<uint32_t>(s.sequences, s.tokens));
  DeviceMemory queries = RandomHalves(heads * s.width), out(heads * s.width * 2), lse(heads * 4);
  DeviceMemory array(std::vector<float>(uint64_t{kKvHeads} * s.width, 0.088f));
  DeviceMemory arrivals(std::vector<uint32_t>(s.sequences * kKvHeads, 0));
  DeviceMemory exact_lengths(std::vector<uint32_t>(s.sequences, s.exact));
  DeviceMemory exact_rows = RandomHalves(uint64_t{s.sequences} * kKvHeads * s.exact * s.width);
  job.lengths = lengths.as<uint32_t>();
  job.k_transform = {array.as<float>(), array.as<float>(), array.as<float>(), 1.0f};
  job.queries = queries.as<uint8_t>(), job.out = out.as<uint8_t>(), job.lse = lse.as<float>();
  job.arrivals = arrivals.as<uint32_t>();
  if (s.exact > 0) {
    RowsView rows;
    rows.base = exact_rows.as<uint8_t>(), rows.page_tokens = s.exact;
    rows.token_stride = s.width, rows.head_stride = int64_t{s.exact} * s.width;
    rows.layer_stride = rows.page_stride = kKvHeads * rows.head_stride;
    job.exact[0] = {DType::kFp16, rows, rows, exact_lengths.as<uint32_t>(), s.exact};
  }
  int processors = 0;
  CheckCuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  job.splits = s.splits != 0 ? s.splits : AttentionSplits(job, static_cast<uint32_t>(processors));
  DeviceMemory workspace(AttentionWorkspaceBytes(job));
  job.workspace = workspace.as<uint8_t>();
  double microseconds = Microseconds(pools.count, [&](uint32_t pool, cudaStream_t stream) {
    job.block_table = table.as<uint32_t>() + uint64_t{pool} * pools.blocks_each;
    CheckOk(DecodeAttention(job, stream));
  });
  double bytes = static_cast<double>(s.sequences) * s.tokens * kKvHeads * (s.RowBytes(s.k) + s.RowBytes(s.v));
  std::printf("attention %3u %6u %u %u %3u %s %s %4u %9.1f %6.0f  splits %u\n", s.sequences, s.tokens, kKvHeads,
              s.group, s.width, s.Codes(s.k).c_str(), s.Codes(s.v).c_str(), s.exact, microseconds,
              bytes / microseconds / 1e3, job.splits);
  std::fflush(stdout);
}

// Keys centred, balanced and rotated, values rotated; to [block][head][token][channel].
void Decode(const Shape& s) {
  Pools pools(s);
  uint32_t blocks = pools.blocks_each * pools.count;
  Part keys(s, s.k, blocks), values(s, s.v, blocks);
  AttentionJob attention = Job(s, keys, values);
  DeviceMemory array(std::vector<float>(uint64_t{kKvHeads} * s.width, 0.088f));
  DeviceMemory target(uint64_t{blocks} * kKvHeads * kBlockTokens * s.width * 2);
  NestedJob job;
  job.layers = 1, job.heads = kKvHeads, job.width = job.group = s.width, job.tokens = kBlockTokens;
  job.rotated = true, job.blocks = pools.blocks_each;
  job.rows.page_tokens = kBlockTokens, job.rows.token_stride = s.width;
  job.rows.head_stride = int64_t{kBlockTokens} * s.width;
  job.rows.layer_stride = job.rows.page_stride = kKvHeads * job.rows.head_stride;
  double microseconds = Microseconds(pools.count, [&](uint32_t pool, cudaStream_t stream) {
    uint64_t first = uint64_t{pool} * pools.blocks_each;
    auto from = [&](RunView run) {
      if (run.base != nullptr) run.base += first * run.block_stride;
      return run;
    };
    job.rows.base = target.as<uint16_t>() + first * static_cast<uint64_t>(job.rows.page_stride);
    job.precision = s.k;
    job.transform = {array.as<float>(), array.as<float>(), array.as<float>(), 1.0f};
    job.meta_run = from(attention.k_meta), job.p2 = from(attention.k_p2), job.p4 = from(attention.k_p4);
    job.p8 = from(attention.k_p8);
    CheckOk(DecodeNested(job, stream));
    job.precision = s.v;
    job.transform = {nullptr, nullptr, nullptr, 0.088f};
    job.meta_run = from(attention.v_meta), job.p2 = from(attention.v_p2), job.p4 = from(attention.v_p4);
    job.p8 = from(attention.v_p8);
    CheckOk(DecodeNested(job, stream));
  });
  std::printf("decode %3u %6u %u %3u %s %s %9.1f\n", s.sequences, s.tokens, kKvHeads, s.width, s.Codes(s.k).c_str(),
              s.Codes(s.v).c_str(), microseconds);
  std::fflush(stdout);
}

}  // namespace
}  // namespace firn::kernels

// SEQUENCES TOKENS [int8|int4|int2|e4m3 [SPLITS]]: that shape alone.
int main(int count, char** arguments) {
  using namespace firn::kernels;  // NOLINT: the program's own.
  if (count >= 3) {
    Shape shape;
    shape.sequences = static_cast<uint32_t>(std::stoul(arguments[1]));
    shape.tokens = static_cast<uint32_t>(std::stoul(arguments[2]));
    std::string code = count > 3 ? arguments[3] : "int4";
    shape.fp8 = code == "e4m3";
    if (code == "int8") shape.k = shape.v = k8;
    if (code == "int2") shape.k = shape.v = k2;
    if (count > 4) shape.splits = static_cast<uint32_t>(std::stoul(arguments[4]));
    Run(shape);
    return 0;
  }
  for (uint32_t sequences : {1, 4, 16, 64}) {
    for (uint32_t tokens : {1024, 4096, 16384, 65536}) {
      if (sequences * tokens <= 1u << 20) Run({.sequences = sequences, .tokens = tokens});
    }
  }
  Run({.group = 1});
  Run({.group = 8});
  Run({.k = k8, .v = k8});
  Run({.k = k8, .v = k4});
  Run({.k = k8, .v = k2});
  Run({.k = k4, .v = k2});
  Run({.k = k2, .v = k2});
  Run({.fp8 = true});
  Run({.width = 64});
  Run({.k = k8, .v = k8, .width = 64});
  Run({.k = k2, .v = k2, .width = 64});
  Run({.width = 64, .fp8 = true});
  Run({.exact = 128});
  Run({.sequences = 1, .exact = 128});
  for (uint32_t sequences : {1, 4, 16, 64}) Decode({.sequences = sequences});
  Decode({.k = k8, .v = k8});
  Decode({.k = k2, .v = k2});
  return 0;
}
