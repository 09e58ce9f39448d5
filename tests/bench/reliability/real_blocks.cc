#include "tests/bench/reliability/real_blocks.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "client/cli/calibrate/capture.h"
#include "codecs/calibrate.h"
#include "codecs/numeric/convert.h"

namespace firn::bench {
namespace {

absl::StatusOr<std::shared_ptr<const Artifact>> Calibrate(const cli::Capture& capture, const BlockShape& shape) {
  const uint32_t query_heads = std::max(static_cast<uint32_t>(capture.shape().query_heads), shape.heads);
  FIRN_ASSIGN_OR_RETURN(KeyCalibrator calibrator,
                        KeyCalibrator::Create(shape.layers, shape.heads, query_heads, shape.k_width));
  uint32_t layer = 0;
  for (const auto& [number, tensors] : capture.layers()) {
    FIRN_ASSIGN_OR_RETURN(std::vector<float> keys, ToFloats(*tensors.k));
    std::vector<float> queries;
    if (tensors.q != nullptr) {
      FIRN_ASSIGN_OR_RETURN(queries, ToFloats(*tensors.q));
    }
    FIRN_RETURN_IF_ERROR(calibrator.Add(layer++, static_cast<uint32_t>(tensors.k->shape[0]), keys, queries));
  }
  return calibrator.Finish();
}

// Tokens [first, first + tokens) of a tensor (tokens, heads, channels), as [head][token][channel] behind `out`.
void AppendTokens(const Tensor& tensor, uint32_t first, uint32_t tokens, std::vector<uint8_t>* out) {
  const uint64_t heads = tensor.shape[1], row_bytes = tensor.shape[2] * TraitsOf(tensor.type).bytes;
  for (uint64_t head = 0; head < heads; ++head) {
    for (uint64_t token = first; token < first + tokens; ++token) {
      const ByteSpan row = tensor.bytes.subspan((token * heads + head) * row_bytes, row_bytes);
      out->insert(out->end(), row.begin(), row.end());
    }
  }
}

}  // namespace

absl::StatusOr<RealBlocks> RealBlocks::Open(const std::string& path, uint32_t tokens, uint32_t blocks_max) {
  FIRN_ASSIGN_OR_RETURN(cli::Capture capture, cli::Capture::Open(path));
  uint64_t all_tokens = UINT64_MAX;
  RealBlocks out;
  for (const auto& [number, tensors] : capture.layers()) {
    if (tensors.v == nullptr || tensors.k->type != ElementType::kF16 || tensors.v->type != ElementType::kF16) {
      return InvalidArgument("{}: layer {} has no K and V of type F16", path, number);
    }
    all_tokens = std::min(all_tokens, tensors.k->shape[0]);
    out.layers_.push_back(number);
  }
  out.shape_ = {.layers = static_cast<uint32_t>(out.layers_.size()),
                .heads = static_cast<uint32_t>(capture.shape().kv_heads),
                .k_width = static_cast<uint32_t>(capture.shape().k_width),
                .v_width = static_cast<uint32_t>(capture.shape().v_width),
                .tokens = tokens};
  if (all_tokens < tokens) return InvalidArgument("{} has {} tokens, a block has {}", path, all_tokens, tokens);
  FIRN_ASSIGN_OR_RETURN(out.balance_, Calibrate(capture, out.shape_));
  for (uint32_t first = 0; first + tokens <= all_tokens && out.sources_.size() < blocks_max; first += tokens) {
    auto bytes = std::make_shared<std::array<std::vector<uint8_t>, 2>>();
    for (const auto& [number, tensors] : capture.layers()) {
      AppendTokens(*tensors.k, first, tokens, &(*bytes)[0]);
      AppendTokens(*tensors.v, first, tokens, &(*bytes)[1]);
    }
    Identity identity;
    identity.key.bytes[0] = static_cast<uint8_t>(out.sources_.size());
    identity.key.bytes[1] = static_cast<uint8_t>(out.sources_.size() >> 8);
    FIRN_ASSIGN_OR_RETURN(EncodedBlock source,
                          WrapRaw(identity, DType::kFp16, out.shape_, (*bytes)[0], (*bytes)[1], {}, {}));
    auto header = std::make_shared<RecordHeader>(*source.header);
    header->first_token = first;
    source.header = std::move(header);
    source.owner = std::move(bytes);
    out.sources_.push_back(std::move(source));
  }
  return out;
}

std::vector<float> RealBlocks::SourceValues(size_t block, Part part) const {
  const RunBytes& bytes = sources_[block].runs[RunIndex(RunKind::kWhole, part)];
  const ByteSpan whole = bytes.spans()[0];
  std::vector<float> values(whole.size() / 2);
  ConvertValues(whole.data(), DType::kFp16, values.size(), DType::kFp32, reinterpret_cast<uint8_t*>(values.data()));
  return values;
}

absl::StatusOr<EncodedBlock> RealBlocks::Encoded(size_t block, Ladder ladder, PrecisionClass at) const {
  EncodeSpec spec;
  spec.target = {at, at};
  spec.key_method = KeyMethod::kBalancedRotated;
  spec.ladder = ladder;
  spec.balance = balance_;
  return EncodeToHeap(sources_[block], spec, *this);
}

std::shared_ptr<const Artifact> RealBlocks::Find(const Digest& digest) const {
  return balance_->digest() == digest ? balance_ : nullptr;
}

}  // namespace firn::bench
