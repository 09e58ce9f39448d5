// Codec speed on one core, against memcpy of the same FP16 bytes: prints `ratio NAME OURS_GBps MEMCPY_GBps RATIO`
// lines.
//
// Whole blocks go through EncodeInto (look for NaN and range, codes, measured errors, checksums) and Decode. Sources,
// codes and decoded values together are far larger than any cache, so every block comes from memory and goes to it.
// GB/s count FP16 bytes of the values represented. Time is the thread's own processor time, so that a busy machine
// disturbs neither side.
//
// Plain names are keys per channel (blocks of K alone); `_rotated` is the calibrated default, keys centred, balanced
// and rotated and values rotated, per token; `_gain` and `_trellis` are the same with the other nested codes. Usage:
// codec_bench [--json FILE] [--mib FP16_MIB] [--repeats N] [--only NAME_SUBSTRING]

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "codecs/bench_util.h"
#include "codecs/block_codec.h"
#include "codecs/numeric/float_formats.h"

namespace firn {
namespace {

constexpr BlockShape kBothParts{.layers = 16, .heads = 8, .k_width = 128, .v_width = 128, .tokens = 64};
constexpr BlockShape kKeysOnly{.layers = 32, .heads = 8, .k_width = 128, .v_width = 0, .tokens = 64};

class KnownArtifacts : public ArtifactSource {
 public:
  explicit KnownArtifacts(std::vector<std::shared_ptr<const Artifact>> known) : known_(std::move(known)) {}
  std::shared_ptr<const Artifact> Find(const Digest& digest) const override {
    for (const auto& artifact : known_) {
      if (artifact->digest() == digest) return artifact;
    }
    return nullptr;
  }

 private:
  std::vector<std::shared_ptr<const Artifact>> known_;
};

// Ranges, codebooks, scales and rotary frequencies.
std::shared_ptr<const Artifact> MadeUpModel() {
  ArtifactSections s;
  s.layers = kBothParts.layers, s.heads = kBothParts.heads, s.width = kBothParts.k_width;
  size_t heads = size_t{s.layers} * s.heads;
  s.centre.assign(heads * s.width, 0.01f);
  s.reach.assign(heads * s.width, 2.6f);
  s.scales.assign(heads, 0.03f);
  for (uint32_t bits : {2u, 3u, 4u}) {
    Codebook book{.bits = bits, .levels = {}, .decoded = {}};
    uint32_t count = 1u << bits;
    for (uint32_t i = 0; i < s.layers * count; ++i) {
      book.levels.push_back((2.0f * static_cast<float>(i % count) + 1) / static_cast<float>(count) - 1);
    }
    book.decoded = book.levels;
    s.codebooks.push_back(std::move(book));
  }
  for (uint32_t i = 0; i < s.width / 2; ++i) s.rope.frequencies.push_back(1.0 / (1 + i));
  return *Artifact::Create(std::move(s));
}

std::shared_ptr<const Artifact> MadeUpBalance() {
  size_t count = size_t{kBothParts.layers} * kBothParts.heads * kBothParts.k_width;
  std::vector<float> mean(count), weight(count);
  for (size_t i = 0; i < count; ++i) {
    mean[i] = static_cast<float>(i % 5) * 0.1f;
    weight[i] = 0.5f + static_cast<float>(i % 3) * 0.4f;
  }
  return *Artifact::CreateBalance(kBothParts.layers, kBothParts.heads, kBothParts.k_width, mean, weight);
}

// Seconds of the fastest of `repeats` runs.
double Fastest(int repeats, const std::function<void()>& run) {
  double best = 1e9;
  for (int i = 0; i < repeats; ++i) {
    double start = ProcessorSeconds();
    run();
    best = std::min(best, ProcessorSeconds() - start);
  }
  return best;
}

class Bench {
 public:
  // Blocks of either shape have as many bytes.
  Bench(uint64_t fp16_bytes, int repeats, std::string only)
      : repeats_(repeats),
        only_(std::move(only)),
        block_bytes_(kBothParts.values() * 2),
        blocks_(std::max<uint64_t>(fp16_bytes / block_bytes_, 1)),
        balance_(MadeUpBalance()),
        model_(MadeUpModel()),
        artifacts_({balance_, model_}) {
    uint64_t bytes = TotalBytes();
    source_ = AllocateBenchMemory(bytes);
    target_ = AllocateBenchMemory(bytes);
    FillSource();
    memcpy_gbps_ = bytes / Fastest(repeats_, [&] { std::memcpy(target_.get(), source_.get(), bytes); }) / 1e9;
  }

