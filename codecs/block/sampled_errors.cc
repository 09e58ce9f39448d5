#include "codecs/block/sampled_errors.h"

#include <algorithm>
#include <cstring>

#include "base/status.h"
#include "codecs/block/conditioner.h"
#include "codecs/block/error_sampler.h"
#include "codecs/block/head_decoder.h"
#include "codecs/block/head_transform.h"
#include "codecs/block/run_cursor.h"

namespace firn {
namespace {

// A vector of several tokens has its outliers in one list, of which a token alone cannot find its own.
bool TokensShareOutliers(const PartCoding& coding) { return coding.codec == CodecId::kNuqChannel && coding.group > 1; }

// One look at an encoded part, some tokens at a time, in ascending order.
class Look {
 public:
  Look(const PartGeometry& geometry, HeadTransform transform, uint32_t first_token, PrecisionClass finest,
       const EncodedBlock& encoded)
      : geometry_(geometry),
        transform_(std::move(transform)),
        conditioner_(geometry, transform_, first_token),
        sampler_(geometry, finest) {
    for (uint32_t k = 0; k < kRunKinds; ++k) {
      cursors_.emplace_back(encoded.runs[RunIndex(static_cast<RunKind>(k), geometry.part())]);
    }
  }

  // Compares what is sampled of `tokens` coded tokens from `token` on of a head: one alone, or a whole tile. `values`
  // are their rows.
  void AtTokens(uint32_t layer, uint32_t head, uint32_t token, uint32_t tokens, const uint8_t* values) {
    const uint32_t first = token / geometry_.tile_tokens() * geometry_.tile_tokens(), within = token - first;
    ChannelTransform channels = transform_.For(layer, head);
    EncodeTile tile = TileOf(geometry_.CodingAt(layer, head), tokens);
    tile.transform = conditioner_.ForCodec(channels);
    tile.model = transform_.ModelOf(layer, head, tile.coding->bits);
    for (uint32_t k = 0; k < kRunKinds; ++k) {
      RunKind kind = static_cast<RunKind>(k);
      uint64_t bytes = geometry_.TileBytes(kind, tokens, layer, head);
      if (bytes == 0 || kind == RunKind::kExact || cursors_[k].bytes() == 0) continue;
      uint64_t skipped = kind == RunKind::kMeta ? geometry_.row().meta_offset(*tile.coding, tile.width, within)
                                                : (within == 0 ? 0 : geometry_.TileBytes(kind, within, layer, head));
      tile.runs[k] = Bytes(k, geometry_.Offset(kind, layer, head, first) + skipped, bytes);
    }
    uint64_t row = (uint64_t{layer} * geometry_.shape().heads + head) * geometry_.coded_tokens() + token;
    sampler_.Observe(tile, row, token, values, geometry_.stored(), conditioner_, channels,
                     geometry_.CeilingAt(layer, head));
  }
  // The same of all heads of a layer.
  void AtLayer(uint32_t layer, const uint8_t* values) {
    EncodeTile tile = TileOf(geometry_.coding(), geometry_.coded_tokens());
    tile.heads = geometry_.shape().heads;
    tile.transform = conditioner_.ForCodec(transform_.For(layer, 0));
    tile.model = transform_.ModelOf(layer, 0, tile.coding->bits);
    for (uint32_t k = 0; k < kRunKinds; ++k) {
      RunKind kind = static_cast<RunKind>(k);
      uint64_t bytes = geometry_.TileBytes(kind, tile.tokens, layer, 0);
      if (bytes > 0 && cursors_[k].bytes() > 0) tile.runs[k] = Bytes(k, geometry_.Offset(kind, layer, 0, 0), bytes);
    }
    sampler_.ObserveLayer(tile, layer, values, geometry_.stored(), conditioner_, &transform_);
  }
  PartErrors Errors() const { return sampler_.Errors(0); }

 private:
  EncodeTile TileOf(const PartCoding& coding, uint32_t tokens) const {
    EncodeTile tile;
    tile.coding = &coding;
    tile.width = geometry_.shape().width;
    tile.tokens = tokens;
    tile.stored = geometry_.stored();
    tile.part = geometry_.part();
    return tile;
  }
  // Decoding reads only.
  uint8_t* Bytes(uint32_t kind, uint64_t offset, uint64_t bytes) {
    return const_cast<uint8_t*>(cursors_[kind].Read(offset, bytes));
  }

