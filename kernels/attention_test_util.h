// Test support: a packed cache, exact tokens beside it and an attention job over both, and what scores should be.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/attention.h"
#include "kernels/batch_test_util.h"

namespace firn::kernels {

// Tokens kept exact, as two sets of rows.
struct ExactCase {
  std::vector<uint32_t> lengths[2];  // By sequence; empty: none.
  DType type = DType::kFp16;
  Arrangement arrangement = Arrangement::kCanonical;
};

struct AttentionCase {
  uint32_t layers = 2, kv_heads = 2, group = 4, width = 128, block_tokens = 32;
  std::vector<uint32_t> lengths = {77, 32, 1, 300};
  PrecisionClass k = PrecisionClass::k4Bit, v = PrecisionClass::k4Bit;
  bool fp8 = false, calibrated = false;
  DType values = DType::kFp16;
  uint8_t k_flags = PartCoding::kRotated | PartCoding::kCentred | PartCoding::kBalanced;
  bool rotated = true;
  uint32_t splits = 3;
  float size = 1.0f;
  bool uneven = false;  // Tokens of very different sizes.
  bool arrivals = true;
  ExactCase exact = {};

  std::string Name() const {
    return fmt::format(
        "width {} group {} block {} K {} V {} fp8 {} {} values {} flags {} splits {} size {} uneven {} "
        "arrivals {} exact {}",
        width, group, block_tokens, PrecisionClassName(k), PrecisionClassName(v), fp8, calibrated, DTypeName(values),
        k_flags, splits, size, uneven, arrivals, exact.lengths[0].size());
  }
};

// Keys or values of a pool of blocks, as encoded and as decoded.
struct PoolPart {
  BatchSize size;
  BatchTransform transform;
  ReferenceBatch codes;
  std::array<DeviceRun, kRunKinds> runs;
  std::vector<float> decoded;  // [block][layer][head][token][channel]
  DeviceMemory scales;
  ModelData model;

  PoolPart(const AttentionCase& c, uint32_t blocks, uint8_t flags, PrecisionClass precision, uint64_t seed)
      : size{blocks, c.layers, c.kv_heads, c.block_tokens, c.width}, transform(size, flags) {
    PartCoding coding;
    coding.codec = c.fp8 ? CodecId::kFp8E4m3 : CodecId::kNestedToken;
    coding.meta_type = c.fp8 ? MetaType::kFp32 : c.values == DType::kFp16 ? MetaType::kFp16 : MetaType::kBf16;
    coding.group = c.fp8 ? 0 : c.width;
    coding.flags = flags;
    if (c.calibrated) {
      coding.flags |= PartCoding::kCalibrated;
      model.scale = 0.01f;
      scales = DeviceMemory(std::vector<float>(c.layers * c.kv_heads, model.scale));
    }
    if ((flags & PartCoding::kCentred) != 0 || c.calibrated) coding.artifact.bytes[0] = 1;
    const CodecRow& row = *FindCodec(coding.codec);
    std::vector<uint8_t> source = MakeValues(ValueKind::kOutliers, c.values, size.values(), seed);
    for (uint64_t i = 0; i < size.values(); ++i) {
      float value = LoadFloat(source.data(), c.values, i) * 0.1f * c.size;
      if (c.uneven) value *= std::exp2f(static_cast<float>(i / c.width * 7 % 17) - 8.0f);
      StoreFloats(&value, 1, c.values, source.data() + i * 2);
    }
    codes = EncodeReferenceBatch(row, coding, size, c.values, source, transform, model);
    Decode(row, coding, c.values, precision);
    for (size_t kind = 0; kind < kRunKinds; ++kind) {
      RunPlace place = seed % 2 == 0 ? RunPlace::kContiguous : RunPlace::kOwnAddress;
      if (codes.runs[kind].empty()) continue;
      runs[kind] = DeviceRun(blocks, codes.runs[kind].size() / blocks, place, seed);
      runs[kind].Upload(codes.runs[kind]);
    }
  }
  // In FP32: nothing is rounded to the caller's type.
  void Decode(const CodecRow& row, const PartCoding& coding, DType values, PrecisionClass precision) {
    decoded.resize(size.values());
    for (uint32_t h = 0; h < size.heads_in_all(); ++h) {
      DecodeTile tile;
      tile.coding = &coding;
      tile.width = size.width, tile.tokens = size.tokens;
      tile.stored = values, tile.out = DType::kFp32;
      tile.target = reinterpret_cast<uint8_t*>(decoded.data() + uint64_t{h} * size.tokens * size.width);
      tile.precision = precision;
      tile.transform = Head(h).view();
      tile.model = model;
      for (uint32_t kind = 0; kind < kRunKinds; ++kind) {
        uint64_t head_bytes = codes.runs[kind].size() / size.heads_in_all();
        tile.runs[kind] = head_bytes == 0 ? nullptr : codes.runs[kind].data() + h * head_bytes;
      }
      row.decode_reference(tile);
    }
  }
  const TestTransform& Head(uint32_t h) const { return transform.heads[h % (size.layers * size.heads)]; }
  const RunView& run(RunKind kind) const { return runs[static_cast<size_t>(kind)].view(); }
  const float* Row(uint32_t block, uint32_t layer, uint32_t head, uint32_t token) const {
    return decoded.data() +
           (((uint64_t{block} * size.layers + layer) * size.heads + head) * size.tokens + token) * size.width;
  }
};

// One set of exact rows, keys or values, on the host and on the device.
struct ExactPart {
  BatchSize size;
  std::vector<float> values;
  DeviceRows rows;

