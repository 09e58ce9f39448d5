// Attention on a packed cache against attention in double precision on what the reference decodes, with queries rounded
// as the kernel rounds them. Labelled gpu.
#include "kernels/attention.h"

#include <algorithm>
#include <numeric>

#include "kernels/batch_test_util.h"

namespace firn::kernels {
namespace {

constexpr auto k8 = PrecisionClass::k8Bit, k4 = PrecisionClass::k4Bit, k2 = PrecisionClass::k2Bit;

// Tokens kept exact, as two sets of rows.
struct ExactCase {
  std::vector<uint32_t> lengths[2];  // By sequence; empty: none.
  DType type = DType::kFp16;
  Arrangement arrangement = Arrangement::kCanonical;
};

struct Case {
  uint32_t layers = 2, kv_heads = 2, group = 4, width = 128, block_tokens = 32;
  std::vector<uint32_t> lengths = {77, 32, 1, 300};
  PrecisionClass k = k4, v = k4;
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

  PoolPart(const Case& c, uint32_t blocks, uint8_t flags, PrecisionClass precision, uint64_t seed)
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

  ExactPart(const Case& c, uint32_t tokens, uint64_t seed)
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

void Rotate(std::vector<float>* row, bool rotated) {
  uint32_t width = static_cast<uint32_t>(row->size());
  for (uint32_t stride = 1; rotated && stride < width; stride *= 2) {
    for (uint32_t i = 0; i < width; ++i) {
      if ((i & stride) != 0) continue;
      float a = (*row)[i], b = (*row)[i + stride];
      (*row)[i] = a + b, (*row)[i + stride] = a - b;
    }
  }
}

// What a rounded query makes of a key: a key less its mean, unscaled and rotated back, is what its codes stand for.
struct RoundedQuery {
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
      values[i] = LoadFloat(query, DType::kFp16, i) * softmax_scale;
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
    return sum / (rotated ? static_cast<double>(code.size()) : 1.0) + constant;
  }
};

// A case's memory and job.
struct Bench {
  const Case& c;
  uint32_t sequences = static_cast<uint32_t>(c.lengths.size()), longest = *std::ranges::max_element(c.lengths);
  uint32_t each = (longest + c.block_tokens - 1) / c.block_tokens, blocks = std::max(each * sequences, 1u);
  uint32_t query_heads = c.kv_heads * c.group;
  std::vector<uint32_t> table;
  PoolPart keys, values;
  std::vector<ExactPart> exact;  // Keys and values of the first set, then of the second.
  std::vector<uint8_t> queries;
  DeviceMemory device_table, device_lengths, device_queries, out, lse, arrivals, workspace, exact_lengths[2];
  AttentionJob job;

  explicit Bench(const Case& of)
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

void CheckHead(const Bench& bench, uint32_t s, uint32_t h, const std::vector<uint8_t>& got, float got_lse) {
  std::vector<double> scores;
  std::vector<const float*> rows;
  bench.Score(s, h, &scores, &rows);
  uint64_t query = uint64_t{s} * bench.query_heads + h;
  uint32_t width = bench.c.width;
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

void Check(const Case& c) {
  SCOPED_TRACE(c.Name());
  Bench bench(c);
  // Twice: arrivals are as they were.
  for (int round = 0; round < 2; ++round) {
    absl::Status status = DecodeAttention(bench.job, nullptr);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_NO_FATAL_FAILURE(Synchronize());
  }
  ASSERT_EQ(bench.arrivals.Read<uint32_t>(), std::vector<uint32_t>(bench.sequences * c.kv_heads, 0));
  std::vector<uint8_t> got = bench.out.Read();
  std::vector<float> got_lse = bench.lse.Read<float>();
  for (uint32_t s = 0; s < bench.sequences; ++s) {
    for (uint32_t h = 0; h < bench.query_heads; ++h) {
      CheckHead(bench, s, h, got, got_lse[s * bench.query_heads + h]);
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
        Case c{.width = width, .lengths = {77, 0, 1, 300}, .arrivals = width == 64};
        c.exact = {.lengths = {{4, 4, 1, 0}, {70, 16, 0, 600}}, .type = type, .arrangement = arrangement};
        Check(c);
        if (HasFatalFailure()) return;
      }
    }
  }
  Case c{.fp8 = true, .k_flags = 0, .rotated = false, .splits = 1};
  c.exact.lengths[0] = {33, 1, 0, 256};
  Check(c);
}

// Values that FP16 barely holds, or not with full precision: whatever comes out is a number.
TEST(Attention, NoNumberIsLost) {
  FIRN_NEED_GPU();
  for (float size : {1e-6f, 1e-4f, 100.0f, 1000.0f}) {
    for (bool rotated : {false, true}) {
      Case c{.k_flags = rotated ? PartCoding::kRotated : uint8_t{0}, .rotated = rotated, .size = size};
      c.exact.lengths[0] = {3, 20, 0, 100};
      Bench bench(c);
      ASSERT_TRUE(DecodeAttention(bench.job, nullptr).ok());
      ASSERT_NO_FATAL_FAILURE(Synchronize());
      std::vector<uint8_t> got = bench.out.Read();
      for (uint64_t i = 0; i < got.size() / 2; ++i) {
        ASSERT_TRUE(std::isfinite(LoadFloat(got.data(), DType::kFp16, i))) << c.Name() << " value " << i;
      }
      for (float lse : bench.lse.Read<float>()) ASSERT_TRUE(std::isfinite(lse)) << c.Name();
    }
  }
}

}  // namespace
}  // namespace firn::kernels