  const PartGeometry& geometry_;
  HeadTransform transform_;
  Conditioner conditioner_;
  ErrorSampler sampler_;
  std::vector<ReadCursor> cursors_;
};

}  // namespace

SampledErrors::SampledErrors(std::shared_ptr<const RecordHeader> header, PartGeometry geometry)
    : header_(std::move(header)), geometry_(std::move(geometry)) {
  finest_ = ClassOfPart(ClassOf(*header_, header_->encoded), geometry_.part());
  ErrorSampler sampler(geometry_, finest_);
  stride_ = sampler.stride();
  layer_step_ = sampler.layer_step();
  const PartShape& shape = geometry_.shape();
  layer_rows_ = uint64_t{shape.heads} * geometry_.coded_tokens();
  uint64_t looked_at = (shape.layers + layer_step_ - 1) / layer_step_;
  rows_ = (looked_at * layer_rows_ + stride_ - 1) / stride_;
}

absl::StatusOr<SampledErrors> SampledErrors::Create(std::shared_ptr<const RecordHeader> header, Part part) {
  FIRN_ASSIGN_OR_RETURN(PartGeometry geometry, PartGeometry::Of(*header, part));
  if (geometry.mixed() || geometry.is_source()) {
    return Unimplemented("errors of this coding are compared where it is encoded");
  }
  return SampledErrors(std::move(header), std::move(geometry));
}

uint64_t SampledErrors::RowAt(uint64_t i) const {
  uint64_t among = i * stride_;
  return among / layer_rows_ * layer_step_ * layer_rows_ + among % layer_rows_;
}

absl::StatusOr<PartErrors> SampledErrors::Measure(ByteSpan source, const EncodedBlock& encoded,
                                                  const ArtifactSource& artifacts) const {
  const PartShape& shape = geometry_.shape();
  const uint64_t row_bytes = uint64_t{shape.width} * DTypeBytes(geometry_.stored());
  if (source.size() != rows_ * row_bytes) {
    return InvalidArgument("{} bytes of {} rows, which have {}", source.size(), rows_, rows_ * row_bytes);
  }
  FIRN_ASSIGN_OR_RETURN(auto artifact, FindArtifact(geometry_.coding(), artifacts));
  FIRN_ASSIGN_OR_RETURN(auto transform,
                        HeadTransform::Create(geometry_.coding(), shape, std::move(artifact), header_->identity.shard));
  Look look(geometry_, std::move(transform), header_->first_token, finest_, encoded);
  const uint32_t coded = geometry_.coded_tokens(), tile_tokens = geometry_.tile_tokens();
  const bool alone = !geometry_.layer_scope() && !TokensShareOutliers(geometry_.coding());
  std::vector<uint8_t> values;  // Of a tile, or of a layer: the sampled rows are in their places, others mean nothing.
  for (uint64_t i = 0; i < rows_;) {
    const uint64_t row = RowAt(i);
    const auto layer = static_cast<uint32_t>(row / layer_rows_),
               head = static_cast<uint32_t>(row / coded % shape.heads);
    const auto token = static_cast<uint32_t>(row % coded);
    if (alone) {
      look.AtTokens(layer, head, token, 1, source.data() + i++ * row_bytes);
      continue;
    }
    const uint32_t first = geometry_.layer_scope() ? 0 : token / tile_tokens * tile_tokens;
    const uint32_t tokens = std::min(tile_tokens, coded - first);
    const uint64_t rows = geometry_.layer_scope() ? layer_rows_ : tokens;
    const uint64_t first_row = geometry_.layer_scope() ? layer * layer_rows_ : row - (token - first);
    values.resize(rows * row_bytes);
    for (; i < rows_ && RowAt(i) < first_row + rows; ++i) {
      std::memcpy(values.data() + (RowAt(i) - first_row) * row_bytes, source.data() + i * row_bytes, row_bytes);
    }
    if (geometry_.layer_scope()) {
      look.AtLayer(layer, values.data());
    } else {
      look.AtTokens(layer, head, first, tokens, values.data());
    }
  }
  return look.Errors();
}

}  // namespace firn