  ExactPart(const AttentionCase& c, uint32_t tokens, uint64_t seed)
      : size{static_cast<uint32_t>(c.lengths.size()), c.layers, c.kv_heads, tokens, c.width},
        rows(size, c.exact.arrangement, seed) {
    std::vector<uint8_t> source = MakeValues(ValueKind::kNormal, c.exact.type, size.values(), seed);
    for (uint64_t i = 0; i < size.values(); ++i) values.push_back(LoadFloat(source.data(), c.exact.type, i));
    rows.Upload(source);
  }
  const float* Row(uint32_t sequence, uint32_t layer, uint32_t head, uint32_t token) const {
    return values.data() +
           (((uint64_t{sequence} * size.layers + layer) * size.heads + head) * size.tokens + token) * size.width;
  }
};

inline void Rotate(std::vector<float>* row, bool rotated) {
  uint32_t width = static_cast<uint32_t>(row->size());
  for (uint32_t stride = 1; rotated && stride < width; stride *= 2) {
    for (uint32_t i = 0; i < width; ++i) {
      if ((i & stride) != 0) continue;
      float a = (*row)[i], b = (*row)[i + stride];
      (*row)[i] = a + b, (*row)[i + stride] = a - b;
    }
  }
}

// What a rounded query makes of a key: a key less its mean, unscaled and rotated back, is what its codes stand for. The
// kernel rounds it in units of log 2.
struct RoundedQuery {
  static constexpr float kLog2E = 1.4426950408889634f;
  std::vector<float> values, mean, scale;
  double constant = 0;
  bool rotated;

  // Without a transform: of exact keys.
  RoundedQuery(const uint8_t* query, float softmax_scale, uint32_t width, const TestTransform* head, bool is_rotated)
      : values(width), mean(width, 0.0f), scale(width, 1.0f), rotated(is_rotated) {
    if (head != nullptr) scale.assign(width, head->uniform_scale);
    if (head != nullptr && !head->mean.empty()) {
      mean.assign(head->mean.begin(), head->mean.begin() + width);
      scale.assign(head->decode_scale.begin(), head->decode_scale.begin() + width);
    }
    for (uint32_t i = 0; i < width; ++i) {
      values[i] = LoadFloat(query, DType::kFp16, i) * (softmax_scale * kLog2E);
      constant += double{values[i]} * mean[i];
      values[i] *= scale[i];
    }
    Rotate(&values, rotated);
    float largest = 0;
    for (float value : values) largest = std::max(largest, std::fabs(value));
    float unit = largest > 0 ? std::exp2f(static_cast<float>(std::ilogb(largest)) - 7.0f) : 1.0f;
    for (float& value : values) value = HalfToFloat(FloatToHalf(value / unit)) * unit;
  }
  double Times(const float* key) const {
    std::vector<float> code(values.size());
    for (size_t i = 0; i < code.size(); ++i) code[i] = (key[i] - mean[i]) / scale[i];
    Rotate(&code, rotated);
    double sum = 0;
    for (size_t i = 0; i < code.size(); ++i) sum += double{values[i]} * code[i];
    return (sum / (rotated ? static_cast<double>(code.size()) : 1.0) + constant) / kLog2E;
  }
};

// A case's memory and job.
struct AttentionSetup {
  const AttentionCase& c;
  uint32_t sequences = static_cast<uint32_t>(c.lengths.size()), longest = *std::ranges::max_element(c.lengths);
  uint32_t each = (longest + c.block_tokens - 1) / c.block_tokens, blocks = std::max(each * sequences, 1u);
  uint32_t query_heads = c.kv_heads * c.group;
  std::vector<uint32_t> table;
  PoolPart keys, values;
  std::vector<ExactPart> exact;  // Keys and values of the first set, then of the second.
  std::vector<uint8_t> queries;
  DeviceMemory device_table, device_lengths, device_queries, out, lse, arrivals, workspace, exact_lengths[2];
  AttentionJob job;