  // Blocks of both parts at one class of one or two rules.
  void RunRule(const std::string& name, PrecisionClass at, const PartCoding& k, const PartCoding& v) {
    if (("encode_" + name).find(only_) == std::string::npos && ("decode_" + name).find(only_) == std::string::npos)
      return;
    shape_ = kBothParts;
    EncodeSpec spec;
    spec.target = {at, at};
    for (Part part : kParts) {
      CodingRule rule{at, part == Part::kK ? k : v, nullptr};
      if (NeedsModel(rule.coding)) {
        rule.artifact = model_;
        rule.coding.artifact = model_->digest();
      }
      spec.rules[static_cast<size_t>(part)] = {rule};
    }
    RunSpec("encode_" + name, spec, {{at, "decode_" + name}});
  }

  void Run(const std::string& suffix, const BlockShape& shape, EncodeSpec spec) {
    if (!only_.empty() && only_.find(suffix.empty() ? (spec.use_fp8 ? "fp8" : "int") : suffix) == std::string::npos)
      return;
    if (suffix.empty() && only_.find('_') != std::string::npos) return;
    shape_ = shape;
    spec.target = {PrecisionClass::k8Bit, PrecisionClass::k8Bit};
    std::vector<std::pair<PrecisionClass, std::string>> decodes;
    for (PrecisionClass c : {PrecisionClass::k8Bit, PrecisionClass::k4Bit, PrecisionClass::k2Bit}) {
      if (spec.use_fp8 && c != PrecisionClass::k8Bit) continue;
      std::string name = spec.use_fp8 ? "fp8" : std::string(PrecisionClassName(c));
      decodes.emplace_back(c, "decode_" + name + suffix);
    }
    RunSpec((spec.use_fp8 ? "encode_fp8" : "encode_int8") + suffix, spec, decodes);
  }

  void WriteJson(const char* path) const {
    std::FILE* out = std::fopen(path, "w");
    FIRN_CHECK(out != nullptr);
    std::fprintf(out, "{\"fp16_bytes\": %llu, \"results\": [\n", static_cast<unsigned long long>(TotalBytes()));
    for (size_t i = 0; i < lines_.size(); ++i) {
      std::fprintf(out, "  %s%s\n", lines_[i].c_str(), i + 1 < lines_.size() ? "," : "");
    }
    std::fprintf(out, "]}\n");
    std::fclose(out);
  }
  std::shared_ptr<const Artifact> balance() const { return balance_; }

 private:
  static bool NeedsModel(const PartCoding& coding) {
    return (coding.flags & (PartCoding::kPreRope | PartCoding::kCalibrated)) != 0 ||
           coding.codec == CodecId::kNuqChannel || coding.codec == CodecId::kNuqToken;
  }

  void RunSpec(const std::string& encode_name, const EncodeSpec& spec,
               const std::vector<std::pair<PrecisionClass, std::string>>& decodes) {
    std::vector<EncodedBlock> sources;
    for (uint64_t i = 0; i < blocks_; ++i) sources.push_back(Source(i));
    EncodePlan plan = *PrepareEncode(sources[0], spec, artifacts_);
    uint64_t coded_bytes = (plan.layout.TotalBytes() + 4095) / 4096 * 4096;
    BenchMemory coded = AllocateBenchMemory(blocks_ * coded_bytes);
    std::vector<EncodedBlock> encoded(blocks_);
    double encode_s = Fastest(repeats_, [&] {
      for (uint64_t i = 0; i < blocks_; ++i) encoded[i] = EncodeAt(sources[i], spec, coded.get() + i * coded_bytes);
    });
    Report(encode_name, encode_s);
    for (const auto& [c, name] : decodes) {
      if (name.find(only_) == std::string::npos) continue;
      Report(name, Fastest(repeats_, [&, at = c] { DecodeAll(encoded, at); }));
    }
  }

  uint64_t TotalBytes() const { return blocks_ * block_bytes_; }

  void FillSource() {
    std::mt19937_64 rng(1);
    std::normal_distribution<float> normal;
    std::vector<uint16_t> pattern(1 << 20);
    for (uint16_t& value : pattern) value = FloatToHalf(normal(rng));
    for (uint64_t at = 0; at < TotalBytes(); at += pattern.size() * 2) {
      std::memcpy(source_.get() + at, pattern.data(), std::min<uint64_t>(pattern.size() * 2, TotalBytes() - at));
    }
  }

