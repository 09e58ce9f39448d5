// Test support: blocks of made-up and of real values, scattered memory, an artifact store, and decoded arrays.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/status.h"
#include "codecs/block_codec.h"
#include "codecs/numeric/float_rows.h"

namespace firn {

class TestArtifacts : public ArtifactSource {
 public:
  std::shared_ptr<const Artifact> Find(const Digest& digest) const override {
    auto at = known_.find(digest);
    return at == known_.end() ? nullptr : at->second;
  }
  std::shared_ptr<const Artifact> Add(std::shared_ptr<const Artifact> balance) {
    known_[balance->digest()] = balance;
    return balance;
  }

 private:
  std::map<Digest, std::shared_ptr<const Artifact>> known_;
};

inline std::shared_ptr<const Artifact> MakeBalance(const BlockShape& shape, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  size_t count = size_t{shape.layers} * shape.heads * shape.k_width;
  std::vector<float> mean(count), weight(count);
  for (size_t i = 0; i < count; ++i) mean[i] = normal(rng), weight[i] = std::exp(0.5f * normal(rng));
  return *Artifact::CreateBalance(shape.layers, shape.heads, shape.k_width, std::move(mean), std::move(weight));
}

inline Identity TestIdentity(uint8_t tag = 1) {
  Identity identity;
  identity.namespace_fingerprint.bytes.fill(tag);
  identity.key.bytes.fill(static_cast<uint8_t>(tag + 1));
  identity.generation = 7;
  return identity;
}

// Raw K and V of one block, and the block that wraps them.
struct RawBlock {
  DType dtype = DType::kFp16;
  BlockShape shape;
  std::vector<uint8_t> k = {}, v = {}, k_scales = {}, v_scales = {};
  uint32_t first_token = 0;

  std::vector<uint8_t>& part(Part p) { return p == Part::kK ? k : v; }
  // The block owns a copy.
  EncodedBlock Wrap() const {
    auto copy = std::make_shared<RawBlock>(*this);
    auto block = WrapRaw(TestIdentity(), dtype, shape, copy->k, copy->v, copy->k_scales, copy->v_scales);
    EXPECT_TRUE(block.ok()) << block.status();
    block->owner = copy;
    auto header = std::make_shared<RecordHeader>(*block->header);
    header->first_token = first_token;
    block->header = std::move(header);
    return *std::move(block);
  }
  uint64_t Index(Part p, uint32_t layer, uint32_t head, uint32_t token, uint32_t channel) const {
    PartShape s = shape.part(p);
    return ((uint64_t{layer} * s.heads + head) * s.tokens + token) * s.width + channel;
  }
  void Set(Part p, uint64_t index, float value) {
    StoreFloats(&value, 1, dtype, part(p).data() + index * DTypeBytes(dtype));
  }
  float Get(Part p, uint64_t index) const { return LoadFloat((p == Part::kK ? k : v).data(), dtype, index); }
};

// Normal values, with channels of K that stand out.
inline RawBlock MakeBlock(const BlockShape& shape, DType dtype, uint64_t seed, float size = 1.0f) {
  RawBlock block{.dtype = dtype, .shape = shape};
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  for (Part p : kParts) {
    PartShape s = shape.part(p);
    block.part(p).resize(s.values() * DTypeBytes(dtype));
    for (uint64_t i = 0; i < s.values(); ++i) {
      float value = normal(rng) * size * (p == Part::kK && i % s.width == 2 ? 10.0f : 1.0f);
      if (dtype == DType::kFp8E4m3 || dtype == DType::kFp8E5m2) {
        block.part(p)[i] = dtype == DType::kFp8E4m3 ? FloatToE4m3(value * 20) : FloatToE5m2(value * 20);
      } else {
        block.Set(p, i, value);
      }
    }
    if (dtype != DType::kFp8E4m3 && dtype != DType::kFp8E5m2) continue;
    auto& scales = p == Part::kK ? block.k_scales : block.v_scales;
    scales.resize(s.width == 0 ? 0 : size_t{s.layers} * s.heads * sizeof(float));
    for (size_t i = 0; i < scales.size(); i += 4)
      StoreLe<float>(scales.data() + i, 0.05f * (1 + static_cast<float>(i % 7)));
  }
  return block;
}

// Memory for a plan's runs in pieces of a few bytes to a page, and the block that reads them back.
class ScatteredMemory {
 public:
  ScatteredMemory(const RecordLayout& layout, uint64_t piece_bytes_max, uint64_t seed) : present_(layout.present) {
    std::mt19937_64 rng(seed);
    for (uint32_t i = 0; i < kRunIds; ++i) {
      for (uint64_t left = layout.run_bytes[i]; left > 0;) {
        uint64_t take = std::min<uint64_t>(left, 1 + rng() % piece_bytes_max);
        pieces_.push_back(std::make_unique<std::vector<uint8_t>>(take, 0xEE));
        runs_[i].Append(*pieces_.back());
        left -= take;
      }
    }
  }
  const MutableRuns& runs() const { return runs_; }
  EncodedBlock Block(std::shared_ptr<const RecordHeader> header) const {
    EncodedBlock block;
    block.header = std::move(header);
    block.present = present_;
    for (uint32_t i = 0; i < kRunIds; ++i) block.runs[i] = runs_[i];
    return block;
  }

