#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "base/status.h"
#include "codecs/block_codec.h"
#include "codecs/capi/handles.h"
#include "codecs/exact_tokens.h"
#include "codecs/numeric/convert.h"

namespace firn::capi {
namespace {

// Finds the artifacts of one call.
class GivenArtifacts : public ArtifactSource {
 public:
  explicit GivenArtifacts(const EncodeSpec& spec) : spec_(spec) {}
  std::shared_ptr<const Artifact> Find(const Digest& digest) const override {
    if (Named(spec_.balance, digest)) return spec_.balance;
    for (const auto& rules : spec_.rules) {
      for (const CodingRule& rule : rules) {
        if (Named(rule.artifact, digest)) return rule.artifact;
      }
    }
    return nullptr;
  }

 private:
  static bool Named(const std::shared_ptr<const Artifact>& artifact, const Digest& digest) {
    return artifact != nullptr && artifact->digest() == digest;
  }
  const EncodeSpec& spec_;
};

absl::StatusOr<PrecisionClass> ClassOfBits(uint32_t bits) {
  for (PrecisionClass c : {PrecisionClass::kExact, PrecisionClass::k8Bit, PrecisionClass::k4Bit, PrecisionClass::k3Bit,
                           PrecisionClass::k2Bit}) {
    if (static_cast<uint32_t>(c) == bits) return c;
  }
  return InvalidArgument("{} bits; 16, 8, 4, 3 or 2", bits);
}

absl::Status CheckAtMost(const char* what, uint32_t value, uint32_t most) {
  if (value <= most) return absl::OkStatus();
  return InvalidArgument("{} {}, at most {}", what, value, most);
}

absl::StatusOr<CodingRule> RuleOf(const firn_coding& given, PrecisionClass at) {
  FIRN_RETURN_IF_ERROR(CheckAtMost("codec", given.codec, std::numeric_limits<uint16_t>::max()));
  FIRN_RETURN_IF_ERROR(CheckAtMost("code bits", given.code_bits, 8));
  FIRN_RETURN_IF_ERROR(CheckAtMost("groups of", given.group, std::numeric_limits<uint16_t>::max()));
  FIRN_RETURN_IF_ERROR(CheckAtMost("outliers", given.outliers, PartCoding::kOutliersMax));
  FIRN_RETURN_IF_ERROR(CheckAtMost("flags", given.flags, PartCoding::kFlags));
  CodingRule rule{.at = at, .coding = {}, .artifact = nullptr};
  rule.coding.codec = static_cast<CodecId>(given.codec);
  rule.coding.bits = static_cast<uint8_t>(given.code_bits);
  rule.coding.group = static_cast<uint16_t>(given.group);
  rule.coding.outliers = static_cast<uint8_t>(given.outliers);
  rule.coding.flags = static_cast<uint8_t>(given.flags);
  if (given.artifact != nullptr) {
    rule.artifact = given.artifact->artifact;
    rule.coding.artifact = rule.artifact->digest();
  }
  return rule;
}

absl::Status SetPart(const firn_part_options& given, Part part, uint32_t heads, EncodeSpec* spec) {
  PrecisionClass& target = part == Part::kK ? spec->target.k : spec->target.v;
  if (given.head_bits == nullptr) {
    FIRN_ASSIGN_OR_RETURN(target, ClassOfBits(given.bits));
  } else {
    if (given.coding.codec != 0)
      return InvalidArgument("codec {}: classes of heads are the ladder's", given.coding.codec);
    ClassMap classes;
    for (uint32_t head = 0; head < heads; ++head) {
      FIRN_ASSIGN_OR_RETURN(PrecisionClass c, ClassOfBits(given.head_bits[head]));
      classes.push_back(c);
    }
    target = *std::min_element(classes.begin(), classes.end());
    spec->classes[static_cast<size_t>(part)] = std::make_shared<const ClassMap>(std::move(classes));
  }
  if (given.coding.codec == 0) return absl::OkStatus();
  FIRN_ASSIGN_OR_RETURN(CodingRule rule, RuleOf(given.coding, target));
  spec->rules[static_cast<size_t>(part)] = {std::move(rule)};
  return absl::OkStatus();
}

absl::Status SetImportance(const firn_round_trip_options& options, EncodeSpec* spec) {
  if (!(options.important_fraction >= 0 && options.important_fraction <= 1)) {
    return InvalidArgument("important fraction {}, 0 to 1", options.important_fraction);
  }
  spec->important_fraction = options.important_fraction;
  if (options.importance == nullptr) return absl::OkStatus();
  std::span<const float> importance(options.importance, options.tokens);
  FIRN_RETURN_IF_ERROR(CheckImportance("importance", importance, options.tokens));
  spec->importance = std::make_shared<const std::vector<uint8_t>>(RankImportance(importance));
  return absl::OkStatus();
}

absl::StatusOr<EncodeSpec> SpecOf(const firn_round_trip_options& options) {
  FIRN_RETURN_IF_ERROR(CheckAtMost("heads", options.heads, kHeadsMax));
  FIRN_RETURN_IF_ERROR(CheckAtMost("key method", options.key_method, FIRN_KEYS_ROTATED));
  FIRN_RETURN_IF_ERROR(CheckAtMost("ladder", options.ladder, FIRN_LADDER_TRELLIS));
  FIRN_RETURN_IF_ERROR(CheckAtMost("key groups of", options.k.group, std::numeric_limits<uint16_t>::max()));
  FIRN_RETURN_IF_ERROR(CheckAtMost("value groups of", options.v.group, std::numeric_limits<uint16_t>::max()));
  EncodeSpec spec;
  FIRN_RETURN_IF_ERROR(SetPart(options.k, Part::kK, options.heads, &spec));
  FIRN_RETURN_IF_ERROR(SetPart(options.v, Part::kV, options.heads, &spec));
  spec.key_method = static_cast<KeyMethod>(options.key_method);
  spec.ladder = static_cast<Ladder>(options.ladder);
  spec.use_fp8 = options.use_fp8 != 0;
  spec.key_group = static_cast<uint16_t>(options.k.group);
  spec.value_group = static_cast<uint16_t>(options.v.group);
  spec.keep_first_tokens = options.keep_first_tokens;
  if (options.balance != nullptr) spec.balance = options.balance->artifact;
  FIRN_RETURN_IF_ERROR(SetImportance(options, &spec));
  return spec;
}

std::vector<uint8_t> Stored(const float* values, uint64_t count, DType dtype) {
  std::vector<uint8_t> bytes(count * DTypeBytes(dtype));
  ConvertValues(reinterpret_cast<const uint8_t*>(values), DType::kFp32, count, dtype, bytes.data());
  return bytes;
}

uint64_t BytesOfPart(const RecordHeader& header, Part part) {
  uint64_t bytes = 0;
  for (uint32_t run = 0; run < kRunIds; ++run) {
    if (RunPartOf(run) == part && RunKindOf(run) != RunKind::kExact) bytes += header.runs[run].bytes;
  }
  return bytes;
}

absl::Status RoundTrip(const firn_round_trip_options& options, const float* k, const float* v, float* k_out,
                       float* v_out, firn_coded_sizes* sizes) {
  FIRN_ASSIGN_OR_RETURN(EncodeSpec spec, SpecOf(options));
  if (options.dtype != FIRN_FP16 && options.dtype != FIRN_BF16) {
    return InvalidArgument("dtype {}, 1 or 2", options.dtype);
  }
  DType dtype = static_cast<DType>(options.dtype);
  BlockShape shape{.layers = 1,
                   .heads = options.heads,
                   .k_width = options.k_width,
                   .v_width = options.v_width,
                   .tokens = options.tokens};
  FIRN_RETURN_IF_ERROR(CheckShape(shape, dtype));
  uint64_t k_values = shape.part(Part::kK).values(), v_values = shape.part(Part::kV).values();
  std::vector<uint8_t> k_bytes = Stored(k, k_values, dtype), v_bytes = Stored(v, v_values, dtype);
  FIRN_ASSIGN_OR_RETURN(EncodedBlock source, WrapRaw(Identity{}, dtype, shape, k_bytes, v_bytes, {}, {}));
  auto header = std::make_shared<RecordHeader>(*source.header);
  header->first_token = options.first_token;
  source.header = std::move(header);
  GivenArtifacts artifacts(spec);
  FIRN_ASSIGN_OR_RETURN(EncodedBlock encoded, EncodeToHeap(source, spec, artifacts));
  sizes->k_coded_bytes = BytesOfPart(*encoded.header, Part::kK);
  sizes->v_coded_bytes = BytesOfPart(*encoded.header, Part::kV);
  sizes->exact_bytes = encoded.header->RunBytes(RunMask::Both(RunKind::kExact));
  DecodeRequest request{.out = DType::kFp32};
  return Decode(encoded, artifacts, request, {reinterpret_cast<uint8_t*>(k_out), k_values * sizeof(float)},
                {reinterpret_cast<uint8_t*>(v_out), v_values * sizeof(float)});
}

}  // namespace
}  // namespace firn::capi

int firn_round_trip(const firn_round_trip_options* options, const float* k, const float* v, float* k_out, float* v_out,
                    firn_coded_sizes* sizes) {
  return firn::capi::Result(firn::capi::RoundTrip(*options, k, v, k_out, v_out, sizes));
}