  // Runs in place: no checksum of the source is part of what is measured.
  EncodedBlock Source(uint64_t index) const {
    EncodePlan plan = *PlanIdentity({}, DType::kFp16, shape_);
    EncodedBlock block;
    const uint8_t* from = source_.get() + index * block_bytes_;
    for (Part part : kParts) {
      uint64_t bytes = plan.layout.run_bytes[RunIndex(RunKind::kWhole, part)];
      block.runs[RunIndex(RunKind::kWhole, part)] = RunBytes(ByteSpan(from, bytes));
      from += bytes;
    }
    ComputeChecks(&plan.header, plan.layout.present, block.runs);
    block.header = std::make_shared<RecordHeader>(plan.header);
    block.present = plan.layout.present;
    return block;
  }

  EncodedBlock EncodeAt(const EncodedBlock& source, const EncodeSpec& spec, uint8_t* to) const {
    EncodedBlock block;
    auto in_place = [&](const EncodePlan& plan) -> absl::StatusOr<MutableRuns> {
      MutableRuns runs;
      uint8_t* at = to;
      for (uint32_t i = 0; i < kRunIds; ++i) {
        if (!plan.layout.present.Has(i)) continue;
        runs[i] = MutableRunBytes(MutableByteSpan(at, plan.layout.run_bytes[i]));
        block.runs[i] = runs[i];
        at += plan.layout.run_bytes[i];
      }
      return runs;
    };
    EncodeResult result = *EncodeInto(source, spec, artifacts_, in_place);
    block.header = result.header;
    block.present = result.layout.present;
    return block;
  }

  void DecodeAll(const std::vector<EncodedBlock>& encoded, PrecisionClass c) {
    for (uint64_t i = 0; i < blocks_; ++i) {
      uint64_t k_bytes = shape_.part(Part::kK).values() * 2, v_bytes = shape_.part(Part::kV).values() * 2;
      uint8_t* to = target_.get() + i * block_bytes_;
      DecodeRequest request{.use = RunsFor(*encoded[i].header, {c, c})};
      absl::Status decoded =
          Decode(encoded[i], artifacts_, request, MutableByteSpan(to, k_bytes), MutableByteSpan(to + k_bytes, v_bytes));
      FIRN_CHECK(decoded.ok());
    }
  }

  void Report(const std::string& name, double seconds) {
    if (name.find(only_) == std::string::npos) return;
    double gbps = static_cast<double>(TotalBytes()) / seconds / 1e9;
    std::printf("ratio %s %.2f %.2f %.3f\n", name.c_str(), gbps, memcpy_gbps_, gbps / memcpy_gbps_);
    std::fflush(stdout);
    char line[200];
    std::snprintf(line, sizeof(line), "{\"name\": \"%s\", \"gbps\": %.3f, \"memcpy_gbps\": %.3f, \"ratio\": %.4f}",
                  name.c_str(), gbps, memcpy_gbps_, gbps / memcpy_gbps_);
    lines_.push_back(line);
  }

