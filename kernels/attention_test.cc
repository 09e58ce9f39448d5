// Attention on packed planes against attention in double precision on what the reference decodes, with queries rounded
// as the kernel rounds them. Labelled gpu.
#include "kernels/attention.h"

#include <algorithm>
#include <numeric>

#include "kernels/batch_test_util.h"

namespace firn::kernels {
namespace {

constexpr uint32_t kWidth = 128;

struct Case {
  uint32_t layers = 2, kv_heads = 2, group = 4, block_tokens = 32;
  std::vector<uint32_t> lengths = {77, 32, 1, 300};
  PrecisionClass k = PrecisionClass::k4Bit, v = PrecisionClass::k4Bit;
  DType values = DType::kFp16;
  uint8_t k_flags = PartCoding::kRotated | PartCoding::kCentred | PartCoding::kBalanced;
  bool rotated = true;
  uint32_t splits = 3;
  float size = 1.0f;

  std::string Name() const {
    return fmt::format("group {} block {} K {} V {} values {} flags {} splits {} size {}", group, block_tokens,
                       PrecisionClassName(k), PrecisionClassName(v), DTypeName(values), k_flags, splits, size);
  }
};

// Keys and values of a pool of blocks, as encoded and as decoded.
struct PoolPart {
  BatchSize size;
  BatchTransform transform;
  ReferenceBatch codes;
  std::array<DeviceRun, kRunKinds> runs;
  std::vector<float> decoded;  // [block][layer][head][token][channel]

  PoolPart(const Case& c, uint32_t blocks, uint8_t flags, PrecisionClass precision, uint64_t seed)
      : size{blocks, c.layers, c.kv_heads, c.block_tokens, kWidth}, transform(size, flags) {
    PartCoding coding;
    coding.codec = CodecId::kNestedToken;
    coding.meta_type = c.values == DType::kFp16 ? MetaType::kFp16 : MetaType::kBf16;
    coding.group = kWidth;
    coding.flags = flags;
    if ((flags & PartCoding::kCentred) != 0) coding.artifact.bytes[0] = 1;
    const CodecRow& row = *FindCodec(coding.codec);
    std::vector<uint8_t> source = MakeValues(ValueKind::kOutliers, c.values, size.values(), seed);
    for (uint64_t i = 0; i < size.values(); ++i) {
      float value = LoadFloat(source.data(), c.values, i) * 0.1f * c.size;
      StoreFloats(&value, 1, c.values, source.data() + i * 2);
    }
    codes = EncodeReferenceBatch(row, coding, size, c.values, source, transform);
    Decode(row, coding, c.values, precision);
    for (RunKind kind : {RunKind::kMeta, RunKind::kP2, RunKind::kP4}) {
      size_t k = static_cast<size_t>(kind);
      RunPlace place = seed % 2 == 0 ? RunPlace::kContiguous : RunPlace::kOwnAddress;
      runs[k] = DeviceRun(blocks, codes.runs[k].size() / blocks, place, seed);
      runs[k].Upload(codes.runs[k]);
    }
  }
  // In FP32: nothing is rounded to the caller's type.
  void Decode(const CodecRow& row, const PartCoding& coding, DType values, PrecisionClass precision) {
    decoded.resize(size.values());
    for (uint32_t h = 0; h < size.heads_in_all(); ++h) {
      DecodeTile tile;
      tile.coding = &coding;
      tile.width = kWidth, tile.tokens = size.tokens;
      tile.stored = values, tile.out = DType::kFp32;
      tile.target = reinterpret_cast<uint8_t*>(decoded.data() + uint64_t{h} * size.tokens * kWidth);
      tile.precision = precision;
      tile.transform = Head(h).view();
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
           (((uint64_t{block} * size.layers + layer) * size.heads + head) * size.tokens + token) * kWidth;
  }
};

void Rotate(std::vector<float>* row, bool rotated) {
  for (uint32_t stride = 1; rotated && stride < kWidth; stride *= 2) {
    for (uint32_t i = 0; i < kWidth; ++i) {
      if ((i & stride) != 0) continue;
      float a = (*row)[i], b = (*row)[i + stride];
      (*row)[i] = a + b, (*row)[i + stride] = a - b;
    }
  }
}

// What a rounded query makes of a key: a key less its mean, unscaled and rotated back, is what its codes stand for.
struct RoundedQuery {
  std::vector<float> values = std::vector<float>(kWidth), mean, scale;
  double constant = 0;
  bool rotated;

