#include "codecs/block/head_decoder.h"

#include <algorithm>
#include <cstring>

#include "base/status.h"
#include "codecs/numeric/convert.h"

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
  FIRN_ASSIGN_OR_RETURN(auto artifact, FindArtifact(geometry.coding(), artifacts));
  FIRN_ASSIGN_OR_RETURN(auto transform, HeadTransform::Create(geometry.coding(), geometry.shape(), std::move(artifact),
                                                              header.identity.shard));
  Conditioner conditioner(geometry, transform, header.first_token);
  PrecisionClass finest = ClassOfPart(FinestOf(header, use), part);
  RunMask needed = RunsFor(header, {finest, finest}) & use;
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
  return HeadDecoder(geometry, std::move(transform), std::move(conditioner), precision, finest,
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
  return cursor(RunKind::kExact).Read(geometry_.ExactOffset(layer, head), geometry_.ExactBytes());
}

const uint8_t* HeadDecoder::StoredRows(uint32_t layer, uint32_t head, uint32_t coded_token, uint32_t tokens) {
  FIRN_CHECK(geometry_.is_source());
  return cursor(RunKind::kWhole)
      .Read(geometry_.Offset(RunKind::kWhole, layer, head, coded_token),
            geometry_.TileBytes(RunKind::kWhole, tokens, layer, head));
}

const uint8_t* HeadDecoder::StoredLayer(uint32_t layer) {
  FIRN_CHECK(geometry_.is_source());
  return cursor(RunKind::kWhole)
      .Read(geometry_.Offset(RunKind::kWhole, layer, 0, 0),
            geometry_.shape().heads * geometry_.HeadBytes(RunKind::kWhole, layer, 0));
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

DecodeTile HeadDecoder::TileOf(uint32_t layer, uint32_t head, const ChannelTransform& transform) {
  const PartCoding& coding = geometry_.CodingAt(layer, head);
  return {.coding = &coding,
          .width = geometry_.shape().width,
          .heads = geometry_.layer_scope() ? geometry_.shape().heads : 1,
          .stored = geometry_.stored(),
          .precision = std::min(geometry_.CeilingAt(layer, head), finest_),
          .source_scale = SourceScale(layer, head),
          .transform = conditioner_.ForCodec(transform),
          .model = transform_.ModelOf(layer, head, coding.bits)};
}

void HeadDecoder::ReadRuns(uint32_t layer, uint32_t head, uint32_t token, DecodeTile* tile) {
  for (uint32_t k = 0; k < kRunKinds; ++k) {
    RunKind kind = static_cast<RunKind>(k);
    // Runs of finer classes than the one at hand are neither here nor read.
    bool here = cursors_[k].bytes() > 0 && geometry_.HeadHas(kind, layer, head);
    uint64_t bytes = here ? geometry_.TileBytes(kind, tile->tokens, layer, head) : 0;
    tile->runs[k] = bytes > 0 ? cursors_[k].Read(geometry_.Offset(kind, layer, head, token), bytes) : nullptr;
  }
}

void HeadDecoder::DecodeLayerTile(uint32_t layer, DType type, uint8_t* target) {
  DecodeTile tile = TileOf(layer, 0, transform_.For(layer, 0));
  tile.tokens = geometry_.coded_tokens();
  ReadRuns(layer, 0, 0, &tile);
  tile.out = type;
  tile.target = target;
  geometry_.row().decode(tile);
}

bool HeadDecoder::DecodeLayer(uint32_t layer, DType out, uint8_t* target) {
  if (!geometry_.layer_scope() || geometry_.exact_tokens() > 0 || conditioner_.active()) return false;
  DecodeLayerTile(layer, out, target);
  return true;
}

const uint8_t* HeadDecoder::LayerRows(uint32_t layer, uint32_t head, DType out) {
  DType type = LayerType(out);
  uint64_t head_values = uint64_t{geometry_.coded_tokens()} * geometry_.shape().width;
  uint64_t head_bytes = head_values * DTypeBytes(type);
  if (layer_ != std::pair(layer, type)) {
    layer_rows_.resize(head_bytes * geometry_.shape().heads);
    DecodeLayerTile(layer, type, layer_rows_.data());
    for (uint32_t h = 0; conditioner_.active() && h < geometry_.shape().heads; ++h) {
      conditioner_.Backward(reinterpret_cast<float*>(layer_rows_.data()) + h * head_values, transform_.For(layer, h), 0,
                            geometry_.coded_tokens());
    }
    layer_ = {layer, type};
  }
  return layer_rows_.data() + head * head_bytes;
}

void HeadDecoder::DecodeHead(uint32_t layer, uint32_t head, DType out, uint8_t* target) {
  uint64_t row_bytes = uint64_t{geometry_.shape().width} * DTypeBytes(out);
  uint64_t exact_bytes = geometry_.exact_tokens() * row_bytes;
  uint8_t* exact_rows = target;
  if (!geometry_.leading()) {
    exact_rows_.resize(exact_bytes);
    exact_rows = exact_rows_.data();
  }
  if (exact_bytes > 0) DecodeExact(layer, head, out, exact_rows);
  DecodeCoded(layer, head, out, target + exact_bytes);
  if (!geometry_.leading()) PlaceRows(exact_rows, row_bytes, target);
}

void HeadDecoder::PlaceRows(const uint8_t* exact_rows, uint64_t row_bytes, uint8_t* target) const {
  // Coded rows only move to the front, so in ascending order none is overwritten before it has moved.
  const uint8_t* coded_rows = target + geometry_.exact_tokens() * row_bytes;
  ForEachStretch(geometry_.positions().coded, [&](uint32_t index, uint32_t position, uint32_t count) {
    std::memmove(target + position * row_bytes, coded_rows + index * row_bytes, count * row_bytes);
  });
  ForEachStretch(geometry_.positions().exact, [&](uint32_t index, uint32_t position, uint32_t count) {
    std::memcpy(target + position * row_bytes, exact_rows + index * row_bytes, count * row_bytes);
  });
}

void HeadDecoder::DecodeCoded(uint32_t layer, uint32_t head, DType out, uint8_t* target) {
  uint32_t width = geometry_.shape().width, coded = geometry_.coded_tokens();
  uint64_t row_bytes = uint64_t{width} * DTypeBytes(out);
  auto give = [&](const uint8_t* rows, DType type, uint64_t values) {
    if (type == out) {
      std::memcpy(target, rows, values * DTypeBytes(out));
    } else {
      ConvertValues(rows, type, values, out, target);
    }
    target += values * DTypeBytes(out);
  };
  if (coded > 0 && geometry_.layer_scope()) {
    return give(LayerRows(layer, head, out), LayerType(out), uint64_t{coded} * width);
  }
  const ChannelTransform transform = transform_.For(layer, head);
  DecodeTile tile = TileOf(layer, head, transform);
  for (uint32_t token = 0; token < coded; token += tile.tokens) {
    tile.tokens = std::min(geometry_.tile_tokens(), coded - token);
    ReadRuns(layer, head, token, &tile);
    if (conditioner_.active()) {
      floats_.resize(uint64_t{tile.tokens} * width);
      tile.out = DType::kFp32;
      tile.target = reinterpret_cast<uint8_t*>(floats_.data());
      geometry_.row().decode(tile);
      conditioner_.Backward(floats_.data(), transform, token, tile.tokens);
      give(reinterpret_cast<const uint8_t*>(floats_.data()), DType::kFp32, floats_.size());
      continue;
    }
    tile.out = out;
    tile.target = target;
    geometry_.row().decode(tile);
    target += tile.tokens * row_bytes;
  }
}

}  // namespace firn
