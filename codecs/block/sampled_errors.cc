#include "codecs/block/sampled_errors.h"

#include "base/status.h"
#include "codecs/block/conditioner.h"
#include "codecs/block/error_sampler.h"
#include "codecs/block/head_decoder.h"
#include "codecs/block/head_transform.h"
#include "codecs/block/run_cursor.h"

namespace firn {

SampledErrors::SampledErrors(std::shared_ptr<const RecordHeader> header, PartGeometry geometry)
    : header_(std::move(header)), geometry_(std::move(geometry)) {
  finest_ = ClassOfPart(ClassOf(*header_, header_->encoded), geometry_.part());
  stride_ = ErrorSampler(geometry_, finest_).stride();
  const PartShape& shape = geometry_.shape();
  uint64_t coded = uint64_t{shape.layers} * shape.heads * geometry_.coded_tokens();
  rows_ = (coded + stride_ - 1) / stride_;
}

absl::StatusOr<SampledErrors> SampledErrors::Create(std::shared_ptr<const RecordHeader> header, Part part) {
  FIRN_ASSIGN_OR_RETURN(PartGeometry geometry, PartGeometry::Of(*header, part));
  if (geometry.layer_scope() || geometry.mixed() || geometry.is_source()) {
    return Unimplemented("errors of this coding are compared where it is encoded");
  }
  // A list of outliers for several tokens is read whole or not at all; a row here is read alone.
  if (geometry.coding().codec == CodecId::kNuqChannel && geometry.coding().group > 1) {
    return Unimplemented("errors of tokens that share their outliers are compared where they are encoded");
  }
  return SampledErrors(std::move(header), std::move(geometry));
}

absl::StatusOr<PartErrors> SampledErrors::Measure(ByteSpan source, const EncodedBlock& encoded,
                                                  const ArtifactSource& artifacts) const {
  const uint32_t width = geometry_.shape().width;
  const uint64_t row_bytes = uint64_t{width} * DTypeBytes(geometry_.stored());
  if (source.size() != rows_ * row_bytes) {
    return InvalidArgument("{} bytes of {} rows, which have {}", source.size(), rows_, rows_ * row_bytes);
  }
  FIRN_ASSIGN_OR_RETURN(auto artifact, FindArtifact(geometry_.coding(), artifacts));
  FIRN_ASSIGN_OR_RETURN(auto transform, HeadTransform::Create(geometry_.coding(), geometry_.shape(),
                                                              std::move(artifact), header_->identity.shard));
  Conditioner conditioner(geometry_, transform, header_->first_token);
  ErrorSampler sampler(geometry_, finest_);
  std::vector<ReadCursor> cursors;
  for (uint32_t k = 0; k < kRunKinds; ++k) {
    cursors.emplace_back(encoded.runs[RunIndex(static_cast<RunKind>(k), geometry_.part())]);
  }
  EncodeTile tile;
  tile.width = width;
  tile.tokens = 1;
  tile.stored = geometry_.stored();
  tile.part = geometry_.part();
  for (uint64_t i = 0; i < rows_; ++i) {
    const uint64_t row = i * stride_, head_of_all = row / geometry_.coded_tokens();
    const auto token = static_cast<uint32_t>(row % geometry_.coded_tokens());
    const auto layer = static_cast<uint32_t>(head_of_all / geometry_.shape().heads);
    const auto head = static_cast<uint32_t>(head_of_all % geometry_.shape().heads);
    const uint32_t first = token / geometry_.tile_tokens() * geometry_.tile_tokens(), within = token - first;
    ChannelTransform channels = transform.For(layer, head);
    tile.transform = conditioner.ForCodec(channels);
    tile.coding = &geometry_.CodingAt(layer, head);
    tile.model = transform.ModelOf(layer, head, tile.coding->bits);
    for (uint32_t k = 0; k < kRunKinds; ++k) {
      RunKind kind = static_cast<RunKind>(k);
      tile.runs[k] = nullptr;
      uint64_t one = geometry_.TileBytes(kind, 1, layer, head);
      if (one == 0 || kind == RunKind::kExact || cursors[k].bytes() == 0) continue;
      uint64_t skipped = kind == RunKind::kMeta ? geometry_.row().meta_offset(*tile.coding, width, within)
                                                : (within == 0 ? 0 : geometry_.TileBytes(kind, within, layer, head));
      // Decoding reads only.
      tile.runs[k] = const_cast<uint8_t*>(cursors[k].Read(geometry_.Offset(kind, layer, head, first) + skipped, one));
    }
    sampler.Observe(tile, row, token, source.data() + i * row_bytes, geometry_.stored(), conditioner, channels,
                    geometry_.CeilingAt(layer, head));
  }
  return sampler.Errors(0);
}

}  // namespace firn
