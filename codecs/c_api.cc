#include "codecs/c_api.h"

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "codecs/block_codec.h"
#include "codecs/calibrate.h"
#include "codecs/numeric/convert.h"

struct firn_calibrator {
  firn::KeyCalibrator calibrator;
};
struct firn_artifact {
  std::shared_ptr<const firn::Artifact> balance;
};

namespace firn {
namespace {

thread_local std::string last_error;

int Failed(const absl::Status& status) {
  last_error = Message(status);
  return -1;
}

template <typename T>
T* FailedPointer(const absl::Status& status) {
  Failed(status);
  return nullptr;
}

// Finds the one artifact of a call.
class GivenArtifact : public ArtifactSource {
 public:
  explicit GivenArtifact(std::shared_ptr<const Artifact> balance) : balance_(std::move(balance)) {}
  std::shared_ptr<const Artifact> Find(const Digest& digest) const override {
    return balance_ != nullptr && balance_->digest() == digest ? balance_ : nullptr;
  }

 private:
  std::shared_ptr<const Artifact> balance_;
};

absl::StatusOr<PrecisionClass> ClassOfBits(uint32_t bits) {
  if (bits == 8) return PrecisionClass::k8Bit;
  if (bits == 4) return PrecisionClass::k4Bit;
  if (bits == 2) return PrecisionClass::k2Bit;
  return InvalidArgument("{} bits; 8, 4 or 2", bits);
}

absl::StatusOr<EncodeSpec> SpecOf(const firn_round_trip_options& options) {
  EncodeSpec spec;
  FIRN_ASSIGN_OR_RETURN(spec.target.k, ClassOfBits(options.k_bits));
  FIRN_ASSIGN_OR_RETURN(spec.target.v, ClassOfBits(options.v_bits));
  if (options.key_method > FIRN_KEYS_ROTATED) return InvalidArgument("key method {}, 0 to 2", options.key_method);
  if (options.ladder > FIRN_LADDER_TRELLIS) return InvalidArgument("ladder {}, 0 to 2", options.ladder);
  if (options.key_group > 65535 || options.value_group > 65535) {
    return InvalidArgument("groups of {} and {} values, at most 65535", options.key_group, options.value_group);
  }
  spec.key_method = static_cast<KeyMethod>(options.key_method);
  spec.ladder = static_cast<Ladder>(options.ladder);
  spec.use_fp8 = options.use_fp8 != 0;
  spec.key_group = static_cast<uint16_t>(options.key_group);
  spec.value_group = static_cast<uint16_t>(options.value_group);
  spec.keep_first_tokens = options.keep_first_tokens;
  if (options.artifact != nullptr) spec.balance = options.artifact->balance;
  return spec;
}

std::vector<uint8_t> Stored(const float* values, uint64_t count, DType dtype) {
  std::vector<uint8_t> bytes(count * DTypeBytes(dtype));
  ConvertValues(reinterpret_cast<const uint8_t*>(values), DType::kFp32, count, dtype, bytes.data());
  return bytes;
}

absl::Status RoundTrip(const firn_round_trip_options& options, const float* k, const float* v, float* k_out,
                       float* v_out, uint64_t* coded_bytes, uint64_t* exact_bytes) {
  FIRN_ASSIGN_OR_RETURN(EncodeSpec spec, SpecOf(options));
  if (options.dtype != FIRN_FP16 && options.dtype != FIRN_BF16)
    return InvalidArgument("dtype {}, 1 or 2", options.dtype);
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
  GivenArtifact artifacts(spec.balance);
  FIRN_ASSIGN_OR_RETURN(EncodedBlock encoded, EncodeToHeap(source, spec, artifacts));
  *exact_bytes = encoded.header->RunBytes(RunMask::Both(RunKind::kExact));
  *coded_bytes = encoded.header->RunBytes(encoded.present) - *exact_bytes;
  DecodeRequest request{.out = DType::kFp32};
  return Decode(encoded, artifacts, request, {reinterpret_cast<uint8_t*>(k_out), k_values * sizeof(float)},
                {reinterpret_cast<uint8_t*>(v_out), v_values * sizeof(float)});
}

absl::StatusOr<std::shared_ptr<const Artifact>> LayerOf(const Artifact& balance, uint32_t layer) {
  if (layer >= balance.layers()) return InvalidArgument("layer {} of an artifact of {}", layer, balance.layers());
  std::vector<float> mean, weight;
  for (uint32_t head = 0; head < balance.heads(); ++head) {
    mean.insert(mean.end(), balance.Mean(layer, head).begin(), balance.Mean(layer, head).end());
    weight.insert(weight.end(), balance.Weight(layer, head).begin(), balance.Weight(layer, head).end());
  }
  return Artifact::CreateBalance(1, balance.heads(), balance.width(), std::move(mean), std::move(weight));
}

}  // namespace
}  // namespace firn

const char* firn_last_error(void) { return firn::last_error.c_str(); }

firn_calibrator* firn_calibrator_create(uint32_t layers, uint32_t kv_heads, uint32_t query_heads, uint32_t width) {
  auto calibrator = firn::KeyCalibrator::Create(layers, kv_heads, query_heads, width);
  if (!calibrator.ok()) return firn::FailedPointer<firn_calibrator>(calibrator.status());
  return new firn_calibrator{*std::move(calibrator)};
}

void firn_calibrator_free(firn_calibrator* calibrator) { delete calibrator; }

int firn_calibrator_add(firn_calibrator* calibrator, uint32_t layer, uint32_t tokens, const float* keys,
                        const float* queries) {
  absl::Status added = calibrator->calibrator.AddArrays(layer, tokens, keys, queries);
  return added.ok() ? 0 : firn::Failed(added);
}

firn_artifact* firn_calibrator_finish(const firn_calibrator* calibrator) {
  auto balance = calibrator->calibrator.Finish();
  if (!balance.ok()) return firn::FailedPointer<firn_artifact>(balance.status());
  return new firn_artifact{*std::move(balance)};
}

firn_artifact* firn_artifact_parse(const uint8_t* bytes, uint64_t length) {
  auto balance = firn::Artifact::Parse({bytes, length});
  if (!balance.ok()) return firn::FailedPointer<firn_artifact>(balance.status());
  return new firn_artifact{*std::move(balance)};
}

void firn_artifact_free(firn_artifact* artifact) { delete artifact; }

const uint8_t* firn_artifact_bytes(const firn_artifact* artifact, uint64_t* length) {
  *length = artifact->balance->serialized().size();
  return artifact->balance->serialized().data();
}

firn_artifact* firn_artifact_layer(const firn_artifact* artifact, uint32_t layer) {
  auto balance = firn::LayerOf(*artifact->balance, layer);
  if (!balance.ok()) return firn::FailedPointer<firn_artifact>(balance.status());
  return new firn_artifact{*std::move(balance)};
}

int firn_round_trip(const firn_round_trip_options* options, const float* k, const float* v, float* k_out, float* v_out,
                    uint64_t* coded_bytes, uint64_t* exact_bytes) {
  absl::Status done = firn::RoundTrip(*options, k, v, k_out, v_out, coded_bytes, exact_bytes);
  return done.ok() ? 0 : firn::Failed(done);
}