 private:
  RunMask present_;
  std::vector<std::unique_ptr<std::vector<uint8_t>>> pieces_;
  MutableRuns runs_;
};

inline std::vector<uint8_t> BytesOf(const RunBytes& run) {
  std::vector<uint8_t> bytes;
  for (ByteSpan piece : run.spans()) bytes.insert(bytes.end(), piece.begin(), piece.end());
  return bytes;
}

// The bytes of all runs at hand, one after another.
inline std::vector<uint8_t> BytesOf(const EncodedBlock& block) {
  std::vector<uint8_t> bytes;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    std::vector<uint8_t> run = BytesOf(block.runs[i]);
    bytes.insert(bytes.end(), run.begin(), run.end());
  }
  return bytes;
}

struct DecodedBlock {
  std::vector<float> k, v;
  const std::vector<float>& part(Part p) const { return p == Part::kK ? k : v; }
};

inline absl::StatusOr<DecodedBlock> DecodeFloats(const EncodedBlock& block, const ArtifactSource& artifacts,
                                                 RunMask use = RunMask::All()) {
  DecodedBlock out;
  out.k.resize(block.header->shape.part(Part::kK).values());
  out.v.resize(block.header->shape.part(Part::kV).values());
  DecodeRequest request{.out = DType::kFp32, .use = use};
  FIRN_RETURN_IF_ERROR(Decode(block, artifacts, request, {reinterpret_cast<uint8_t*>(out.k.data()), out.k.size() * 4},
                              {reinterpret_cast<uint8_t*>(out.v.data()), out.v.size() * 4}));
  return out;
}

// The bytes of both parts as `out`.
inline absl::StatusOr<std::pair<std::vector<uint8_t>, std::vector<uint8_t>>> DecodeAs(const EncodedBlock& block,
                                                                                      const ArtifactSource& artifacts,
                                                                                      DType out) {
  std::vector<uint8_t> k(block.header->shape.part(Part::kK).values() * DTypeBytes(out));
  std::vector<uint8_t> v(block.header->shape.part(Part::kV).values() * DTypeBytes(out));
  FIRN_RETURN_IF_ERROR(Decode(block, artifacts, DecodeRequest{.out = out}, k, v));
  return std::pair(std::move(k), std::move(v));
}

inline double RelativeError(const std::vector<float>& expected, const std::vector<float>& actual) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    double d = double{expected[i]} - actual[i];
    difference += d * d, norm += double{expected[i]} * expected[i];
  }
  return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

inline EncodeSpec Spec(PrecisionClass k, PrecisionClass v, KeyMethod method = KeyMethod::kPerChannel,
                       std::shared_ptr<const Artifact> balance = nullptr) {
  EncodeSpec spec;
  spec.target = {k, v};
  spec.key_method = method;
  spec.balance = std::move(balance);
  return spec;
}

// FP16 tensors of the real K/V sample, or nothing where it is not there.
class RealSample {
 public:
  RealSample() {
    const char* shared = std::getenv("FIRN_SHARED");
    std::string folder = shared != nullptr ? shared : std::string(FIRN_SOURCE_DIR) + "/../shared";
    path_ = folder + "/data/kv/wikitext2_1024tok.safetensors";
    std::ifstream in(path_, std::ios::binary);
    file_.assign(std::istreambuf_iterator<char>(in), {});
  }
  bool present() const { return file_.size() > 8; }
  const std::string& path() const { return path_; }

  // The bytes of a tensor, whose name is in the file.
  ByteSpan Tensor(const std::string& name) const {
    uint64_t header_bytes = LoadLe<uint64_t>(reinterpret_cast<const uint8_t*>(file_.data()));
    std::string header = file_.substr(8, header_bytes);
    size_t at = header.find('"' + name + '"');
    if (at == std::string::npos) return {};
    size_t offsets = header.find("data_offsets", at);
    size_t open = header.find('[', offsets), comma = header.find(',', open);
    uint64_t first = std::stoull(header.substr(open + 1)), last = std::stoull(header.substr(comma + 1));
    return {reinterpret_cast<const uint8_t*>(file_.data()) + 8 + header_bytes + first, last - first};
  }

  // One block of `tokens` tokens from `first_token`, of layers 0, 2, 4 and 7: stored (token, head, channel) there.
  RawBlock Block(uint32_t first_token, uint32_t tokens) const {
    RawBlock block{.shape = {.layers = 4, .heads = 2, .k_width = 128, .v_width = 128, .tokens = tokens}};
    block.first_token = first_token;
    uint32_t layer_at = 0;
    for (int layer : {0, 2, 4, 7}) {
      CopyPart(Tensor(fmt::format("layer{}.k", layer)), Part::kK, layer_at, first_token, &block);
      CopyPart(Tensor(fmt::format("layer{}.v", layer)), Part::kV, layer_at, first_token, &block);
      ++layer_at;
    }
    return block;
  }

 private:
  static void CopyPart(ByteSpan tensor, Part p, uint32_t layer, uint32_t first_token, RawBlock* block) {
    const BlockShape& shape = block->shape;
    block->part(p).resize(shape.part(p).values() * 2);
    for (uint32_t head = 0; head < shape.heads; ++head) {
      for (uint32_t t = 0; t < shape.tokens; ++t) {
        std::memcpy(block->part(p).data() + block->Index(p, layer, head, t, 0) * 2,
                    tensor.data() + ((uint64_t{first_token} + t) * shape.heads + head) * 256, 256);
      }
    }
  }

  std::string path_, file_;
};

}  // namespace firn
