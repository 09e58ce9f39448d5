#include "tiers/conformance/test_blocks.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"

namespace firn {
namespace {

Digest NumberedDigest(uint64_t number, uint64_t domain) {
  uint64_t words[2] = {number, domain};
  return Sha256({reinterpret_cast<const uint8_t*>(words), sizeof(words)});
}

void FillRandom(MutableByteSpan bytes, uint64_t state) {
  state = state * 2 + 1;
  for (size_t at = 0; at < bytes.size(); at += 8) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(bytes.data() + at, &state, std::min<size_t>(8, bytes.size() - at));
  }
}

bool IsFp8(DType dtype) { return dtype == DType::kFp8E4m3 || dtype == DType::kFp8E5m2; }

// The scales that FP8 values come with: what a Put would take, so that such a block also decodes.
void FillScales(MutableByteSpan bytes) {
  for (size_t at = 0; at < bytes.size(); at += sizeof(float)) {
    StoreLe<float>(bytes.data() + at, 0.125f * static_cast<float>(at / sizeof(float) + 1));
  }
}

uint64_t BitsToBytes(uint64_t bits) { return (bits + 7) / 8; }

void DescribePart(const TestBlockSpec& spec, Part part, RecordHeader* header) {
  PartShape shape = spec.shape.part(part);
  PartCoding& coding = header->coding[static_cast<size_t>(part)];
  if (shape.width == 0) return;
  uint64_t value_bytes = DTypeBytes(spec.dtype);
  auto add = [&](RunKind kind, uint64_t layer_bytes) {
    header->encoded |= RunMask::Of(kind, part);
    header->runs[RunIndex(kind, part)].bytes = layer_bytes * shape.layers;
  };
  if (spec.family == CodecFamily::kSource) {
    coding.codec = CodecId::kIdentity;
    add(RunKind::kWhole, shape.layer_values() * value_bytes);
    if (IsFp8(spec.dtype)) add(RunKind::kMeta, shape.heads * sizeof(float));
    return;
  }
  FIRN_CHECK(spec.family == CodecFamily::kNested);
  coding = {.codec = CodecId::kNestedToken, .meta_type = MetaType::kFp16, .flags = 0, .group = 128, .artifact = {}};
  uint64_t coded = uint64_t{shape.heads} * (shape.tokens - spec.exact_tokens);
  uint64_t groups = (shape.width + 127) / 128;
  add(RunKind::kMeta, coded * groups * 4);
  if (spec.exact_tokens > 0)
    add(RunKind::kExact, uint64_t{shape.heads} * spec.exact_tokens * shape.width * value_bytes);
  add(RunKind::kP2, BitsToBytes(coded * shape.width * 2));
  add(RunKind::kP4, BitsToBytes(coded * shape.width * 2));
  add(RunKind::kP8, BitsToBytes(coded * shape.width * 4));
}

}  // namespace

Identity TestIdentity(uint64_t number, uint64_t namespace_number) {
  Identity identity;
  identity.namespace_fingerprint = NumberedDigest(namespace_number, 1);
  identity.key = NumberedDigest(number, 2);
  identity.shard = static_cast<uint16_t>(number % 3);
  identity.generation = number;
  return identity;
}

EncodedBlock MakeTestBlock(const TestBlockSpec& spec, const Identity& identity, uint64_t seed) {
  auto header = std::make_shared<RecordHeader>();
  header->identity = identity;
  header->dtype = spec.dtype;
  header->shape = spec.shape;
  header->exact_tokens = spec.exact_tokens;
  if (spec.exact_last) {
    std::vector<uint32_t> last(spec.exact_tokens);
    std::iota(last.begin(), last.end(), spec.shape.tokens - spec.exact_tokens);
    header->exact_map = ExactTokensOf(last, spec.shape.tokens).map;
  }
  for (Part part : kParts) DescribePart(spec, part, header.get());
  auto bytes = std::make_shared<std::vector<uint8_t>>(header->RunBytes(header->encoded));
  FillRandom(*bytes, seed);
  EncodedBlock block;
  uint64_t at = 0;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (!header->encoded.Has(i)) continue;
    MutableByteSpan run = MutableByteSpan(*bytes).subspan(at, header->runs[i].bytes);
    if (IsFp8(spec.dtype) && spec.family == CodecFamily::kSource && RunKindOf(i) == RunKind::kMeta) FillScales(run);
    block.runs[i] = RunBytes(run);
    at += run.size();
  }
  ComputeChecks(header.get(), header->encoded, block.runs);
  block.present = header->encoded;
  block.header = std::move(header);
  block.owner = std::move(bytes);
  return block;
}

std::vector<TestBlockSpec> TestBlockSpecs() {
  constexpr CodecFamily kNested = CodecFamily::kNested;
  return {
      {"2 KB", {.layers = 1, .heads = 1, .k_width = 32, .v_width = 32, .tokens = 16}},
      {"2 KB nested", {.layers = 1, .heads = 1, .k_width = 64, .v_width = 64, .tokens = 16}, kNested},
      {"one value", {.layers = 1, .heads = 1, .k_width = 1, .v_width = 0, .tokens = 1}},
      {"odd everything", {.layers = 7, .heads = 3, .k_width = 80, .v_width = 96, .tokens = 13}, kNested},
      {"sinks", {.layers = 4, .heads = 2, .k_width = 128, .v_width = 128, .tokens = 64}, kNested, 4},
      {.name = "a set of exact tokens",
       .shape = {.layers = 3, .heads = 2, .k_width = 64, .v_width = 64, .tokens = 1000},
       .family = kNested,
       .exact_tokens = 200,
       .exact_last = true},
      {"all tokens exact", {.layers = 2, .heads = 2, .k_width = 64, .v_width = 64, .tokens = 4}, kNested, 4},
      {"K only", {.layers = 5, .heads = 1, .k_width = 576, .v_width = 0, .tokens = 31}, kNested},
      {"V only", {.layers = 5, .heads = 1, .k_width = 0, .v_width = 576, .tokens = 31}},
      {"latent 132 + 576", {.layers = 61, .heads = 1, .k_width = 132, .v_width = 576, .tokens = 64}, kNested},
      {"128 layers", {.layers = 128, .heads = 2, .k_width = 64, .v_width = 64, .tokens = 16}, kNested},
      {"one page exactly", {.layers = 1, .heads = 8, .k_width = 64, .v_width = 64, .tokens = 64}},
      {"one page and a value", {.layers = 1, .heads = 1, .k_width = 32769, .v_width = 32767, .tokens = 1}},
      {"FP8",
       {.layers = 3, .heads = 4, .k_width = 112, .v_width = 112, .tokens = 50},
       CodecFamily::kSource,
       0,
       DType::kFp8E4m3},
      {"opaque 10 MB",
       {.layers = 1, .heads = 1, .k_width = 1000003, .v_width = 0, .tokens = 10},
       CodecFamily::kSource,
       0,
       DType::kBytes},
      {"32 MiB nested", {.layers = 32, .heads = 8, .k_width = 128, .v_width = 128, .tokens = 256}, kNested, 4},
  };
}

bool SameBlock(const EncodedBlock& a, const EncodedBlock& b) {
  if (a.present != b.present || SerializeHeader(*a.header) != SerializeHeader(*b.header)) return false;
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (a.runs[i].size() != b.runs[i].size()) return false;
    std::vector<uint8_t> left(a.runs[i].size()), right(b.runs[i].size());
    CopyScattered(a.runs[i], MutableRunBytes(left));
    CopyScattered(b.runs[i], MutableRunBytes(right));
    if (left != right) return false;
  }
  return true;
}

}  // namespace firn
