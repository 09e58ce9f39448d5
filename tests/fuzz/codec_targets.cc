// Records and artifacts: headers with their CRC put right, and every decoder over runs whose checksums nobody looks at.
#include <hwy/targets.h>

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "codecs/block_codec.h"
#include "codecs/rules_test_util.h"
#include "tests/fuzz/fuzz_target.h"

namespace firn::fuzz {
namespace {

// The small one is coded in microseconds, so that a fuzzer gets to look at much.
constexpr BlockShape kShapes[] = {{.layers = 2, .heads = 2, .k_width = 64, .v_width = 96, .tokens = 37},
                                  {.layers = 1, .heads = 1, .k_width = 64, .v_width = 64, .tokens = 6}};

// Everything that a record may refer to.
struct Known {
  TestArtifacts artifacts;
  std::vector<EncodedBlock> blocks;
};

void AddBlock(const BlockShape& shape, const EncodeSpec& spec, DType dtype, uint64_t seed, Known* known) {
  auto block = EncodeToHeap(MakeBlock(shape, dtype, seed).Wrap(), spec, known->artifacts);
  FIRN_CHECK(block.ok());
  known->blocks.push_back(*std::move(block));
}

void EncodeEveryWay(const BlockShape& shape, Known* known) {
  using enum PrecisionClass;
  uint64_t seed = 1;
  for (const RuleCase& c : RuleCases()) {
    for (DType dtype : {DType::kFp16, DType::kBf16}) {
      EncodeSpec spec = RuleSpec(c, shape, &known->artifacts);
      spec.keep_first_tokens = seed % 3 == 0 ? 4 : 0;
      AddBlock(shape, spec, dtype, seed++, known);
    }
  }
  auto balance = known->artifacts.Add(MakeBalance(shape, 5));
  for (Ladder ladder : {Ladder::kMinMax, Ladder::kGain, Ladder::kTrellis}) {
    for (KeyMethod method : {KeyMethod::kPerChannel, KeyMethod::kRotated, KeyMethod::kBalancedRotated}) {
      EncodeSpec spec = Spec(k8Bit, k4Bit, method, method == KeyMethod::kBalancedRotated ? balance : nullptr);
      spec.ladder = ladder;
      AddBlock(shape, spec, DType::kFp16, seed++, known);
      spec.target = {k2Bit, k2Bit};
      ClassMap classes = {k2Bit, k8Bit, k4Bit, k2Bit};
      classes.resize(size_t{shape.layers} * shape.heads);
      spec.classes[0] = std::make_shared<const ClassMap>(std::move(classes));
      AddBlock(shape, spec, DType::kBf16, seed++, known);
    }
  }
  known->blocks.push_back(MakeBlock(shape, DType::kFp8E4m3, seed++).Wrap());
  known->blocks.push_back(MakeBlock(shape, DType::kFp16, seed++).Wrap());
}

const Known& TheKnown() {
  static const Known known = [] {
    Known every;
    for (const BlockShape& shape : kShapes) EncodeEveryWay(shape, &every);
    return every;
  }();
  return known;
}

// A record as bytes: the header, then its runs in order.
Bytes RecordBytes(const EncodedBlock& block) {
  Bytes bytes = SerializeHeader(*block.header);
  Bytes runs = BytesOf(block);
  bytes.insert(bytes.end(), runs.begin(), runs.end());
  return bytes;
}

void MendHeader(Bytes* bytes) {
  if (bytes->size() < 12) return;
  size_t length = LoadLe<uint32_t>(bytes->data() + 8);
  if (length <= bytes->size()) MendCrc(MutableByteSpan(*bytes).first(length), 0);
}

// The same bits, but where metadata is NaN, which no encoder writes: what saturates then is up to the target.
bool SameFloats(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  for (size_t i = 0; i < a.size(); i += sizeof(float)) {
    float x = LoadLe<float>(&a[i]), y = LoadLe<float>(&b[i]);
    if (FloatBits(x) != FloatBits(y) && !std::isnan(x) && !std::isnan(y)) return false;
  }
  return true;
}

struct Arrays {
  std::vector<uint8_t> k, v;
};

absl::StatusOr<Arrays> DecodeAll(const EncodedBlock& block, DType out) {
  Arrays arrays{std::vector<uint8_t>(block.header->shape.part(Part::kK).values() * DTypeBytes(out)),
                std::vector<uint8_t>(block.header->shape.part(Part::kV).values() * DTypeBytes(out))};
  absl::Status status = Decode(block, TheKnown().artifacts, {.out = out}, arrays.k, arrays.v);
  if (!status.ok()) return status;
  return arrays;
}

// The vectors of this machine and the plainest ones must agree on garbage, too.
void DecodeEveryWay(const EncodedBlock& block) {
  for (DType out : {DType::kFp16, DType::kBf16}) DecodeAll(block, out).IgnoreError();
  absl::StatusOr<Arrays> fast = DecodeAll(block, DType::kFp32);
  int64_t plainest = 0;
  for (int64_t target : hwy::SupportedAndGeneratedTargets()) plainest = std::max(plainest, target);
  hwy::SetSupportedTargetsForTest(plainest);
  absl::StatusOr<Arrays> plain = DecodeAll(block, DType::kFp32);
  hwy::SetSupportedTargetsForTest(0);
  FIRN_CHECK(fast.ok() == plain.ok());
  if (fast.ok()) FIRN_CHECK(SameFloats(fast->k, plain->k) && SameFloats(fast->v, plain->v));
}

// What is left of it once planes are gone.
void DecodeNarrowed(const EncodedBlock& block) {
  using enum PrecisionClass;
  for (PrecisionClass c : {k4Bit, k2Bit}) {
    if (!CanNarrow(block, {c, c})) continue;
    DecodeAll(block.Narrowed(RunsFor(*block.header, {c, c})), DType::kFp16).IgnoreError();
  }
}

// What a move would make of it.
void Recode(const EncodedBlock& block) {
  using enum PrecisionClass;
  for (PrecisionClass c : {k8Bit, k4Bit, k2Bit}) {
    EncodeSpec spec = Spec(c, c, KeyMethod::kRotated);
    auto coded = EncodeToHeap(block, spec, TheKnown().artifacts);
    if (coded.ok()) DecodeAll(*coded, DType::kFp16).IgnoreError();
  }
}

void RunRecord(ByteSpan input) {
  constexpr uint64_t kValuesMax = 1 << 18, kRunBytesMax = 1 << 22;
  uint64_t header_bytes = 0;
  auto parsed = ParseHeader(input, &header_bytes);
  if (!parsed.ok()) return;
  FIRN_CHECK(CheckHeader(*parsed).ok());
  FIRN_CHECK(std::ranges::equal(SerializeHeader(*parsed), input.first(header_bytes)));
  RecordHeader header = *std::move(parsed);
  if (header.shape.values() > kValuesMax || header.RunBytes(header.encoded) > kRunBytesMax) return;
  // Runs are what follows, as often as it takes.
  ByteSpan rest = input.subspan(header_bytes);
  auto memory = std::make_shared<std::array<Bytes, kRunIds>>();
  EncodedBlock block;
  uint64_t at = 0;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (!header.encoded.Has(i)) continue;
    Bytes& run = (*memory)[i];
    run.resize(header.runs[i].bytes);
    for (uint8_t& byte : run) byte = rest.empty() ? uint8_t{0x5A} : rest[at++ % rest.size()];
    block.runs[i] = RunBytes(ByteSpan(run));
    block.present |= RunMask(static_cast<uint16_t>(1u << i));
  }
  block.header = std::make_shared<const RecordHeader>(std::move(header));
  block.owner = memory;
  static_cast<void>(IntactRuns(block));
  DecodeEveryWay(block);
  DecodeNarrowed(block);
  Recode(block);
}

void RunArtifact(ByteSpan input) {
  auto artifact = Artifact::Parse(input);
  if (artifact.ok()) FIRN_CHECK(std::ranges::equal((*artifact)->serialized(), input));
}

}  // namespace

std::vector<Target> CodecTargets() {
  Target record{.name = "record", .run = RunRecord, .seeds = {}, .mend = MendHeader};
  for (const EncodedBlock& block : TheKnown().blocks) record.seeds.push_back(RecordBytes(block));
  Target artifact{
      .name = "artifact", .run = RunArtifact, .seeds = {}, .mend = [](Bytes* bytes) { MendCrc(*bytes, 0); }};
  PartShape small{.layers = 2, .heads = 2, .tokens = 1, .width = 8};
  artifact.seeds = {MakeBalance({2, 2, 8, 8, 4}, 3)->serialized(), MakeModel(small, true)->serialized()};
  return {std::move(record), std::move(artifact)};
}

}  // namespace firn::fuzz
