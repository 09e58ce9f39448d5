#include <algorithm>

#include "base/status.h"
#include "codecs/block/head_decoder.h"
#include "codecs/block_codec.h"

namespace firn {
namespace {

bool IsFloatOutput(DType out) { return out == DType::kFp16 || out == DType::kBf16 || out == DType::kFp32; }

// The stored bytes as they are, layer range by layer range, without a detour through heads.
bool CopySource(const EncodedBlock& block, const PartGeometry& geometry, const DecodeRequest& request, uint32_t layers,
                MutableByteSpan target) {
  if (!geometry.is_source() || geometry.exact_tokens() > 0 || request.out != geometry.stored()) return false;
  const RunBytes& run = block.runs[RunIndex(RunKind::kWhole, geometry.part())];
  uint64_t layer_bytes = geometry.RunBytes(RunKind::kWhole) / geometry.shape().layers;
  CopyScattered(run.Slice(request.first_layer * layer_bytes, layers * layer_bytes), MutableRunBytes(target));
  return true;
}

absl::Status DecodePart(const EncodedBlock& block, const ArtifactSource& artifacts, const DecodeRequest& request,
                        uint32_t layers, Part part, MutableByteSpan target) {
  PartShape shape = block.header->shape.part(part);
  uint64_t head_bytes = uint64_t{shape.tokens} * shape.width * DTypeBytes(request.out);
  uint64_t expected = uint64_t{layers} * shape.heads * head_bytes;
  const char* name = part == Part::kK ? "K" : "V";
  if (target.size() != expected) {
    return InvalidArgument("room for {} bytes of {}, {} are needed", target.size(), name, expected);
  }
  if (shape.width == 0) return absl::OkStatus();
  FIRN_ASSIGN_OR_RETURN(HeadDecoder decoder, HeadDecoder::Create(block, part, request.use, artifacts));
  bool own_type = request.out == block.header->dtype && decoder.geometry().is_source();
  bool convertible = IsFloatOutput(request.out) && block.header->dtype != DType::kBytes;
  if (!own_type && !convertible) {
    return InvalidArgument("{} of type {}, coded as {}, cannot be given as {}", name, DTypeName(block.header->dtype),
                           decoder.geometry().row().name, DTypeName(request.out));
  }
  if (CopySource(block, decoder.geometry(), request, layers, target)) return absl::OkStatus();
  uint8_t* to = target.data();
  for (uint32_t layer = request.first_layer; layer < request.first_layer + layers; ++layer) {
    if (decoder.DecodeLayer(layer, request.out, to)) {
      to += shape.heads * head_bytes;
      continue;
    }
    for (uint32_t head = 0; head < shape.heads; ++head, to += head_bytes) {
      decoder.DecodeHead(layer, head, request.out, to);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Decode(const EncodedBlock& block, const ArtifactSource& artifacts, const DecodeRequest& request,
                    MutableByteSpan k, MutableByteSpan v) {
  if (block.header == nullptr) return InvalidArgument("a block without a header");
  FIRN_RETURN_IF_ERROR(CheckRunLengths(*block.header));
  uint32_t all = block.header->shape.layers;
  if (request.first_layer >= all || request.layers > all - request.first_layer) {
    return InvalidArgument("{} layers from {} of a block of {}", request.layers, request.first_layer, all);
  }
  uint32_t layers = request.layers == 0 ? all - request.first_layer : request.layers;
  FIRN_RETURN_IF_ERROR(DecodePart(block, artifacts, request, layers, Part::kK, k));
  return DecodePart(block, artifacts, request, layers, Part::kV, v);
}

}  // namespace firn
