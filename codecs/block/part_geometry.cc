#include "codecs/block/part_geometry.h"

#include "base/status.h"
#include "codecs/block/head_transform.h"

namespace firn {

absl::StatusOr<PartGeometry> PartGeometry::Of(const RecordHeader& header, Part part) {
  PartGeometry geometry;
  geometry.coding_ = header.CodingOf(part);
  geometry.row_ = FindCodec(geometry.coding_.codec);
  if (geometry.row_ == nullptr) {
    return InvalidArgument("no codec has the id {}", static_cast<int>(geometry.coding_.codec));
  }
  if (UsesArtifact(geometry.coding_) == geometry.coding_.artifact.IsZero()) {
    return InvalidArgument("{} with flags {:#x} {} an artifact", geometry.row_->name, geometry.coding_.flags,
                           geometry.coding_.artifact.IsZero() ? "lacks" : "does not use");
  }
  geometry.family_ = FamilyOf(geometry.coding_.codec);
  geometry.shape_ = header.shape.part(part);
  geometry.part_ = part;
  geometry.stored_ = header.dtype;
  geometry.exact_tokens_ = header.exact_tokens;
  FIRN_RETURN_IF_ERROR(geometry.row_->validate(geometry.coding_, header.dtype, geometry.shape_.width));
  geometry.has_source_scales_ = IsFp8(header.dtype) && (geometry.is_source() || header.exact_tokens > 0);
  uint32_t width = geometry.shape_.width, coded = geometry.coded_tokens();
  for (uint32_t kind = 0; kind < kRunKinds; ++kind) {
    if (coded == 0) break;
    geometry.head_bytes_[kind] = geometry.TileBytes(static_cast<RunKind>(kind), coded);
  }
  geometry.head_bytes_[static_cast<size_t>(RunKind::kExact)] =
      uint64_t{header.exact_tokens} * width * DTypeBytes(header.dtype);
  if (coded > 0) geometry.tile_tokens_ = geometry.row_->tile_tokens(geometry.coding_, width, coded);
  return geometry;
}

uint64_t PartGeometry::LayerBytes(RunKind kind) const {
  bool shared = layer_scope() && kind != RunKind::kExact;
  uint64_t bytes = (shared ? 1 : shape_.heads) * HeadBytes(kind);
  if (kind == RunKind::kMeta && has_source_scales_) bytes += uint64_t{shape_.heads} * sizeof(float);
  return bytes;
}

uint64_t PartGeometry::Offset(RunKind kind, uint32_t layer, uint32_t head, uint32_t token) const {
  uint64_t offset = layer * LayerBytes(kind) + head * HeadBytes(kind);
  if (kind == RunKind::kMeta) {
    if (has_source_scales_) offset += uint64_t{shape_.heads} * sizeof(float);
    return offset + row_->meta_offset(coding_, shape_.width, token);
  }
  return offset + TileBytes(kind, token);
}

uint64_t PartGeometry::TileBytes(RunKind kind, uint32_t tokens) const {
  if (kind == RunKind::kExact) return 0;
  return row_->run_bytes({coding_, stored_, shape_.width, tokens, layer_scope() ? shape_.heads : 1}, kind);
}

RunMask PartGeometry::PossibleRuns() const {
  RunMask runs;
  for (uint32_t kind = 0; kind < kRunKinds; ++kind) {
    if (LayerBytes(static_cast<RunKind>(kind)) > 0) runs |= RunMask::Of(static_cast<RunKind>(kind), part_);
  }
  return runs;
}

void PartGeometry::AddLengths(RunMask runs, RecordLayout* layout) const {
  for (uint32_t kind = 0; kind < kRunKinds; ++kind) {
    RunMask run = RunMask::Of(static_cast<RunKind>(kind), part_);
    if (!runs.Contains(run)) continue;
    layout->present |= run;
    layout->run_bytes[RunIndex(static_cast<RunKind>(kind), part_)] =
        shape_.layers * LayerBytes(static_cast<RunKind>(kind));
  }
}

absl::Status CheckRunLengths(const RecordHeader& header) {
  absl::Status valid = CheckHeader(header);
  if (!valid.ok()) return DataLoss("{}", Message(valid));
  RecordLayout expected;
  for (Part part : kParts) {
    if (header.shape.part(part).width == 0) continue;
    auto geometry = PartGeometry::Of(header, part);
    if (!geometry.ok()) return DataLoss("{}", Message(geometry.status()));
    geometry->AddLengths(header.encoded, &expected);
    if (header.encoded.Has(RunKind::kMeta, part) && geometry->LayerBytes(RunKind::kMeta) == 0) {
      return DataLoss("a record with metadata that its coding does not have");
    }
  }
  for (uint32_t i = 0; i < kRunIds; ++i) {
    if (header.runs[i].bytes == expected.run_bytes[i]) continue;
    return DataLoss("run {} of {} bytes, its coding needs {}", i, header.runs[i].bytes, expected.run_bytes[i]);
  }
  return absl::OkStatus();
}

}  // namespace firn
