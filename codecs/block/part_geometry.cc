#include "codecs/block/part_geometry.h"

#include <set>

#include "base/status.h"

namespace firn {
namespace {

// The coarsest class of a nested head that has a run of this kind.
PrecisionClass NeededFor(RunKind kind) {
  if (kind == RunKind::kP8) return PrecisionClass::k8Bit;
  return kind == RunKind::kP4 ? PrecisionClass::k4Bit : PrecisionClass::kNone;
}

}  // namespace

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
  geometry.positions_ = PositionsOf(header.exact_map, header.shape.tokens);
  geometry.ceilings_ = header.CeilingsOf(part);
  geometry.coding_of_bits_.fill(geometry.coding_);
  for (size_t bits = 0; bits <= kBitsMax; ++bits) geometry.coding_of_bits_[bits].bits = static_cast<uint8_t>(bits);
  auto validate = [&](const PartCoding& coding) {
    return geometry.row_->validate(coding, header.dtype, geometry.shape_.width);
  };
  if (!geometry.mixed() || geometry.family_ != CodecFamily::kCodes) {
    FIRN_RETURN_IF_ERROR(validate(geometry.coding_));
  } else {
    for (PrecisionClass c : std::set<PrecisionClass>(geometry.ceilings_.begin(), geometry.ceilings_.end())) {
      FIRN_RETURN_IF_ERROR(validate(geometry.coding_of_bits_[static_cast<size_t>(c)]));
    }
  }
  geometry.has_source_scales_ = IsFp8(header.dtype) && (geometry.is_source() || header.exact_tokens > 0);
  uint32_t width = geometry.shape_.width, coded = geometry.coded_tokens();
  if (geometry.mixed() && (geometry.layer_scope() || geometry.has_source_scales_)) {
    return InvalidArgument("{} has one precision for all heads", geometry.row_->name);
  }
  for (uint32_t kind = 0; kind < kRunKinds && coded > 0; ++kind) {
    geometry.head_bytes_[kind] = geometry.UniformTileBytes(static_cast<RunKind>(kind), geometry.CodingAt(0, 0), coded);
  }
  geometry.head_bytes_[static_cast<size_t>(RunKind::kExact)] =
      uint64_t{header.exact_tokens} * width * DTypeBytes(header.dtype);
  for (uint32_t kind = 0; kind < kRunKinds; ++kind) {
    bool shared = geometry.layer_scope() && static_cast<RunKind>(kind) != RunKind::kExact;
    geometry.layer_bytes_[kind] = (shared ? 1 : geometry.shape_.heads) * geometry.head_bytes_[kind];
  }
  if (geometry.has_source_scales_) {
    geometry.layer_bytes_[static_cast<size_t>(RunKind::kMeta)] += uint64_t{geometry.shape_.heads} * sizeof(float);
  }
  if (coded > 0) geometry.tile_tokens_ = geometry.row_->tile_tokens(geometry.coding_, width, coded);
  if (geometry.mixed()) geometry.PlaceMixedHeads();
  return geometry;
}

void PartGeometry::PlaceMixedHeads() {
  for (uint32_t k = 0; k < kRunKinds; ++k) {
    RunKind kind = static_cast<RunKind>(k);
    uint64_t at = 0;
    for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
      for (uint32_t head = 0; head < shape_.heads; ++head) {
        starts_[k].push_back(at);
        if (kind == RunKind::kExact) {
          at += ExactBytes();
        } else if (coded_tokens() > 0 && CeilingAt(layer, head) >= NeededFor(kind)) {
          at += UniformTileBytes(kind, CodingAt(layer, head), coded_tokens());
        }
      }
    }
    starts_[k].push_back(at);
  }
}

const PartCoding& PartGeometry::CodingAt(uint32_t layer, uint32_t head) const {
  if (!mixed() || family_ != CodecFamily::kCodes) return coding_;
  return coding_of_bits_[static_cast<size_t>(CeilingAt(layer, head))];
}

PrecisionClass PartGeometry::CeilingAt(uint32_t layer, uint32_t head) const {
  return mixed() ? ceilings_[HeadIndex(layer, head)] : PrecisionClass::kExact;
}

uint64_t PartGeometry::UniformTileBytes(RunKind kind, const PartCoding& coding, uint32_t tokens) const {
  if (kind == RunKind::kExact) return 0;
  return row_->run_bytes({coding, stored_, shape_.width, tokens, layer_scope() ? shape_.heads : 1}, kind);
}

uint64_t PartGeometry::HeadBytes(RunKind kind, uint32_t layer, uint32_t head) const {
  if (!mixed()) return head_bytes_[static_cast<size_t>(kind)];
  const auto& starts = starts_[static_cast<size_t>(kind)];
  uint64_t index = HeadIndex(layer, head);
  return starts[index + 1] - starts[index];
}

uint64_t PartGeometry::RunBytes(RunKind kind) const {
  if (mixed()) return starts_[static_cast<size_t>(kind)].back();
  return shape_.layers * layer_bytes_[static_cast<size_t>(kind)];
}

uint64_t PartGeometry::SourceScaleOffset(uint32_t layer, uint32_t head) const {
  return layer * layer_bytes_[static_cast<size_t>(RunKind::kMeta)] + 4 * head;
}

uint64_t PartGeometry::Offset(RunKind kind, uint32_t layer, uint32_t head, uint32_t token) const {
  uint64_t offset = mixed() ? starts_[static_cast<size_t>(kind)][HeadIndex(layer, head)]
                            : layer * layer_bytes_[static_cast<size_t>(kind)] + head * HeadBytes(kind, layer, head);
  if (kind == RunKind::kMeta) {
    if (has_source_scales_) offset += uint64_t{shape_.heads} * sizeof(float);
    return offset + row_->meta_offset(CodingAt(layer, head), shape_.width, token);
  }
  return offset + TileBytes(kind, token, layer, head);
}

uint64_t PartGeometry::TileBytes(RunKind kind, uint32_t tokens, uint32_t layer, uint32_t head) const {
  return UniformTileBytes(kind, CodingAt(layer, head), tokens);
}

RunMask PartGeometry::PossibleRuns() const {
  RunMask runs;
  for (uint32_t kind = 0; kind < kRunKinds; ++kind) {
    if (RunBytes(static_cast<RunKind>(kind)) > 0) runs |= RunMask::Of(static_cast<RunKind>(kind), part_);
  }
  return runs;
}

void PartGeometry::AddLengths(RunMask runs, RecordLayout* layout) const {
  for (uint32_t kind = 0; kind < kRunKinds; ++kind) {
    RunMask run = RunMask::Of(static_cast<RunKind>(kind), part_);
    if (!runs.Contains(run)) continue;
    layout->present |= run;
    layout->run_bytes[RunIndex(static_cast<RunKind>(kind), part_)] = RunBytes(static_cast<RunKind>(kind));
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
    if (header.encoded.Has(RunKind::kMeta, part) && geometry->RunBytes(RunKind::kMeta) == 0) {
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
