#include "codecs/block/head_decoder.h"

#include <algorithm>

#include "base/status.h"

namespace firn {

absl::StatusOr<HeadDecoder> HeadDecoder::Create(const EncodedBlock& block, Part part, RunMask use,
                                                const ArtifactSource& artifacts) {
  const RecordHeader& header = *block.header;
  use = use & block.present;
  PrecisionClass precision = ClassOfPart(ClassOf(header, use), part);
  if (precision == PrecisionClass::kNone) {
    return DataLoss("the runs at hand ({:#x} of {:#x}) do not decode {}", use.bits(), header.encoded.bits(),
                    part == Part::kK ? "K" : "V");
  }
  FIRN_ASSIGN_OR_RETURN(PartGeometry geometry, PartGeometry::Of(header, part));
  FIRN_ASSIGN_OR_RETURN(auto balance, FindBalance(geometry.coding(), artifacts));
  FIRN_ASSIGN_OR_RETURN(auto transform, HeadTransform::Create(geometry.coding(), geometry.shape(), std::move(balance)));
  RunMask needed = RunsFor(header, {precision, precision}) & use;
  auto run = [&](RunKind kind) -> const RunBytes& {
    static const RunBytes kNothing;
    return needed.Has(kind, part) ? block.runs[RunIndex(kind, part)] : kNothing;
  };
  for (uint32_t kind = 0; kind < kRunKinds; ++kind) {
    uint64_t bytes = run(static_cast<RunKind>(kind)).size();
    uint32_t index = RunIndex(static_cast<RunKind>(kind), part);
    if (!needed.Has(index) || bytes == header.runs[index].bytes) continue;
    return DataLoss("run {} has {} bytes, its header says {}", index, bytes, header.runs[index].bytes);
  }
  return HeadDecoder(geometry, std::move(transform), precision,
                     {ReadCursor(run(RunKind::kMeta)), ReadCursor(run(RunKind::kExact)), ReadCursor(run(RunKind::kP2)),
                      ReadCursor(run(RunKind::kP4)), ReadCursor(run(RunKind::kP8)), ReadCursor(run(RunKind::kWhole))});
}

const uint8_t* HeadDecoder::SourceScales(uint32_t layer) {
  return cursor(RunKind::kMeta).Read(geometry_.SourceScaleOffset(layer, 0), geometry_.shape().heads * sizeof(float));
}

float HeadDecoder::SourceScale(uint32_t layer, uint32_t head) {
  if (!geometry_.has_source_scales()) return 1.0f;
  return LoadLe<float>(cursor(RunKind::kMeta).Read(geometry_.SourceScaleOffset(layer, head), sizeof(float)));
}

const uint8_t* HeadDecoder::ExactRows(uint32_t layer, uint32_t head) {
  return cursor(RunKind::kExact).Read(geometry_.ExactOffset(layer, head), geometry_.HeadBytes(RunKind::kExact));
}

const uint8_t* HeadDecoder::StoredRows(uint32_t layer, uint32_t head, uint32_t coded_token, uint32_t tokens) {
  FIRN_CHECK(geometry_.is_source());
  return cursor(RunKind::kWhole)
      .Read(geometry_.Offset(RunKind::kWhole, layer, head, coded_token), geometry_.TileBytes(RunKind::kWhole, tokens));
}

void HeadDecoder::DecodeExact(uint32_t layer, uint32_t head, DType out, uint8_t* target) {
  PartCoding coding;
  coding.codec = CodecId::kIdentity;
  DecodeTile tile{.coding = &coding,
                  .width = geometry_.shape().width,
                  .tokens = geometry_.exact_tokens(),
                  .stored = geometry_.stored(),
                  .out = out,
                  .target = target,
                  .precision = PrecisionClass::kExact,
                  .source_scale = SourceScale(layer, head),
                  .transform = {}};
  tile.runs[static_cast<size_t>(RunKind::kWhole)] = ExactRows(layer, head);
  FindCodec(coding.codec)->decode(tile);
}

void HeadDecoder::DecodeHead(uint32_t layer, uint32_t head, DType out, uint8_t* target) {
  uint32_t width = geometry_.shape().width, coded = geometry_.coded_tokens();
  uint64_t row_bytes = uint64_t{width} * DTypeBytes(out);
  if (geometry_.exact_tokens() > 0) {
    DecodeExact(layer, head, out, target);
    target += geometry_.exact_tokens() * row_bytes;
  }
  DecodeTile tile{.coding = &geometry_.coding(),
                  .width = width,
                  .stored = geometry_.stored(),
                  .out = out,
                  .precision = precision_,
                  .source_scale = SourceScale(layer, head),
                  .transform = transform_.For(layer, head)};
  for (uint32_t token = 0; token < coded; token += tile.tokens) {
    tile.tokens = std::min(geometry_.tile_tokens(), coded - token);
    tile.target = target + token * row_bytes;
    for (uint32_t k = 0; k < kRunKinds; ++k) {
      RunKind kind = static_cast<RunKind>(k);
      uint64_t bytes = geometry_.TileBytes(kind, tile.tokens);
      // Runs of finer classes than the one at hand are neither here nor read.
      bool used = bytes > 0 && cursors_[k].bytes() > 0;
      tile.runs[k] = used ? cursors_[k].Read(geometry_.Offset(kind, layer, head, token), bytes) : nullptr;
    }
    geometry_.row().decode(tile);
  }
}

}  // namespace firn
