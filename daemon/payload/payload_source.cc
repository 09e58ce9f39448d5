#include "daemon/payload/payload_source.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "codecs/block_codec.h"

namespace firn {
namespace {

// Decoded K and V of a group of layers aim at this many chunks, so that each part fills one.
constexpr uint64_t kChunksPerGroup = 2;

bool HoldsSourceBytes(const RecordHeader& header, RunMask present, Part part) {
  const PartCoding& coding = header.CodingOf(part);
  return coding.codec == CodecId::kNone ||
         (coding.codec == CodecId::kIdentity && header.exact_tokens == 0 && present.Has(RunKind::kWhole, part));
}

std::optional<DType> ValueTypeOf(v1::Representation representation, DType source) {
  switch (representation) {
    case v1::REPRESENTATION_SOURCE:
      return source;
    case v1::REPRESENTATION_FP16:
      return DType::kFp16;
    case v1::REPRESENTATION_BF16:
      return DType::kBf16;
    case v1::REPRESENTATION_FP32:
      return DType::kFp32;
    default:
      return std::nullopt;
  }
}

// Memory of a decoded group and the grant that it counts against.
struct DecodeBuffer {
  std::unique_ptr<uint8_t[]> bytes;
  std::unique_ptr<ByteBudget::Grant> grant;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PayloadSource>> PayloadSource::Create(GetResult result, const PayloadRequest& request,
                                                                     const ArtifactSource* artifacts) {
  FIRN_CHECK(request.chunk_bytes > 0);
  std::unique_ptr<PayloadSource> source(new PayloadSource(std::move(result), request, artifacts));
  FIRN_RETURN_IF_ERROR(source->Prepare());
  return source;
}

PayloadSource::PayloadSource(GetResult result, const PayloadRequest& request, const ArtifactSource* artifacts)
    : result_(std::move(result)), request_(request), artifacts_(artifacts) {}

absl::Status PayloadSource::Prepare() {
  const RecordHeader& header = *result_.block.header;
  if (request_.representation == v1::REPRESENTATION_PACKED) {
    if (request_.layer_first != 0 || request_.layer_count != 0 || request_.layout.has_value()) {
      return InvalidArgument("a packed block comes whole and as stored: no layer range and no layout");
    }
    layers_ = header.shape.layers;
    FIRN_RETURN_IF_ERROR(PreparePacked());
    FillFound();
    return absl::OkStatus();
  }
  if (request_.layer_first >= header.shape.layers ||
      request_.layer_count > header.shape.layers - request_.layer_first) {
    return InvalidArgument(
        "layer_first = {} and layer_count = {} (0: to the last); the namespace has {} layers, 0 to {}",
        request_.layer_first, request_.layer_count, header.shape.layers, header.shape.layers - 1);
  }
  layers_ = request_.layer_count == 0 ? header.shape.layers - request_.layer_first : request_.layer_count;
  shape_ = header.shape;
  shape_.layers = layers_;
  auto out = ValueTypeOf(request_.representation, header.dtype);
  if (!out.has_value()) {
    return InvalidArgument("representation = {}; allowed: SOURCE, FP16, BF16, FP32, PACKED",
                           static_cast<int>(request_.representation));
  }
  out_ = *out;
  bool source_bytes = HoldsSourceBytes(header, result_.block.present, Part::kK) &&
                      HoldsSourceBytes(header, result_.block.present, Part::kV);
  if (header.dtype == DType::kBytes && out_ != DType::kBytes) {
    return FailedPrecondition("opaque bytes have no other representation than SOURCE and PACKED");
  }
  bool fp8 = header.dtype == DType::kFp8E4m3 || header.dtype == DType::kFp8E5m2;
  if (out_ == header.dtype && !source_bytes && (fp8 || header.dtype == DType::kBytes)) {
    return FailedPrecondition(
        "the block is {} for K and {} for V by now, and not in its source type; ask for FP16, BF16 "
        "or FP32",
        PrecisionClassName(result_.served.k), PrecisionClassName(result_.served.v));
  }
  if (out_ == header.dtype && source_bytes && !request_.layout.has_value()) {
    FIRN_RETURN_IF_ERROR(PrepareDirect());
  } else {
    FIRN_RETURN_IF_ERROR(PrepareDecoded());
  }
  FillFound();
  return absl::OkStatus();
}

uint64_t PayloadSource::PartBytes(Part part, uint32_t layers) const {
  return shape_.part(part).layer_values() * layers * DTypeBytes(out_);
}

absl::Status PayloadSource::PreparePacked() {
  for (uint32_t run = 0; run < kRunIds; ++run) {
    if (!result_.block.present.Has(run)) continue;
    uint64_t bytes = result_.block.runs[run].size();
    if (bytes > 0) segments_.push_back({bytes_, result_.block.runs[run], result_.block.owner});
    bytes_ += bytes;
  }
  auto header = SerializeHeader(*result_.block.header);
  found_.set_record_header(header.data(), header.size());
  found_.set_runs(result_.block.present.bits());
  return absl::OkStatus();
}

absl::Status PayloadSource::PrepareDirect() {
  auto add = [this](uint32_t run, uint64_t* shown) {
    const RunBytes& whole = result_.block.runs[run];
    if (!result_.block.present.Has(run) || whole.size() == 0) return;
    uint64_t layer_bytes = whole.size() / result_.block.header->shape.layers;
    RunBytes part = whole.Slice(layer_bytes * request_.layer_first, layer_bytes * layers_);
    *shown = part.size();
    segments_.push_back({bytes_, part, result_.block.owner});
    bytes_ += part.size();
  };
  uint64_t bytes[4] = {};
  add(RunIndex(RunKind::kWhole, Part::kK), &bytes[0]);
  add(RunIndex(RunKind::kWhole, Part::kV), &bytes[1]);
  add(RunIndex(RunKind::kMeta, Part::kK), &bytes[2]);
  add(RunIndex(RunKind::kMeta, Part::kV), &bytes[3]);
  found_.set_k_bytes(bytes[0]);
  found_.set_v_bytes(bytes[1]);
  found_.set_k_scale_bytes(bytes[2]);
  found_.set_v_scale_bytes(bytes[3]);
  return absl::OkStatus();
}

absl::Status PayloadSource::PrepareDecoded() {
  decodes_ = true;
  uint64_t k_bytes = PartBytes(Part::kK, layers_), v_bytes = PartBytes(Part::kV, layers_);
  if (request_.layout.has_value()) {
    FIRN_RETURN_IF_ERROR(CheckLayout(*request_.layout, shape_, out_, request_.layout_bytes));
    if (request_.layout_bytes > 8 * (k_bytes + v_bytes)) {
      return InvalidArgument("layout.payload_bytes = {}; the values have {} bytes and a layout at most 8 times as many",
                             request_.layout_bytes, k_bytes + v_bytes);
    }
    if (out_ == DType::kFp8E4m3 || out_ == DType::kFp8E5m2) {
      return InvalidArgument("FP8 values come with scales and in canonical order; ask for no layout, or for FP16");
    }
    found_.set_k_bytes(request_.layout_bytes);
    bytes_ = request_.layout_bytes;
  } else {
    found_.set_k_bytes(k_bytes);
    found_.set_v_bytes(v_bytes);
    bytes_ = k_bytes + v_bytes;
  }
  return absl::OkStatus();
}

void PayloadSource::FillFound() {
  const RecordHeader& header = *result_.block.header;
  found_.mutable_served()->set_k(static_cast<v1::PrecisionClass>(result_.served.k));
  found_.mutable_served()->set_v(static_cast<v1::PrecisionClass>(result_.served.v));
  found_.set_tier(result_.tier);
  bool packed = request_.representation == v1::REPRESENTATION_PACKED;
  found_.set_dtype(static_cast<v1::DType>(packed ? header.dtype : out_));
  found_.set_tokens(header.shape.tokens);
  found_.set_first_token(header.first_token);
  found_.set_layers(layers_);
  found_.set_payload_bytes(bytes_);
  found_.set_generation(header.identity.generation);
  if (header.parent.has_value()) {
    found_.mutable_parent()->set_digest(header.parent->bytes.data(), header.parent->bytes.size());
  }
  found_.set_expires_unix_ms(header.expires_unix_ms);
}

uint32_t PayloadSource::GroupLayers() const {
  uint64_t layer_bytes = PartBytes(Part::kK, 1) + PartBytes(Part::kV, 1);
  uint64_t fit = kChunksPerGroup * request_.chunk_bytes / std::max<uint64_t>(layer_bytes, 1);
  return static_cast<uint32_t>(std::clamp<uint64_t>(fit, 1, layers_ - next_layer_));
}

uint64_t PayloadSource::NextBufferBytes() const {
  if (!decodes_ || !segments_at_end() || next_layer_ == layers_) return 0;
  uint32_t layers = request_.layout.has_value() ? layers_ : GroupLayers();
  return PartBytes(Part::kK, layers) + PartBytes(Part::kV, layers) + request_.layout_bytes;
}

absl::Status PayloadSource::DecodeGroup(std::unique_ptr<ByteBudget::Grant> grant) {
  uint32_t layers = GroupLayers();
  uint64_t k_bytes = PartBytes(Part::kK, layers), v_bytes = PartBytes(Part::kV, layers);
  auto buffer = std::make_shared<DecodeBuffer>();
  buffer->grant = std::move(grant);
  buffer->bytes = std::make_unique_for_overwrite<uint8_t[]>(k_bytes + v_bytes);
  MutableByteSpan k(buffer->bytes.get(), k_bytes), v(buffer->bytes.get() + k_bytes, v_bytes);
  DecodeRequest request{
      .out = out_, .use = result_.block.present, .first_layer = request_.layer_first + next_layer_, .layers = layers};
  FIRN_RETURN_IF_ERROR(Decode(result_.block, *artifacts_, request, k, v));
  uint64_t k_at = PartBytes(Part::kK, next_layer_);
  uint64_t v_at = PartBytes(Part::kK, layers_) + PartBytes(Part::kV, next_layer_);
  segments_.clear();
  segment_ = 0;
  if (layers == layers_) {  // All at once: K and V follow each other.
    segments_.push_back({0, RunBytes(ByteSpan(buffer->bytes.get(), k_bytes + v_bytes)), buffer});
  } else {
    if (k_bytes > 0) segments_.push_back({k_at, RunBytes(ByteSpan(k)), buffer});
    if (v_bytes > 0) segments_.push_back({v_at, RunBytes(ByteSpan(v)), buffer});
  }
  next_layer_ += layers;
  return absl::OkStatus();
}

absl::Status PayloadSource::DecodeIntoLayout(std::unique_ptr<ByteBudget::Grant> grant) {
  uint64_t k_bytes = PartBytes(Part::kK, layers_), v_bytes = PartBytes(Part::kV, layers_);
  auto canonical = std::make_unique_for_overwrite<uint8_t[]>(k_bytes + v_bytes);
  MutableByteSpan k(canonical.get(), k_bytes), v(canonical.get() + k_bytes, v_bytes);
  DecodeRequest request{
      .out = out_, .use = result_.block.present, .first_layer = request_.layer_first, .layers = layers_};
  FIRN_RETURN_IF_ERROR(Decode(result_.block, *artifacts_, request, k, v));
  auto buffer = std::make_shared<DecodeBuffer>();
  buffer->grant = std::move(grant);
  buffer->bytes = std::make_unique<uint8_t[]>(request_.layout_bytes);  // Gaps are zeros.
  MutableByteSpan target(buffer->bytes.get(), request_.layout_bytes);
  if (k_bytes > 0) {
    FIRN_RETURN_IF_ERROR(ScatterPart(*request_.layout, shape_, out_, Part::kK, RunBytes(ByteSpan(k)), target));
  }
  if (v_bytes > 0) {
    FIRN_RETURN_IF_ERROR(ScatterPart(*request_.layout, shape_, out_, Part::kV, RunBytes(ByteSpan(v)), target));
  }
  segments_.assign(1, {0, RunBytes(ByteSpan(target)), buffer});
  segment_ = 0;
  next_layer_ = layers_;
  return absl::OkStatus();
}

absl::StatusOr<PayloadChunk> PayloadSource::Next(std::unique_ptr<ByteBudget::Grant> grant) {
  FIRN_CHECK(!done());
  if (segments_at_end()) {
    FIRN_CHECK(decodes_);
    FIRN_RETURN_IF_ERROR(request_.layout.has_value() ? DecodeIntoLayout(std::move(grant))
                                                     : DecodeGroup(std::move(grant)));
    segment_offset_ = 0;
  }
  PayloadChunk chunk;
  chunk.offset = segments_[segment_].offset + segment_offset_;
  chunk.owner = segments_[segment_].owner;
  // Segments that follow each other in the payload and share an owner share a message: a small block is one message.
  while (!segments_at_end() && chunk.bytes < request_.chunk_bytes) {
    const Segment& segment = segments_[segment_];
    if (segment.offset + segment_offset_ != chunk.offset + chunk.bytes || segment.owner != chunk.owner) break;
    uint64_t take = std::min(segment.bytes.size() - segment_offset_, request_.chunk_bytes - chunk.bytes);
    RunBytes part = segment.bytes.Slice(segment_offset_, take);
    for (ByteSpan piece : part.spans()) chunk.pieces.push_back(piece);
    chunk.bytes += take;
    segment_offset_ += take;
    if (segment_offset_ == segment.bytes.size()) {
      ++segment_;
      segment_offset_ = 0;
    }
  }
  if (segments_at_end()) {  // A buffer that is sent must not be held while the next one is waited for.
    segments_.clear();
    segment_ = 0;
  }
  cursor_ += chunk.bytes;
  return chunk;
}

}  // namespace firn