  RoundedQuery(const uint8_t* query, float softmax_scale, const TestTransform& head, bool is_rotated)
      : rotated(is_rotated) {
    mean.assign(kWidth, 0.0f), scale.assign(kWidth, head.uniform_scale);
    if (!head.mean.empty()) {
      mean.assign(head.mean.begin(), head.mean.begin() + kWidth);
      scale.assign(head.decode_scale.begin(), head.decode_scale.begin() + kWidth);
    }
    for (uint32_t i = 0; i < kWidth; ++i) {
      values[i] = LoadFloat(query, DType::kFp16, i) * softmax_scale;
      constant += double{values[i]} * mean[i];
      values[i] *= scale[i];
    }
    Rotate(&values, rotated);
    float largest = 0;
    for (float value : values) largest = std::max(largest, std::fabs(value));
    float unit = largest / 256.0f;
    for (uint32_t i = 0; i < kWidth; ++i) {
      float quarter = static_cast<float>(1u << (2 * (i / 32)));
      values[i] = HalfToFloat(FloatToHalf(values[i] / unit / quarter)) * quarter * unit;
    }
  }
  double Times(const float* key) const {
    std::vector<float> code(kWidth);
    for (uint32_t i = 0; i < kWidth; ++i) code[i] = (key[i] - mean[i]) / scale[i];
    Rotate(&code, rotated);
    double sum = 0;
    for (uint32_t i = 0; i < kWidth; ++i) sum += double{values[i]} * code[i];
    return sum / (rotated ? kWidth : 1) + constant;
  }
};

void Check(const Case& c) {
  SCOPED_TRACE(c.Name());
  uint32_t sequences = static_cast<uint32_t>(c.lengths.size()), longest = *std::ranges::max_element(c.lengths);
  uint32_t each = (longest + c.block_tokens - 1) / c.block_tokens, blocks = each * sequences;
  std::vector<uint32_t> table(blocks);
  std::iota(table.begin(), table.end(), 0u);
  std::mt19937_64 rng(11);
  std::shuffle(table.begin(), table.end(), rng);
  uint8_t v_flags = c.rotated ? PartCoding::kRotated : uint8_t{0};
  PoolPart keys(c, blocks, c.k_flags, c.k, 4), values(c, blocks, v_flags, c.v, 5);
  uint32_t query_heads = c.kv_heads * c.group;
  std::vector<uint8_t> queries =
      MakeValues(ValueKind::kNormal, DType::kFp16, uint64_t{sequences} * query_heads * kWidth, 6);
  DeviceMemory device_table(table), device_lengths(c.lengths), device_queries(queries), out(queries.size());
  DeviceMemory lse(uint64_t{sequences} * query_heads * sizeof(float));
  out.Fill(0xEE), lse.Fill(0xEE);
  AttentionJob job;
  job.sequences = sequences, job.query_heads = query_heads, job.kv_heads = c.kv_heads;
  job.block_table = device_table.as<uint32_t>(), job.blocks_per_sequence = each, job.block_tokens = c.block_tokens;
  job.lengths = device_lengths.as<uint32_t>(), job.length_max = longest;
  job.layers = c.layers, job.layer = c.layers - 1;
  job.meta = c.values == DType::kFp16 ? MetaType::kFp16 : MetaType::kBf16;
  job.k_precision = c.k, job.v_precision = c.v;
  job.k_meta = keys.run(RunKind::kMeta), job.k_p2 = keys.run(RunKind::kP2), job.k_p4 = keys.run(RunKind::kP4);
  job.v_meta = values.run(RunKind::kMeta), job.v_p2 = values.run(RunKind::kP2), job.v_p4 = values.run(RunKind::kP4);
  job.rotated = c.rotated;
  job.k_transform = keys.transform.view();
  job.v_scale = values.transform.uniform_scale;
  job.softmax_scale = 1.0f / std::sqrt(static_cast<float>(kWidth));
  job.queries = device_queries.as<uint8_t>(), job.out = out.as<uint8_t>(), job.lse = lse.as<float>();
  job.splits = c.splits;
  DeviceMemory workspace(AttentionWorkspaceBytes(job));
  workspace.Fill(0xEE);
  job.workspace = workspace.as<uint8_t>();
  absl::Status status = DecodeAttention(job, nullptr);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_NO_FATAL_FAILURE(Synchronize());

  std::vector<uint8_t> got = out.Read();
  std::vector<float> got_lse = lse.Read<float>();
  for (uint32_t s = 0; s < sequences; ++s) {
    for (uint32_t h = 0; h < query_heads; ++h) {
      uint64_t query = uint64_t{s} * query_heads + h;
      std::vector<double> scores(c.lengths[s]);
      auto row = [&](const PoolPart& part, uint32_t t) {
        return part.Row(table[s * each + t / c.block_tokens], job.layer, h / c.group, t % c.block_tokens);
      };
      RoundedQuery rounded(queries.data() + query * kWidth * 2, job.softmax_scale,
                           keys.Head(job.layer * c.kv_heads + h / c.group), c.rotated);
      for (uint32_t t = 0; t < c.lengths[s]; ++t) scores[t] = rounded.Times(row(keys, t));
      double highest = *std::ranges::max_element(scores), weight = 0;
      std::vector<double> wanted(kWidth);
      for (uint32_t t = 0; t < c.lengths[s]; ++t) {
        double p = std::exp(scores[t] - highest);
        weight += p;
        for (uint32_t i = 0; i < kWidth; ++i) wanted[i] += p * row(values, t)[i];
      }
      double difference = 0, norm = 0;
      for (uint32_t i = 0; i < kWidth; ++i) {
        double w = wanted[i] / weight, d = LoadFloat(got.data(), DType::kFp16, query * kWidth + i) - w;
        difference += d * d, norm += w * w;
      }
      ASSERT_LE(std::sqrt(difference / norm), 4e-3) << "sequence " << s << " head " << h;
      ASSERT_NEAR(got_lse[query], highest + std::log(weight), 1e-2) << "sequence " << s << " head " << h;
    }
  }
}

TEST(Attention, IsThatOfTheDecodedCache) {
  FIRN_NEED_GPU();
  for (PrecisionClass k : {PrecisionClass::k4Bit, PrecisionClass::k2Bit}) {
    for (PrecisionClass v : {PrecisionClass::k4Bit, PrecisionClass::k2Bit}) {
      for (DType values : {DType::kFp16, DType::kBf16}) {
        for (uint32_t group : {1, 3, 4, 8}) {
          Check({.group = group, .k = k, .v = v, .values = values});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Attention, EveryCutAndLength) {
  FIRN_NEED_GPU();
  for (uint32_t splits : {1, 2, 7, 64}) {
    for (uint32_t block_tokens : {16, 64, 48}) {
      Check({.block_tokens = block_tokens, .lengths = {1, 15, 16, 17, 63, 64, 65, 1000}, .splits = splits});
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
}

// A sequence of no tokens has zeros and an lse of minus infinity, beside others that have some.
TEST(Attention, NothingToAttendTo) {
  FIRN_NEED_GPU();
  AttentionJob job;
  job.sequences = 1, job.query_heads = 1, job.kv_heads = 1;
  std::vector<uint8_t> zeros(4096);
  DeviceMemory memory(zeros), out(std::vector<uint8_t>(256, 0xEE)), lse(std::vector<float>(1, 5.0f));
  job.block_table = job.lengths = memory.as<uint32_t>();
  job.blocks_per_sequence = 1, job.block_tokens = 16, job.layers = 1;
  for (RunView* run : {&job.k_meta, &job.k_p2, &job.k_p4, &job.v_meta, &job.v_p2, &job.v_p4})
    run->base = memory.as<uint8_t>();
  job.queries = memory.as<uint8_t>(), job.out = out.as<uint8_t>(), job.lse = lse.as<float>();
  job.softmax_scale = 0.1f, job.splits = 1;
  DeviceMemory workspace(AttentionWorkspaceBytes(job));
  job.workspace = workspace.as<uint8_t>();
  ASSERT_TRUE(DecodeAttention(job, nullptr).ok());
  ASSERT_NO_FATAL_FAILURE(Synchronize());
  EXPECT_EQ(out.Read(), std::vector<uint8_t>(256, 0));
  EXPECT_EQ(lse.Read<float>()[0], -std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace firn::kernels