  explicit AttentionSetup(const AttentionCase& of)
      : c(of),
        table(blocks),
        keys(c, blocks, c.k_flags, c.k, 4),
        values(c, blocks, c.rotated ? PartCoding::kRotated : uint8_t{0}, c.v, 5),
        queries(MakeValues(ValueKind::kNormal, DType::kFp16, uint64_t{sequences} * query_heads * c.width, 6)) {
    std::iota(table.begin(), table.end(), 0u);
    std::mt19937_64 rng(11);
    std::shuffle(table.begin(), table.end(), rng);
    device_table = DeviceMemory(table), device_lengths = DeviceMemory(c.lengths);
    device_queries = DeviceMemory(queries), out = DeviceMemory(queries.size());
    lse = DeviceMemory(uint64_t{sequences} * query_heads * sizeof(float));
    arrivals = DeviceMemory(std::vector<uint32_t>(uint64_t{sequences} * c.kv_heads, 0));
    out.Fill(0xEE), lse.Fill(0xEE);
    job.sequences = sequences, job.query_heads = query_heads, job.kv_heads = c.kv_heads, job.width = c.width;
    job.block_table = device_table.as<uint32_t>(), job.blocks_per_sequence = each, job.block_tokens = c.block_tokens;
    job.lengths = device_lengths.as<uint32_t>(), job.length_max = longest;
    job.layers = c.layers, job.layer = c.layers - 1;
    job.meta = c.values == DType::kFp16 ? MetaType::kFp16 : MetaType::kBf16;
    SetRuns();
    SetExact();
    job.rotated = c.rotated;
    job.k_transform = keys.transform.view(), job.v_scale = values.transform.uniform_scale;
    job.softmax_scale = 1.0f / std::sqrt(static_cast<float>(c.width));
    job.queries = device_queries.as<uint8_t>(), job.out = out.as<uint8_t>(), job.lse = lse.as<float>();
    if (c.arrivals) job.arrivals = arrivals.as<uint32_t>();
    job.splits = c.splits;
    workspace = DeviceMemory(AttentionWorkspaceBytes(job));
    workspace.Fill(0xEE);
    job.workspace = workspace.as<uint8_t>();
  }
  void SetRuns() {
    job.k_precision = c.k, job.v_precision = c.v, job.fp8 = c.fp8;
    job.k_meta = keys.run(RunKind::kMeta), job.v_meta = values.run(RunKind::kMeta);
    job.k_p2 = keys.run(RunKind::kP2), job.k_p4 = keys.run(RunKind::kP4), job.k_p8 = keys.run(RunKind::kP8);
    job.v_p2 = values.run(RunKind::kP2), job.v_p4 = values.run(RunKind::kP4), job.v_p8 = values.run(RunKind::kP8);
    job.k_codes = keys.run(RunKind::kWhole), job.v_codes = values.run(RunKind::kWhole);
    if (c.calibrated) job.k_scales = keys.scales.as<float>(), job.v_scales = values.scales.as<float>();
  }
  void SetExact() {
    exact.reserve(4);
    for (int set = 0; set < 2; ++set) {
      const std::vector<uint32_t>& lengths = c.exact.lengths[set];
      if (lengths.empty()) continue;
      uint32_t most = *std::ranges::max_element(lengths);
      exact.emplace_back(c, most, 20 + set), exact.emplace_back(c, most, 30 + set);
      exact_lengths[set] = DeviceMemory(lengths);
      job.exact[set] = {c.exact.type, exact[set * 2].rows.view(), exact[set * 2 + 1].rows.view(),
                        exact_lengths[set].as<uint32_t>(), most};
    }
  }
  // Scores of query head `h` of sequence `s`, and the rows they weigh.
  void Score(uint32_t s, uint32_t h, std::vector<double>* scores, std::vector<const float*>* rows) const {
    uint32_t head = h / c.group;
    const uint8_t* query = queries.data() + (uint64_t{s} * query_heads + h) * c.width * 2;
    RoundedQuery rounded(query, job.softmax_scale, c.width, &keys.Head(job.layer * c.kv_heads + head), c.rotated);
    for (uint32_t t = 0; t < c.lengths[s]; ++t) {
      uint32_t block = table[s * each + t / c.block_tokens], in_block = t % c.block_tokens;
      scores->push_back(rounded.Times(keys.Row(block, job.layer, head, in_block)));
      rows->push_back(values.Row(block, job.layer, head, in_block));
    }
    RoundedQuery plain(query, job.softmax_scale, c.width, nullptr, false);
    for (size_t set = 0; set < exact.size() / 2; ++set) {
      for (uint32_t t = 0; t < c.exact.lengths[set][s]; ++t) {
        scores->push_back(plain.Times(exact[set * 2].Row(s, job.layer, head, t)));
        rows->push_back(exact[set * 2 + 1].Row(s, job.layer, head, t));
      }
    }
  }
};

}  // namespace firn::kernels