  const int repeats_;
  const std::string only_;
  const uint64_t block_bytes_, blocks_;
  BlockShape shape_ = kBothParts;
  const std::shared_ptr<const Artifact> balance_, model_;
  const KnownArtifacts artifacts_;
  BenchMemory source_, target_;
  double memcpy_gbps_ = 0;
  std::vector<std::string> lines_;
};

PartCoding Coding(CodecId codec, uint8_t bits, uint16_t group, uint8_t flags = 0, uint8_t outliers = 0,
                  MetaType meta_type = MetaType::kFp16) {
  PartCoding coding;
  coding.codec = codec;
  coding.meta_type = meta_type;
  coding.flags = flags;
  coding.group = group;
  coding.bits = bits;
  coding.outliers = outliers;
  return coding;
}

void RunRules(Bench* bench) {
  auto both = [&](const std::string& name, PrecisionClass at, const PartCoding& coding) {
    bench->RunRule(name, at, coding, coding);
  };
  constexpr auto k8 = PrecisionClass::k8Bit, k4 = PrecisionClass::k4Bit, k3 = PrecisionClass::k3Bit,
                 k2 = PrecisionClass::k2Bit;
  both("plain_int8_token", k8, Coding(CodecId::kIntToken, 8, 128));
  both("plain_int4_token", k4, Coding(CodecId::kIntToken, 4, 128));
  both("plain_int3_token", k3, Coding(CodecId::kIntToken, 3, 128));
  both("plain_int2_token", k2, Coding(CodecId::kIntToken, 2, 128));
  both("plain_int8_channel", k8, Coding(CodecId::kIntChannel, 8, 64));
  both("plain_int4_channel", k4, Coding(CodecId::kIntChannel, 4, 64));
  both("plain_int8_tensor", k8, Coding(CodecId::kIntTensor, 8, 0));
  both("plain_int8_calibrated", k8, Coding(CodecId::kIntToken, 8, 0, PartCoding::kSymmetric | PartCoding::kCalibrated));
  bench->RunRule("kivi4", k4, Coding(CodecId::kIntChannel, 4, 32), Coding(CodecId::kIntToken, 4, 32));
  both("fp8_block", k8, Coding(CodecId::kFp8E4m3, 0, 128, 0, 0, MetaType::kFp32));
  both("fp8_calibrated", k8, Coding(CodecId::kFp8E4m3, 0, 0, PartCoding::kCalibrated, 0, MetaType::kFp32));
  both("fp8_tensor", k8, Coding(CodecId::kFp8E4m3Tensor, 0, 0, 0, 0, MetaType::kFp32));
  both("nvfp4", k4, Coding(CodecId::kNvFp4, 0, 0, 0, 0, MetaType::kFp32));
  both("mxfp4", k4, Coding(CodecId::kMxFp4, 0, 0, 0, 0, MetaType::kFp32));
  const PartCoding nuq_key = Coding(CodecId::kNuqChannel, 4, 0, 0, 10);
  bench->RunRule("kvquant4", k4, nuq_key, Coding(CodecId::kNuqToken, 4, 0, 0, 10));
  bench->RunRule("kvquant4_keys", k4, nuq_key, nuq_key);
  const PartCoding grouped_key = Coding(CodecId::kNuqChannel, 4, 64, 0, 15);
  bench->RunRule("kvquant4_grouped_keys", k4, grouped_key, grouped_key);
  bench->RunRule("kvquant4_pre_rope", k4, Coding(CodecId::kNuqChannel, 4, 0, PartCoding::kPreRope, 10),
                 Coding(CodecId::kNuqToken, 4, 0, 0, 10));
  bench->RunRule("kvquant2", k2, Coding(CodecId::kNuqChannel, 2, 0, 0, 10), Coding(CodecId::kNuqToken, 2, 0, 0, 10));
  bench->RunRule("kivi2", k2, Coding(CodecId::kIntChannel, 2, 32), Coding(CodecId::kIntToken, 2, 32));
}

int Main(int argc, char** argv) {
  const char* json = nullptr;
  uint64_t mib = 1024;
  int repeats = 3;
  std::string only;
  for (int i = 1; i + 1 < argc; i += 2) {
    std::string flag = argv[i];
    if (flag == "--json") {
      json = argv[i + 1];
    } else if (flag == "--mib") {
      mib = std::strtoull(argv[i + 1], nullptr, 10);
    } else if (flag == "--repeats") {
      repeats = std::atoi(argv[i + 1]);
    } else if (flag == "--only") {
      only = argv[i + 1];
    }
  }
  if (argc % 2 == 0 || mib == 0 || repeats < 1) {
    std::fprintf(stderr, "usage: codec_bench [--json FILE] [--mib FP16_MIB] [--repeats N] [--only NAME_SUBSTRING]\n");
    return 2;
  }
  Bench bench(mib << 20, repeats, only);
  EncodeSpec spec;
  bench.Run("", kKeysOnly, spec);
  spec.key_method = KeyMethod::kBalancedRotated;
  spec.balance = bench.balance();
  bench.Run("_rotated", kBothParts, spec);
  spec.ladder = Ladder::kGain;
  bench.Run("_gain", kBothParts, spec);
  spec.ladder = Ladder::kTrellis;
  bench.Run("_trellis", kBothParts, spec);
  spec.use_fp8 = true;
  bench.Run("", kBothParts, spec);
  RunRules(&bench);
  if (json != nullptr) bench.WriteJson(json);
  return 0;
}

}  // namespace
}  // namespace firn

int main(int argc, char** argv) { return firn::Main(argc, argv); }
